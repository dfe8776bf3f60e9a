"""What the planner says of schedules, beside figures that were computed apart from it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from dp.correlated import Charge, RoundNoise
from dp.correlated.planning import Optimiser, Schedule, plan_noise

TABLE = [
    (24, 8, 3, 0.73, 1.40, 1.63),
    (24, 4, 6, 0.85, 1.59, 1.83),
    (60, 12, 5, 0.88, 1.77, 2.01),
    (100, 10, 10, 0.95, 2.22, 2.40),
    (1000, 10, 100, 0.998, 4.47, 5.00),
]


@pytest.mark.parametrize(("rounds", "times", "apart", "share", "gain", "ratio"), TABLE)
def test_the_published_schedules(
    rounds: int, times: int, apart: int, share: float, gain: float, ratio: float
) -> None:
    schedule = Schedule(rounds, times, apart)
    plan = plan_noise(schedule)
    assert plan.pays
    assert plan.gain == pytest.approx(gain, rel=0.005)
    assert plan.returned_share == pytest.approx(share, abs=0.01)
    fixed = plan_noise(schedule, returned_share=share)
    # The gain is flat about its best share; the noise of one round is not.
    assert fixed.gain == pytest.approx(plan.gain, rel=0.005)
    assert fixed.round_noise_ratio == pytest.approx(ratio, rel=0.02)
    assert plan.kept_ratio == pytest.approx((1 - plan.returned_share) * plan.fresh_ratio)


def test_the_table_of_the_page_is_the_planners() -> None:
    page = (Path(__file__).parents[2] / "docs" / "correlated-noise.md").read_text("utf-8")
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M
    )
    assert len(rows) == 6
    for rounds, times, apart, *printed in rows:
        plan = plan_noise(Schedule(int(rounds), int(times), int(apart)))
        figures = (plan.returned_share, plan.gain, plan.round_noise_ratio)
        for text, figure in zip(printed, figures, strict=True):
            digits = len(text.partition(".")[2])
            assert abs(float(text) - figure) <= 0.51 * 10**-digits


def test_clients_in_every_round_gain_nothing() -> None:
    plan = plan_noise(Schedule(24, 24, 1))
    assert not plan.pays
    assert (plan.returned_share, plan.gain, plan.round_noise_ratio) == (0.0, 1.0, 1.0)
    assert plan_noise(Schedule(24, 24, 1), returned_share=0.5).gain < 1.0


def test_the_charge_is_that_of_a_record() -> None:
    schedule, share = Schedule(60, 12, 5), 0.88
    worst = 0.0
    for start in range(60 - 55):
        charge = Charge()
        for t in range(60):
            taking_part = t >= start and (t - start) % 5 == 0
            noise = RoundNoise(1.0, share if t else 0.0)
            charge = charge.after(noise, 1.0 if taking_part else 0.0)
        worst = max(worst, charge.mu_squared)
    assert plan_noise(schedule, returned_share=share).charge == pytest.approx(worst, rel=1e-10)


@pytest.mark.parametrize("optimiser", list(Optimiser))
def test_the_error_is_that_of_simulated_noise(optimiser: Optimiser) -> None:
    """Mean square of the model's noise over its rounds, within six standard errors of N = 4000."""
    rounds, share, runs = 12, 0.8, 4000
    rng = np.random.default_rng(5)
    weights = optimiser.weights(rounds)
    back = rng.normal(size=(runs, rounds)) * math.sqrt(share)
    noise = rng.normal(size=(runs, rounds)) * math.sqrt(1 - share) + back
    noise[:, 1:] -= back[:, :-1]
    measured = ((noise @ weights.T) ** 2).mean(axis=1)
    schedule = Schedule(rounds, 2, 6)
    plan = plan_noise(schedule, weights, share)
    independent = (weights**2).sum() / rounds
    predicted = independent / (plan.gain**2 * plan.fresh_ratio)
    assert abs(measured.mean() - predicted) < 6 * measured.std() / math.sqrt(runs)
    # The twin: noise that does not come back.
    assert abs(measured.mean() - independent) > 6 * measured.std() / math.sqrt(runs)


def test_momentum_wants_more_to_come_back() -> None:
    schedule = Schedule(100, 10, 10)
    plain = plan_noise(schedule)
    heavy = plan_noise(schedule, Optimiser.MOMENTUM.weights(100))
    assert heavy.returned_share == pytest.approx(0.99, abs=0.005)
    assert heavy.gain > plain.gain


def test_momentum_weights_are_those_of_the_optimiser() -> None:
    rounds, beta = 9, 0.9
    weights = Optimiser.MOMENTUM.weights(rounds, beta)
    for s in range(rounds):
        velocity, model, seen = 0.0, 0.0, []
        for t in range(rounds):
            velocity = beta * velocity + (t == s)
            model += velocity
            seen.append(model)
        assert weights[:, s] == pytest.approx(seen)


def test_bad_wishes() -> None:
    schedule = Schedule(10, 2, 5)
    with pytest.raises(ValueError, match="returned_share must lie in"):
        plan_noise(schedule, returned_share=1.0)
    with pytest.raises(ValueError, match="lower triangular"):
        plan_noise(schedule, np.ones((10, 10)))
