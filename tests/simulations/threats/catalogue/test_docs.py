"""The figures of docs/attacks-on-updates.md are those of the code."""

from __future__ import annotations

from pathlib import Path

from simulations.audits.base import Claim
from simulations.learning.models import CnnTask, MlpTask
from simulations.threats.inversion.attack import FEWEST, GOAL
from simulations.threats.inversion.experiments import permitted
from simulations.threats.inversion.optimisation import Search
from simulations.threats.inversion.pictures import MARGIN, PSNR_CEILING
from simulations.threats.membership.attack import MODEL_GOAL, SUM_CLIENTS, SUM_GOAL
from simulations.threats.membership.on_model import LOCAL
from simulations.threats.rounds.released import accuracy_bound

PAGE = Path(__file__).parents[4] / "docs" / "attacks-on-updates.md"
WORDS = " ".join(PAGE.read_text().split())


def test_the_figures_of_inversion() -> None:
    assert (GOAL.epsilon, GOAL.delta) == (1.0, 1e-5)
    assert "one round at epsilon = 1, delta = 1e-5" in WORDS
    assert f"cut off at {PSNR_CEILING:.0f} dB" in WORDS
    assert f"{MARGIN:.0f} dB above the best" in WORDS
    assert f"epsilon = 1 permits {permitted(GOAL, 0.1):.3f}" in WORDS
    assert f"plus {Search(steps=1).total_variation} times the total variation" in WORDS
    sizes = [CnnTask(height=side, width=side, classes=10).dimension for side in (8, 28)]
    assert f"{sizes[0]:,} parameters for digits and {sizes[1]:,} for 28x28" in WORDS
    assert FEWEST == 8
    assert "an attack on fewer than eight pictures counts only in the total" in WORDS


def test_the_figures_of_membership() -> None:
    claim = Claim(SUM_GOAL.epsilon, SUM_GOAL.delta)
    assert f"{accuracy_bound(claim):.3f} at epsilon = 1" in WORDS
    assert (SUM_CLIENTS, MODEL_GOAL.rounds, LOCAL.epochs) == (4, 16, 3)
    assert "Four clients send real updates" in WORDS
    assert "Sixteen rounds, three local steps" in WORDS
    assert f"a perceptron of {MlpTask().dimension:,} parameters" in WORDS
    assert f"at epsilon = {MODEL_GOAL.epsilon}, delta = 1e-9" in WORDS
    assert MODEL_GOAL.delta == 1e-9
