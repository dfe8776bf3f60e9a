"""What all parties of a round agree on before it begins, and its hash.

The hash goes into every signature, every sealing key and every mask. Two clients that were told
different things get masks that do not cancel: a server that lies about any parameter, or about the
model that the application digest covers, learns noise only (Pasquini et al., CCS'22).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from secagg.committee import CommitteeParameters, choose_committee, full_quorum
from secagg.errors import ParameterError
from secagg.field import PrimeField
from secagg.graph_parameters import (
    CORRECTNESS_BITS,
    SECURITY_BITS,
    most_corrupt_neighbours,
    require_security_bits,
    semi_malicious_bound,
    stays_connected,
)
from secagg.grinding import LARGEST_LIFETIME_SECONDS, ring_failure
from secagg.keys import KEY_BYTES
from secagg.tags import Usage, digest, encode_parts

SESSION_ID_BYTES = 16
DIGEST_BYTES = 32

MAX_COHORT = 1 << 20
"""Bound on the cohort, so that a hostile context cannot make a client allocate without limit."""
MAX_LENGTH = 1 << 30
"""Bound on the vector length, for the same reason."""
MAX_SEEDS = 63
"""Removable seeds of one client: a mask of them is one number on the wire."""


_INTEGERS = (
    "round_number",
    "threshold",
    "minimum_survivors",
    "tolerated_colluders",
    "degree",
    "bits",
    "length",
    "security_bits",
    "opened_at",
    "lifetime_seconds",
)


class Mode(enum.Enum):
    """What the server may do: only look (`SEMI_HONEST`), or deviate at will (`ACTIVE`)."""

    SEMI_HONEST = "semi_honest"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """The public parameters of one round of secure aggregation.

    Args:
        session_id: 16 bytes, unique to the training session.
        round_number: >= 0, unique within the session.
        cohort: registered Ed25519 public keys, all distinct; a party's index is its position.
        threshold: t, the number of shares that rebuild a secret.
        minimum_survivors: no sum over fewer clients is released; at least `threshold`.
        mode: what the server is trusted with.
        tolerated_colluders: clients that may work for the server.
        degree: k, neighbours of each client on a sparse graph; 0 for the complete graph.
        removal: for d = 0, 1, ... lost clients, a bit mask of the removable seeds that every
            survivor then gives up; empty if there are none. It must cover every d with at least
            `minimum_survivors` left.
        bits: field size.
        length: elements of each client's vector.
        application_digest: 32-byte hash of everything the application fixed for the round: the
            model, clip bounds, scale, sketch, noise.
        security_bits: sigma of a sparse graph and its committee: each ring that a server tries is
            bad with a probability of about n 2^-(sigma + 2); the complete graph has no use for it.
        opened_at: when the round was announced, in whole unix seconds; 0 if it never expires.
        lifetime_seconds: how long after that clients with a clock still answer; 0 for ever.

    Raises:
        ParameterError: names the parameter, its value and what would be valid.

    Source: Bonawitz et al. 2017 (ia.cr/2017/281), section 6: active security on the complete
    graph needs 2 t > n + n_C; Bell et al. 2020 (ia.cr/2020/704) for sparse graphs.
    """

    session_id: bytes
    round_number: int
    cohort: tuple[bytes, ...]
    threshold: int
    minimum_survivors: int
    mode: Mode
    tolerated_colluders: int
    degree: int = 0
    removal: tuple[int, ...] = ()
    bits: int
    length: int
    application_digest: bytes
    security_bits: int = SECURITY_BITS
    opened_at: int = 0
    lifetime_seconds: int = 0
    hash: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_types()
        self._check_sizes()
        self._check_threshold()
        object.__setattr__(self, "hash", digest(Usage.CONTEXT, self.encode()))

    @property
    def size(self) -> int:
        """n, the number of invited clients."""
        return len(self.cohort)

    def committee(self, members: int) -> CommitteeParameters:
        """How many of a roster's members confirm the survivor set, and how many convince.

        Two quorums share an honest client, and an honest client signs once, so no two clients act
        on different sets. On a sparse graph it is not enough that neighbours sign: distant parts
        of the ring could be shown different sets (docs/security.md). A curious server tells
        everybody the same, and nobody signs.
        """
        if self.degree == 0 or self.mode is Mode.SEMI_HONEST:
            return CommitteeParameters(members, self.threshold)
        alive = min(members, self.minimum_survivors)
        return choose_committee(members, self.tolerated_colluders, alive, self.security_bits)

    def roster_is_safe(self, members: int) -> bool:
        """Whether the threshold still holds on a ring of so many members.

        Clients that vanish before they advertise are honest ones, so the corrupt share of the ring
        grows, and with it the corrupt neighbours that anybody must expect.
        """
        if self.degree == 0 or members <= self.degree + 1:
            holders = members if self.degree == 0 else members - 1
            return self.threshold >= lowest_threshold(holders, self.tolerated_colluders, self.mode)
        colluders = min(self.tolerated_colluders, members)
        lowest = lowest_threshold(
            members, colluders, self.mode, self.degree, security_bits=self.security_bits
        )
        return self.threshold >= lowest

    def ring_failure(self, *, keeps_time: bool = True) -> float:
        """Bound on the probability that a ring which breaks the round is found; 0 without a ring.

        Args:
            keeps_time: whether the client has a clock, so that the round's lifetime counts.
        """
        if self.degree == 0:
            return 0.0
        lifetime = self.lifetime_seconds if keeps_time else 0
        return ring_failure(
            self.size, self.security_bits, lifetime, active=self.mode is Mode.ACTIVE
        )

    def corrupt_holders(self, members: int) -> int:
        """How many holders of one client's shares may lie together, with so many in the roster.

        On a sparse graph anybody has more with a probability of 2^-21 at most: what rests on it is
        who is named, not what is secret, and no client knows the ring when it advertises.
        """
        if self.degree == 0 or members <= self.degree + 1:
            return self.tolerated_colluders
        colluders = min(self.tolerated_colluders, members)
        return most_corrupt_neighbours(members, colluders, self.degree, CORRECTNESS_BITS)

    @property
    def seeds(self) -> int:
        """Removable seeds of each client."""
        return max(self.removal, default=0).bit_length()

    def removed_seeds(self, survivors: int) -> tuple[int, ...]:
        """Which removable seeds each of so many survivors gives up, ascending."""
        mask = self.removal[self.size - survivors] if self.removal else 0
        return tuple(i for i in range(self.seeds) if mask >> i & 1)

    @property
    def field(self) -> PrimeField:
        """The field of the round."""
        return PrimeField(self.bits)

    def encode(self) -> bytes:
        """Canonical, injective encoding of every parameter."""
        numbers: list[int] = [getattr(self, name) for name in _INTEGERS]
        return encode_parts(
            self.session_id,
            self.mode.value.encode(),
            b"".join(number.to_bytes(8, "little") for number in numbers),
            b"".join(mask.to_bytes(8, "little") for mask in self.removal),
            b"".join(self.cohort),
            self.application_digest,
        )

    def _check_types(self) -> None:
        for name in _INTEGERS:
            if type(getattr(self, name)) is not int:
                raise ParameterError(name, getattr(self, name), "an int")
        # The hash is taken once: nothing below may change afterwards.
        if type(self.cohort) is not tuple:
            raise ParameterError("cohort", type(self.cohort).__name__, "a tuple")
        for name in ("session_id", "application_digest"):
            if type(getattr(self, name)) is not bytes:
                raise ParameterError(name, type(getattr(self, name)).__name__, "bytes")
        if any(type(key) is not bytes for key in self.cohort):
            raise ParameterError("cohort", "a key of another type", "bytes")
        if type(self.removal) is not tuple or any(type(mask) is not int for mask in self.removal):
            raise ParameterError("removal", self.removal, "a tuple of ints")
        if not isinstance(self.mode, Mode):
            raise ParameterError("mode", self.mode, "a Mode")

    def _check_sizes(self) -> None:
        if len(self.session_id) != SESSION_ID_BYTES:
            raise ParameterError(
                "session_id", f"{len(self.session_id)} bytes", f"{SESSION_ID_BYTES} bytes"
            )
        if len(self.application_digest) != DIGEST_BYTES:
            raise ParameterError(
                "application_digest", f"{len(self.application_digest)} bytes", "32 bytes"
            )
        if not 0 <= self.round_number < 1 << 63:
            raise ParameterError("round_number", self.round_number, "in 0 .. 2^63 - 1")
        if not 2 <= self.size <= MAX_COHORT:
            raise ParameterError("cohort", f"{self.size} clients", f"2 .. {MAX_COHORT} clients")
        if any(len(key) != KEY_BYTES for key in self.cohort):
            raise ParameterError("cohort", "a key of another length", "32-byte Ed25519 keys")
        if len(set(self.cohort)) != self.size:
            raise ParameterError("cohort", "a repeated identity key", "distinct identity keys")
        if not 1 <= self.length <= MAX_LENGTH:
            raise ParameterError("length", self.length, f"in 1 .. {MAX_LENGTH}")
        if self.degree and not (2 <= self.degree < self.size - 1 and self.degree % 2 == 0):
            raise ParameterError("degree", self.degree, f"0, or even in 2 .. {self.size - 2}")
        if any(not 0 <= mask < 1 << MAX_SEEDS for mask in self.removal):
            raise ParameterError("removal", self.removal, f"masks of at most {MAX_SEEDS} seeds")
        PrimeField(self.bits)
        require_security_bits(self.security_bits)
        self._check_times()

    def _check_times(self) -> None:
        if not 0 <= self.lifetime_seconds <= LARGEST_LIFETIME_SECONDS:
            valid = f"in 0 .. {LARGEST_LIFETIME_SECONDS}"
            raise ParameterError("lifetime_seconds", self.lifetime_seconds, valid)
        # One form for a round that never expires, so that it has one hash.
        if self.lifetime_seconds and not 0 < self.opened_at < 1 << 63:
            raise ParameterError("opened_at", self.opened_at, "the unix time of the announcement")
        if not self.lifetime_seconds and self.opened_at:
            raise ParameterError("opened_at", self.opened_at, "0 for a round without a lifetime")

    def _check_threshold(self) -> None:
        if not 0 <= self.tolerated_colluders < self.size:
            raise ParameterError(
                "tolerated_colluders", self.tolerated_colluders, f"in 0 .. {self.size - 1}"
            )
        lowest = lowest_threshold(
            self.size,
            self.tolerated_colluders,
            self.mode,
            self.degree,
            security_bits=self.security_bits,
        )
        highest = self.degree or self.size
        if not lowest <= self.threshold <= highest:
            raise ParameterError(
                "threshold",
                self.threshold,
                f"in {lowest} .. {highest} for {self.size} clients, degree {self.degree}, "
                f"{self.tolerated_colluders} colluders, mode {self.mode.value}, "
                f"{self.security_bits} bits of security",
            )
        fewest = fewest_survivors(self.threshold, self.tolerated_colluders, self.degree)
        if not fewest <= self.minimum_survivors <= self.size:
            raise ParameterError(
                "minimum_survivors", self.minimum_survivors, f"in {fewest} .. {self.size}"
            )
        self._check_committee()
        self._check_losses()

    def _check_committee(self) -> None:
        """More than half of the cohort, whatever the committee.

        Two rosters of one round, each with a survivor set and a committee of its own, must not both
        yield a sum.
        """
        if self.degree == 0 or self.mode is Mode.SEMI_HONEST:
            return
        quorum = full_quorum(self.size, self.tolerated_colluders)
        if self.minimum_survivors < quorum:
            raise ParameterError("minimum_survivors", self.minimum_survivors, f"at least {quorum}")

    def _check_losses(self) -> None:
        lost = self.size - self.minimum_survivors
        if self.removal and len(self.removal) <= lost:
            raise ParameterError("removal", f"{len(self.removal)} masks", f"{lost + 1} or more")
        lost += self.tolerated_colluders
        if self.degree and not stays_connected(self.size, lost, self.degree, self.security_bits):
            raise ParameterError(
                "degree",
                self.degree,
                f"larger: {lost} lost or corrupt clients of {self.size} may cut the graph; "
                "or raise minimum_survivors",
            )


def fewest_survivors(threshold: int, colluders: int, degree: int) -> int:
    """Smallest `minimum_survivors` that a threshold allows.

    On a sparse graph nobody holds a share of its own, and colluders may keep theirs back.
    """
    return threshold + max(colluders, 1) if degree else threshold


def lowest_threshold(
    size: int, colluders: int, mode: Mode, degree: int = 0, *, security_bits: int = SECURITY_BITS
) -> int:
    """Smallest safe t.

    Of m share holders, c of them corrupt, an active server needs 2 t > m + c, or two groups could
    rebuild both secrets of one client; against a curious one t > c is enough. On the complete
    graph m = n and c = n_C; on a sparse one m = k, and c bounds the corrupt neighbours of anybody
    except with probability 2^-(`security_bits` + 1).
    """
    if degree == 0:
        return (size + colluders) // 2 + 1 if mode is Mode.ACTIVE else max(colluders + 1, 2)
    corrupt = most_corrupt_neighbours(size, colluders, degree, security_bits)
    lowest = semi_malicious_bound(corrupt, degree) if mode is Mode.ACTIVE else corrupt
    return max(lowest + 1, 2)
