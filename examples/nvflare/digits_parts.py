"""What the job in `digits.py` ships: data, a trainer, and a persistor that records accuracy."""

import json
import time
from pathlib import Path

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.model import ModelLearnableKey, make_model_learnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor
from sklearn.datasets import load_digits

PIXELS, DIGITS = 64, 10
DIMENSION = PIXELS * DIGITS + DIGITS
EVERY = 5
"""One image in so many is kept for the test."""


def images(test):
    """Training or test images and their digits: float64[n, 64], int[n]."""
    pixels, digits = load_digits(return_X_y=True)
    held_out = np.arange(len(digits)) % EVERY == 0
    kept = held_out if test else ~held_out
    return pixels[kept] / 16 - 0.3, digits[kept]


def accuracy(weights):
    """Share of test images that are read correctly."""
    pixels, digits = images(test=True)
    return float(np.mean(np.argmax(pixels @ weights["matrix"] + weights["bias"], 1) == digits))


class LeavesError(Exception):
    """This client leaves in the middle of a round."""


class DigitsTrainer(Executor):
    """Softmax regression on a client's share of the images: an ordinary NVFlare trainer.

    Args:
        clients: among whom the images are dealt out.
        leaver: client that goes away when it should send its update.
        leaves_in: the round in which it does.
        steps: of gradient descent in a round.
        learning_rate: of a step.
    """

    def __init__(self, clients, leaver="", leaves_in=-1, steps=10, learning_rate=0.5):
        super().__init__()
        self.clients, self.leaver, self.leaves_in = clients, leaver, leaves_in
        self.steps, self.learning_rate = steps, learning_rate

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        name = fl_ctx.get_identity_name()
        if name == self.leaver and shareable.get_header("current_round") == self.leaves_in:
            raise LeavesError(f"{name} leaves round {self.leaves_in}")
        weights = from_shareable(shareable).data
        share = int(name.split("-")[1]) - 1
        pixels, digits = (part[share :: self.clients] for part in images(test=False))
        for _ in range(self.steps):
            logits = pixels @ weights["matrix"] + weights["bias"]
            chances = np.exp(logits - logits.max(1, keepdims=True))
            chances /= chances.sum(1, keepdims=True)
            chances[np.arange(len(digits)), digits] -= 1
            slope = self.learning_rate / len(digits)
            weights["matrix"] -= slope * (pixels.T @ chances)
            weights["bias"] -= slope * chances.sum(0)
        return DXO(
            DataKind.WEIGHTS, weights, {"NUM_STEPS_CURRENT_ROUND": self.steps}
        ).to_shareable()


class ScoredPersistor(ModelPersistor):
    """Begins with zeros, and writes a line for every model that is saved.

    Args:
        scores: file to write to.
    """

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def load_model(self, fl_ctx: FLContext):
        """Start from a model of zeros."""
        weights = {"matrix": np.zeros((PIXELS, DIGITS)), "bias": np.zeros(DIGITS)}
        return make_model_learnable(weights, {})

    def save_model(self, model, fl_ctx: FLContext):
        """Time, accuracy, and what the workflow says about the round."""
        facts = (model[ModelLearnableKey.META] or {}).get("veilsum", {})
        line = {
            "time": time.time(),
            "accuracy": accuracy(model[ModelLearnableKey.WEIGHTS]),
            **facts,
        }
        with Path(self.scores).open("a") as file:
            file.write(json.dumps(line) + "\n")
