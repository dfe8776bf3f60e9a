"""A validated round as announced: a one-shot round whose context has a bound on vectors.

The server chooses the bound, so every client works out its own, from the clipping norm and the
noise that it agrees to. A smaller one would make its silence tell how long its vector is. Members
that add noise do the same with theirs.

Source: docs/validated.md, S1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocol.checks import of_kind
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.one_shot_setup import OneShotAnnouncement, OneShotSetup, announced_terms
from protocol.round.parameters import RoundParameters
from protocol.round.written_parameters import taken
from secagg import Identity, ParameterError
from secagg.keys import os_random
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.gaussian import SIGMA_TENTHS
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.sortition import Places
from secagg.shamir import Rand
from secagg.traffic import Traffic
from secagg.validated.bounds import SILENT_BITS, announced_bound, least_bound
from secagg.validated.client import ValidatedClient
from secagg.validated.context import DEGREE, ValidatedContext
from secagg.validated.member import ValidatedMember
from secagg.validated.server import ValidatedCollection, ValidatedServer
from secagg.validated.traffic import client_traffic, member_traffic, vector_bytes

ERROR_VARIANCE = (SIGMA_TENTHS / 10.0) ** 2
"""Of the lattice's error in every coordinate, which stays in the sum."""

Bound = Callable[[float, list[tuple[int, float]]], int]


@dataclass(frozen=True, slots=True)
class ValidatedSetup(OneShotSetup):
    """A validated round as announced: the secure-aggregation context and what it carries."""

    KIND: ClassVar[str] = "validated"

    context: ValidatedContext  # type: ignore[assignment]

    def client(
        self, index: int, identity: Identity, proof: bytes, rand: Rand = os_random
    ) -> ValidatedClient:
        """As `OneShotSetup.client` says."""
        return ValidatedClient(self.context, index, identity, proof, self.least_bound, rand)

    def uploads(self, folder: Path | None = None) -> ValidatedCollection:
        """As `OneShotSetup.uploads` says."""
        return ValidatedCollection(self.context, self.known_cohort(), folder)

    def server(self, uploads: ValidatedCollection | None = None) -> ValidatedServer:  # type: ignore[override]
        """As `OneShotSetup.server` says."""
        return ValidatedServer(self.context, self.known_cohort(), uploads)

    @property
    def least_bound(self) -> int:
        """The smallest squared bound with which clients of these parameters are never silent."""
        return bounds_of(self.parameters, least_bound, self.context.unit)[0]

    def accepts(self, vector: NDArray[np.int64]) -> bool:
        """As `RoundEncoding.accepts` says: within the bound, but for errors."""
        values = self.context.unit * vector.astype(np.float64)
        return float(values @ values) <= self.context.bound

    @property
    def error_variance(self) -> float:
        """That of the lattice's errors, where they are not rounded off."""
        return ERROR_VARIANCE if self.context.unit == 1 else 0.0

    def check_failure(self, goal: PrivacyGoal, *, keeps_time: bool = True) -> None:
        """See that the silence of uploaders costs no more than a goal sets aside for one round.

        With probability pi that any of them is silent, it costs (1 + e^epsilon) pi of delta.
        """
        del keeps_time
        # 2^-80 for the bound, and 2^-101 for rows.
        silent = self.context.size * (1.0 + 2.0**-20) * 2.0**-SILENT_BITS
        costs = (1.0 + math.exp(min(goal.epsilon, 700.0))) * silent
        if costs > goal.reserve.aggregation:
            aside = goal.reserve.aggregation
            valid = f"smaller, or delta larger: silence costs {costs:.3g}, {aside:.3g} is set aside"
            raise PolicyError("epsilon", goal.epsilon, valid)

    def require_safe(self, goal: PrivacyGoal) -> None:
        """The same, for whoever announces the round."""
        self.check_failure(goal)

    @property
    def vector_bytes(self) -> int:
        """Bytes of one client's ciphertext."""
        return vector_bytes(self.context.parameters)

    def traffic(self, survivors: int) -> Traffic:
        """As `RoundEncoding.traffic` says; of a member the most that one is sent."""
        context = self.context
        p, committee = context.parameters, context.committee
        found = client_traffic(p, context.size)
        if committee.of_cohort:
            found += member_traffic(p, context.size, committee.quorum, survivors)
        return found.announced(len(self.announce(0)))

    def _announcement(self, index: int, proof: bytes) -> OneShotAnnouncement:
        context = self.context
        return ValidatedAnnouncement(
            degree=DEGREE,
            limbs=1,
            rounding_bits=0,
            entries=1,
            **announced_terms(self, index, proof),
            **taken(context, _BOUNDED),
        )


