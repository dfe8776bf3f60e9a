"""What a client counts of a run whose noise comes back: whatever happens, never too little."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_shot_worlds import GOAL
from returned_worlds import APART, EVERYBODY, MEMBERS, ROUNDS, N, ReturnedWorld, plan_of, record

from dp import Entry, LedgerError, NonPrivateRelease
from protocol.errors import PolicyError
from protocol.noise.noise import Independent
from protocol.planning.policies import client_policy
from protocol.round.clauses import ReturnedClauses
from protocol.round.history import ClientHistory
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.policy import ClientPolicy, own_noise_multiplier
from protocol.round.run_account import RunAccount, RunAccountant
from protocol.round.stored_history import StoredHistory
from secagg import LocalProtocolError, ParameterError
from secagg.oneshot.records import RoundRecord
from tests.doubles.refused import refused as named

WORLD = ReturnedWorld()


def setup_of(number: int, *records: RoundRecord, **changes: Any) -> OneShotSetup:
    """A round with the first client in it."""
    return WORLD.setup(number, *records, cohort=0, **changes)


def take_part(history: ClientHistory, setup: OneShotSetup, apart: int = APART) -> float:
    """One round of a client, as `OneShotRoundClient` goes about it."""
    history.answer(setup, apart=apart)
    history.charge(setup)
    return history.epsilon


def full(until: int) -> list[RoundRecord]:
    """Records of as many rounds, with everybody in them."""
    return [record(number, EVERYBODY, EVERYBODY if number else ()) for number in range(until)]


@pytest.fixture(params=["memory", "disk"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClientHistory]:
    if request.param == "memory":
        yield ClientHistory(GOAL)
        return
    with StoredHistory(tmp_path / "history", GOAL) as stored:
        yield stored


def refused(act: Callable[[], object], parameter: str, match: str | None = None) -> None:
    with pytest.raises(PolicyError, match=match) as raised:
        act()
    assert raised.value.parameter == parameter


# -- a run as planned -----------------------------------------------------------------------------


def test_a_run_as_planned_stays_within_the_goal(history: ClientHistory) -> None:
    spent = [take_part(history, setup_of(t, *full(t))) for t in (0, 4, 8)]
    assert spent == sorted(spent)
    assert 0.0 < spent[0] < spent[-1] <= GOAL.epsilon
    # The last planned upload uses nearly all of it when as few are there as may be.
    assert spent[-1] > 0.6 * GOAL.epsilon
    other = ClientHistory(GOAL)
    least = [record(t, EVERYBODY[:5], EVERYBODY[:5] if t else (), clients=7) for t in range(12)]
    worst = [take_part(other, setup_of(t, *least[:t])) for t in (0, 4, 8)]
    assert spent[-1] < worst[-1] <= GOAL.epsilon
    assert worst[-1] == pytest.approx(
        WORLD.setup().released.epsilon_of_rounds(GOAL, APART), rel=0.02
    )


def test_no_more_often_than_the_goal_has_rounds(history: ClientHistory) -> None:
    for t in (0, 3, 6):
        take_part(history, setup_of(t, *full(t)), apart=1)
    before = history.epsilon
    refused(lambda: history.answer(setup_of(9, *full(9))), "epsilon", "used up")
    assert history.epsilon == before


def test_more_than_the_goal_is_refused() -> None:
    """A policy that lets rounds come close pays more for each, and is stopped by its goal."""
    history = ClientHistory(GOAL)
    take_part(history, setup_of(0), apart=1)
    take_part(history, setup_of(1, *full(1)), apart=1)
    before = history.epsilon
    refused(lambda: history.answer(setup_of(2, *full(2)), apart=1), "epsilon", "in all")
    assert history.epsilon == before <= GOAL.epsilon


def test_a_client_without_a_goal_counts_nothing_and_keeps_to_the_rest() -> None:
    history = ClientHistory()
    assert take_part(history, setup_of(1, *full(1))) == 0.0
    refused(lambda: history.answer(setup_of(3, *full(3)), apart=4), "apart")
    refused(lambda: history.answer(setup_of(6), apart=1), "records")
    refused(lambda: history.answer(setup_of(7, session=b"s" * 16)), "session_id")


# -- one session, the same records, apart ---------------------------------------------------------


def test_a_goal_is_spent_in_one_session(history: ClientHistory) -> None:
    take_part(history, setup_of(0))
    other = setup_of(1, session=b"s" * 16)
    refused(lambda: history.answer(other), "session_id")
    # Nor when a second run was joined before the first was paid for.
    late = ClientHistory(GOAL)
    late.answer(setup_of(0))
    late.answer(other)
    late.charge(setup_of(0))
    refused(lambda: late.charge(other), "session_id")


@pytest.mark.parametrize("rounds_between", [1, 2, 3, 4])
def test_uploads_are_so_many_records_apart(history: ClientHistory, rounds_between: int) -> None:
    take_part(history, setup_of(0))
    setup = setup_of(rounds_between, *full(rounds_between))
    if rounds_between < APART:
        refused(lambda: history.answer(setup, apart=APART), "apart", f"at least {APART}")
        return
    take_part(history, setup)


def test_rounds_that_nobody_signed_for_do_not_keep_uploads_apart(history: ClientHistory) -> None:
    """Neither do they bring them together: numbers say nothing, records do."""
    take_part(history, setup_of(0))
    take_part(history, setup_of(9))
    told = [record(9), record(10, returned=EVERYBODY)]
    refused(lambda: history.answer(setup_of(40, *told), apart=APART), "apart", "2 rounds after")


@pytest.mark.parametrize(
    "told",
    [
        [],
        [record(0)],
        [record(0), record(1, EVERYBODY[:5])],
        [record(0), record(2, returned=EVERYBODY)],
        [record(1, returned=()), record(2)],
    ],
    ids=["none", "short", "other", "renamed", "without the first"],
)
def test_records_that_forget_are_refused(history: ClientHistory, told: list[RoundRecord]) -> None:
    take_part(history, setup_of(3, *full(2)))
    refused(lambda: history.answer(setup_of(20, *told), apart=1), "records", "first 2 records")
    take_part(history, setup_of(21, *full(2), record(3), record(4), record(5), record(6)))


def test_two_rounds_at_once_are_charged_in_their_order(history: ClientHistory) -> None:
    """The later list has what the earlier lacks."""
    first, second = setup_of(3, *full(2)), setup_of(5, *full(2), record(3))
    history.answer(first)
    history.answer(second)
    history.charge(second)
    refused(lambda: history.charge(first), "records")


# -- uploads that enter no sum --------------------------------------------------------------------


def test_uploads_are_capped_whatever_the_records_say(history: ClientHistory) -> None:
    """Nobody signs for records before a client uploads: lists could forget it for ever."""
    for number in range(2 * GOAL.rounds):
        take_part(history, setup_of(number))
    refused(lambda: history.answer(setup_of(30)), "records", "of 6 uploads")


# -- the count is never too low -------------------------------------------------------------------


def a_run(seed: int, history: ClientHistory) -> tuple[list[RoundRecord], list[float], list[float]]:
    """Any run that members sign for: records, the client's bounds in them, its count after each."""
    rng = np.random.default_rng(seed)
    told: list[RoundRecord] = []
    bounds: list[float] = []
    counted: list[float] = []
    last, number = -APART, 0
    for t in range(ROUNDS):
        number += int(rng.integers(1, 3))
        setup = setup_of(number, *told, opened=bool(rng.random() < 0.8), in_turn=False)
        uploads = setup.context.member_uploads
        assert uploads is not None
        there = False
        if t - last >= APART and rng.random() < 0.6:
            try:
                take_part(history, setup)
                there = True
            except PolicyError:
                pass
        present = rng.choice(MEMBERS, int(rng.integers(5, MEMBERS + 1)), replace=False)
        entered = tuple(sorted(int(each) for each in present))
        before = told[-1].entered if told and uploads.returning else ()
        able = [each for each in entered if each in before]
        returned = tuple(each for each in able if rng.random() < rng.choice([0.0, 0.5, 1.0]))
        # Its upload may be lost although it paid for it.
        told.append(RoundRecord(number, int(rng.integers(7, N + 1)), entered, returned))
        bounds.append(setup.parameters.l2_bound if there else 0.0)
        counted.append(history.epsilon)
        last = t if there else last
    return told, bounds, counted


