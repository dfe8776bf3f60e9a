"""A24: who took part, from a sum and from a model; see docs/attacks-on-updates.md."""

from __future__ import annotations

from typing import Final

import numpy as np

from protocol import PrivacyGoal
from simulations.audits.base import Claim, Figures, derived_seed
from simulations.common.threads import one_thread
from simulations.learning.data import load_digits_dataset
from simulations.threats.attack import Effort, Findings
from simulations.threats.inversion.experiments import InversionSetting
from simulations.threats.inversion.pictures import Gallery, drawn
from simulations.threats.inversion.views import GradientRound
from simulations.threats.membership.on_model import ModelGame, model_figures, play
from simulations.threats.membership.on_sum import SumGame, sum_figures

SUM_GOAL: Final = PrivacyGoal(1.0, 1e-5, 1)
"""Of the round whose sum is attacked."""

SUM_CLIENTS: Final = 4

MODEL_GOAL: Final = PrivacyGoal(0.5, 1e-9, 16)
"""Of the training whose model is attacked. An audit in one run needs a delta far below its level
divided by the number of clients, and certifies little, so the promise has to be strong."""

EXAMPLES: Final = 1
SERVER_RATE: Final = 2.0
"""Half of the clients send zeros, so this undoes what they take from the mean."""


def membership(effort: Effort, seed: int) -> Findings:
    """Attack a sum and a model, each with the product's noise and without."""
    with one_thread():
        on_sum = _on_sum(effort.choose(80, 3_000), derived_seed(seed, "sum"))
        on_model = _on_model(effort, derived_seed(seed, "model"), random_labels=True)
        natural = (
            _on_model(effort, derived_seed(seed, "natural"), random_labels=False)
            if effort is Effort.FULL
            else None
        )
    real, twin = (_side(on_sum[i], on_model[i], natural and natural[i]) for i in (0, 1))
    won = {"succeeded": bool(real["sum_succeeded"] or real["model_succeeded"])}
    lost = {"succeeded": bool(twin["sum_succeeded"] and twin["model_succeeded"])}
    return Findings({**real, **won}, {**twin, **lost})


def _side(on_sum: Figures, on_model: Figures, natural: Figures | None) -> Figures:
    """Both attacks of one side, and a third that is shown and not asserted.

    Models that generalise tell little about ordinary examples, with noise or without.
    """
    shown = {} if natural is None else _named("natural", natural)
    return _named("sum", on_sum) | _named("model", on_model) | shown


def _on_sum(runs: int, seed: int) -> tuple[Figures, Figures]:
    """The figures of the product and of a sum without noise."""
    setting = InversionSetting(Gallery.of(load_digits_dataset()), SUM_CLIENTS, SUM_GOAL, seed)
    task, model = setting.honest_model("mlp")
    private = setting.gallery.private
    held = drawn(private, SUM_CLIENTS, np.random.default_rng(setting.own("held")))
    played = GradientRound.of(task, model, private, list(held.reshape(-1, 1)))
    real, twin = (SumGame.of(played, SUM_GOAL, seed, noised) for noised in (True, False))
    claim = real.claim(SUM_GOAL.delta)
    return sum_figures(real, claim, runs, seed), sum_figures(twin, claim, runs, seed)


def _on_model(effort: Effort, seed: int, *, random_labels: bool) -> tuple[Figures, Figures]:
    """The figures of a private training and of a plain one."""
    clients = effort.choose(48, 120)
    data = load_digits_dataset()
    game = ModelGame(data, clients, EXAMPLES, MODEL_GOAL, SERVER_RATE, random_labels, seed)
    real, twin = play(game, private=True), play(game, private=False)
    claim = Claim(real.epsilon, MODEL_GOAL.delta)
    return model_figures(real, claim), model_figures(twin, claim)


def _named(prefix: str, figures: Figures) -> Figures:
    return {f"{prefix}_{name}": value for name, value in figures.items()}