class ValidatedAnnouncement(
    OneShotAnnouncement, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True
):
    """The wire form of a setup: that of a one-shot round, with what validation adds.

    The ring has one prime of `ring_bits` and the degree that is told; nothing is rounded off on the
    wire, and a secret holds one entry of the key.
    """

    TAG: ClassVar[bytes] = b"validated"
    MEMBER: ClassVar[type[OneShotMember]] = ValidatedMember

    away: int
    ring_bits: int
    unit: int
    bound: int
    member_bound: int
    nonce: int

    def adder(
        self,
        context: CommitteeContext,
        index: int,
        identity: Identity,
        rand: Rand,
        *,
        returns: bool,
    ) -> ValidatedClient:
        """As `OneShotAnnouncement.adder` says; `PolicyError` of a bound that is below our own."""
        terms = of_kind("context", context, ValidatedContext)
        # The model is no part of noise.
        least = bounds_of(self.encoding(bytes(32)), least_bound, terms.unit)[1]
        if terms.member_bound < least:
            valid = f"at least {least}: with less, silence tells how long noise is"
            raise PolicyError("member_bound", terms.member_bound, valid)
        return ValidatedClient(terms, index, identity, self.proof, least, rand, returns)

    def _setup(
        self, context: CommitteeContext, parameters: RoundParameters, places: Places | None
    ) -> ValidatedSetup:
        found = of_kind("context", context, ValidatedContext)
        return ValidatedSetup(found, parameters, places=places)

    def _context(self, parameters: RoundParameters, digest: bytes) -> CommitteeContext:
        ring = (self.degree, self.limbs, self.rounding_bits, self.entries)
        if ring != (DEGREE, 1, 0, 1):
            names = "degree, limbs, rounding_bits, entries"
            raise ParameterError(names, ring, f"{DEGREE}, 1, 0, 1")
        return ValidatedContext(**self._terms(parameters, digest), **taken(self, _BOUNDED))


_BOUNDED = ("away", "ring_bits", "unit", "bound", "member_bound", "nonce")


def bounds_of(
    parameters: RoundParameters, bound: Bound = announced_bound, unit: int = 1
) -> tuple[int, int]:
    """beta^2 of what an honest client adds, and of what a member does: 0 if members add nothing.

    A client adds its clipped integers, its noise and the lattice's errors; a member the noise of
    this round and that of the round before, and errors.

    Args:
        bound: `least_bound`, or `announced_bound`.
        unit: Delta.

    Raises:
        ParameterError: the noise has no such bound.
    """
    mechanism, length = parameters.mechanism, parameters.length
    if mechanism.proxy_variance is None:
        valid = "binomial or discrete-gaussian, whose tails are those of a Gaussian"
        raise ParameterError("mechanism", mechanism.name, valid)
    # Coins of an odd number are off their mean by a half.
    longest = parameters.l2_bound + abs(mechanism.residual_offset) * math.sqrt(length)

    def with_noise(norm: float, variance: float) -> int:
        deviation = math.sqrt(unit**2 * variance + ERROR_VARIANCE)
        padding = -length % DEGREE, math.sqrt(ERROR_VARIANCE)
        return bound(unit * norm, [(length, deviation), padding])

    returned, of_client = parameters.returned, with_noise(longest, mechanism.proxy_variance)
    return of_client, with_noise(0.0, 2.0 * returned.variance) if returned else 0
