"""What differs between ways to an exact sum over survivors: a `Scheme` is asked, and nobody else.

A scheme is data: the figures of one way, frozen and checked. Everything else is the same for all of
them: clip, sketch, rotation, rounding, noise, ledger, accounts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from protocol.exchange.aggregators import Aggregator, NoiseSource, fresh_noise, system_rand
from protocol.exchange.local_committee import LocalCommittee
from protocol.exchange.one_shot import (
    AbsenceSource,
    Announcements,
    MemberMessages,
    MemberStage,
    nobody_away,
)
from protocol.exchange.ranks import ALONE, Ranks
from protocol.exchange.stages import Inbound, Outbound
from protocol.promise import Promise
from protocol.round.clauses import Clauses
from protocol.round.draw_policy import DrawPolicy
from protocol.round.losses import Stage
from protocol.round.lottery import Lottery, Members
from protocol.round.parameters import RoundParameters
from protocol.round.policy import ClientPolicy
from protocol.round.setup import RoundEncoding
from secagg import Identity, ParameterError, TooFewSurvivorsError
from secagg.oneshot.committee import Member
from secagg.oneshot.records import MemberUploads
from secagg.shamir import Rand


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What is settled when a sum is announced.

    Attributes:
        cohort: identity keys, in the order of their indices.
        session_id, round_number: of the sum.
        opened_at: now, in whole Unix seconds, if rounds expire; else 0.
        members: of the committee, with their signed keys, where there is one: of everyone in the
            cohort's order, of drawn ones as `Lottery.seat` gives them.
        uploads: the terms of the members' uploads, where they add noise.
        bits: of the field, at the least.
    """

    cohort: Sequence[bytes]
    session_id: bytes
    round_number: int
    opened_at: int = 0
    members: Members | None = None
    uploads: MemberUploads | None = None
    bits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """Whom a client trusts to open sums, as far as its scheme asks.

    Attributes:
        named: identity keys of a named committee's members.
        draw: of a drawn one.
    """

    named: Collection[bytes] = ()
    draw: DrawPolicy | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A committee whose members stay the same over a run.

    Attributes:
        size: s.
        corrupt: c.
        fewest: members whose noise is in a sum, at least, where members add noise.
    """

    size: int
    corrupt: int
    fewest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """How a scheme is played with every party in this process, or divided among several.

    Attributes:
        identities: the clients' signing keys.
        policy_of: what every client insists on, given whom it trusts.
        committee: made if left out, where the scheme has one.
        executor: optional, for unmasking.
        noise, rand_of: leave them alone except to run the same rounds twice.
        folder: where uploads are spooled that do not fit into memory.
        ranks: among which cohorts are divided.
        absences: members that get lost, round by round.
    """

    identities: Sequence[Identity]
    policy_of: Callable[[Trusted], ClientPolicy]
    committee: LocalCommittee | None = None
    executor: Executor | None = None
    noise: NoiseSource = fresh_noise
    rand_of: Callable[[int], Rand] = system_rand
    folder: Path | None = None
    ranks: Ranks = ALONE
    absences: AbsenceSource = nobody_away


Answers = Inbound


class Carrier(Protocol):
    """What carries the messages of any scheme between a server and parties elsewhere.

    Answers come in any order; who does not answer is lost. See `protocol.exchange.stages.Exchange`
    for what a carrier owes.
    """

    def exchange(self, stage: Stage, messages: Outbound, /) -> Answers:
        """Deliver the messages of a stage to clients, and yield what comes back."""

    def collect(self, messages: Announcements, /) -> Answers:
        """Deliver announcements to clients, and yield their only uploads."""

    def consult(self, stage: MemberStage, messages: MemberMessages, /) -> Answers:
        """Deliver the messages of a stage to members, and yield what comes back."""

    def members(self, session_id: bytes, cohort: Sequence[bytes], number: int, /) -> Members:
        """The members' signed keys: see `HasCommittee.members`."""

    def note(self, index: int, reason: str, /) -> None:
        """Hear of a client that is lost, and why."""

    def note_member(self, index: int, reason: str, /) -> None:
        """The same of a member."""


class Priced(Protocol):
    """What a round costs a client."""

    @property
    def bytes_each(self) -> dict[str, int]:
        """Bytes by part."""


def figures_of(priced: Any) -> dict[str, Any]:
    """All that a plan says of a round, but for the bytes."""
    return {name: each for name, each in asdict(priced).items() if name != "bytes_each"}


