"""The records of a run: every release goes to the ledger and to the accounts before it happens.

Three steps, in this order. `Records.prepare` does everything that can fail without harm before a
client is asked: remarks, room in the ledger, theorems, budgets. The `Charge` it returns is called
once, when the survivors of the round are decided and no client has been told; it writes the ledger
and then the accounts. `Charge.settle` sees afterwards that the sum is the one that was paid for. A
round that ends before its charge releases nothing and costs nothing. A round that ends after it is
paid in full: whoever deviates may know its sum already. So the records may over-count, never
under-count.

Rounds may overlap in threads: looking at the budget and writing to the ledger are then two steps of
one, because a round that was looked at before another was written is refused.

Every entry repeats the goal of its run. The part of delta set aside for failures must be fixed
before the first release, so a ledger is continued with its own goal or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from dp import (
    BinomialRelease,
    Budget,
    DiscreteGaussianRelease,
    Entry,
    Event,
    FourEpsilons,
    Ledger,
    LedgerError,
    NonPrivateRelease,
    SkellamRelease,
)
from dp.correlated import CorrelatedRelease
from protocol.goal import PrivacyGoal, check_goal, goal_entry
from protocol.round.one_process import OneProcess
from protocol.round.round_events import RoundEvents
from protocol.round.setup import RoundEncoding, noise_entry
from protocol.training.accounts import ClientAccounts, label
from secagg import LocalProtocolError, ParameterError
from secagg.oneshot.records import RoundRecord

Notes = Mapping[str, str | int | float]
"""Public remarks of the caller."""

LISTED_COHORT = 1 << 15
"""Most clients that an entry names one by one: 19 bytes each, of the million of a ledger line. A
larger cohort is written as a hash, and a replay charges such an entry to everybody."""

MAX_NOTES_BYTES = 1 << 16
"""Room for the caller's remarks, so that the rest of an entry always fits as well."""

_N = TypeVar("_N", int, float)

_MOST_SURVIVORS = 1 << 32
"""An entry that says more does not say how many."""

_LABEL = re.compile(r"[0-9a-f]{16}")


class Records:
    """Ledger and accounts of a run."""

    def __init__(self, ledger: Ledger, goal: PrivacyGoal, together: int = 1) -> None:
        self._ledger = ledger
        self._goal = goal
        self._together = together
        self._budget = Budget(goal.epsilon, goal.delta)
        self._accounts = ClientAccounts(goal.reserve)
        self._seen = 0
        # Whoever takes in, checks or charges must find the accounts as the ledger has them.
        self._lock = OneProcess("the records of a run")
        self._take_in()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """With no other use of these records; `LedgerError` in a fork, or within a use of ours."""
        self._ledger.require_own_process()
        with self._lock:
            yield

    def _take_in(self) -> None:
        """Charge what others have written to the ledger since it was last read."""
        for entry in self._ledger.entries()[self._seen :]:
            check_goal(entry.metadata, self._goal)
            self._accounts.replay(replayed_events(entry), listed_cohort(entry.metadata))
            self._seen += 1

    def prepare(
        self, setup: RoundEncoding, number: int, notes: Notes | None, drawn: bytes = b""
    ) -> Charge:
        """Check everything that can be checked before a client is asked.

        Args:
            drawn: of a sum whose context has no public seed of its own: from the source of such
                seeds, so that a sum with other secrets is told from the one that was paid for.
        """
        setup.require_safe(self._goal)
        labels = [label(key) for key in setup.identities]
        possible = setup.possible_events()
        metadata = {
            "notes": checked_notes(notes or {}),
            "round": number,
            "session": setup.context.session_id.hex(),
            "attempt": setup.context.round_number,
            # Covers every public parameter, also the seed drawn for this very round.
            "context": setup.context_hash.hex(),
            "cohort": cohort_entry(labels),
            "goal": goal_entry(self._goal),
            **({"drawn": drawn.hex()} if drawn else {}),
            **noise_entry(setup.own_noise, "own"),
        }
        with self._alone():
            # Read first: whatever comes after it keeps the charge from being written.
            head = self._ledger.head
            self._take_in()
            paid = self._paid(metadata)
            if paid is None:
                self._require_first(metadata)
                for event in dict.fromkeys(events.server for events in possible):
                    self._accounts.check(labels, event, self._budget)
                # The most noise is that which an outsider does not know, with nobody lost.
                self._accounts.require_theorem(possible[-1].outsider)
        return Charge(self, setup, labels, metadata, head, paid)

    def write(
        self,
        events: RoundEvents,
        labels: Sequence[str],
        metadata: Mapping[str, Any],
        checked_head: str,
    ) -> None:
        """Write an event to the ledger, then to the accounts."""
        with self._alone():
            self._ledger.append(events.server, metadata, checked_head)
            # An interrupt in between makes us read the entry again: too much, and not too little.
            self._accounts.record(labels, events)
            self._seen += 1

    def run_records(self, session_id: bytes, before: int) -> tuple[RoundRecord, ...]:
        """What members were asked to sign for in a session, in the rounds before a number."""
        with self._alone():
            self._take_in()
            known = [
                _read_record(entry.metadata["record"])
                for entry in self._ledger.entries()
                if entry.metadata.get("session") == session_id.hex() and "record" in entry.metadata
            ]
        return tuple(record for record in known if record.round_number < before)

    def _paid(self, metadata: Mapping[str, Any]) -> Entry | None:
        """The entry for this very sum among the last ones: the run was interrupted after it."""
        same = ("context", "round", "cohort", "goal", "drawn")
        for entry in self._ledger.entries()[-self._together :]:
            if all(entry.metadata.get(key) == metadata.get(key) for key in same):
                return entry
        return None

    def _require_first(self, metadata: Mapping[str, Any]) -> None:
        """See that no sum of this attempt was paid for in a run that has each but once."""
        turn = ("session", "attempt")
        for entry in self._ledger.entries():
            same = all(entry.metadata.get(key) == metadata[key] for key in turn)
            if same and "record" in entry.metadata:
                raise LedgerError(
                    f"attempt {metadata['attempt']} of this session was charged before the run was "
                    "interrupted, for a sum with other secrets or another context: run it with the "
                    "same ones, or go on from a state with one attempt more"
                )

    def epsilons(self, colluders: int) -> FourEpsilons:
        """Epsilon of the client that spent most, against each adversary, whoever wrote the entries.

        The goal, which is what is guaranteed, comes with it.
        """
        with self._alone():
            self._take_in()
            return self._accounts.epsilons(self._goal.delta, colluders, self._goal.epsilon)


