"""One-shot rounds on several ranks: those of one process, bit for bit, whoever is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import one_shot_rounds as kit
import pytest
from one_shot_worlds import DIMENSION, World, plan_of, rounding, update
from rank_doubles import ThreadRank, on_ranks

from dp import LedgerError
from protocol.errors import RankFailedError
from protocol.exchange.divided import DividedUploads
from protocol.exchange.in_step import InStep
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.ranks import Ranks
from protocol.exchange.stages import RoundOutcome
from protocol.noise.noise import Independent
from protocol.round.losses import Dropouts, Stage
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.pipeline import Pipeline
from protocol.schemes import Pairwise, Validated
from protocol.schemes.committee import Named
from protocol.training.local import local_aggregator
from secagg import LocalProtocolError, ParameterError, TooFewSurvivorsError
from secagg.framing import encode_message
from secagg.oneshot import member
from secagg.oneshot.collection import UploadCollection
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.messages import Upload, decode_upload

EVERYONE, NAMED = CommitteeKind.EVERYONE, CommitteeKind.NAMED
COHORT = 10


def dealt(ranks: Ranks) -> None:
    """Clients in turn, but for two that change places: a rank's are not in a row."""
    order = [3, 1, 2, 0, *range(4, COHORT)]
    ranks.take(order[ranks.rank :: ranks.size])


def played(
    kind: CommitteeKind,
    dropouts: Dropouts,
    updates: Callable[[int], Any] = update,
    **options: Any,
) -> Callable[[Ranks], tuple[RoundOutcome, list[Sequence[int]], list[int], Any]]:
    """A rank's part of a round: outcome, what was paid, whose updates were asked for, the mean."""

    def work(ranks: Ranks) -> tuple[RoundOutcome, list[Sequence[int]], list[int], Any]:
        dealt(ranks)
        of_world = dict(options)
        plan = plan_of(kind, **of_world.pop("plan", {}))
        world = World(plan, ranks=ranks, **of_world)
        setup, paid, asked = world.setup(), list[Sequence[int]](), list[int]()

        def watched(index: int) -> Any:
            asked.append(index)
            return updates(index)

        got = world.real.run(setup, watched, dropouts, before_release=paid.append)
        return got, paid, asked, Pipeline(setup).decode(got.total, got.surplus).update

    return work


def same(one: RoundOutcome, other: RoundOutcome) -> bool:
    """Whether two outcomes are equal, but for who drew the surplus noise."""
    vectors = [each.total.vector.elements for each in (one, other)]
    no = vectors[0][:0]

    def told(outcome: RoundOutcome) -> RoundOutcome:
        field = outcome.total.vector.field
        total = replace(outcome.total, vector=type(outcome.total.vector)(field, no))
        return replace(outcome, total=total, surplus=None)

    seeds = one.total.removed == other.total.removed
    return seeds and np.array_equal(*vectors) and repr(told(one)) == repr(told(other))