def true_epsilons(told: Sequence[RoundRecord], bounds: Sequence[float]) -> list[float]:
    """What the run costs the client after every round, with all that may still come back."""
    accountant, found = RunAccountant(), []
    for t in range(len(told)):
        setup = setup_of(told[t].round_number, *told[:t])
        events = setup.run_events.of(told[t].clients, told[t])
        event = dataclasses.replace(events.server, l2_sensitivity=bounds[t])
        accountant.compose(event)
        found.append(accountant.epsilon(GOAL.delta))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_in_any_run_a_client_counts_enough(seed: int) -> None:
    """Its count after an upload bounds what the run comes to, then and in all rounds after."""
    told, bounds, counted = a_run(seed, ClientHistory(GOAL))
    true = true_epsilons(told, bounds)
    for t, count in enumerate(counted):
        assert true[t] <= count * (1 + 1e-9) <= GOAL.epsilon
    # While it is away its count stays, and what is true does not grow.
    for t in range(1, ROUNDS):
        if not bounds[t]:
            assert counted[t] == counted[t - 1]
            assert true[t] <= true[t - 1] * (1 + 1e-9)


# -- on disk --------------------------------------------------------------------------------------


def test_a_restart_restores_everything(tmp_path: Path) -> None:
    kept = ClientHistory(GOAL)
    for t in (0, 4, 8):
        setup = setup_of(t, *full(t))
        with StoredHistory(tmp_path, GOAL) as stored:
            assert stored.epsilon == kept.epsilon
            expected = take_part(kept, setup)
            assert take_part(stored, setup) == expected
    with StoredHistory(tmp_path, GOAL) as stored:
        assert stored.epsilon == kept.epsilon
        assert stored._account is not None
        assert vars(stored._account) == vars(kept._account)
        refused(lambda: stored.answer(setup_of(11, *full(11))), "epsilon", "used up")
        refused(lambda: stored.answer(setup_of(9, session=b"s" * 16)), "session_id")
        refused(lambda: stored.answer(setup_of(9, *full(3)), apart=1), "records")


