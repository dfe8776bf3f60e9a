"""The planned charge is the largest that a client's filter meets, and gains know who is away."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp.correlated import CorrelatedAccountant, Parts, RoundParts
from dp.correlated.parts_planning import largest_charge, plan_parts
from dp.correlated.planning import Optimiser, Schedule, plan_noise

PARTS = Parts(
    client_variance=1.0,
    member_variance=1.0,
    clients=64,
    members=16,
    corrupt_clients=6,
    corrupt_members=2,
    fewest_clients=58,
    fewest_members=12,
    rounds=24,
    dimension=1000,
)
TRUSTED = replace(PARTS, corrupt_clients=0, corrupt_members=0, fewest_clients=64, fewest_members=16)


def met(
    parts: Parts,
    schedule: Schedule,
    fewest_returning: int,
    start: int,
    records: list[RoundParts],
) -> float:
    """The largest charge before an upload of a client that begins in round `start`, from 0 on."""
    accountant, before, worst = CorrelatedAccountant(), None, 0.0
    for t, now in enumerate(records):
        turn, rest = divmod(t - start, schedule.apart)
        taking_part = not rest and 0 <= turn < schedule.participations
        for possible in parts.worst(before, fewest_returning) if taking_part else ():
            twin = accountant.copy()
            twin.compose(parts.release(t + 1, possible, before, 1.0))
            worst = max(worst, twin.mu_squared)
        accountant.compose(parts.release(t + 1, now, before, 1.0 if taking_part else 0.0))
        before = now
    return worst


@pytest.mark.parametrize("share", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("fewest_returning", [0, 4, 8, 12, 16])
@pytest.mark.parametrize("figures", [(1, 1, 1), (2, 2, 1), (9, 1, 4), (12, 3, 4), (12, 12, 1)])
def test_the_charge_is_that_of_the_accountant(
    figures: tuple[int, int, int], fewest_returning: int, share: float
) -> None:
    schedule = Schedule(*figures)
    parts = replace(PARTS, rounds=schedule.rounds).divided(1.0, share)
    expected = 0.0
    for returned in (min(fewest_returning, 12), 12):
        now = RoundParts(clients=58, entered=12, returned=returned)
        records = [replace(now, returned=0), *[now] * (schedule.rounds - 1)]
        for start in range(schedule.rounds - schedule.apart * (schedule.participations - 1)):
            expected = max(expected, met(parts, schedule, fewest_returning, start, records))
    found = largest_charge(parts, schedule, fewest_returning)
    assert found == pytest.approx(expected, rel=1e-10)


def random_record(rng: np.random.Generator, parts: Parts, returning: int) -> list[RoundParts]:
    """Members are away by chance; at times only as few take back as must."""
    records: list[RoundParts] = []
    before = np.zeros(parts.members, dtype=bool)
    while len(records) < parts.rounds:
        here = rng.random(parts.members) >= rng.choice([0.0, 0.1, 0.2])
        back = int((here & before).sum())
        if here.sum() < parts.fewest_members or (records and back < returning):
            continue
        if rng.random() < 0.3:
            back = min(back, returning)
        clients = int(rng.integers(parts.fewest_clients, parts.clients + 1))
        records.append(RoundParts(clients=clients, entered=int(here.sum()), returned=back))
        before = here
    return records


@pytest.mark.parametrize("seed", range(20))
def test_no_planned_upload_is_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schedule, returning = Schedule(24, 6, 4), (0, 4, 7)[seed % 3]
    away = (0.0, 0.1)[seed % 2]
    plan = plan_parts(PARTS, schedule, returning, away)
    parts = PARTS.divided(1.0, plan.returned_share)
    records = random_record(rng, parts, returning)
    assert met(parts, schedule, returning, int(rng.integers(0, 4)), records) <= plan.charge


@pytest.mark.parametrize("figures", [(24, 8, 3), (60, 12, 5), (100, 10, 10)])
def test_if_all_are_there_and_honest_the_plan_is_the_published_one(
    figures: tuple[int, int, int],
) -> None:
    schedule = Schedule(*figures)
    published = plan_noise(schedule)
    plan = plan_parts(replace(TRUSTED, rounds=schedule.rounds), schedule, 16)
    assert plan.pays
    assert plan.returned_share == pytest.approx(published.returned_share, abs=1e-3)
    assert plan.gain == pytest.approx(published.gain, rel=1e-6)


def test_the_table_of_the_page_is_the_planners() -> None:
    page = (Path(__file__).parents[2] / "docs" / "correlated-noise.md").read_text("utf-8")
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) % \| ([\d.]+) \| ([\d.]+) \|$", page, re.M
    )
    assert len(rows) == 5
    for rounds, times, apart, away, *printed in rows:
        schedule = Schedule(int(rounds), int(times), int(apart))
        numbers = replace(PARTS, rounds=schedule.rounds)
        plan = plan_parts(numbers, schedule, 4, int(away) / 100)
        for text, figure in zip(printed, (plan.returned_share, plan.gain), strict=True):
            assert abs(float(text) - figure) <= 0.0051


def test_the_gain_is_that_of_simulated_noise() -> None:
    """Mean square of the model's noise over its rounds, within six standard errors of N = 3000."""
    schedule, away, runs = Schedule(12, 2, 6), 0.2, 3000
    numbers = replace(PARTS, rounds=12)
    plan = plan_parts(numbers, schedule, 0, away)
    parts = numbers.divided(1.0, plan.returned_share)
    rng = np.random.default_rng(11)
    here = rng.random((runs, 12, 16)) >= away
    member = rng.normal(size=here.shape) * math.sqrt(parts.member_variance) * here
    client = rng.normal(size=(runs, 12)) * math.sqrt(parts.client_variance * parts.clients)
    sums = client + member.sum(axis=2)
    sums[:, 1:] -= (member[:, :-1] * here[:, 1:]).sum(axis=2)
    squares = (np.cumsum(sums, axis=1) ** 2).mean(axis=1)
    predicted = plan.model_noise * 6.5  # the mean of 1 .. 12 is that of independent noise
    assert abs(squares.mean() - predicted) < 6 * squares.std() / math.sqrt(runs)
    # The twin: a plan that takes everybody for present.
    ideal = plan_parts(numbers, schedule, 0).model_noise * 6.5
    assert abs(squares.mean() - ideal) > 6 * squares.std() / math.sqrt(runs)
    # Independent noise of these clients, which costs two participations, at equal privacy.
    independent = 64 / 52 * 6.5 * 2 / plan.charge
    assert plan.gain == pytest.approx(math.sqrt(independent / predicted), rel=1e-9)