@dataclass(frozen=True, slots=True)
class KeyHolders:
    """Who hands over sealing keys before a sum.

    Attributes:
        keys: of those who may.
        needed: how many of them must have, before a sum is announced.
        everyone: whether they are the clients of the cohort themselves.
        lottery: draws the members from among them; None if none are drawn.
    """

    keys: frozenset[bytes]
    needed: int
    everyone: bool = False
    lottery: Lottery | None = None

    def members(
        self,
        session_id: bytes,
        cohort: Sequence[bytes],
        round_number: int,
        entries: Mapping[bytes, Member],
        here: Collection[bytes],
    ) -> Members:
        """The committee of a round, of those whose signed entries are known.

        Args:
            here: who is connected: only they are seated by lot, if enough of them are candidates.

        Raises:
            TooFewSurvivorsError: too few candidates have an entry.
        """
        if self.lottery is not None:
            present = {key: entry for key, entry in entries.items() if key in here}
            with suppress(TooFewSurvivorsError):
                return self.lottery.seat(session_id, round_number, present.get)
            return self.lottery.seat(session_id, round_number, entries.get)
        return [entries[key] for key in (cohort if self.everyone else sorted(self.keys))]


class Scheme(ABC):
    """The figures of one way to an exact sum, and what differs between ways."""

    KIND: ClassVar[str]
    """Its name in configurations, on the command line and in policies."""
    SEATS: ClassVar[bool] = False
    """Whether a committee opens the sums, whose members an aggregator has to know."""
    DIVISIBLE: ClassVar[bool] = False
    """Whether several processes can share the cohort of a round."""
    REMOVES: ClassVar[bool] = True
    """Whether surplus noise can be taken off sums."""
    ERROR_VARIANCE: ClassVar[float] = 0.0
    """Variance of what a coordinate of a client's vector has besides signal, rounding and noise."""
    SHORT_STAGES: ClassVar[int]
    """Exchanges of a round besides the one that training is in."""

    @abstractmethod
    def check(self, plan: Promise) -> None:
        """See that a plan can be kept this way.

        Raises:
            ParameterError: names the figure, its value and what would be valid.
        """

    @abstractmethod
    def price(
        self, plan: Promise, parameters: RoundParameters, bits: int, seeds: int, adding: int
    ) -> Priced:
        """What a round costs.

        Args:
            parameters: of a round of the plan.
            bits: of an element of its vectors.
            seeds: removable noise seeds of each client.
            adding: members who add noise.
        """

    @abstractmethod
    def setup(
        self, plan: Promise, parameters: RoundParameters, announced: Announced
    ) -> RoundEncoding:
        """A round of a plan, for whoever announces it.

        Args:
            parameters: calibrated for the plan.

        Raises:
            ParameterError: it is not as planned.
        """

    @abstractmethod
    def clauses(self, plan: Promise, trusted: Trusted) -> Clauses:
        """What a client of a plan insists on about this way."""

    @abstractmethod
    def local(self, plan: Promise, play: Local) -> Aggregator:
        """Everybody of a plan's rounds in this process."""

    @abstractmethod
    def remote(self, carrier: Carrier, executor: Executor | None = None) -> Aggregator:
        """Everybody of a plan's rounds elsewhere.

        Args:
            executor: optional, for unmasking.
        """

    @classmethod
    @abstractmethod
    def stage_bytes(cls, setup: RoundEncoding) -> int:
        """Most bytes that a stage without the model moves, all clients together."""

    def imagined_members(
        self, plan: Promise, identities: Sequence[Identity], session_id: bytes
    ) -> Members | None:
        """Members for the first round of clients that do not exist; None without a committee."""
        del plan, identities, session_id
        return None

    def standing(self, plan: Promise) -> Standing:
        """The committee that stays the same over a run.

        Raises:
            ParameterError: there is none.
        """
        del plan
        valid = "one with a named committee: noise comes back only to members who stay the same"
        raise ParameterError("scheme", self.KIND, valid)

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """Its figures as a table of a configuration."""

    @abstractmethod
    def rules(self, plan: Promise) -> dict[str, dict[str, Any]]:
        """What clients of a plan insist on about this way, as a table of a policy file."""

    def key_holders(
        self, plan: Promise, named: Collection[bytes], registry: Collection[bytes]
    ) -> KeyHolders | None:
        """Who hands over sealing keys before a sum; None where nobody does.

        Args:
            named: identity keys of a named committee's members.
            registry: of all clients.
        """
        del plan, named, registry
        return None

    def named_members(self, plan: Promise) -> int:
        """Members of a named committee; 0 if there is none."""
        del plan
        return 0