class Charge:
    """Pays for one round, once. Call it with the survivors, before they hear of it.

    A round that was paid for before the run was interrupted is not paid for again, if it releases
    the same event of the same survivors in the same context, which covers the round's public seed.
    That is right if it releases the same *values*: the same inputs with the same noise, so that
    whoever saw the first release learns nothing from the second. The caller sees to that by drawing
    all secrets of the round, the public seed among them, from one stored seed.
    """

    def __init__(
        self,
        records: Records,
        setup: RoundEncoding,
        labels: Sequence[str],
        metadata: Mapping[str, Any],
        checked_head: str,
        paid: Entry | None = None,
    ) -> None:
        self._checked_head = checked_head
        self._paid = paid
        self._records = records
        self._setup = setup
        self._labels = labels
        self._metadata = metadata
        self._survivors: tuple[int, ...] | None = None

    def __call__(self, survivors: Sequence[int], record: RoundRecord | None = None, /) -> None:
        """Write the event to the ledger, then to the accounts."""
        if self._survivors is not None:
            raise LocalProtocolError("this round has been charged already")
        count = len(survivors)
        if count < self._setup.context.minimum_survivors:
            raise LocalProtocolError(f"a sum over {count} clients must not be released")
        events = self._setup.events(count, record)
        of_this_sum = {
            "survivors": count,
            "survivor_set": survivor_entry(survivors),
            **noise_entry(self._setup.noise_left(count), "each"),
            **self._run_entry(count, record),
        }
        if self._paid is not None:
            same = all(self._paid.metadata.get(key) == value for key, value in of_this_sum.items())
            if self._paid.event != events.server or not same:
                raise LocalProtocolError(
                    "this round was charged for another release before it was interrupted"
                )
            self._survivors = tuple(survivors)
            return
        metadata = {**self._metadata, **of_this_sum}
        self._records.write(events, self._labels, metadata, self._checked_head)
        self._survivors = tuple(survivors)

    def _run_entry(self, survivors: int, record: RoundRecord | None) -> dict[str, Any]:
        """What an entry says besides, of a round whose noise comes back."""
        if record is None:
            return {}
        return {
            "record": [
                record.round_number,
                record.clients,
                list(record.entered),
                list(record.returned),
            ],
            "honest": survivors - self._setup.context.tolerated_colluders,
            "linf_bound": self._setup.parameters.linf_bound,
        }

    def settle(self, survivors: Sequence[int]) -> None:
        """See that a sum over these clients was paid for."""
        if self._survivors != tuple(survivors):
            announced = "none" if self._survivors is None else f"another, of {len(self._survivors)}"
            raise LocalProtocolError(
                f"the aggregator returned a sum over {len(survivors)} clients but had announced "
                f"{announced}: nothing is decoded"
            )


