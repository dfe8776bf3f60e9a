"""Noise that comes back, from a goal: enough for every client's own filter, and hardly more."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dp import quantized_l2_bound
from dp.correlated import CorrelatedAccountant, Promises, RoundParts, correlated_epsilon, largest_mu
from dp.correlated.parts_planning import plan_parts
from dp.correlated.planning import Optimiser, Schedule
from protocol.goal import delta_for_noise
from protocol.noise.returned import PlannedNoise, ReturnedRun, calibrate_returned
from secagg import ParameterError

RUN = ReturnedRun(
    schedule=Schedule(24, 4, 6),
    clients=64,
    members=16,
    corrupt_clients=6,
    corrupt_members=2,
    fewest_clients=58,
    fewest_members=12,
    fewest_returning=4,
)
DELTA = 1e-5


def calibrated(
    epsilon: float = 8.0, run: ReturnedRun = RUN, share: float = 0.01, length: int = 20_000
) -> PlannedNoise:
    return calibrate_returned(epsilon, DELTA, run, bound=0.7, length=length, error_share=share)


def filtered(noise: PlannedNoise, run: ReturnedRun, start: int, returned: int) -> float:
    """The largest epsilon that a client meets before its uploads, in a run as planned."""
    parts, schedule, l2 = noise.parts, run.schedule, noise.sensitivities.l2
    delta = delta_for_noise(DELTA, schedule.rounds)
    accountant, before, worst = CorrelatedAccountant(), None, 0.0
    now = RoundParts(clients=run.fewest_clients, entered=run.fewest_members, returned=returned)
    for t in range(schedule.rounds):
        now = replace(now, returned=returned if t else 0)
        turn, rest = divmod(t - start, schedule.apart)
        taking_part = not rest and 0 <= turn < schedule.participations
        for possible in parts.worst(before, run.fewest_returning) if taking_part else ():
            twin = accountant.copy()
            twin.compose(parts.release(t + 1, possible, before, l2))
            worst = max(worst, twin.epsilon(delta))
        accountant.compose(parts.release(t + 1, now, before, l2 if taking_part else 0.0))
        before = now
    return worst


def highest(noise: PlannedNoise, run: ReturnedRun) -> float:
    ends = (run.fewest_returning, run.fewest_members)
    return max(filtered(noise, run, start, back) for start in range(6) for back in ends)


@pytest.mark.parametrize("returning", [0, 4, 12])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_every_planned_upload_meets_the_goal(epsilon: float, returning: int) -> None:
    run = replace(RUN, fewest_returning=returning)
    noise = calibrated(epsilon, run)
    met = highest(noise, run)
    assert 0.99 * epsilon < met <= epsilon
    # The twin: one per cent less noise.
    parts = noise.parts.divided(0.99 * noise.parts.least_fresh, noise.plan.returned_share)
    assert highest(replace(noise, parts=parts), run) > epsilon


def real_variance(noise: PlannedNoise, epsilon: float, bound: float = 0.7) -> float:
    """F of real numbers, which no gap and no rounding makes dearer."""
    large = Promises(rounds=24, dimension=1, smallest_part=1e9, most_parts=1, kept=1e9, fresh=1e9)
    mu = largest_mu(epsilon, delta_for_noise(DELTA, 24), large)
    return noise.plan.charge * (bound * noise.scale / mu) ** 2


@pytest.mark.parametrize("share", [0.005, 0.01, 0.1, 1.0])
@pytest.mark.parametrize(("length", "epsilon", "clients"), [(20_000, 8.0, 64), (16, 60.0, 1000)])
def test_the_model_has_the_variance_of_real_noise_within_the_share(
    length: int, epsilon: float, clients: int, share: float
) -> None:
    """And not by much less, for bits cost. Rounding stays in the model; most noise does not."""
    run = replace(RUN, clients=clients, fewest_clients=int(0.9 * clients))
    noise = calibrated(epsilon, run, share, length)
    in_model = noise.parts.least_fresh * noise.plan.model_noise + clients / 6
    excess = in_model / (real_variance(noise, epsilon) * noise.plan.model_noise) - 1.0
    assert 0.95 * share < excess <= share * (1 + 1e-9)


def test_small_parts_are_scaled_up() -> None:
    """Here rounding allows parts of less than 0.6, of which the theorem says little or nothing."""
    run = replace(RUN, clients=5000, fewest_clients=4500)
    noise = calibrated(60.0, run, 1.0, 16)
    delta = delta_for_noise(DELTA, 24)
    small = noise.parts.divided(0.5 * noise.parts.least_fresh, noise.plan.returned_share)
    charge = noise.plan.charge * (noise.sensitivities.l2**2 / noise.parts.least_fresh)
    assert small.client_variance < 0.6
    assert correlated_epsilon(charge, small.promises, delta) > 2 * 60.0
    assert noise.parts.smallest_part > 1.0
    assert correlated_epsilon(charge, noise.parts.promises, delta) <= 60.0


def test_integers_are_those_of_the_scale() -> None:
    noise = calibrated()
    assert noise.sensitivities.l2 == quantized_l2_bound(0.7, noise.scale, 20_000)
    assert noise.sensitivities.l2 < 1.01 * 0.7 * noise.scale
    # A rotated vector on the bound: its largest coordinate is within some standard deviations.
    typical = 0.7 * noise.scale / math.sqrt(20_000)
    assert 4 * typical < noise.sensitivities.linf < 10 * typical
    assert noise.client.sigma_squared == noise.parts.client_variance
    assert noise.member.sigma_squared == noise.parts.member_variance


def test_more_members_away_more_noise_stays() -> None:
    gains, shares = [], []
    for away in (0.0, 0.05, 0.2):
        noise = calibrated(run=replace(RUN, away=away))
        gains.append(noise.gain)
        shares.append(noise.plan.returned_share)
    assert gains == sorted(gains, reverse=True) and shares == sorted(shares, reverse=True)
    heavy = calibrated(run=replace(RUN, optimiser=Optimiser.MOMENTUM))
    assert heavy.plan.returned_share > shares[0]


def test_the_gain_is_the_same_at_an_equal_goal() -> None:
    """Returned and independent noise are both accounted for as Gaussian."""
    noise = calibrated()
    assert noise.gain == pytest.approx(noise.plan.gain, rel=1e-3)


def test_a_schedule_without_gain_is_refused() -> None:
    run = replace(RUN, schedule=Schedule(24, 24, 1))
    numbers = run.parts(20_000, 1.0, 0.5)
    assert not plan_parts(numbers, run.schedule, 4).pays
    with pytest.raises(ParameterError, match=r"schedule = .* is worth it from 1.01 on"):
        calibrated(run=run)


def test_what_is_left_of_delta() -> None:
    for rounds in (1, 24, 1000):
        left = delta_for_noise(DELTA, rounds)
        assert left == pytest.approx(0.99 * DELTA, rel=1e-9) and left < DELTA


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fewest_members": 4}, "fewest_members = 4: must be an int above 4"),
        ({"fewest_clients": 6}, "fewest_clients = 6: must be an int above 6"),
        ({"fewest_members": 12.0}, "fewest_members = 12.0: must be an int above 4"),
        ({"fewest_clients": True}, "fewest_clients = True: must be an int above 6"),
        ({"clients": 57}, "clients = 57: must be an int of at least 58"),
        ({"members": 11}, "members = 11: must be an int of at least 12"),
        ({"corrupt_members": -1}, "corrupt_members = -1: must be an int of at least 0"),
        ({"fewest_returning": 13}, "fewest_returning = 13: must be at most fewest_members, 12"),
        ({"fewest_returning": -1}, "fewest_returning = -1: must be an int"),
        ({"away": 0.26}, "away = 0.26: must be in 0 .. 0.25, so that fewest_members are left"),
        ({"away": -0.1}, "away = -0.1: must be in 0"),
        ({"away": math.nan}, "away = nan: must be in 0 .. 0.25"),
        ({"away": "0"}, "away = '0': must be a number"),
    ],
)
def test_bad_runs(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        replace(RUN, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0.0}, "epsilon = 0.0: must be positive"),
        ({"epsilon": math.inf}, "epsilon = inf: must be positive and below"),
        ({"delta": 1.0}, r"delta = 1.0: must be a number in \(0, 1\)"),
        ({"error_share": 0.001}, "error_share = 0.001: must be a number in .0.005, 1"),
        ({"run": replace(RUN, schedule=Schedule(24, 24, 1))}, "schedule = .* is worth it from"),
        ({"run": replace(RUN, clients=1 << 16)}, "clients = 65536: must be such that all parts"),
        ({"length": 10**9}, "epsilon = 8.0: must be such that noise can be drawn"),
    ],
)
def test_what_cannot_be_planned_is_refused(changes: dict[str, Any], words: str) -> None:
    arguments = {"epsilon": 8.0, "delta": DELTA, "run": RUN, "bound": 0.7, "length": 20_000}
    with pytest.raises(ParameterError, match=words):
        calibrate_returned(**{**arguments, **changes})
