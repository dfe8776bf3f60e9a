"""A55 to A60, A69: members who add noise and take it back, and a server that wants it back twice.

Whole rounds of the product, whose sums a server opens in the order that it likes. An attack has
succeeded if the sums that are open then carry less noise than everybody counts from their records
(`simulations.threats.one_shot.whole_run`), or fewer parties' than they were promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocol import ClientHistory
from protocol.errors import PolicyError
from protocol.round import member as round_member
from protocol.round import member_noise
from protocol.round.member import RoundMember
from protocol.round.member_noise import AddedNoise, MemberNoise
from protocol.round.parameters import RoundParameters
from secagg import FieldVector, PrimeField, ProtocolError, lift
from secagg.oneshot import member as member_session
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.header import Header
from secagg.oneshot.records import RoundRecord
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, either, rate, refused_with, twins
from simulations.threats.game.weak_clients import replaced
from simulations.threats.one_shot.returning import (
    CLIENTS,
    MEMBERS,
    Memory,
    ReturningRun,
    member_policy,
    noise_of,
    parameters_of,
    with_noise,
)
from simulations.threats.one_shot.weak import (
    BelievesRecords,
    ForgetsLists,
    ForgetsRounds,
    SignsLate,
    StoredNoise,
    TakesAnyTerms,
    WatchedNoise,
)

T = TypeVar("T")

Story = Callable[[ReturningRun], None]
"""What the server does in one run."""


def _played(
    stories: Sequence[Story],
    runs: int,
    seed: int,
    memory: Memory = WatchedNoise,
    failed: Callable[[ReturningRun], str] = ReturningRun.flaw,
) -> Figures:
    """How often the sums of a run were not as counted, and how parties refused."""
    won, refusals, flaws = 0, Counter[str](), Counter[str]()
    for number in range(runs):
        for story in stories:
            run = ReturningRun(seed + number, memory)
            story(run)
            if found := failed(run):
                won += 1
                flaws[found] += 1
            refusals += run.refusals
    del refusals["TooFewSurvivorsError"]
    found_most = {"flaw": flaws.most_common(1)[0][0]} if flaws else {}
    return {**rate(won, runs * len(stories)), **refused_with(refusals), **found_most}


def _first(run: ReturningRun, absent: Sequence[int] = ()) -> RoundRecord:
    """Round 0, as it should be."""
    return _there(run.begin(run.setup(0), absent=absent).through())


def _there(record: RoundRecord | None) -> RoundRecord:
    if record is None:
        raise AssertionError("an honest round was lost")
    return record


# -- A55 ------------------------------------------------------------------------------------------


def _two_attempts(run: ReturningRun, later_first: bool) -> None:
    """Two attempts at the round after the first: both uploads take the same noise back."""
    record = _first(run)
    attempts = [run.begin(run.setup(number, [record])) for number in (1, 2)]
    for attempt in reversed(attempts) if later_first else attempts:
        attempt.through()


def _late_signature(run: ReturningRun) -> None:
    """Members have checked the uploads of an attempt; they are asked to sign after the next."""
    record = _first(run)
    attempt = run.begin(run.setup(1, [record])).check()
    run.begin(run.setup(2, [record])).through()
    attempt.go_on().go_on().open()


def _late_answers(run: ReturningRun) -> None:
    """A round that was signed for is opened after the next one, which lists it: that is allowed."""
    record = _first(run)
    signed = run.begin(run.setup(1, [record])).check().go_on()
    run.begin(run.setup(2, [record, _there(signed.record)])).through()
    signed.go_on().open()


def _retries(effort: Effort, seed: int) -> Findings:
    runs = effort.choose(1, 20)
    stories = (partial(_two_attempts, later_first=True), _late_signature)
    real = _played((*stories, partial(_two_attempts, later_first=False)), runs, seed)
    late = ReturningRun(seed)
    _late_answers(late)
    fine = len(late.opened) == 3 and not late.flaw()
    return Findings(
        either(real, not fine, late_answers_opened=fine),
        _played(stories, runs, seed, SignsLate),
    )


# -- A56 ------------------------------------------------------------------------------------------


def _left_out(run: ReturningRun) -> None:
    """After two rounds a third one lists the first alone, as if members had restarted from it."""
    record = _first(run)
    run.begin(run.setup(1, [record])).through()
    run.begin(run.setup(2, [record])).through()


def _made_up(run: ReturningRun) -> None:
    """The record of the second round is another than was signed: nobody took anything back."""
    record = _first(run)
    second = _there(run.begin(run.setup(1, [record])).through())
    run.begin(run.setup(2, [record, replace(second, returned=())])).through()


def _signed_only(run: ReturningRun) -> None:
    """The second round is signed for, and is opened when a third has been, which left it out."""
    record = _first(run)
    signed = run.begin(run.setup(1, [record])).check().go_on()
    run.begin(run.setup(2, [record])).through()
    signed.go_on().open()


def _same_number(run: ReturningRun) -> None:
    """Two contexts of one round."""
    record = _first(run)
    run.begin(run.setup(1, [record])).through()
    run.member_histories = [[_forgetful(each) for each in some] for some in run.member_histories]
    run.begin(run.setup(1, [record], returning=False)).through()


def _forgetful(history: ClientHistory) -> ClientHistory:
    """The history of a member that has another memory; its own, which is tested in A49, aside."""
    del history
    return ClientHistory()


def _restarted(run: ReturningRun) -> None:
    """Members restart after two rounds, from their folders; a third round lists the first alone."""
    with TemporaryDirectory() as name:
        folders = [Path(name) / str(j) for j in range(MEMBERS)]
        record = _between_processes(run, folders, lambda: _first(run))
        _between_processes(run, folders, lambda: run.begin(run.setup(1, [record])).through())
        _between_processes(run, folders, lambda: run.begin(run.setup(2, [record])).through())


def _between_processes(run: ReturningRun, folders: Sequence[Path], step: Callable[[], T]) -> T:
    """A step of a process that ends with it."""
    with ExitStack() as stack:
        run.memories[0] = [
            stack.enter_context(StoredNoise(folder, before))
            for folder, before in zip(folders, run.memories[0], strict=True)
        ]
        return step()


def _without_memories(run: ReturningRun, histories: bool = True) -> None:
    """The same with members who lost their memories in between: they go on with no such run."""
    record = _first(run)
    run.begin(run.setup(1, [record])).through()
    known = run.memories[0]
    run.memories[0] = [WatchedNoise(j) for j in range(MEMBERS)]
    for fresh, before in zip(run.memories[0], known, strict=True):
        fresh.used = before.used
    if not histories:
        run.member_histories = [
            [_forgetful(each) for each in some] for some in run.member_histories
        ]
    run.begin(run.setup(2, [record])).through()


def _lists(effort: Effort, seed: int) -> Findings:
    runs = effort.choose(1, 20)
    lists = (_left_out, _made_up, _signed_only)
    real = _played((*lists, _same_number, _restarted, _without_memories), runs, seed)
    twin = _played(lists, runs, seed, ForgetsLists)
    again = _played((_same_number,), runs, seed, ForgetsRounds)
    restarted = _played((partial(_without_memories, histories=False),), runs, seed)
    others = {
        "same_number_flaw": again.get("flaw", ""),
        "restarted_flaw": restarted.get("flaw", ""),
    }
    every = all(each["succeeded"] for each in (twin, again, restarted))
    return Findings(real, {**twin, **others, "succeeded": every})


# -- A57 ------------------------------------------------------------------------------------------


def _quieter(run: ReturningRun) -> RoundParameters:
    """A thousandth of the members' noise."""
    variance = noise_of(parameters_of(run.plan)).variance
    return with_noise(run.plan, variance=variance / 1000.0)


