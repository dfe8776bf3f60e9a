"""One client in one round: its own policy, its own model, its own noise.

The client never takes a parameter from the server without looking at it: the announcement is held
against the policy, every identity of the cohort against the registry, and the model it actually
received is hashed into the context.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dp import NoiseSeed, PrivacyError
from protocol.errors import PolicyError
from protocol.pipeline import Pipeline
from protocol.setup import RoundSetup
from secagg import ClientSession, Identity, LocalProtocolError, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """What this client insists on, whatever the server says.

    Args:
        minimum_survivors: smallest sum it will be part of.
        minimum_noise_multiplier: smallest ratio of aggregate noise to sensitivity, counting only
            the coins of the fewest honest survivors; 0 accepts rounds without privacy.
        largest_clip_l2: largest clip bound, in the units of the update.
        minimum_colluders: colluders that the thresholds and the noise must tolerate.
        largest_bits: largest field.
        largest_length: longest vector, so that a hostile server cannot exhaust memory.
        allow_semi_honest: whether to take part without the consistency round.
    """

    minimum_survivors: int = 2
    minimum_noise_multiplier: float = 0.0
    largest_clip_l2: float = math.inf
    minimum_colluders: int = 0
    largest_bits: int = 62
    largest_length: int = 1 << 28
    allow_semi_honest: bool = False

    def check(self, setup: RoundSetup) -> None:
        """Accept a setup or refuse it.

        Raises:
            PolicyError: names the parameter, what was announced and what would be accepted.
        """
        context, parameters = setup.context, setup.parameters
        if context.mode is Mode.SEMI_HONEST and not self.allow_semi_honest:
            raise PolicyError("mode", context.mode.value, "active only")
        at_least = {
            "minimum_survivors": (context.minimum_survivors, self.minimum_survivors),
            "tolerated_colluders": (context.tolerated_colluders, self.minimum_colluders),
            "noise_multiplier": (noise_multiplier(setup), self.minimum_noise_multiplier),
        }
        for name, (announced, lowest) in at_least.items():
            if not announced >= lowest:
                raise PolicyError(name, announced, f"at least {lowest}")
        at_most = {
            "clip_l2": (parameters.clip_l2, self.largest_clip_l2),
            "bits": (context.bits, self.largest_bits),
            "length": (max(context.length, parameters.sketch.dimension), self.largest_length),
        }
        for name, (announced, highest) in at_most.items():
            if not announced <= highest:
                raise PolicyError(name, announced, f"at most {highest}")


def noise_multiplier(setup: RoundSetup) -> float:
    """Standard deviation of the noise of the fewest honest survivors over the sensitivity."""
    coins = setup.fewest_honest * setup.parameters.coins
    return math.sqrt(coins / 4.0) / setup.parameters.l2_bound


class RoundClient:
    """Drives one client through one round; feed it bytes, send what it returns.

    Args:
        identity: our signing key.
        registry: identity keys of all clients that may be in a cohort.
        policy: what we insist on.
    """

    def __init__(
        self, identity: Identity, registry: Collection[bytes], policy: ClientPolicy
    ) -> None:
        self._identity = identity
        self._registry = registry
        self._policy = policy
        self._session: ClientSession | None = None
        self._pipeline: Pipeline | None = None

    def join(self, announcement: bytes, model_digest: bytes) -> bytes:
        """Answer an announcement.

        Args:
            announcement: from the server.
            model_digest: 32-byte hash of the model that we received for this round.

        Raises:
            RemoteProtocolError: the announcement is malformed.
            PolicyError: it is outside our policy, or names strangers.
        """
        if self._session is not None:
            raise LocalProtocolError("this client has already joined a round; make a new one")
        setup = RoundSetup.from_announcement(announcement, model_digest)
        self._policy.check(setup)
        strangers = [key for key in setup.context.cohort if key not in self._registry]
        if strangers:
            raise PolicyError(
                "cohort", f"{len(strangers)} unregistered identities", "registered ones only"
            )
        if self._identity.public not in setup.context.cohort:
            raise PolicyError("cohort", "one without this client", "cohorts that we are part of")
        index = setup.context.cohort.index(self._identity.public)
        self._session = ClientSession(setup.context, index, self._identity)
        self._pipeline = Pipeline(setup)
        return self._session.begin_bytes()

    def receive(self, data: bytes) -> bytes | None:
        """Process a message of the server; None means that it waits for our update."""
        return self._joined()[0].receive_bytes(data)

    def submit(self, update: NDArray[Any], noise: NoiseSeed | None = None) -> bytes:
        """Encode, mask and return our update.

        Args:
            update: float32|float64[d].
            noise: only for tests that compare aggregators; fresh from the system otherwise.

        Raises:
            PrivacyError: the update is not finite; the session is aborted.
            ParameterError: it has another shape; the session is aborted.
        """
        session, pipeline = self._joined()
        try:
            vector = pipeline.encode(update, noise or NoiseSeed.fresh())
        except (PrivacyError, LocalProtocolError, TypeError, ValueError):
            session.abort()
            raise
        return session.submit_bytes(vector)

    def _joined(self) -> tuple[ClientSession, Pipeline]:
        if self._session is None or self._pipeline is None:
            raise LocalProtocolError("join a round first")
        return self._session, self._pipeline
