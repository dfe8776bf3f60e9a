"""What all parties of a round agree on before it begins, and its hash.

The hash goes into every signature, every sealing key and every mask. Two clients that were told
different things get masks that do not cancel: a server that lies about any parameter, or about the
model that the application digest covers, learns noise only (Pasquini et al., CCS'22).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from secagg.checks import require_int, require_ints
from secagg.errors import ParameterError
from secagg.grinding import ring_failure
from secagg.keys import KEY_BYTES
from secagg.pairwise.committee import CommitteeParameters, choose_committee, full_quorum
from secagg.pairwise.graph_parameters import (
    CORRECTNESS_BITS,
    SECURITY,
    SECURITY_BITS,
    most_corrupt_neighbours,
    semi_malicious_bound,
    stays_connected,
)
from secagg.tags import Usage, digest, encode_parts
from secagg.terms import RoundTerms

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
class SessionContext(RoundTerms):
    """The public parameters of one round of secure aggregation.

    Beside the terms that every protocol has (`RoundTerms`):

    Args:
        cohort: registered Ed25519 public keys, all distinct; a party's index is its position.
        threshold: t, the number of shares that rebuild a secret; at most `minimum_survivors`.
        mode: what the server is trusted with.
        degree: k, neighbours of each client on a sparse graph; 0 for the complete graph.
        security_bits: sigma of a sparse graph and its committee: each ring that a server tries is
            bad with a probability of about n 2^-(sigma + 2); the complete graph has no use for it.

    Raises:
        ParameterError: names the parameter, its value and what would be valid.

    Source: Bonawitz et al. 2017 (ia.cr/2017/281), section 6: active security on the complete
    graph needs 2 t > n + n_C; Bell et al. 2020 (ia.cr/2020/704) for sparse graphs.
    """

    cohort: tuple[bytes, ...]
    threshold: int
    mode: Mode
    degree: int = 0
    security_bits: int = SECURITY_BITS
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

    @property
    def invited(self) -> int:
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
        self.check_term_types()
        require_ints(self, "threshold", "degree", "security_bits")
        if type(self.cohort) is not tuple:
            raise ParameterError("cohort", type(self.cohort).__name__, "a tuple")
        if any(type(key) is not bytes for key in self.cohort):
            raise ParameterError("cohort", "a key of another type", "bytes")
        if not isinstance(self.mode, Mode):
            raise ParameterError("mode", self.mode, "a Mode")

    def _check_sizes(self) -> None:
        self.check_terms()
        if any(len(key) != KEY_BYTES for key in self.cohort):
            raise ParameterError("cohort", "a key of another length", "32-byte Ed25519 keys")
        if len(set(self.cohort)) != self.size:
            raise ParameterError("cohort", "a repeated identity key", "distinct identity keys")
        if self.degree and not (2 <= self.degree < self.size - 1 and self.degree % 2 == 0):
            raise ParameterError("degree", self.degree, f"0, or even in 2 .. {self.size - 2}")
        SECURITY.require("security_bits", self.security_bits)

    def _check_threshold(self) -> None:
        lowest = lowest_threshold(
            self.size,
            self.tolerated_colluders,
            self.mode,
            self.degree,
            security_bits=self.security_bits,
        )
        of = (
            f" for {self.size} clients, degree {self.degree}, "
            f"{self.tolerated_colluders} colluders, mode {self.mode.value}, "
            f"{self.security_bits} bits of security"
        )
        require_int("threshold", self.threshold, lowest, self.degree or self.size, of)
        fewest = fewest_survivors(self.threshold, self.tolerated_colluders, self.degree)
        require_int("minimum_survivors", self.minimum_survivors, fewest, self.size)
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
        require_int("minimum_survivors", self.minimum_survivors, quorum)

    def _check_losses(self) -> None:
        self.check_removal()
        lost = self.size - self.minimum_survivors + self.tolerated_colluders
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