def _swapped(run: ReturningRun) -> None:
    """Noise goes in under other terms, in a round that nobody signs for, and comes back."""
    run.begin(run.setup(0, parameters=_quieter(run)), clients=0)
    everybody = tuple(range(MEMBERS))
    run.begin(run.setup(1, [RoundRecord(0, CLIENTS, everybody, ())])).through()


# -- A58 ------------------------------------------------------------------------------------------

_CORRUPT: Final = 0
_WAITED_FOR: Final = 4


def _false_flags(run: ReturningRun) -> None:
    """A corrupt member says that it takes back what it never added, in place of an honest one."""
    record = _first(run, absent=[_CORRUPT, 5])
    setup = run.setup(1, [record], fewest_returning=_WAITED_FOR)
    attempt = run.begin(setup, absent=[_CORRUPT, 4])
    place = CLIENTS + _CORRUPT
    identity, proof = run.committees[0][_CORRUPT], setup.known_cohort().proof(place)
    session = OneShotClient(setup.context, place, identity, proof, returns=True)
    session.seeds(b"")
    nothing = np.zeros(setup.context.length, np.int64)
    attempt.uploads[place] = session.submit_bytes(lift(nothing, setup.context.field))
    attempt.through()


def _too_few_returned(run: ReturningRun) -> str:
    """Whether the second sum has fewer who take back than clients were told to count on."""
    if len(run.opened) < 2:
        return ""
    first, second = (each.record for each in run.opened)
    real = set(first.entered).intersection(second.returned)
    return "fewer took back than was promised" if len(real) < _WAITED_FOR else ""


