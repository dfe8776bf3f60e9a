"""With one defence of runs whose noise comes back taken from the product, attacks succeed."""

from __future__ import annotations

from typing import Any

import pytest

from dp.correlated import CorrelatedAccountant
from protocol.round import member_noise, run_account
from protocol.round.member_noise import AddedNoise, MemberNoise
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.parameters import RoundParameters
from protocol.round.run_account import RunAccount
from secagg.oneshot import member as member_session
from secagg.oneshot.context import OneShotContext
from simulations.threats.catalogue import one_shot_returns as members
from simulations.threats.catalogue import one_shot_run_histories as attacks
from simulations.threats.one_shot.returning import (
    MEMBERS,
    ReturningRun,
    plan_of,
    with_noise,
)

SEED = 1


def broken(*stories: members.Story) -> bool:
    """Whether each story of members ends in sums that are not as counted."""
    return all(members._played((story,), 1, SEED)["succeeded"] for story in stories)


def taken(*stories: attacks.Story) -> bool:
    """Whether the client does in each story what it must not do."""
    return all(attacks._played((story,), SEED)["succeeded"] for story in stories)


def test_signatures_for_rounds_before_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_noise, "_require_last", lambda *_: None)
    assert broken(members._late_signature)
    assert not broken(members._left_out)


def test_members_that_do_not_remember_what_they_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberNoise, "sign", lambda *_: None)
    assert broken(members._left_out, members._signed_only)
    assert not broken(members._swapped)


def test_terms_that_bind_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundParameters, "block_digest", lambda _: bytes(32))
    # The seed still is of another law.
    assert not broken(members._swapped)
    right = MemberNoise.may_take_back

    def quieter(
        self: MemberNoise, context: OneShotContext, member: int, variance: float
    ) -> AddedNoise | None:
        return right(self, context, member, variance / 1000.0)

    monkeypatch.setattr(MemberNoise, "may_take_back", quieter)
    assert broken(members._swapped)


@pytest.mark.parametrize("terms", [{"rounds": 7}, {"divisor": 5}, {"variance": 1.0}])
def test_members_keep_to_the_terms_of_their_first_round(
    monkeypatch: pytest.MonkeyPatch, terms: dict[str, Any]
) -> None:
    other = with_noise(plan_of(), **terms)

    def uploads() -> tuple[int, dict[str, int]]:
        run = ReturningRun(SEED)
        record = members._first(run)
        begun = run.begin(run.setup(1, [record], parameters=other), clients=0)
        return len(begun.uploads), dict(run.refusals)

    assert uploads() == (0, {"PolicyError records": MEMBERS})
    monkeypatch.setattr(RoundParameters, "block_digest", lambda _: bytes(32))
    assert uploads() == (MEMBERS, {})


@pytest.mark.parametrize("left_out", [(6, 7, 8), (1, 2)])
def test_sets_that_nobody_counts(
    monkeypatch: pytest.MonkeyPatch, left_out: tuple[int, ...]
) -> None:
    def story(run: ReturningRun) -> None:
        members._few(run, left_out)

    assert not broken(story)
    monkeypatch.setattr(member_session, "counts_of", lambda *_: ())
    assert broken(story)


# -- clients --------------------------------------------------------------------------------------


def test_clients_that_do_not_remember_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RunAccount.charge

    def forgetting(self: RunAccount, setup: OneShotSetup, epsilon: float, pay: Any) -> None:
        right(self, setup, epsilon, pay)
        self._known = (0, b"")

    monkeypatch.setattr(RunAccount, "charge", forgetting)
    assert taken(attacks._second_committee, attacks._second_list)
    assert not taken(attacks._many_attempts)


def test_uploads_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_account, "_UPLOADS_PER_ROUND", 1000)
    assert taken(attacks._many_attempts)
    assert not taken(attacks._second_committee)


def test_a_count_of_own_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(run: ReturningRun) -> Any:
        return run.policy(equal_rounds=False)

    story = attacks._cheap_run(alone)
    assert not taken(story)
    monkeypatch.setattr(RunAccount, "_most", attacks._own_rounds_only)
    assert taken(story)
    # A policy that looks ahead still refuses.
    assert not taken(attacks._cheap_run(ReturningRun.policy))


def test_a_ledger_that_does_not_charge_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    right = attacks._ledger_case(SEED)
    assert right == {"ledger_is_enough": True, "ledger_without_rounds": "UnsupportedEventError"}
    monkeypatch.setattr(CorrelatedAccountant, "mu_squared", own_rounds)
    assert attacks._ledger_case(SEED)["ledger_is_enough"] is False


@property  # type: ignore[misc]
def own_rounds(self: CorrelatedAccountant) -> float:
    """What was learned before the last round; what may still come back is left out."""
    return self._charge._before


def test_no_distance_between_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RunAccount.check
    monkeypatch.setattr(
        RunAccount, "check", lambda self, setup, apart=1: right(self, setup, apart - 1)
    )
    assert taken(attacks._too_soon(attacks.APART - 1))
    assert not taken(attacks._too_soon(1))


@pytest.mark.parametrize("terms", [{"rounds": 7}, {"divisor": 5}])
def test_terms_that_may_change(monkeypatch: pytest.MonkeyPatch, terms: dict[str, int]) -> None:
    story = attacks._changed_terms(**terms)
    assert not taken(story)
    monkeypatch.setattr(RoundParameters, "block_digest", lambda _: bytes(32))
    assert taken(story)


def test_fine_noise_is_refused_for_its_epsilon() -> None:
    found = attacks._played((attacks._fine_noise,), SEED)
    assert found["refused_with"] == "PolicyError epsilon"
    with attacks._no_gap():
        assert attacks._played((attacks._fine_noise,), SEED)["succeeded"]
    assert not taken(attacks._fine_noise)


def test_a_run_ends_because_clients_know_its_last_round() -> None:
    """Members sign on: it takes two honest clients in a sum, and none of them joins."""
    found = attacks._played((attacks._beyond,), SEED)
    assert found["refused_with"] == "RemoteProtocolError MALFORMED"
    with attacks._no_last_round():
        assert attacks._played((attacks._beyond,), SEED)["succeeded"]