def test_absence_and_corruption_take_from_the_gain() -> None:
    schedule = Schedule(24, 4, 6)
    gains = [plan_parts(PARTS, schedule, 8, away).gain for away in (0.0, 0.05, 0.2)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] < plan_parts(TRUSTED, schedule, 8).gain
    # To plan for those who are away is better than not to.
    heedless = plan_parts(PARTS, schedule, 8).returned_share
    assert plan_parts(PARTS, schedule, 8, 0.2).returned_share < heedless - 0.05


def test_clients_in_every_round_gain_nothing() -> None:
    assert not plan_parts(PARTS, Schedule(24, 24, 1), 8).pays


def test_momentum_wants_more_to_come_back() -> None:
    schedule, weights = Schedule(24, 4, 6), Optimiser.MOMENTUM.weights(24)
    heavy, plain = plan_parts(PARTS, schedule, 8, 0.0, weights), plan_parts(PARTS, schedule, 8)
    assert heavy.returned_share > plain.returned_share and heavy.gain > plain.gain


def test_divided_parts_have_the_least_noise_asked_for() -> None:
    parts = PARTS.divided(500.0, 0.8)
    assert parts.least_fresh == pytest.approx(500.0, rel=1e-12)
    assert parts.least_kept == pytest.approx(100.0, rel=1e-12)
    assert replace(parts, client_variance=1.0, member_variance=1.0) == PARTS


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PARTS.divided(500.0, 1.0), "returned_share must lie strictly between 0 and 1"),
        (lambda: PARTS.divided(0.0, 0.5), "client_variance must be positive"),
        (
            lambda: plan_parts(PARTS, Schedule(24, 4, 6), 8, 0.3),
            r"away must lie in 0\.\.0\.25, where enough",
        ),
        (lambda: plan_parts(PARTS, Schedule(23, 2, 6), 8), "parts.rounds must be 23, got 24"),
        (lambda: plan_parts(PARTS, Schedule(24, 4, 6), 17), "fewest_returning must lie in 0"),
        (
            lambda: plan_parts(PARTS, Schedule(24, 4, 6), 8, 0.0, np.ones((24, 24))),
            "lower triangular",
        ),
    ],
)
def test_bad_plans(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
