"""Schedules of a server with the members of a small committee that adds noise and takes it back.

docs/span.md, "Runs with returned noise", has the model. Members are the memories of the product
(`protocol.round.member_noise`), and the rules of a round that keep it to one set: a member signs
once in each context, for its own upload only. What a quorum has signed is open.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from dp import NoiseSeed
from dp.correlated import Parts
from protocol.errors import PolicyError
from secagg import LocalProtocolError, ParameterError
from secagg.oneshot.committee import lowest_quorum
from secagg.oneshot.records import MemberUploads, RoundRecord, fewest_members, next_head
from secagg.tags import Usage, digest
from simulations.audits.base import derived_bytes
from simulations.threats.one_shot.weak import WatchedNoise
from simulations.threats.one_shot.whole_run import Draw, OpenedRound, flaw

COMMITTEES: Final = ((4, 1), (5, 1), (6, 1), (7, 2))
"""s and c."""

_CLIENTS: Final = 3
_ROUNDS: Final = 6
_STEPS: Final = (6, 40)
_VARIANCES: Final = (1.0, 0.01)
_KEPT: Final = 0.05
"""Variance of clients' noise: little, so that members' decides."""

Flags = frozenset[tuple[int, bool]]
"""A set of members' uploads: who, and whether it takes something back."""


@dataclass(frozen=True, slots=True)
class RunRules:
    """What members keep to; by default what the product's do."""

    memory: Callable[[int], WatchedNoise] = WatchedNoise
    fewer_signatures: int = 0


@dataclass(frozen=True)
class _Context:
    """As much of a round's context as members' memories look at."""

    size: int
    round_number: int
    member_uploads: MemberUploads
    variance: float
    session_id: bytes = bytes(16)

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        return self.member_uploads.records

    @cached_property
    def heads(self) -> tuple[bytes, ...]:
        beginning = digest(Usage.RECORDS, repr(self.variance).encode())
        return self.member_uploads.heads(beginning, self.size)

    @cached_property
    def hash(self) -> bytes:
        uploads = self.member_uploads
        said = (self.round_number, uploads.returning, uploads.fewest_returning)
        return digest(Usage.ONE_SHOT, repr(said).encode(), self.heads[-1])

    def head_after(self, record: RoundRecord) -> bytes:
        return next_head(self.heads[-1], record, self.size)

    def may_return(self, member: int) -> bool:
        """As of a header: whom the last record lists."""
        records = self.member_uploads.records if self.member_uploads.returning else ()
        return bool(records) and member in records[-1].entered


@dataclass(slots=True)
class _Announced:
    """A context that somebody was told."""

    context: _Context
    joined: set[int] = field(default_factory=set)
    signed: dict[int, Flags] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchedulesReport:
    """What came of many schedules."""

    schedules: int
    several: int
    flaws: Counter[str]

    @property
    def broken(self) -> int:
        """In how many something was wrong."""
        return self.flaws.total()


def run_schedules(schedules: int, seed: int, rules: RunRules | None = None) -> SchedulesReport:
    """Draw schedules, and look at what was opened in each."""
    rng, flaws, several = random.Random(seed), Counter[str](), 0  # noqa: S311 - no secrets here
    for number in range(schedules):
        size, corrupt = COMMITTEES[number % len(COMMITTEES)]
        played = _Schedule(rng, size, corrupt, rules or RunRules())
        opened = played.run()
        several += len(opened) > 1
        if found := flaw(opened, played.parts):
            flaws[found] += 1
    return SchedulesReport(schedules, several, flaws)


