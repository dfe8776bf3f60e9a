"""What the parties of a round agree on in every protocol: the part of a context that all share."""

from __future__ import annotations

from dataclasses import dataclass

from secagg.checks import require_int, require_ints, whole
from secagg.errors import ParameterError
from secagg.field import PrimeField
from secagg.grinding import LARGEST_LIFETIME_SECONDS

SESSION_ID_BYTES = 16
DIGEST_BYTES = 32

MAX_COHORT = 1 << 20
"""Bound on the cohort, so that a hostile context cannot make a client allocate without limit."""
COHORT = whole(2, MAX_COHORT)
LIFETIME = whole(0, LARGEST_LIFETIME_SECONDS)
"""Of a round, in seconds; 0 for ever."""
MAX_LENGTH = 1 << 30
"""Bound on the vector length, for the same reason."""
MAX_ROUND_NUMBER = (1 << 63) - 1
MAX_SEEDS = 63
"""Removable seeds of one client: a mask of them is one number on the wire."""

INTEGERS = (
    "round_number",
    "minimum_survivors",
    "tolerated_colluders",
    "bits",
    "length",
    "opened_at",
    "lifetime_seconds",
)
"""Terms that are integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTerms:
    """The public parameters of a round that do not depend on how its vectors are masked.

    Args:
        session_id: 16 bytes, unique to the training session.
        removal: for d = 0, 1, ... lost clients, a bit mask of the removable seeds that every
            survivor then gives up; empty if there are none. It must cover every d with at least
            `minimum_survivors` left.
        application_digest: 32-byte hash of everything the application fixed for the round: the
            model, clip bounds, scale, sketch, noise.
        opened_at: when the round was announced, in whole unix seconds; 0 if it never expires.
    """

    session_id: bytes
    round_number: int
    minimum_survivors: int
    tolerated_colluders: int
    removal: tuple[int, ...] = ()
    bits: int
    length: int
    application_digest: bytes
    opened_at: int = 0
    lifetime_seconds: int = 0

    @property
    def invited(self) -> int:
        """n, the number of invited clients."""
        raise NotImplementedError

    @property
    def seeds(self) -> int:
        """Removable seeds of each client."""
        return max(self.removal, default=0).bit_length()

    def removed_seeds(self, survivors: int) -> tuple[int, ...]:
        """Which removable seeds each of so many survivors gives up, ascending."""
        mask = self.removal[self.invited - survivors] if self.removal else 0
        return tuple(i for i in range(self.seeds) if mask >> i & 1)

    @property
    def field(self) -> PrimeField:
        """The field of the round."""
        return PrimeField(self.bits)

    def check_term_types(self) -> None:
        """See that nothing can change after the hash is taken."""
        require_ints(self, *INTEGERS)
        for name in ("session_id", "application_digest"):
            if type(getattr(self, name)) is not bytes:
                raise ParameterError(name, type(getattr(self, name)).__name__, "bytes")
        if type(self.removal) is not tuple or any(type(mask) is not int for mask in self.removal):
            raise ParameterError("removal", self.removal, "a tuple of ints")

    def check_terms(self) -> None:
        """See that the values of the terms are feasible."""
        if len(self.session_id) != SESSION_ID_BYTES:
            raise ParameterError(
                "session_id", f"{len(self.session_id)} bytes", f"{SESSION_ID_BYTES} bytes"
            )
        if len(self.application_digest) != DIGEST_BYTES:
            raise ParameterError(
                "application_digest", f"{len(self.application_digest)} bytes", "32 bytes"
            )
        require_int("round_number", self.round_number, 0, MAX_ROUND_NUMBER)
        COHORT.require("cohort", self.invited)
        require_int("length", self.length, 1, MAX_LENGTH)
        require_int("tolerated_colluders", self.tolerated_colluders, 0, self.invited - 1)
        if any(not 0 <= mask < 1 << MAX_SEEDS for mask in self.removal):
            raise ParameterError("removal", self.removal, f"masks of at most {MAX_SEEDS} seeds")
        PrimeField(self.bits)
        self._check_times()

    def check_removal(self) -> None:
        """See that the removal covers every number of clients that may be lost."""
        lost = self.invited - self.minimum_survivors
        if self.removal and len(self.removal) <= lost:
            raise ParameterError("removal", f"{len(self.removal)} masks", f"{lost + 1} or more")

    def _check_times(self) -> None:
        LIFETIME.require("lifetime_seconds", self.lifetime_seconds)
        # One form for a round that never expires, so that it has one hash.
        if self.lifetime_seconds and not 0 < self.opened_at < 1 << 63:
            raise ParameterError("opened_at", self.opened_at, "the unix time of the announcement")
        if not self.lifetime_seconds and self.opened_at:
            raise ParameterError("opened_at", self.opened_at, "0 for a round without a lifetime")