# -- A59 ------------------------------------------------------------------------------------------


def _few(run: ReturningRun, left_out: Sequence[int]) -> None:
    """A sum without the uploads at some places, by a server that has no minima."""
    setup = run.setup(0)
    uploads = setup.context.member_uploads
    if uploads is None:
        raise AssertionError("members upload in these runs")
    weak = {"minimum_survivors": 1, "member_uploads": replace(uploads, fewest=1)}
    run.begin(setup).check(left_out, **weak).go_on().go_on().open()


_FEWER: Final = (
    partial(_few, left_out=range(CLIENTS, CLIENTS + 3)),
    partial(_few, left_out=(1, 2)),
)


# -- A60 ------------------------------------------------------------------------------------------

_FAR: Final = 1 << 40
"""A draw beyond every field of these rounds."""


def _refuses_overflow(
    field: PrimeField, length: int, added: AddedNoise, taken: AddedNoise | None
) -> FieldVector:
    """The twin's: noise that does not fit the field is not sent."""
    values = member_noise._drawn(added, length)
    if taken is not None:
        values = values - member_noise._drawn(taken, length)
    return lift(values, field)


def _presence(members: int, seed: int) -> Figures:
    """Draws go far or not; the server says which, by whether there is an upload, and how long."""
    rng = np.random.default_rng(seed)
    run = ReturningRun(seed)
    setup = run.setup(0)
    right, refusals, usual = 0, Counter[str](), 0
    for number in range(members):
        j, far = number % MEMBERS, bool(rng.integers(2))
        member = RoundMember(
            run.committees[0][j],
            run.keys[0][j],
            member_policy(run),
            ClientHistory(),
            noise=MemberNoise(),
        )
        try:
            with _draws(_FAR * int(rng.choice([-1, 1]))) if far else nullcontext():
                size = len(member.add_noise(setup.announce_to_member(j)))
        except (PolicyError, ProtocolError) as error:
            refusals[type(error).__name__] += 1
            size = 0
        usual = max(usual, size)
        right += far == (size < usual)
    return {**rate(right, members, 0.5), **refused_with(refusals)}


def _draws(value: int) -> AbstractContextManager[Any]:
    """Inside, every draw of a member's noise is this number."""

    def far(law: object, seed: object, length: int) -> NDArray[np.int64]:
        return np.full(length, value, np.int64)

    return replaced((member_noise, "sample_law", far))


