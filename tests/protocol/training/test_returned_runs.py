"""Whole runs whose noise comes back: real and ideal agree, rounds fail and go on, and replay."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from one_shot_rounds import Stream, secret
from one_shot_worlds import DIGEST, DIMENSION, GOAL, SESSION, rounding, update
from returned_worlds import (
    APART,
    EVERYBODY,
    ROUNDS,
    N,
    ReturnedWorld,
    noise_of,
    open_ledger,
    record,
    remembered,
)
from rich.console import Console

from dp import Ledger, LedgerError
from dp.audit import replayed_epsilon
from dp.sampling import DiscreteGaussianLaw, sample_law
from protocol.exchange.aggregators import IdealAggregator
from protocol.exchange.one_shot import MemberStage
from protocol.goal import delta_for_noise
from protocol.round.losses import NOBODY, Stage
from protocol.round.one_shot_setup import OneShotSetup
from protocol.training import records
from protocol.training.accounts import label
from protocol.training.private import PrivateTraining, RoundResult
from protocol.training.records import Records
from secagg import ParameterError, TooFewSurvivorsError, centre
from secagg.oneshot.records import RoundRecord
from simulations.reports.account.ledger import EVERYBODY as EVERYBODY_OF_A_LEDGER
from simulations.reports.account.ledger import account_ledger
from simulations.reports.account.view import print_account

NOISE, CHECK, CONFIRM, OPEN = MemberStage


def away(stage: MemberStage, *members: int) -> dict[int, MemberStage]:
    return dict.fromkeys(members, stage)


# -- real and ideal -------------------------------------------------------------------------------


def test_both_ways_give_the_same_sums_with_members_away_at_every_stage() -> None:
    """Bit for bit: what a member adds in one round it takes back in the next, or never."""
    absences = {
        0: away(NOISE, 7),
        1: away(NOISE, 0) | away(CHECK, 1),
        2: away(CONFIRM, 2),
        3: away(OPEN, 3),
        4: away(NOISE, 4) | away(OPEN, 5),
    }
    world = ReturnedWorld(absences=absences)
    dropouts: dict[int, Mapping[int, Stage]] = {1: {3: Stage.INPUT}, 3: {0: Stage.ADVERTISE}}
    told: tuple[RoundRecord, ...] = ()
    for number in range(5):
        setup = world.setup(number, *told)
        lost = dropouts.get(number, {})
        heard: list[Any] = []
        got = world.real.run(
            setup, update, lost, before_release=lambda *of, heard=heard: heard.append(of)
        )
        world.of(setup)
        expected = world.ideal(remembered(world)).run(setup, update, lost)
        assert np.array_equal(got.total.vector.elements, expected.total.vector.elements)
        assert got.total.survivors == expected.total.survivors
        assert got.record == expected.record
        assert heard == [(expected.total.survivors, expected.record)]
        # The twin: members whose noise is another.
        twin = world.ideal(noise_of).run(setup, update, lost)
        assert not np.array_equal(got.total.vector.elements, twin.total.vector.elements)
        assert got.record is not None
        told += (got.record,)
    everybody = set(EVERYBODY)
    assert [set(each.entered) for each in told] == [
        everybody - {7},
        everybody - {0},
        everybody,
        everybody,
        everybody - {4},
    ]
    assert [set(each.returned) for each in told] == [
        set(),
        everybody - {0, 7},
        everybody - {0},
        everybody,
        everybody - {4},
    ]


def sums(world: ReturnedWorld, rounds: int, *, back: bool) -> Any:
    """int64[rounds, d]: the ideal sums so far, with noise taken back or not."""
    found: list[Any] = []
    told: tuple[RoundRecord, ...] = ()
    aggregator = IdealAggregator(
        committee=world.committee, members_noise=noise_of, noise=rounding, away=lambda t: {t}
    )
    for number in range(rounds):
        setup = world.setup(number, *told, opened=back, in_turn=False)
        outcome = aggregator.run(setup, update, NOBODY)
        assert outcome.record is not None
        told += (outcome.record,)
        found.append(centre(outcome.total.vector))
    return np.cumsum(found, axis=0)


def test_what_members_added_is_gone_from_the_model() -> None:
    """After five rounds the model has what was added in the last, and what nobody took back."""
    world, rounds = ReturnedWorld(), 5
    returned = world.setup().parameters.returned
    assert returned is not None
    law = DiscreteGaussianLaw(returned.variance)
    added = [
        {
            member: sample_law(law, noise_of(SESSION, number, member), DIMENSION)
            for member in EVERYBODY
            if member != number
        }
        for number in range(rounds)
    ]
    gone = [
        sum(added[t][m] for t in range(until) for m in added[t] if m != t + 1)
        for until in range(rounds)
    ]
    differences = sums(world, rounds, back=False) - sums(world, rounds, back=True)
    assert np.array_equal(differences, np.stack([0 * gone[1], *gone[1:]]))


def test_a_real_run_repeats_with_the_secrets_of_its_members() -> None:
    """And its noise is what the ideal one draws from the seeds that follow from them."""
    found = []
    for name in ("one", "one", "another"):
        world = ReturnedWorld()
        world.committee._rand_of = lambda key, name=name: Stream(name, key)
        told: tuple[RoundRecord, ...] = ()
        for number in range(2):
            outcome = world.real.run(world.setup(number, *told), update, NOBODY)
            assert outcome.record is not None
            told += (outcome.record,)
        found.append(outcome.total.vector.elements.tolist())
    assert found[0] == found[1] != found[2]


# -- rounds that fail -----------------------------------------------------------------------------


class Run:
    """A run with one aggregator; a round number for every attempt."""

    def __init__(self, folder: Path, kind: str, **options: Any) -> None:
        self.world = ReturnedWorld(**options)
        folder.mkdir(exist_ok=True)
        self.ledger = open_ledger(folder)
        ideal = IdealAggregator(
            committee=self.world.committee,
            members_noise=noise_of,
            away=lambda number: [
                member
                for member, stage in self.world.absences.get(number, {}).items()
                if stage is NOISE
            ],
        )
        self.training = self.world.training(
            self.ledger, self.world.real if kind == "real" else ideal
        )
        self.number = 0

    def fails(self, dropouts: Mapping[int, Stage] = NOBODY) -> TooFewSurvivorsError:
        """The next attempt, which does."""
        with pytest.raises(TooFewSurvivorsError) as raised:
            self.round(dropouts)
        return raised.value

    def round(self, dropouts: Mapping[int, Stage] = NOBODY) -> RoundResult:
        """The next attempt; the groups of clients take turns."""
        cohort = self.world.cohort(self.number)
        self.number += 1
        return self.training.run_round(cohort, DIGEST, update, dropouts)

    @property
    def written(self) -> list[Any]:
        """The records in the ledger."""
        return [entry.metadata["record"] for entry in self.ledger.entries()]


LOST = {0: Stage.INPUT, 1: Stage.INPUT}


@pytest.mark.parametrize("kind", ["real", "ideal"])
def test_an_attempt_that_fails_before_its_proposal_costs_nothing(tmp_path: Path, kind: str) -> None:
    run = Run(tmp_path, kind)
    run.round()
    before = run.training._sums.epsilons().server
    run.fails(LOST)
    assert len(run.written) == 1
    assert run.training._sums.epsilons().server == before
    result = run.round()
    # In round 2 everybody takes back what went in in round 0, which nobody is waited for.
    assert result.outcome.record == record(2, EVERYBODY, EVERYBODY)
    uploads = result.setup.context.member_uploads  # type: ignore[union-attr]
    assert (uploads.returning, uploads.fewest_returning) == (True, 0)
    assert uploads.records == (record(0),)
    assert run.round().setup.context.member_uploads.fewest_returning == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("stage", [CONFIRM, OPEN])
def test_a_round_that_fails_after_its_proposal_is_paid_for_and_is_not_taken_back(
    tmp_path: Path, stage: MemberStage
) -> None:
    """Its noise is in no sum: taken back, it would only be added to the next."""
    run = Run(tmp_path, "real", absences={1: away(stage, 0, 1, 2, 3, 4)})
    run.round()
    run.fails()
    assert [each[0] for each in run.written] == [0, 1]
    third = run.round()
    assert third.outcome.record == record(2)
    uploads = third.setup.context.member_uploads  # type: ignore[union-attr]
    assert (uploads.returning, uploads.fewest_returning) == (False, 0)
    assert run.round().outcome.record == record(3, EVERYBODY, EVERYBODY)
    assert [each[0] for each in run.written] == [0, 1, 2, 3]


def test_too_few_members_fail_a_round_before_anything_is_charged(tmp_path: Path) -> None:
    for kind in ("real", "ideal"):
        run = Run(tmp_path / kind, kind, absences={1: away(NOISE, 0, 1, 2, 3)})
        run.round()
        error = run.fails()
        assert (error.survivors, error.needed) == (4, 5)
        assert len(run.written) == 1


def test_members_that_have_forgotten_go_on_with_no_run_that_they_signed_for(
    tmp_path: Path,
) -> None:
    """A committee on new machines knows of none: nobody takes anything back, and it goes on."""
    run = Run(tmp_path, "real")
    run.round()
    run.world.committee._noise.clear()
    for _ in range(2):
        error = run.fails()
        assert (error.stage, error.survivors, error.needed) == ("upload", 0, 5)
    run = Run(tmp_path / "new", "real")
    run.round()
    run.world.committee._noise.clear()
    run.world.committee._histories.clear()
    error = run.fails()
    assert (error.stage, error.survivors, error.needed) == ("upload", 0, 2)
    assert run.round().outcome.record == record(2)
    assert run.round().outcome.record == record(3, EVERYBODY, EVERYBODY)


def test_a_run_ends_with_its_last_round(tmp_path: Path) -> None:
    run = Run(tmp_path, "ideal")
    results = [run.round() for _ in range(ROUNDS)]
    assert results[-1].epsilons.server <= GOAL.epsilon
    with pytest.raises(ParameterError, match="the last that is planned for"):
        run.round()
    assert len(run.written) == ROUNDS


def test_two_runs_of_either_kind_write_the_same_books(tmp_path: Path) -> None:
    absences = {1: away(NOISE, 0), 3: away(NOISE, 1, 2)}
    entries = []
    for kind in ("real", "ideal"):
        run = Run(tmp_path / kind, kind, absences=absences)
        for number in range(4):
            run.round({2: Stage.INPUT} if number == 2 else {})
        entries.append([(each.event, dict(each.metadata)) for each in run.ledger.entries()])
    assert entries[0] == entries[1]


# -- the records --------------------------------------------------------------------------------


def rounds(folder: Path) -> tuple[Run, list[RoundResult]]:
    """A run with losses, of eight rounds."""
    absences = {number: away(NOISE, number % 8, (number + 3) % 8) for number in (1, 2, 5)}
    run = Run(folder, "ideal", absences=absences)
    return run, [run.round({number % N: Stage.INPUT}) for number in range(8)]


def test_an_auditor_comes_to_the_same_epsilon(tmp_path: Path) -> None:
    """By its own code, from the bytes of the ledger alone, for every client."""
    run, results = rounds(tmp_path)
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    contents = [json.loads(line)["content"] for line in lines]
    contents = [each for each in contents if isinstance(each, dict) and "event" in each]
    assert len(contents) == 8
    found = {}
    for who, key in enumerate(run.world.keys):
        events = [
            each["event"]
            if label(key) in each["metadata"]["cohort"]
            else {**each["event"], "l2_sensitivity": 0.0}
            for each in contents
        ]
        found[who] = replayed_epsilon(events, delta_for_noise(GOAL.delta, ROUNDS))
    assert max(found.values()) == pytest.approx(results[-1].epsilons.server, rel=2e-3)
    assert len({round(each, 9) for each in found.values()}) == APART
    # The twin: an auditor that charges a client for its own rounds alone.
    own = [each["event"] for each in contents if label(run.world.keys[0]) in
           each["metadata"]["cohort"]]  # fmt: skip
    with pytest.raises(LedgerError, match="is not its round"):
        replayed_epsilon(own, delta_for_noise(GOAL.delta, ROUNDS))


def test_reopened_books_say_the_same(tmp_path: Path) -> None:
    """Of all adversaries: without the members' noise more is known, with one's own alone most."""
    run, results = rounds(tmp_path)
    plan, first, last = run.world.plan, results[0].epsilons, results[-1].epsilons
    assert first.without_members is not None and last.without_members is not None
    assert 0.0 < last.outsider == last.server <= GOAL.epsilon
    assert last.server < last.without_members < last.sybil
    # Each of the worst client's rounds is charged to both.
    assert first.without_members < last.without_members
    told = Records(run.ledger, plan.goal).run_records(SESSION, 8)
    assert told == tuple(result.outcome.record for result in results)
    run.ledger.close()
    with open_ledger(tmp_path) as ledger:
        again = Records(ledger, plan.goal)
        assert again.epsilons(plan.tolerated_colluders) == last
        assert again.run_records(SESSION, 8) == told
        assert again.run_records(SESSION, 5) == told[:5]
        assert again.run_records(bytes(16), 8) == ()


@pytest.mark.parametrize("listed", [records.LISTED_COHORT, 1])
def test_a_second_reader_has_the_three_epsilons_of_reopened_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    """Also of a cohort too large to list, of which everybody is charged once for each round."""
    monkeypatch.setattr(records, "LISTED_COHORT", listed)
    run, results = rounds(tmp_path)
    run.ledger.close()
    with open_ledger(tmp_path) as ledger:
        again = Records(ledger, GOAL).epsilons(run.world.plan.tolerated_colluders)
    told = account_ledger(tmp_path / "ledger.jsonl", None)
    if listed == 1:
        assert told.client == EVERYBODY_OF_A_LEDGER
        assert again.server > results[-1].epsilons.server
    for name in ("without_members", "sybil"):
        assert getattr(told, name) == pytest.approx(getattr(again, name), rel=1e-5)
    assert told.epsilon == pytest.approx(again.server, rel=2e-3)
    shown = Console(file=io.StringIO(), width=240)
    print_account(told, shown)
    figure = f"{told.without_members:.6g}".replace("inf", "infinite")
    assert f"{figure} " in shown.file.getvalue().split("all members' noise")[0].splitlines()[-1]


def test_absent_clients_accounts_grow_with_the_run_but_not_their_epsilon(tmp_path: Path) -> None:
    """Epsilon has all that may still come back in it from the first."""
    run = Run(tmp_path, "ideal")
    spent = []
    for number in range(10):
        # The first group of clients in the first round only.
        cohort = run.world.cohort(0 if not number else 1 + number % 3)
        run.training.run_round(cohort, DIGEST, update)
        accounts = run.training._sums._records._accounts
        first = accounts._of(label(run.world.keys[0]))
        assert first.server.releases == number + 1
        spent.append(first.server.epsilon(GOAL.delta))
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(spent))
    assert spent[-1] > 0.0


@pytest.mark.parametrize(
    "written",
    [None, [], [0, 8, [0]], [0, 8, [0], ["1"]], ["0", 8, [], []], [0, 8, [0], 5], {"round": 0}],
)
def test_a_malformed_record_in_a_ledger_is_refused(tmp_path: Path, written: Any) -> None:
    run = Run(tmp_path / "first", "ideal")
    run.round()
    (entry,) = run.ledger.entries()
    (tmp_path / "second").mkdir()
    with open_ledger(tmp_path / "second") as other:
        other.append(entry.event, {**dict(entry.metadata), "record": written})
        with pytest.raises(LedgerError, match="malformed record"):
            Records(other, GOAL).run_records(SESSION, 5)


# -- interrupted runs -----------------------------------------------------------------------------


def test_a_run_goes_on_from_its_state(tmp_path: Path) -> None:
    """With the seeds of its members it ends with the very same sums."""
    whole = Run(tmp_path / "whole", "ideal")
    expected = [whole.round() for _ in range(5)]
    run = Run(tmp_path / "cut", "ideal")
    for _ in range(3):
        run.round()
    state = run.training.state
    run.ledger.close()
    with open_ledger(tmp_path / "cut") as ledger:
        aggregator = IdealAggregator(committee=run.world.committee, members_noise=noise_of)
        training = run.world.training(ledger, aggregator, state)
        for number in (3, 4):
            result = training.run_round(run.world.cohort(number), DIGEST, update)
            assert result.outcome.record == expected[number].outcome.record
            assert result.epsilons == expected[number].epsilons
            assert result.setup.context == expected[number].setup.context


@pytest.mark.parametrize("stage", [NOISE, OPEN])
def test_a_state_says_which_sum_was_opened_last(tmp_path: Path, stage: MemberStage) -> None:
    """After a round that was lost nobody takes back what is in no sum, restart or not."""
    run = Run(tmp_path, "real", absences={1: away(stage, 0, 1, 2, 3, 4)})
    run.round()
    run.fails()
    state = run.training.state
    assert (state.attempts, state.opened) == (2, 0)
    training = run.world.training(run.ledger, run.world.real, state)
    result = training.run_round(run.world.cohort(2), DIGEST, update)
    lost = stage is OPEN
    assert result.outcome.record == record(2, EVERYBODY, () if lost else EVERYBODY)
    assert training.state.opened is None
    # The twin that takes the last one for opened would take back what is in no sum.
    twin = run.world.training(run.ledger, run.world.real, dataclasses.replace(state, opened=None))
    uploads = twin.next_setup(run.world.cohort(2), DIGEST).context.member_uploads  # type: ignore[union-attr]
    assert uploads.returning is lost


class Died(Exception):  # noqa: N818 - the process, and no error of it
    """The process was killed."""


def interrupted(folder: Path, rand: Callable[[int], bytes]) -> tuple[Run, Ledger, PrivateTraining]:
    """A run that died in round 2, just when it had paid; and one that goes on from its state."""
    run = Run(folder, "ideal")
    run.round()
    run.round()
    state = run.training.state
    inner = IdealAggregator(committee=run.world.committee, members_noise=noise_of)

    def going_on(aggregator: Any, ledger: Ledger, rand: Callable[[int], bytes]) -> PrivateTraining:
        controller = run.training._controller
        return PrivateTraining(
            run.world.plan, DIMENSION, controller, aggregator, ledger, state, rand=rand
        )

    def dies(setup: OneShotSetup, updates: Any, dropouts: Any, *, before_release: Any) -> NoReturn:
        def pay(*of: Any) -> NoReturn:
            before_release(*of)
            raise Died

        inner.run(setup, updates, dropouts, before_release=pay)
        raise AssertionError("nothing was paid")

    dying = SimpleNamespace(members=inner.members, run=dies)
    with pytest.raises(Died):
        going_on(dying, run.ledger, lambda count: secret("public")[:count]).run_round(
            run.world.cohort(2), DIGEST, update
        )
    run.ledger.close()
    ledger = open_ledger(folder)
    return run, ledger, going_on(inner, ledger, rand)


def test_a_round_that_was_paid_for_is_run_again_with_the_same_secrets(tmp_path: Path) -> None:
    run, ledger, again = interrupted(tmp_path, lambda count: secret("public")[:count])
    with ledger:
        assert len(ledger.entries()) == 3
        result = again.run_round(run.world.cohort(2), DIGEST, update)
        assert len(ledger.entries()) == 3
        assert result.outcome.record == record(2, EVERYBODY, EVERYBODY)
        again.run_round(run.world.cohort(3), DIGEST, update)
        assert len(ledger.entries()) == 4


def test_a_round_that_was_paid_for_is_not_run_again_with_other_secrets(tmp_path: Path) -> None:
    """Two sums of the same round with other noise would be charged as one."""
    run, ledger, again = interrupted(tmp_path, lambda count: secret("another")[:count])
    with ledger:
        with pytest.raises(LedgerError, match="attempt 2 of this session was charged"):
            again.run_round(run.world.cohort(2), DIGEST, update)
        assert len(ledger.entries()) == 3
        # It stays in the list as a round that was lost, and the run goes on.
        later = dataclasses.replace(again.state, attempts=3, opened=1)
        inner = IdealAggregator(committee=run.world.committee, members_noise=noise_of)
        result = run.world.training(ledger, inner, later).run_round(
            run.world.cohort(3), DIGEST, update
        )
        uploads = result.setup.context.member_uploads  # type: ignore[union-attr]
        assert uploads.records[-1].round_number == 2
        assert uploads.returning is False
        assert len(ledger.entries()) == 4


def test_scale_and_clip_stay_over_a_run(tmp_path: Path) -> None:
    run = Run(tmp_path, "ideal")
    with pytest.raises(ParameterError, match="noise comes back at the scale"):
        run.training.run_round(run.world.cohort(0), DIGEST, update, clip_l2=0.5)
    first, second = run.round().setup, run.round().setup
    assert first.parameters == dataclasses.replace(second.parameters)
    assert first.parameters.public_seed == second.parameters.public_seed
    assert first.context.hash != second.context.hash
