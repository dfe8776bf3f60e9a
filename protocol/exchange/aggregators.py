"""Two ways to the same sum: the real protocol, and the ideal functionality that it imitates.

Both encode the same updates with the same pipeline and add them in the same field; given the same
noise seeds and dropouts they agree bit for bit, which a test asserts. Long training runs may use
the ideal one; only the real one protects anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from dp import Bounded, NoiseSeed
from protocol.exchange.ideal_members import (
    AwaySource,
    MemberSource,
    RememberedSeeds,
    add_members_noise,
    ideal_record,
    nobody,
)
from protocol.exchange.in_memory import MemoryRound
from protocol.exchange.parallel import in_order
from protocol.exchange.ranks import ALONE, Ranks, add_in_field
from protocol.exchange.stages import (
    PEER_ERRORS,
    Clock,
    ReleaseHook,
    RoundOutcome,
    explained,
    no_hook,
)
from protocol.round.client import RoundClient
from protocol.round.history import ClientHistory
from protocol.round.losses import Dropouts, Stage, check_dropouts, left_after
from protocol.round.lottery import Members
from protocol.round.pipeline import Pipeline
from protocol.round.policy import ClientPolicy
from protocol.round.rings import UnixClock
from protocol.round.setup import RoundEncoding, pairwise
from secagg import (
    FieldSum,
    FieldVector,
    Identity,
    LocalProtocolError,
    ParameterError,
    ServerSession,
)
from secagg.field import Words, add_into
from secagg.keys import os_random
from secagg.oneshot.records import RoundRecord
from secagg.shamir import Rand

UpdateSource = Callable[[int], NDArray[Any]]
"""Gives the update of a party (by its index in the cohort) when it is asked for one."""

NoiseSource = Callable[[int], NoiseSeed]
"""Gives the noise seed of a party. Only who runs a round twice passes one; else the system does."""

BoundSource = Callable[[int, bytes], Sequence[NoiseSeed]]
"""Gives a one-shot client, for its rounded integers, the seeds of its noise: its own first."""

RemovableSource = Callable[[int, int], Sequence[NoiseSeed]]
"""Gives a party so many seeds of removable noise, for the same purpose."""

WORTH_THREADS = 1 << 17
"""Coordinates of an upload from which on several are encoded at once. Threads pass Python's lock to
and fro in between kernels, which takes longer than to encode a shorter one."""

BLOCK_SCALARS = 1 << 17
"""Coordinates of the uploads that are encoded together; a second cache level holds them."""

ENCODED_AHEAD = 8
"""Blocks that an executor may work on, or have finished, before the first of them is added."""


def own_updates(_: int) -> NDArray[Any]:
    """In place of an update source: clients elsewhere have updates of their own."""
    raise LocalProtocolError("remote clients make their own updates")


def fresh_noise(_: int) -> NoiseSeed:
    """A new secret seed for whoever asks."""
    return NoiseSeed.fresh()


def system_rand(_: int) -> Rand:
    """The operating system's generator, for every client."""
    return os_random


def fresh_seeds(_: int, count: int) -> Sequence[NoiseSeed]:
    """New secret seeds for whoever asks."""
    return [NoiseSeed.fresh() for _ in range(count)]


@runtime_checkable
class HasCommittee(Protocol):
    """An aggregator of one-shot rounds knows who is on their committees."""

    def members(self, session_id: bytes, cohort: Sequence[bytes], round_number: int) -> Members:
        """The members' signed keys for a round."""


class Aggregator(Protocol):
    """Turns a round's updates into their noisy sum."""

    def run(
        self,
        setup: RoundEncoding,
        updates: UpdateSource,
        dropouts: Dropouts,
        *,
        before_release: ReleaseHook = no_hook,
    ) -> RoundOutcome:
        """Run one round.

        A client whose update is refused is lost like one that vanished; the outcome says why.

        Args:
            setup: public parameters of the round.
            updates: gives a party's update when its turn comes.
            dropouts: who gets lost, and when.
            before_release: called exactly once if inputs of enough clients are there, with their
                indices, before any client learns that they are and gives up what opens the sum.

        Raises:
            ParameterError: ``dropouts`` names no stage, or nobody of the cohort.
            TooFewSurvivorsError: too few parties are left at some stage. If `before_release` was
                not called, nothing can have been learned; if it was, a party that deviates may
                know the sum.
        """


