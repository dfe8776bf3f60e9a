"""Adapt Budget: the split of a run's compression error over its rounds."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from sketch_kit import estimated

from sketch.controllers import AdaptBudget, AdaptNorm, Controller, Decision, ReleasedStats

DIMENSION = 1_000_000
NOISE = 1e-6
HORIZON = 100


def first_release(decision: Decision) -> ReleasedStats:
    """That of the first round, at the norm of the other tests."""
    return estimated(1e-4, decision.spec.main_size, NOISE, 0, dimension=DIMENSION)


def sizes(controller: Controller, norms: list[float]) -> list[int]:
    """The sketch size of every round."""
    decision, used = controller.initial(DIMENSION), []
    for number, norm_squared in enumerate(norms):
        used.append(decision.spec.main_size)
        stats = estimated(norm_squared, used[-1], NOISE, number, dimension=DIMENSION)
        decision = controller.step(decision.state, stats)
    return used


def free(**changes: object) -> AdaptBudget:
    """Without clamps, so that the rule alone decides."""
    options: dict[str, object] = {"rows": 1, "caution": 0.0, "first_rate": 1500.0}
    options |= {"gamma_low": 1e-9, "gamma_high": 1e9, "horizon": HORIZON}
    return AdaptBudget(**{**options, **changes})  # type: ignore[arg-type]


def error(controller: AdaptBudget, used: list[int], norm_squared: float) -> float:
    """The weighted mean over the run of the error shares."""
    weights = np.array([controller.weight(t) for t in range(HORIZON)])
    shares = norm_squared / (NOISE * np.array(used))
    return float(weights @ shares / weights.sum())


def test_weights_rise_to_one_and_stay() -> None:
    weights = [free().weight(number) for number in range(HORIZON + 5)]
    assert all(early < late for early, late in pairwise(weights[:HORIZON]))
    assert weights[HORIZON - 1 :] == [1.0] * 6


def test_the_budget_is_spent_and_no_more() -> None:
    controller = free()
    used = sizes(controller, [1e-4] * HORIZON)
    assert error(controller, used, 1e-4) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_a_round_overspends_is_made_up_for(factor: float) -> None:
    """A first round of any size leaves the run's error where it should be."""
    controller = free(first_rate=1500.0 * factor)
    used = sizes(controller, [1e-4] * HORIZON)
    assert error(controller, used, 1e-4) == pytest.approx(0.1, rel=1e-3)


def test_no_other_split_is_shorter() -> None:
    """Against 200 random splits of equal error, and against Adapt Norm's even one."""
    controller, norm = free(), 1e-4
    weights = np.array([controller.weight(t) for t in range(HORIZON)])
    shares = 0.1 * weights.sum() / (np.sqrt(weights) * np.sqrt(weights).sum())
    best = (norm / (NOISE * shares)).sum()
    assert sum(sizes(controller, [norm] * HORIZON)) == pytest.approx(best, rel=0.02)
    rng = np.random.default_rng(7)
    for _ in range(200):
        other = shares * np.exp(rng.normal(0.0, 0.3, HORIZON))
        other *= 0.1 * weights.sum() / (weights @ other)
        assert (norm / (NOISE * other)).sum() > best
    even = sum(sizes(AdaptNorm(rows=1, first_rate=1000.0, caution=0.0), [norm] * HORIZON))
    assert best < 0.55 * even


def test_sizes_grow_towards_the_end() -> None:
    used = sizes(free(), [1e-4] * HORIZON)
    assert used[-1] > 3 * used[HORIZON // 2] > 3 * used[1]


def test_clamps() -> None:
    controller = AdaptBudget(horizon=HORIZON, gamma=0.5)
    assert free(gamma=0.5).share(0, 0.0) > controller.share(0, 0.0) == controller.gamma_high
    assert free(gamma=0.5).share(99, 1e6) < controller.share(99, 1e6) == controller.gamma_low
    assert math.isclose(controller.share(100, 0.0), controller.share(5000, 0.0))


@pytest.mark.parametrize("gamma", [0.01, 0.025, 0.05])
def test_the_floor_does_not_break_a_small_budget(gamma: float) -> None:
    """It gives way to what the last round needs; a fixed floor of 0.02 spends twice of 0.01."""
    controller = AdaptBudget(
        horizon=HORIZON, gamma=gamma, rows=1, caution=0.0, first_rate=150.0 * gamma
    )
    used = sizes(controller, [1e-4] * HORIZON)
    assert error(controller, used, 1e-4) == pytest.approx(gamma, rel=5e-3)


def test_what_counts_as_spent_is_capped() -> None:
    """A first round that is far too short takes no more than gamma_high from the budget."""
    controller = AdaptBudget(horizon=HORIZON, rows=1, first_rate=1e5)
    first = controller.initial(DIMENSION)
    after = controller.step(first.state, first_release(first)).rationale.numbers
    assert after["norm_squared"] / (NOISE * first.spec.size) > 5.0
    assert after["spent"] == controller.weight(0) * controller.gamma_high


def test_an_uncompressed_round_spends_nothing() -> None:
    controller = free(first_rate=1.0)
    first = controller.initial(DIMENSION)
    after = controller.step(first.state, first_release(first))
    assert after.rationale.numbers["spent"] == 0.0