def test_a_crash_between_the_ledger_and_the_mark_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = setup_of(0)
    with StoredHistory(tmp_path, GOAL) as stored:
        stored.answer(setup)

        def die(*_: Any) -> None:
            raise OSError("no space")

        monkeypatch.setattr(stored._marks, "charge", die)
        with pytest.raises(OSError, match="no space"):
            stored.charge(setup)
    monkeypatch.undo()
    with StoredHistory(tmp_path, GOAL) as again:
        assert again.epsilon == take_part(ClientHistory(GOAL), setup)
        refused(lambda: again.answer(setup_of(1, *full(1)), apart=APART), "apart")


@pytest.mark.parametrize("change", ["run", "l2_bound", "records", "head", "epsilon", "kind"])
def test_charges_that_do_not_say_how_the_run_stands_are_refused(
    tmp_path: Path, change: str
) -> None:
    with StoredHistory(tmp_path, GOAL) as stored:
        take_part(stored, setup_of(0))
        (entry,) = stored._ledger.entries()
    metadata = json.loads(json.dumps(dict(entry.metadata)))
    if change == "run":
        del metadata["run"]
    elif change == "kind":
        metadata["run"] = ["l2_bound"]
    else:
        del metadata["run"][change]
    with StoredHistory(tmp_path / "other", GOAL) as other:
        other._ledger.append(entry.event, metadata)
    with pytest.raises(LedgerError, match="returned noise"):
        StoredHistory(tmp_path / "other", GOAL)


@pytest.mark.parametrize("remembered", [{}, {"l2_bound": 1.0, "epsilon": 0.0, "records": 1,
                                             "head": "xyz"}])  # fmt: skip