class IdealAggregator:
    """Adds the clients' encoded vectors in the field. Trusts everybody; for simulation only.

    Args:
        removable: of every client; leave it alone except to run the same round twice.
        noise: likewise.
        executor: threads, to encode several clients at once where uploads are long.
        ranks: among which the cohort is divided; each asks for the updates of its own members.
        bound: in place of `removable`, the seeds of one-shot clients, which are bound to their
            rounded integers; leave it alone except to run the same round twice.
        committee: of one-shot rounds, for its members' signed keys; it is asked for nothing else.
        members_noise: of members who add noise; fresh seeds if left out. Whoever goes on with a run
            that another object has begun gives the seeds of its rounds.
        away: members of whom nothing is heard, by the number of the round.
    """

    def __init__(
        self,
        removable: RemovableSource = fresh_seeds,
        noise: NoiseSource = fresh_noise,
        executor: Executor | None = None,
        ranks: Ranks = ALONE,
        bound: BoundSource | None = None,
        committee: HasCommittee | None = None,
        members_noise: MemberSource | None = None,
        away: AwaySource = nobody,
    ) -> None:
        self._members_noise = members_noise or RememberedSeeds()
        self._away = away
        self._bound = bound
        self._committee = committee
        self._removable = removable
        self._noise = noise
        self._executor = executor
        self._ranks = ranks

    def members(self, session_id: bytes, cohort: Sequence[bytes], round_number: int) -> Members:
        """The members' signed keys: see `HasCommittee.members`.

        Raises:
            ParameterError: this aggregator was given no committee.
        """
        if self._committee is None:
            raise ParameterError("committee", None, "that of the plan's one-shot rounds")
        return self._committee.members(session_id, cohort, round_number)

    def run(
        self,
        setup: RoundEncoding,
        updates: UpdateSource,
        dropouts: Dropouts,
        *,
        before_release: ReleaseHook = no_hook,
    ) -> RoundOutcome:
        """See `Aggregator.run`; it fails exactly where the real protocol would."""
        context = setup.context
        check_dropouts(dropouts, context.invited)
        stages = setup.stages
        released = stages.index(Stage.INPUT) + 1
        for stage in stages[: released - 1]:
            setup.require_left(stage, dropouts)
        total, refused, seeds = self._add_up(setup, updates, dropouts)
        gathered = self._ranks.gather(refused)
        refused = dict(sorted(each for own in gathered for each in own.items()))
        lost = dict.fromkeys(refused, Stage.INPUT)
        survivors = left_after(context.invited, {**dropouts, **lost}, Stage.INPUT)
        with explained(refused):
            setup.require_left(Stage.INPUT, dropouts, lost)
            record = ideal_record(setup, survivors, self._away)
            if record is None:
                before_release(survivors)
            else:
                before_release(survivors, record)
            for stage in stages[released:]:
                setup.require_left(stage, dropouts, lost)
        if record is not None and self._ranks.rank == 0:
            add_members_noise(setup, record, total, self._members_noise)
        if self._ranks.size == 1:
            whole = FieldVector(context.field, total)
            given = {index: seeds[index] for index in survivors}
            return ideal_outcome(setup, whole, given, refused, record)
        return self._together(setup, total, seeds, survivors, refused, record)

    def _together(
        self,
        setup: RoundEncoding,
        total: Words,
        seeds: Mapping[int, Sequence[NoiseSeed]],
        survivors: Sequence[int],
        refused: Mapping[int, str],
        record: RoundRecord | None,
    ) -> RoundOutcome:
        """The outcome from what every rank has: each draws the surplus noise of its own clients."""
        context = setup.context
        which = context.removed_seeds(len(survivors))
        surplus = None
        if which:
            own = (seeds[index] for index in survivors if index in seeds)
            given_up = [tuple(of[each].material for each in which) for of in own]
            surplus = Pipeline(setup).surplus(given_up, context.invited - len(survivors))
        others = () if surplus is None else (surplus,)
        added, rest = add_in_field(self._ranks, context.field, total, *others)
        outcome = ideal_outcome(
            setup, FieldVector(context.field, added), dict.fromkeys(survivors, ()), refused, record
        )
        return replace(outcome, surplus=rest[0] if rest else None)

    def _add_up(
        self, setup: RoundEncoding, updates: UpdateSource, dropouts: Dropouts
    ) -> tuple[Words, dict[int, str], dict[int, Sequence[NoiseSeed]]]:
        """The sum over our own whose update can be encoded, why others' cannot, and the seeds."""
        context, pipeline = setup.context, Pipeline(setup)
        total, removable = context.field.zeros(context.length), context.seeds
        refused: dict[int, str] = {}
        seeds: dict[int, Sequence[NoiseSeed]] = {}

        def encode(block: Sequence[int]) -> Callable[[], FieldVector]:
            clipped: dict[int, Bounded] = {}
            own: dict[int, Sequence[NoiseSeed]] = {}
            for index in block:
                seeds[index] = self._removable(index, removable)
                try:
                    clipped[index] = pipeline.clip(updates(index))
                except PEER_ERRORS as error:
                    refused[index] = str(error)
                    continue
                own[index] = (self._noise(index), *seeds[index])
            if self._bound is None:
                return partial(pipeline.encode_block, clipped, own, refused)
            quantized = pipeline.round_block(clipped, own, refused)
            for index, each in quantized.items():
                own[index] = self._bound(index, each.packed())
                seeds[index] = own[index][1:]
            return partial(pipeline.add_noise_block, quantized, own, refused)

        everybody = left_after(context.invited, dropouts, Stage.INPUT)
        present = [index for index in everybody if self._ranks.owns(index)]
        executor = self._executor if context.length >= WORTH_THREADS else None
        # A block holds what was sketched as well as what was not.
        longest = max(context.length, setup.parameters.sketch.dimension)
        size = max(1, BLOCK_SCALARS // longest)
        blocks = (present[first : first + size] for first in range(0, len(present), size))
        for encoded in in_order(map(encode, blocks), executor, ENCODED_AHEAD):
            add_into(total, encoded())
        return total, refused, seeds


def ideal_outcome(
    setup: RoundEncoding,
    total: FieldVector,
    seeds: Mapping[int, Sequence[NoiseSeed]],
    refused: Mapping[int, str],
    record: RoundRecord | None = None,
) -> RoundOutcome:
    """A sum, with what survivors give up to take surplus coins off it.

    Args:
        seeds: removable ones of every survivor, by index in ascending order; none of them where
            their noise has been drawn already.
    """
    context, survivors = setup.context, tuple(seeds)
    surplus = context.removed_seeds(len(survivors))
    removed = {
        index: tuple(own[which].material for which in surplus)
        for index, own in seeds.items()
        if surplus and own
    }
    traffic = setup.traffic(len(survivors))
    return RoundOutcome(
        FieldSum(total, survivors, (), removed),
        dict.fromkeys(survivors, sum(traffic.up.values())),
        dict.fromkeys(survivors, sum(traffic.down.values())),
        refused=dict(refused),
        record=record,
    )


class RealAggregator:
    """Runs every client and the server over in-memory bytes, with real cryptography.

    Args:
        identities: the clients' signing keys; their public halves are the registry.
        policy: what every client insists on. Every identity keeps a `ClientHistory` with the
            policy's goal over all rounds of this object.
        executor: optional, for unmasking.
        clock: optional, for measurement.
        noise: secret seeds of rounding and of the coins that stay; leave it alone except to run
            the same round twice.
        rand_of: likewise, the source of every other secret of a client.
        unix_clock: the clients' own, if their rounds expire.
    """

    def __init__(
        self,
        identities: Sequence[Identity],
        policy: ClientPolicy,
        executor: Executor | None = None,
        clock: Clock | None = None,
        noise: NoiseSource = fresh_noise,
        rand_of: Callable[[int], Rand] = system_rand,
        unix_clock: UnixClock | None = None,
    ) -> None:
        self._unix_clock = unix_clock
        self._noise = noise
        self._rand_of = rand_of
        self._identities = {identity.public: identity for identity in identities}
        self._registry = frozenset(self._identities)
        self._policy = policy
        self._histories = {key: ClientHistory(policy.goal) for key in self._registry}
        self._executor = executor
        self._clock = clock

    def run(
        self,
        setup: RoundEncoding,
        updates: UpdateSource,
        dropouts: Dropouts,
        *,
        before_release: ReleaseHook = no_hook,
    ) -> RoundOutcome:
        """Run all stages of the protocol in this process; see `Aggregator.run`."""
        setup = pairwise(setup)
        check_dropouts(dropouts, setup.context.size)
        announcement = setup.announce()
        peers = {
            index: _Peer(
                RoundClient(
                    self._identities[key],
                    self._registry,
                    self._policy,
                    self._histories[key],
                    self._rand_of(index),
                    self._unix_clock,
                ),
                announcement,
                setup.parameters.model_digest,
                lambda i=index: (updates(i), self._noise(i)),  # type: ignore[misc]
            )
            for index, key in enumerate(setup.context.cohort)
        }
        server = ServerSession(setup.context)
        wire = MemoryRound(server, setup.context.mode, peers, dropouts, self._clock, before_release)
        outcome = wire.run(self._executor)
        for index in outcome.bytes_down:
            outcome.bytes_down[index] += len(announcement)
        return outcome


@dataclass(eq=False, repr=False)
class _Peer:
    """A `RoundClient` with its announcement and its update at hand."""

    client: RoundClient
    announcement: bytes
    model_digest: bytes
    make_input: Callable[[], tuple[NDArray[Any], NoiseSeed]]

    def open(self) -> bytes:
        return self.client.join(self.announcement, self.model_digest)

    def receive(self, data: bytes) -> bytes | None:
        return self.client.receive(data)

    def submit(self) -> bytes:
        return self.client.submit(*self.make_input())
