"""Banded strategy matrices: their worth, their sensitivity, and noise made row by row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dp.correlated.planning import Optimiser, Schedule, plan_noise
from dp.correlated.strategies import BandedStrategy, plan_banded

SMALL = Schedule(rounds=9, participations=3, apart=3)


def patterns(schedule: Schedule, taken: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All sets of rounds that a client may take part in."""
    yield taken
    if len(taken) == schedule.participations:
        return
    first = taken[-1] + schedule.apart if taken else 0
    for number in range(first, schedule.rounds):
        yield from patterns(schedule, (*taken, number))


def worst_charge(matrix: np.ndarray, schedule: Schedule) -> float:
    """mu^2 by its definition: contributions of norm 1, all of one direction or of any signs."""
    products = np.abs(matrix.T @ matrix)
    return max(float(products[np.ix_(p, p)].sum()) for p in map(list, patterns(schedule)) if p)


@pytest.mark.parametrize(
    ("rounds", "participations", "apart", "gain"),
    [
        (24, 8, 3, 1.50),
        (24, 4, 6, 1.76),
        (24, 24, 1, 1.0),
        pytest.param(60, 12, 5, 1.90, marks=pytest.mark.slow),
        pytest.param(100, 10, 10, 2.45, marks=pytest.mark.slow),
    ],
)
def test_the_best_banded_matrix_gains_what_was_computed_elsewhere(
    rounds: int, participations: int, apart: int, gain: float
) -> None:
    schedule = Schedule(rounds, participations, apart)
    plan = plan_banded(schedule)
    assert plan.gain == pytest.approx(gain, abs=0.005)
    assert plan.gain >= plan_noise(schedule).gain - 1e-9
    assert plan.pays == (gain > 1.01)


def test_the_gain_is_that_of_the_model_at_equal_charge() -> None:
    weights = Optimiser.MOMENTUM.weights(SMALL.rounds)
    plan = plan_banded(SMALL, weights)
    inverse = np.linalg.inv(plan.strategy.matrix)
    charge = worst_charge(plan.strategy.matrix, SMALL)
    noise = charge * np.sum((weights @ inverse) ** 2)
    alone = SMALL.participations * np.sum(weights**2)
    assert plan.gain == pytest.approx(np.sqrt(alone / noise))
    assert plan.model_variances == pytest.approx(np.sum((weights @ inverse) ** 2, axis=1))
    assert plan.strategy.round_variances == pytest.approx(np.sum(inverse**2, axis=1))


@pytest.mark.parametrize("optimiser", Optimiser)
def test_no_other_matrix_near_it_is_better(optimiser: Optimiser) -> None:
    weights = optimiser.weights(SMALL.rounds)
    best = plan_banded(SMALL, weights).strategy.matrix
    least = np.sum((weights @ np.linalg.inv(best)) ** 2)
    rng = np.random.default_rng(5)
    for _ in range(50):
        other = best + 0.01 * rng.normal(size=best.shape) * (best != 0.0)
        other /= np.linalg.norm(other, axis=0)
        assert np.sum((weights @ np.linalg.inv(other)) ** 2) > least


def test_the_charge_is_that_of_the_worst_client() -> None:
    strategy = plan_banded(SMALL).strategy
    assert strategy.bands == 3
    assert strategy.sensitivity_squared(SMALL) == pytest.approx(
        worst_charge(strategy.matrix, SMALL)
    )


def test_clients_that_come_back_sooner_are_refused_as_they_would_pay_more() -> None:
    strategy = plan_banded(SMALL).strategy
    sooner = Schedule(rounds=9, participations=3, apart=2)
    assert worst_charge(strategy.matrix, sooner) > 1.2 * sooner.participations
    with pytest.raises(ValueError, match="apart must be at least 3, got 2"):
        strategy.sensitivity_squared(sooner)
    with pytest.raises(ValueError, match=r"bands must be in 1\.\.2, got 3"):
        plan_banded(sooner, bands=3)
    with pytest.raises(ValueError, match="9 rounds, got 8"):
        strategy.sensitivity_squared(Schedule(8, 2, 3))


@pytest.mark.slow
def test_who_takes_part_once_may_have_any_band() -> None:
    once = Schedule(rounds=9, participations=1, apart=3)
    assert plan_banded(once, bands=9).gain > plan_banded(once).gain
    assert plan_banded(once, bands=9).strategy.sensitivity_squared(once) == 1.0


def test_columns_of_another_length_are_refused() -> None:
    longer = plan_banded(SMALL).strategy.diagonals.copy()
    longer[4, 0] *= 1.01
    with pytest.raises(ValueError, match="columns must have norm 1"):
        BandedStrategy(longer)
    with pytest.raises(ValueError, match="the first positive"):
        BandedStrategy(-plan_banded(SMALL).strategy.diagonals)
    with pytest.raises(ValueError, match="1 <= b <= T"):
        BandedStrategy(np.ones((2, 3)))


def test_noise_row_by_row_is_that_of_the_inverse() -> None:
    strategy = plan_banded(SMALL).strategy
    fresh = np.random.default_rng(2).normal(size=(SMALL.rounds, 4))
    past = np.zeros((0, 4))
    for number, (own, row) in enumerate(
        zip(fresh, np.linalg.inv(strategy.matrix) @ fresh, strict=True)
    ):
        noise = strategy.noise(number, own, past)
        assert noise == pytest.approx(row)
        past = np.concatenate([noise[None], past])[: strategy.bands - 1]
    with pytest.raises(ValueError, match="noise of 2 rounds, got 1"):
        strategy.noise(4, fresh[4], past[:1])


def test_weights_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weights must be \(9, 9\)"):
        plan_banded(SMALL, np.ones((8, 8)))