# -- A69 ------------------------------------------------------------------------------------------

_FAR_AHEAD: Final = 60_000
"""Nearly all rounds that the members' sealing keys serve."""


def _skipped(run: ReturningRun) -> None:
    """A record of a round that never was, and the round after it."""
    made_up = RoundRecord(_FAR_AHEAD, CLIENTS, tuple(range(MEMBERS)), ())
    run.begin(run.setup(_FAR_AHEAD + 1, [made_up]), clients=0)


def _shut_out(run: ReturningRun) -> str:
    """Whether members are left for the rounds of the run."""
    run.member_histories = [[ClientHistory() for _ in range(MEMBERS)]]
    there = run.begin(run.setup(0), clients=0).uploads
    return "" if there else "all numbers are used up"


ATTACKS: Final = (
    Attack(
        id="A55",
        promise="P13",
        name="noise taken back twice, in attempts at a round",
        title="Noise comes back in one sum only, however often a round is tried again",
        says="begins two attempts whose uploads take the same noise back, and has members sign "
        "for both, or for an older one",
        stopped_by="a member signs for the round that it began last, and for none before",
        refused_with="PolicyError round_number",
        run=_retries,
    ),
    Attack(
        id="A56",
        promise="P13",
        name="lists that omit what was signed",
        title="Lists of rounds that leave out or change what was signed end in no sum",
        says="announces a round whose list omits or changes one that members signed for, or later "
        "opens one that was omitted; two contexts of one round",
        stopped_by="each member's memory of what it signed for, a hash chain; whoever lost it goes "
        "on with no run that it has a history of",
        refused_with="PolicyError records",
        run=_lists,
    ),
    Attack(
        id="A57",
        promise="P13",
        name="noise made under other terms",
        title="Noise comes back under the terms under which it went in",
        says="has noise added under a thousandth of the variance, in a round that nobody signs, "
        "and taken back under the right one",
        stopped_by="terms that bind a member from the first round that it begins; seeds tied to a "
        "variance",
        refused_with="PolicyError records",
        run=twins(partial(_played, (_swapped,)), 2, 30, memory=TakesAnyTerms),
    ),
    Attack(
        id="A58",
        promise="P13",
        name="flags of members that added nothing",
        title="Nobody counts as taking back who had added nothing",
        says="has a corrupt member claim to take back what it never added, in place of an honest "
        "one",
        stopped_by="members check each flag against the last record",
        run=twins(
            partial(_played, (_false_flags,), failed=_too_few_returned),
            2,
            30,
            (Header, "may_return", lambda *_: True),
        ),
    ),
    Attack(
        id="A59",
        promise="P13",
        name="fewer parties than agreed in a run",
        title="No sum has the noise of fewer clients or members than agreed",
        says="proposes sums with fewer members' noise, or fewer clients'",
        stopped_by="each member's own count of both",
        refused_with="RemoteProtocolError SET_TOO_SMALL",
        run=twins(partial(_played, _FEWER), 1, 20, (member_session, "counts_of", lambda *_: ())),
    ),
    Attack(
        id="A60",
        promise="P13",
        name="members that look at their noise",
        title="Whether a member is there does not depend on its noise",
        says="infers from who is present how large a draw was",
        stopped_by="draws that wrap around when they overflow, and are not refused",
        run=twins(_presence, 60, 600, (round_member, "noise_vector", _refuses_overflow)),
    ),
    Attack(
        id="A69",
        promise="P14",
        name="made-up records",
        title="Nobody uses up the numbers of a run with records that are made up",
        says="shows members a record of a round far ahead, and announces the one after it, so "
        "that they refuse all before",
        stopped_by="the gap, which each member counts from the round that it began itself",
        refused_with="PolicyError round_number",
        run=twins(partial(_played, (_skipped,), failed=_shut_out), 1, 20, memory=BelievesRecords),
    ),
)