class _Schedule:
    """One schedule, step by step."""

    def __init__(self, rng: random.Random, size: int, corrupt: int, rules: RunRules) -> None:
        self._rng, self._size, self._corrupt, self._rules = rng, size, corrupt, rules
        self._fewest = fewest_members(size, corrupt)
        self._memories = {j: rules.memory(j) for j in range(corrupt, size)}
        self._announced: list[_Announced] = []
        self._proposed: list[tuple[_Announced, Flags, RoundRecord]] = []
        self._next = 1
        # Whether noise goes in under other terms, before anybody has signed.
        self._swaps = rng.random() < 0.4
        self.parts = self._counting(_VARIANCES[0])

    def run(self) -> list[OpenedRound]:
        """Take the steps, and return the sums that are open in the end."""
        for _ in range(self._rng.randint(*_STEPS)):
            what = self._rng.random()
            if what < 0.12 or not self._announced:
                self._announce()
            elif what < 0.45:
                self._collect(self._rng.choice(self._announced[-3:]))
            else:
                self._propose(self._rng.choice(self._announced[-3:]))
        quorum = lowest_quorum(self._size, self._corrupt) - self._rules.fewer_signatures
        opened = [
            (announced, flags, record)
            for announced, flags, record in self._proposed
            if list(announced.signed.values()).count(flags) + self._corrupt >= quorum
        ]
        if opened:
            last = max(opened, key=lambda each: each[0].context.round_number)
            self.parts = self._counting(last[0].context.variance)
        return [self._opened(*each) for each in opened]

    # -- steps ------------------------------------------------------------------------------------

    def _announce(self) -> None:
        """A new context: of some round, with some list, which may be made up at its end."""
        rng = self._rng
        number = rng.choice([self._next, self._next, max(1, self._next - 1)])
        if number > _ROUNDS:
            return
        records: tuple[RoundRecord, ...] = ()
        if self._proposed and rng.random() < 0.9:
            announced, _, record = rng.choice(self._proposed[-4:])
            records = (*announced.context.member_uploads.records, record)
        elif self._announced:
            records = rng.choice(self._announced).context.member_uploads.records
        records = tuple(each for each in records if each.round_number < number)
        early = self._swaps and not self._proposed
        if rng.random() < (0.7 if early else 0.25):
            records = (*records, *self._made_up(records, number))
        uploads = MemberUploads(
            fewest=self._fewest,
            returning=rng.random() < 0.9,
            fewest_returning=0,
            block=bytes(32),
            records=records,
        )
        try:
            uploads.check(self._size, self._corrupt, range(_CLIENTS, _CLIENTS + 1), number)
        except ParameterError:
            return
        self._next = max(self._next, number + 1)
        variance = _VARIANCES[early and rng.random() < 0.5]
        context = _Context(self._size, number, uploads, variance)
        if all(each.context.hash != context.hash for each in self._announced):
            self._announced.append(_Announced(context))

    def _made_up(self, records: tuple[RoundRecord, ...], number: int) -> tuple[RoundRecord, ...]:
        """A record of a round that was not signed for, or never was, if there is room for one."""
        rng = self._rng
        after = records[-1].round_number + 1 if records else 0
        if after >= number:
            return ()
        before = records[-1].entered if records else ()
        entered = tuple(j for j in range(self._size) if rng.random() < 0.9)
        returned = tuple(j for j in entered if j in before and rng.random() < 0.8)
        begun = [each.context.round_number for each in self._announced]
        choice = [each for each in begun if after <= each < number] or range(after, number)
        return (RoundRecord(rng.choice(choice), _CLIENTS, entered, returned),)

    def _collect(self, announced: _Announced) -> None:
        """Tell members of a context; most of them upload."""
        context = announced.context
        for j, memory in self._memories.items():
            if self._rng.random() < 0.25:
                continue
            try:
                memory.begin(context)  # type: ignore[arg-type]
            except PolicyError:
                continue
            announced.joined.add(j)
            if self._rng.random() < 0.15:
                continue
            memory.may_take_back(context, j, context.variance)  # type: ignore[arg-type]
            name = derived_bytes(j, context.hash, len(memory.used))
            try:
                memory.add(context, context.variance, NoiseSeed(name))  # type: ignore[arg-type]
            except LocalProtocolError:
                continue

    def _propose(self, announced: _Announced) -> None:
        """Have some members sign a set: a new one, or one that others were shown."""
        if announced.context.variance != _VARIANCES[0] and self._rng.random() < 0.8:
            return
        known = [each for each in self._proposed if each[0] is announced]
        if known and self._rng.random() < 0.6:
            _, flags, record = self._rng.choice(known)
        else:
            flags = self._some_uploads(announced)
            if len(flags) < self._fewest:
                return
            record = self._record(announced.context, flags)
            if (announced, flags, record) not in known:
                self._proposed.append((announced, flags, record))
        for j in sorted(announced.joined - announced.signed.keys()):
            if self._rng.random() < 0.3:
                continue
            memory = self._memories[j]
            try:
                memory.require_last(announced.context)  # type: ignore[arg-type]
                memory.sign(announced.context, record)  # type: ignore[arg-type]
            except PolicyError:
                continue
            announced.signed[j] = flags

    def _some_uploads(self, announced: _Announced) -> Flags:
        context = announced.context
        own = [
            (j, memory.used[context.hash][1] is not None)
            for j, memory in self._memories.items()
            if context.hash in memory.used and self._rng.random() < 0.9
        ]
        corrupt = [
            (j, context.may_return(j) and self._rng.random() < 0.7) for j in range(self._corrupt)
        ]
        return frozenset([*own, *corrupt])

    # -- what comes of them -----------------------------------------------------------------------

    def _record(self, context: _Context, flags: Flags) -> RoundRecord:
        entered = tuple(sorted(j for j, _ in flags))
        returned = tuple(sorted(j for j, returns in flags if returns))
        return RoundRecord(context.round_number, _CLIENTS, entered, returned)

    def _opened(self, announced: _Announced, flags: Flags, record: RoundRecord) -> OpenedRound:
        noise: dict[int, tuple[Draw, Draw | None]] = {
            j: self._memories[j].used[announced.context.hash]
            for j, _ in flags
            if j in self._memories
        }
        return OpenedRound(announced.context.member_uploads.records, record, noise)

    def _counting(self, variance: float) -> Parts:
        return Parts(
            client_variance=_KEPT / _CLIENTS,
            member_variance=variance,
            clients=_CLIENTS,
            members=self._size,
            corrupt_clients=0,
            corrupt_members=self._corrupt,
            fewest_clients=_CLIENTS,
            fewest_members=self._fewest,
            rounds=_ROUNDS,
            dimension=1,
        )