def test_what_is_no_charge_is_not_restored(remembered: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        metadata = {"session": "00", "round": 0, "run": remembered}
        entry = Entry(0, NonPrivateRelease(), metadata)
        RunAccount(GOAL).restore(entry)


# -- two kinds of rounds --------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["stays", "comes back"])
def test_two_kinds_of_noise_are_not_counted_together(tmp_path: Path, first: str) -> None:
    """No theorem adds them up: the second kind is refused, after a restart as well."""
    setups = [WORLD.plain(0), setup_of(1)]
    if first == "comes back":
        setups = [setup_of(0), WORLD.plain(1)]
    for make in (lambda: ClientHistory(GOAL), lambda: StoredHistory(tmp_path, GOAL)):
        history = make()
        take_part(history, setups[0])
        refused(lambda history=history: history.answer(setups[1]), "returns", "not counted")
        refused(lambda history=history: history.charge(setups[1]), "returns", "not counted")
    history.close()  # type: ignore[attr-defined]
    with StoredHistory(tmp_path, GOAL) as again:
        before = again.epsilon
        assert before > 0.0
        refused(lambda: again.answer(setups[1]), "returns", "not counted")
        assert again.epsilon == before


# -- the policy -----------------------------------------------------------------------------------


def checked(policy: ClientPolicy, setup: OneShotSetup | None = None) -> str:
    """The parameter that a policy refuses; empty if it takes the round."""
    try:
        policy.check(setup or setup_of(0))
    except PolicyError as error:
        return error.parameter
    return ""


def kept() -> float:
    """The ratio of the fewest honest clients' noise to the sensitivity."""
    parameters = setup_of(0).parameters
    return float(np.sqrt(6 * parameters.mechanism.variance) / parameters.l2_bound)


def clauses(**changes: Any) -> ReturnedClauses:
    return ReturnedClauses(**{"apart": APART, **changes})


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({}, ""),
        ({"returned": None}, "returns"),
        ({"largest_variance": 0.999, "scaled": True}, "variance"),
        ({"largest_variance": 1.001, "scaled": True}, ""),
        ({"returned": clauses(minimum_kept_multiplier=0.999 * kept())}, ""),
        ({"returned": clauses(minimum_kept_multiplier=1.001 * kept())}, "kept_multiplier"),
        ({"returned": clauses(apart=3)}, "epsilon"),
        ({"returned": clauses(apart=5)}, ""),
        ({"goal": dataclasses.replace(GOAL, epsilon=7.9)}, "epsilon"),
        ({"goal": dataclasses.replace(GOAL, epsilon=7.9), "equal_rounds": False}, ""),
        ({"mechanisms": ("binomial",)}, "mechanism"),
    ],
    ids=str,
)
def test_what_a_policy_says_of_runs_whose_noise_comes_back(
    changes: dict[str, Any], parameter: str
) -> None:
    returned = setup_of(0).parameters.returned
    assert returned is not None
    changes = dict(changes)
    if changes.pop("scaled", False):
        largest = max(returned.variance, setup_of(0).parameters.mechanism.variance)
        changes["largest_variance"] *= largest
    assert checked(dataclasses.replace(WORLD.policy, **changes)) == parameter


def test_members_of_too_much_noise_are_refused_beside_clients_of_little() -> None:
    """The two variances are looked at one by one."""
    setup = setup_of(0)
    returned, own = setup.parameters.returned, setup.parameters.mechanism.variance
    assert returned is not None
    assert returned.variance > own
    between = dataclasses.replace(WORLD.policy, largest_variance=(own + returned.variance) / 2)
    assert checked(between) == "variance"


@pytest.mark.parametrize(
    ("clause", "values"),
    [
        ("apart", [0, -1, 1.0, True, 1 << 40]),
        ("minimum_kept_multiplier", [-1.0, float("nan")]),
    ],
)
def test_what_is_no_clause_is_named(clause: str, values: list[Any]) -> None:
    for value in values:
        with named(ParameterError, clause):
            clauses(**{clause: value})


def test_members_noise_counts_in_the_multiplier_and_not_in_ones_own() -> None:
    setup = setup_of(0)
    parts = setup.run_events.parts
    bound = setup.parameters.l2_bound
    honest_members = parts.fewest_members - 2 * parts.corrupt_members
    expected = 6 * parts.client_variance + honest_members * parts.member_variance
    assert setup.released.noise_multiplier == pytest.approx(np.sqrt(expected) / bound, rel=1e-12)
    own = np.sqrt(setup.parameters.mechanism.variance) / bound
    assert own_noise_multiplier(setup) == pytest.approx(own, rel=1e-12)


def test_the_policy_asks_for_the_run_as_planned() -> None:
    setup = setup_of(0)
    run = setup.released.epsilon_of_rounds(GOAL, APART)
    assert 0.97 * GOAL.epsilon < run <= GOAL.epsilon
    assert setup.released.epsilon_of_rounds(GOAL, APART - 1) > GOAL.epsilon
    # A goal of more rounds than the run has room for is one of those that fit.
    more = dataclasses.replace(GOAL, rounds=20)
    assert setup.released.epsilon_of_rounds(more, APART) == pytest.approx(
        setup.released.epsilon_of_rounds(dataclasses.replace(GOAL, rounds=3), APART), rel=0.2
    )


def test_a_plan_gives_its_clients_all_of_this() -> None:
    assert WORLD.policy.returned == clauses()
    stays = client_policy(
        plan_of(noise=Independent(mechanism="discrete-gaussian")), 40, WORLD.committee.named
    )
    assert (stays.returned, stays.apart) == (None, 1)
    assert checked(stays) == "returns"
