"""Schedules of runs whose noise comes back: the product holds, and no twin without a rule."""

from __future__ import annotations

import dataclasses

import pytest

from dp.correlated import Parts
from protocol.round import member_noise
from protocol.round.member_noise import MemberNoise
from secagg.oneshot.records import RoundRecord
from simulations.reports.audit.one_shot import WEAK_RUNS
from simulations.threats.one_shot.run_schedules import RunRules, run_schedules
from simulations.threats.one_shot.whole_run import Draw, OpenedRound, flaw

SCHEDULES = 1500
FEWER = 600
"""Enough where a rule is missing."""
SEED = 1


def test_no_schedule_opens_less_noise_than_is_counted() -> None:
    report = run_schedules(SCHEDULES, SEED)
    assert report.broken == 0, report.flaws
    # Most servers are clumsy; enough of them get somewhere.
    assert report.several > SCHEDULES // 20


@pytest.mark.parametrize("rule", WEAK_RUNS)
def test_members_that_lack_a_rule_are_caught(rule: str) -> None:
    report = run_schedules(FEWER, SEED, WEAK_RUNS[rule])
    assert report.broken > 0
    if rule == "late_signatures":
        assert set(report.flaws) == {"a sum that later lists leave out"}
    if rule == "other_terms":
        assert set(report.flaws) == {"less noise than is counted"}


def test_a_schedule_follows_from_its_seed() -> None:
    weak = RunRules(fewer_signatures=1)
    first, again, other = (run_schedules(200, seed, weak) for seed in (3, 3, 4))
    assert first == again != other


def test_the_schedules_are_those_of_the_products_own_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a rule taken from `MemberNoise` itself, schedules break."""
    for owner, name in ((member_noise, "_require_last"), (MemberNoise, "sign")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *_: None)
            assert run_schedules(FEWER, SEED).broken > 0


# -- what is wrong with sums ----------------------------------------------------------------------

PARTS = Parts(
    client_variance=1.0,
    member_variance=10.0,
    clients=3,
    members=4,
    corrupt_clients=1,
    corrupt_members=1,
    fewest_clients=3,
    fewest_members=3,
    rounds=4,
    dimension=1,
)
EVERYBODY = (0, 1, 2, 3)
FIRST = RoundRecord(0, 3, EVERYBODY, ())
SECOND = RoundRecord(1, 3, EVERYBODY, EVERYBODY)
HONEST = (1, 2, 3)


def draws(number: int, variance: float = 10.0) -> dict[int, Draw]:
    return {j: Draw((j, number), variance) for j in HONEST}


def opened(
    record: RoundRecord,
    before: tuple[RoundRecord, ...],
    added: dict[int, Draw],
    taken: dict[int, Draw] | None = None,
) -> OpenedRound:
    noise = {j: (each, taken[j] if taken else None) for j, each in added.items()}
    return OpenedRound(before, record, noise)


def test_sums_as_they_should_be() -> None:
    first = opened(FIRST, (), draws(0))
    second = opened(SECOND, (FIRST,), draws(1), draws(0))
    third = RoundRecord(2, 3, EVERYBODY, EVERYBODY)
    assert flaw([], PARTS) == ""
    assert flaw([second, first], PARTS) == ""
    # The second was signed for, and never opened.
    assert flaw([opened(third, (FIRST, SECOND), draws(2), draws(1)), first], PARTS) == ""
    nobody = RoundRecord(1, 3, EVERYBODY, ())
    assert flaw([first, opened(nobody, (FIRST,), draws(1))], PARTS) == ""


def test_what_is_wrong_is_named() -> None:
    first = opened(FIRST, (), draws(0))
    second = opened(SECOND, (FIRST,), draws(1), draws(0))
    other = RoundRecord(1, 3, EVERYBODY, (0,))
    third = RoundRecord(2, 3, EVERYBODY, EVERYBODY)
    assert flaw([second, opened(other, (FIRST,), draws(2))], PARTS) == "two sums of one round"
    assert flaw([second, opened(third, (FIRST,), draws(2))], PARTS).startswith("a sum that later")
    contradicting = [opened(SECOND, (), draws(1)), opened(third, (FIRST, SECOND), draws(2))]
    assert flaw(contradicting, PARTS) == "lists that contradict one another"
    twice = [first, second, opened(third, (FIRST, SECOND), draws(2), draws(0))]
    assert flaw(twice, PARTS) == "noise that was taken back twice"
    thin = opened(dataclasses.replace(FIRST, entered=(0, 1)), (), draws(0))
    assert flaw([thin], PARTS) == "fewer parties than was promised"
    quiet = [opened(SECOND, (FIRST,), draws(1), draws(0, 0.1))]
    assert flaw(quiet, PARTS) == "less noise than is counted"
    # A record that says more than is true: the second sum has less noise than it says.
    assert flaw([first, opened(SECOND, (FIRST,), draws(1))], PARTS) == "less noise than is counted"
    at_once = [opened(FIRST, (), draws(0), draws(0))]
    assert flaw(at_once, PARTS) == "less noise than is counted"