def replayed_events(entry: Entry) -> RoundEvents:
    """What an entry releases to each adversary; where it does not say, the worst."""
    event, metadata = entry.event, entry.metadata
    survivors = _figure(metadata.get("survivors"), int)
    if survivors > _MOST_SURVIVORS:
        survivors = 0
    everybody: Event = event
    alone: Event = NonPrivateRelease()
    # Nobody's figures may claim more noise than the event itself supports.
    match event:
        case BinomialRelease(coins=total):
            each, own = (_figure(metadata.get(name), int) for name in ("coins_each", "coins_own"))
            everybody = replace(event, coins=max(total, survivors * min(each, total)))
            alone = replace(event, coins=min(own, total)) if own else alone
        case SkellamRelease(variance=variance):
            of_each, of_one = _variances(metadata, variance)
            everybody = replace(event, variance=max(variance, survivors * of_each))
            alone = replace(event, variance=of_one) if of_one else alone
        case DiscreteGaussianRelease(local_variance=local, contributors=honest):
            of_each, of_one = _variances(metadata, local)
            # The noise of all survivors is that of the event, or nobody's word counts.
            if of_each == local:
                everybody = replace(event, contributors=max(honest, survivors))
            one = replace(event, local_variance=of_one, contributors=min(1, honest))
            alone = one if of_one else alone
        case CorrelatedRelease():
            return _run_events(event, metadata)
    return RoundEvents(server=event, outsider=everybody, sybil=alone)


def _run_events(event: CorrelatedRelease, metadata: Mapping[str, Any]) -> RoundEvents:
    """What an entry of a run whose noise comes back releases; where it does not say, the worst."""
    of_each, of_one = _variances(metadata, event.fresh_variance)
    honest, linf = (_figure(metadata.get(name), int) for name in ("honest", "linf_bound"))

    def clients_alone(variance: float, contributors: int) -> Event:
        if not (variance and contributors and linf):
            return NonPrivateRelease()
        return DiscreteGaussianRelease(
            variance, contributors, event.l2_sensitivity, linf, event.dimension
        )

    # Clients have no more noise than was counted of all.
    most = int(event.fresh_variance / of_each) if of_each else 0
    absent = replace(event, l2_sensitivity=0.0)
    return RoundEvents(
        server=event,
        outsider=event,
        sybil=clients_alone(of_one, 1),
        without_members=clients_alone(of_each, min(honest, most)),
        absent=absent,
    )


def _read_record(written: object) -> RoundRecord:
    """A record out of an entry."""
    match written:
        case [int(number), int(clients), [*entered], [*returned]]:
            members = [each for each in (*entered, *returned) if isinstance(each, int)]
            if len(members) == len(entered) + len(returned):
                cut = len(entered)
                return RoundRecord(number, clients, tuple(members[:cut]), tuple(members[cut:]))
    raise LedgerError(f"the ledger holds a malformed record of a round: {written!r}")


def _variances(metadata: Mapping[str, Any], most: float) -> tuple[float, float]:
    """What an entry says of each survivor's noise and of the client's own, or 0."""
    names = ("variance_each", "variance_own")
    each, own = (min(_figure(metadata.get(name), float), most) for name in names)
    return each, own


def _figure(value: object, kind: type[_N]) -> _N:
    """A positive number as it stands in an entry, or 0."""
    return value if type(value) is kind and value > 0 else kind(0)


def checked_notes(notes: Notes) -> dict[str, str | int | float]:
    """The notes, if they are plain values that a ledger line holds."""
    if any(type(name) is not str for name in notes):
        raise ParameterError("notes", "a name of another type", "names that are plain str")
    for name, value in notes.items():
        if type(value) not in (str, int, float):
            raise ParameterError(f"notes[{name!r}]", type(value).__name__, "a str, int or float")
    try:
        size = len(json.dumps(dict(notes), allow_nan=False))
    except ValueError as error:
        raise ParameterError("notes", "a number that JSON cannot hold", str(error)) from None
    if size > MAX_NOTES_BYTES:
        raise ParameterError("notes", f"{size} bytes", f"at most {MAX_NOTES_BYTES} bytes")
    return dict(notes)


def cohort_entry(labels: Sequence[str]) -> list[str] | dict[str, str | int]:
    """A cohort as it is written down: by name, or by hash where that would be too long."""
    if len(labels) <= LISTED_COHORT:
        return list(labels)
    digest = hashlib.sha256("".join(labels).encode()).hexdigest()
    return {"clients": len(labels), "sha256": digest}


def survivor_entry(survivors: Sequence[int]) -> str:
    """A set of survivors as it is written down: SHA-256 of their indices, with commas between."""
    return hashlib.sha256(",".join(map(str, survivors)).encode()).hexdigest()


def listed_cohort(metadata: Mapping[str, Any]) -> list[str] | None:
    """The clients that an entry names; None, meaning everybody, if it is no list of labels."""
    cohort = metadata.get("cohort")
    if not isinstance(cohort, list) or not cohort:
        return None
    if not all(isinstance(name, str) and _LABEL.fullmatch(name) for name in cohort):
        return None
    return cohort
