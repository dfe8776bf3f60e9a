"""Two ways to the same sum: the real protocol, and the ideal functionality that it imitates.

Both encode the same updates with the same pipeline and add them in the same field; given the same
noise seeds and dropouts they agree bit for bit, which a test asserts. Long training runs may use
the ideal one; only the real one protects anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from numpy.typing import NDArray

from dp import NoiseSeed
from protocol.adapters.memory import (
    Clock,
    Dropouts,
    MemoryRound,
    RoundOutcome,
    Stage,
    left_after,
)
from protocol.client import ClientPolicy, RoundClient
from protocol.pipeline import Pipeline
from protocol.setup import RoundSetup
from secagg import (
    FieldSum,
    FieldVector,
    Identity,
    Mode,
    ServerSession,
    TooFewSurvivorsError,
)
from secagg.field import add_into

UpdateSource = Callable[[int], NDArray[Any]]
"""Gives the update of a party (by its index in the cohort) when it is asked for one."""
NoiseSource = Callable[[int], NoiseSeed]
"""Gives the noise seed of a party. Only tests pass one; fresh seeds come from the system."""


def fresh_noise(_: int) -> NoiseSeed:
    """A new secret seed for whoever asks."""
    return NoiseSeed.fresh()


class Aggregator(Protocol):
    """Turns a round's updates into their noisy sum."""

    def run(
        self,
        setup: RoundSetup,
        updates: UpdateSource,
        dropouts: Dropouts,
        noise: NoiseSource = fresh_noise,
    ) -> RoundOutcome:
        """Run one round.

        Raises:
            TooFewSurvivorsError: too few parties are left at some stage; nothing is released.
            PrivacyError: an update is not finite.
        """


class IdealAggregator:
    """Adds the clients' encoded vectors in the field. Trusts everybody; for simulation only."""

    def run(
        self,
        setup: RoundSetup,
        updates: UpdateSource,
        dropouts: Dropouts,
        noise: NoiseSource = fresh_noise,
    ) -> RoundOutcome:
        """See `Aggregator.run`; it fails exactly where the real protocol would."""
        context = setup.context
        check_survivors(setup, dropouts)
        pipeline = Pipeline(setup)
        total = context.field.zeros(context.length)
        survivors = left_after(context.size, dropouts, Stage.INPUT)
        for index in survivors:
            add_into(total, pipeline.encode(updates(index), noise(index)))
        packed = context.field.packed_bytes(context.length)
        vector = FieldVector(context.field, total)
        return RoundOutcome(FieldSum(vector, survivors), dict.fromkeys(survivors, packed))


class RealAggregator:
    """Runs every client and the server over in-memory bytes, with real cryptography.

    Args:
        identities: the clients' signing keys; their public halves are the registry.
        policy: what every client insists on.
        executor: optional, for unmasking.
        clock: optional, for measurement.
    """

    def __init__(
        self,
        identities: Sequence[Identity],
        policy: ClientPolicy,
        executor: Executor | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._identities = {identity.public: identity for identity in identities}
        self._registry = frozenset(self._identities)
        self._policy = policy
        self._executor = executor
        self._clock = clock

    def run(
        self,
        setup: RoundSetup,
        updates: UpdateSource,
        dropouts: Dropouts,
        noise: NoiseSource = fresh_noise,
    ) -> RoundOutcome:
        """See `Aggregator.run`."""
        announcement = setup.announce()
        peers = {
            index: _Peer(
                RoundClient(self._identities[key], self._registry, self._policy),
                announcement,
                setup.parameters.model_digest,
                lambda i=index: (updates(i), noise(i)),  # type: ignore[misc]
            )
            for index, key in enumerate(setup.context.cohort)
        }
        server = ServerSession(setup.context)
        wire = MemoryRound(server, setup.context.mode, peers, dropouts, self._clock)
        outcome = wire.run(self._executor)
        for index in outcome.bytes_down:
            outcome.bytes_down[index] += len(announcement)
        return outcome


class _Peer:
    """A `RoundClient` with its announcement and its update at hand."""

    def __init__(
        self,
        client: RoundClient,
        announcement: bytes,
        model_digest: bytes,
        make_input: Callable[[], tuple[NDArray[Any], NoiseSeed]],
    ) -> None:
        self._client = client
        self._announcement = announcement
        self._model_digest = model_digest
        self._make_input = make_input

    def open(self) -> bytes:
        return self._client.join(self._announcement, self._model_digest)

    def receive(self, data: bytes) -> bytes | None:
        return self._client.receive(data)

    def submit(self) -> bytes:
        return self._client.submit(*self._make_input())


def check_survivors(setup: RoundSetup, dropouts: Dropouts) -> None:
    """Fail where the real protocol would.

    Raises:
        TooFewSurvivorsError: names the first stage at which too few parties are left.
    """
    context = setup.context
    for stage in Stage:
        if stage is Stage.CONFIRM and context.mode is Mode.SEMI_HONEST:
            continue
        needed = context.minimum_survivors if stage <= Stage.INPUT else context.threshold
        left = len(left_after(context.size, dropouts, stage))
        if left < needed:
            raise TooFewSurvivorsError(str(stage), left, needed)
