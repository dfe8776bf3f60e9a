"""The cells of the campaign: a network trained, a gradient error, the epsilons of a noise.

At one seed all arms see the same first parameters and batches, and the same noise but for Denoise
as printed, which draws it for each gradient: accuracies differ by what is done with the gradient.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from dp.report import json_number
from simulations.campaigns.seeds import rng_of
from simulations.common.threads import one_thread
from simulations.learning.example_level.breakdown import break_down
from simulations.learning.example_level.clipped import gradients_of
from simulations.learning.example_level.training import Examples, Noising, Setting, train
from simulations.reproduce.compression.plan import Arm, load, opening_of
from sketch import LayerShapes

PUBLISHED_EPOCHS = 100


@one_thread()
def trained(task: str, setting: Setting, arm: Arm, averaged: int, seed: int) -> dict[str, Any]:
    """Train one network; its accuracy is the mean of the last epochs."""
    model, data = load(task)
    opening = opening_of(arm, LayerShapes(model.layout.shapes), setting.clip)
    records = train(model, data, setting, opening, seed)
    return {
        "noise_multiplier": setting.noise_multiplier,
        "arm": arm.name,
        "seed": seed,
        "accuracy": float(np.mean([record.accuracy for record in records[-averaged:]])),
        "best": max(record.accuracy for record in records),
        "bytes": records[-1].bytes_per_worker,
        "curve": [asdict(record) for record in records],
    }


@one_thread()
def gradient_error(task: str, setting: Setting, arm: Arm, repeats: int, seed: int) -> Any:
    """Measure the error of one batch's gradient at the first parameters of a seed."""
    if setting.noising is not Noising.SUM:
        return {}
    model, data = load(task)
    examples = Examples(data)
    order = rng_of(seed, 3).permutation(len(examples))
    measured = break_down(
        gradients_of(model),
        model.initial(torch.Generator().manual_seed(seed)),
        examples,
        order[: setting.batch],
        clip=setting.clip,
        noise_multiplier=setting.noise_multiplier,
        opening=opening_of(arm, LayerShapes(model.layout.shapes), setting.clip),
        seed=seed,
        repeats=repeats,
    )
    return asdict(measured)


def epsilons(setting: Setting, examples: int, delta: float) -> dict[str, Any]:
    """Return epsilon of these runs and of the published length, ours and the thesis's."""
    ours = setting.account(examples, delta)
    whole = replace(setting, epochs=PUBLISHED_EPOCHS).account(examples, delta)
    return {
        "ours": json_number(ours.epsilon()),
        "published": json_number(ours.published_epsilon()),
        "ours_100_epochs": json_number(whole.epsilon()),
        "published_100_epochs": json_number(whole.published_epsilon()),
    }