VALIDATED = {
    "scheme": Validated(committee=Named(size=8, corrupt=1, away=1)),
    "noise": Independent(mechanism="discrete-gaussian"),
}
CASES: Mapping[str, tuple[CommitteeKind, Dropouts, Mapping[str, Any]]] = {
    "nobody lost": (NAMED, {}, {}),
    "clients lost": (NAMED, {0: Stage.ADVERTISE, 9: Stage.INPUT}, {}),
    "a member lost at the check": (NAMED, {}, {"absences": lambda _: {1: MemberStage.CHECK}}),
    "a member lost at the signature": (
        NAMED,
        {4: Stage.SHARE},
        {"absences": lambda _: {2: MemberStage.CONFIRM}},
    ),
    "a member lost at the end": (NAMED, {}, {"absences": lambda _: {0: MemberStage.OPEN}}),
    "validated, a client and a member lost": (
        NAMED,
        {4: Stage.INPUT},
        {"absences": lambda _: {1: MemberStage.CHECK}, "plan": VALIDATED},
    ),
    "everyone, nobody lost": (EVERYONE, {}, {}),
    "everyone, clients lost": (EVERYONE, {3: Stage.INPUT, 5: Stage.SHARE}, {}),
    "everyone, members lost": (EVERYONE, {1: Stage.CONFIRM, 2: Stage.UNMASK}, {}),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("case", CASES)
def test_any_number_of_ranks_gives_the_round_of_one_process(case: str, size: int) -> None:
    kind, dropouts, options = CASES[case]
    work = played(kind, dropouts, **options)
    ((whole, paid_alone, everybody, mean),) = on_ranks(1, work)
    told = on_ranks(size, work)
    assert sorted(index for _, _, asked, _ in told for index in asked) == everybody
    for got, paid, _, same_mean in told:
        assert same(got, whole)
        assert paid == paid_alone == [whole.total.survivors]
        assert np.array_equal(same_mean, mean)
    # Surplus noise is drawn once, by the rank of its client.
    assert all((got.surplus is None) is not bool(whole.total.removed) for got, *_ in told)


def test_a_client_that_is_lost_changes_the_sum() -> None:
    """The control: what is compared above would show it."""
    ((one, *_),) = on_ranks(1, played(NAMED, {}))
    ((other, *_),) = on_ranks(1, played(NAMED, {9: Stage.INPUT}))
    assert not same(one, other) and not same(one, replace(one, refused={3: "it"}))


@pytest.mark.parametrize("kind", list(CommitteeKind))
def test_refusals_are_told_on_all_ranks(kind: CommitteeKind) -> None:
    def updates(index: int) -> Any:
        return update(index) * (np.nan if index == 4 else 1.0)

    ((whole, *_),) = on_ranks(1, played(kind, {}, updates))
    assert list(whole.refused) == [4]
    assert all(same(got, whole) for got, *_ in on_ranks(3, played(kind, {}, updates)))


def test_a_bad_seal_is_left_out_of_the_sum_of_the_rank_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client whose seals do not open at any honest member is excluded everywhere."""
    submit = OneShotRoundClient.submit

    def cheats(client: OneShotRoundClient, *given: Any) -> bytes:
        data = submit(client, *given)
        index, context = client.own_upload[0], client.setup.context
        if index != 5:
            return data
        message = decode_upload(data, index, len(data))
        bad = msgspec.structs.replace(message, seals=bytes(len(message.seals)))
        return encode_message(kit.signed_upload(context, bad))

    monkeypatch.setattr(OneShotRoundClient, "submit", cheats)
    ((whole, *_),) = on_ranks(1, played(NAMED, {}))
    assert 5 not in whole.total.survivors and "do not open" in whole.refused[5]
    for size in (2, 3):
        assert all(same(got, whole) for got, *_ in on_ranks(size, played(NAMED, {})))


def failing(
    work: Callable[[Ranks], Any], size: int, *also: type[BaseException]
) -> list[BaseException]:
    """How a piece of work ends on each rank."""

    def caught(ranks: Ranks) -> BaseException:
        with pytest.raises((TooFewSurvivorsError, RankFailedError, *also)) as raised:
            work(ranks)
        return raised.value

    return on_ranks(size, caught)


@pytest.mark.parametrize(
    ("dropouts", "absences", "stage"),
    [
        ({1: Stage.INPUT, 2: Stage.INPUT, 3: Stage.INPUT}, {}, "upload"),
        ({}, {i: MemberStage.CHECK for i in range(7)}, "check"),
        ({}, {i: MemberStage.CONFIRM for i in range(7)}, "confirm"),
        ({}, {i: MemberStage.OPEN for i in range(7)}, "open"),
    ],
)
def test_all_ranks_fail_where_one_process_would(
    dropouts: Dropouts, absences: dict[int, MemberStage], stage: str
) -> None:
    work = played(NAMED, dropouts, absences=lambda _: absences)
    (alone,) = failing(work, 1)
    assert isinstance(alone, TooFewSurvivorsError) and alone.stage == stage
    assert {repr(error) for error in failing(work, 3)} == {repr(alone)}


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_mistake_on_one_rank_ends_the_round_on_all(rank: int) -> None:
    """An update that cannot be made, halfway through one rank's clients."""
    order = [3, 1, 2, 0, *range(4, COHORT)]
    victim = sorted(order[rank::3])[1]

    def updates(index: int) -> Any:
        if index == victim:
            raise OSError(28, "No space left on device")
        return update(index)

    errors = failing(played(NAMED, {}, updates), 3, OSError)
    for number, error in enumerate(errors):
        if number == rank:
            assert isinstance(error, OSError)
        else:
            assert isinstance(error, RankFailedError) and error.rank == rank
            assert "No space left" in str(error)


@pytest.mark.parametrize("rank", [0, 1])
def test_nobody_signs_if_one_rank_cannot_pay(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[int] = []
    on_proposal = member.HANDLERS[member.MemberPhase.CHECKED, member.Proposal]

    def signs(party: Any, *given: Any) -> Any:
        signed.append(party.index)
        return on_proposal(party, *given)

    monkeypatch.setitem(member.HANDLERS, (member.MemberPhase.CHECKED, member.Proposal), signs)

    def work(ranks: Ranks) -> None:
        def pay(_: Sequence[int]) -> None:
            if ranks.rank == rank:
                raise LedgerError("the disk is full")

        dealt(ranks)
        world = World(plan_of(NAMED), ranks=ranks)
        world.real.run(world.setup(), update, {}, before_release=pay)

    errors = failing(work, 2, LedgerError)
    assert isinstance(errors[rank], LedgerError)
    assert isinstance(errors[1 - rank], RankFailedError) and not signed
    # The control: members do sign where everybody pays.
    on_ranks(2, played(NAMED, {}))
    assert sorted(signed) == list(range(8))


def test_a_member_that_fails_by_mistake_ends_the_round_on_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the last row of deliveries, where some ranks serve nobody."""
    on_delivery = member.HANDLERS[member.MemberPhase.WAITING, member.Delivery]

    def fails(party: Any, *given: Any) -> Any:
        if party.index == 7:
            raise ZeroDivisionError("a mistake")
        return on_delivery(party, *given)

    monkeypatch.setitem(member.HANDLERS, (member.MemberPhase.WAITING, member.Delivery), fails)
    errors = failing(played(NAMED, {}), 3, ZeroDivisionError)
    assert [type(error) for error in errors] == [
        RankFailedError,
        ZeroDivisionError,
        RankFailedError,
    ]


def test_a_mistake_after_the_last_exchange_is_told_too() -> None:
    def work(ranks: Ranks) -> None:
        with InStep(ranks) as steps:
            assert steps.gather(ranks.rank) == [0, 1]
            if ranks.rank:
                raise ValueError("late")

    errors = failing(work, 2, ValueError)
    assert [type(error) for error in errors] == [RankFailedError, ValueError]


def test_an_interrupt_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the process: the others see that its connections are closed, and wait for nothing."""
    ended: list[str] = []
    told: list[int] = []
    gather = ThreadRank.gather

    def tells(ranks: ThreadRank, facts: Any) -> Any:
        told.append(ranks.rank)
        return gather(ranks, facts)

    monkeypatch.setattr(ThreadRank, "gather", tells)

    def work(ranks: Ranks) -> None:
        try:
            with InStep(ranks) as steps:
                if ranks.rank:
                    raise KeyboardInterrupt
                steps.add(np.ones(1))
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    with pytest.raises(KeyboardInterrupt):
        on_ranks(2, work)
    assert sorted(ended) == ["BrokenBarrierError", "KeyboardInterrupt"] and told == [0]


def test_ranks_of_different_rounds_find_out() -> None:
    def work(ranks: Ranks) -> None:
        dealt(ranks)
        world = World(plan_of(NAMED), ranks=ranks)
        world.real.run(world.setup(number=ranks.rank), update, {})

    for error in failing(work, 2, ParameterError):
        assert isinstance(error, ParameterError) and "on rank 1 another" in str(error)


def test_a_client_on_two_ranks_is_found_out() -> None:
    """It would be in the sum twice, which every rank would believe to be right."""

    def work(ranks: Ranks) -> None:
        ranks.take(range(5) if ranks.rank else range(4, COHORT))
        world = World(plan_of(NAMED), ranks=ranks)
        world.real.run(world.setup(), update, {})

    for error in failing(work, 2, LocalProtocolError):
        assert "client 4 uploaded on two ranks" in str(error)


def test_a_rank_without_clients_and_one_without_members_are_of_no_harm() -> None:
    ((whole, *_),) = on_ranks(1, played(NAMED, {}))

    def work(ranks: Ranks) -> RoundOutcome:
        ranks.take(range(COHORT) if ranks.rank == 1 else ())
        world = World(plan_of(NAMED), ranks=ranks)
        got = world.real.run(world.setup(), update, {})
        return got

    for size in (2, 9):
        assert all(same(got, whole) for got in on_ranks(size, work))


def test_a_client_counts_the_rounds_that_another_rank_played() -> None:
    """Its goal has three rounds; they are played on changing ranks, and the fourth is refused."""

    def work(ranks: Ranks) -> list[dict[int, str]]:
        world = World(plan_of(NAMED), ranks=ranks)
        refused = []
        for number in range(4):
            ranks.take(i for i in range(COHORT) if (i + number) % ranks.size == ranks.rank)
            # One of them joins in the third round, and uploads nothing: it may come again.
            bad = 5 if number == 2 else -1
            try:
                got = world.real.run(
                    world.setup(number),
                    lambda i, bad=bad: update(i) * (np.nan if i == bad else 1.0),
                    {},
                )
                refused.append(dict(got.refused))
            except TooFewSurvivorsError as error:
                refused.append({-1: str(error)})
        return refused

    (alone,) = on_ranks(1, work)
    assert alone[0] == alone[1] == {} and list(alone[2]) == [5]
    # All but the one that has a round left are refused.
    assert "only 1" in alone[3][-1] or "1 " in alone[3][-1]
    assert on_ranks(2, work) == [alone, alone]


def test_seals_go_to_the_rank_that_plays_the_member() -> None:
    """Each rank is given the columns of its own members, and of no other."""

    def work(ranks: Ranks) -> tuple[list[tuple[int, bytes]], int]:
        dealt(ranks)
        world = World(plan_of(NAMED))
        setup = world.setup()
        context, cohort = setup.context, setup.known_cohort()
        here = UploadCollection(context, cohort)
        uploads = DividedUploads(here, ranks, context.committee.size, context.seeds)
        for index in range(COHORT):
            if ranks.owns(index):
                uploads.take(upload_of(world, setup, index))
        uploads.close()
        assert set(uploads.headers) == set(range(COHORT)) == set(uploads.commitments)
        columns = list(uploads.columns())
        total = uploads.total()
        assert total.count == COHORT
        return columns, int(total.sums.astype(np.int64).sum())

    ((everything, checksum),) = on_ranks(1, work)
    for size in (2, 3):
        told = on_ranks(size, work)
        assert {check for _, check in told} == {checksum}
        for rank, (columns, _) in enumerate(told):
            assert columns == everything[rank::size]


def upload_of(world: World, setup: OneShotSetup, index: int) -> Upload:
    """A client's upload, decoded."""
    client = world.client(index)
    client.join(setup.announce(index), setup.parameters.model_digest)
    data = client.submit(update(index), rounding(index))
    return decode_upload(data, index, len(data))


def test_the_server_of_a_pairwise_round_is_one_process() -> None:
    plan = plan_of(EVERYONE, scheme=Pairwise())
    identities = [kit.identity("client", index) for index in range(COHORT)]

    def work(ranks: Ranks) -> None:
        with pytest.raises(ParameterError) as raised:
            local_aggregator(plan, identities, DIMENSION, ranks=ranks)
        assert raised.value.argument == "ranks"

    on_ranks(2, work)
    on_ranks(1, lambda ranks: local_aggregator(plan, identities, DIMENSION, ranks=ranks))
