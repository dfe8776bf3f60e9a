"""The committee of a round: who holds shares of the keys, and how many of them are needed for what.

Three numbers matter. The *randomness* T of the sharing polynomials is at least the number c of
members that may be corrupt, so what they hold together says nothing. The *quorum* is so large that
two of them share an honest member: 2 quorum > s + c, so one set is opened. And T + l answers open
it, l secrets being packed into one polynomial; every wrong answer costs two more.
docs/one-shot-security.md has the argument.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from secagg.checks import require_int, require_ints
from secagg.errors import ParameterError
from secagg.keys import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    check_public_key,
    signature_is_valid,
)
from secagg.oneshot.sortition import Draw, ticket
from secagg.tags import Usage, encode_parts

MAX_MEMBERS = 4096
"""Bound on the committee, so that a hostile context cannot make a client seal without limit."""


MEMBER_BYTES = 2 * KEY_BYTES + 16 + SIGNATURE_BYTES
"""Of a member's encoded entry."""


class CommitteeKind(enum.Enum):
    """Who is on it: `EVERYONE` who is invited, `NAMED` members, or members `DRAWN` by lot."""

    EVERYONE = "everyone"
    NAMED = "named"
    DRAWN = "drawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member's keys: an identity, and a sealing key that it signed for some rounds."""

    identity: bytes
    sealing_key: bytes
    first_round: int
    last_round: int
    signature: bytes

    def encode(self) -> bytes:
        """Canonical bytes of one entry; all have one length."""
        rounds = self.first_round.to_bytes(8, "little") + self.last_round.to_bytes(8, "little")
        return self.identity + self.sealing_key + rounds + self.signature

    @classmethod
    def decode(cls, encoded: bytes) -> Member:
        """Inverse of `encode`, of bytes of the right length."""
        cuts = (0, KEY_BYTES, 2 * KEY_BYTES, 2 * KEY_BYTES + 8, 2 * KEY_BYTES + 16, len(encoded))
        identity, key, first, last, signature = (encoded[a:b] for a, b in pairwise(cuts))
        return cls(
            identity=identity,
            sealing_key=key,
            first_round=int.from_bytes(first, "little"),
            last_round=int.from_bytes(last, "little"),
            signature=signature,
        )

    @classmethod
    def sign(
        cls,
        identity: Identity,
        session_id: bytes,
        sealing_key: bytes,
        first_round: int,
        last_round: int,
    ) -> Member:
        """The entry of the owner of both keys, for rounds first_round .. last_round."""
        parts = _signed_parts(session_id, sealing_key, first_round, last_round)
        return cls(
            identity=identity.public,
            sealing_key=sealing_key,
            first_round=first_round,
            last_round=last_round,
            signature=identity.sign(Usage.SEALING_KEY, *parts),
        )

    def is_signed(self, session_id: bytes) -> bool:
        """Whether the identity signed the sealing key for these rounds of the session."""
        return entry_is_signed(self, session_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committee:
    """Who holds shares, and how many answers and signatures it takes.

    Args:
        per_polynomial: l, secrets packed into one polynomial.
    """

    kind: CommitteeKind
    members: tuple[Member, ...]
    corrupt: int
    randomness: int
    per_polynomial: int
    quorum: int
    draw: Draw | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, CommitteeKind):
            raise ParameterError("kind", self.kind, "a CommitteeKind")
        if type(self.members) is not tuple:
            raise ParameterError("members", type(self.members).__name__, "a tuple")
        if (self.kind is CommitteeKind.DRAWN) != isinstance(self.draw, Draw):
            valid = "a Draw for a drawn committee, and None for any other"
            raise ParameterError("draw", type(self.draw).__name__, valid)
        require_ints(self, "corrupt", "randomness", "per_polynomial", "quorum")
        check_sizes(self.size, self.corrupt, self.randomness, self.per_polynomial, self.quorum)
        self._check_members()

    @property
    def of_cohort(self) -> bool:
        """Whether the members are the clients of the round."""
        return self.kind is CommitteeKind.EVERYONE

    @property
    def size(self) -> int:
        """s, the number of members."""
        return len(self.members)

    @property
    def threshold(self) -> int:
        """How many answers, T + l, open a sum if none is wrong."""
        return self.randomness + self.per_polynomial

    def encode(self) -> bytes:
        """Canonical, injective encoding of everything."""
        numbers = (self.corrupt, self.randomness, self.per_polynomial, self.quorum)
        return encode_parts(
            self.kind.value.encode(),
            b"".join(number.to_bytes(8, "little") for number in numbers),
            *([self.draw.encode()] if self.draw else []),
            *(member.encode() for member in self.members),
        )

    def check_keys(self, session_id: bytes, round_number: int) -> None:
        """See that every member signed its sealing key, for a range that holds this round."""
        for index, member in enumerate(self.members):
            if not member.first_round <= round_number <= member.last_round:
                raise ParameterError(
                    "sealing_key",
                    f"member {index}'s, for rounds {member.first_round} .. {member.last_round}",
                    f"valid in round {round_number}",
                )
            if not member.is_signed(session_id):
                raise ParameterError("sealing_key", f"member {index}'s", "signed by its identity")

    def check_draw(self, session_id: bytes, round_number: int) -> None:
        """See that every member of a drawn committee is a candidate of this round."""
        if self.draw is None:
            return
        seed = self.draw.seed(session_id, round_number)
        for index, member in enumerate(self.members):
            if ticket(seed, member.identity) >= self.draw.odds:
                valid = f"a candidate of round {round_number}'s draw"
                raise ParameterError("members", f"member {index}", valid)

    def _check_members(self) -> None:
        for index, member in enumerate(self.members):
            name = f"members[{index}]"
            if len(member.identity) != KEY_BYTES or len(member.signature) != SIGNATURE_BYTES:
                raise ParameterError(
                    name, "a key or signature of another length", "32 and 64 bytes"
                )
            if not 0 <= member.first_round <= member.last_round < 1 << 63:
                valid = "an ascending range of rounds below 2^63"
                raise ParameterError(name, f"{member.first_round} .. {member.last_round}", valid)
            try:
                check_public_key(member.sealing_key)
            except ValueError as error:
                raise ParameterError(name, str(error), "an acceptable X25519 key") from None
        for what in ("identity", "sealing_key"):
            if len({getattr(member, what) for member in self.members}) != self.size:
                raise ParameterError("members", f"a repeated {what}", "distinct keys")


def check_sizes(size: int, corrupt: int, randomness: int, per_polynomial: int, quorum: int) -> None:
    """The conditions of the theorem on a committee."""
    require_int("members", size, 1, MAX_MEMBERS)
    require_int("corrupt", corrupt, 0, size - 1)
    # T = 0 would hand every member the packed secrets themselves.
    require_int("randomness", randomness, max(corrupt, 1), size - 1)
    require_int("per_polynomial", per_polynomial, 1, size - randomness)
    require_int("quorum", quorum, lowest_quorum(size, corrupt), size)


def lowest_quorum(size: int, corrupt: int) -> int:
    """Smallest number of signatures of which two sets share an honest member."""
    return (size + corrupt) // 2 + 1


def most_wrong_answers(answers: int, threshold: int) -> int:
    """e, wrong answers among so many that are corrected and named."""
    return max(answers - threshold, 0) // 2


@lru_cache(maxsize=4 * MAX_MEMBERS)
def entry_is_signed(member: Member, session_id: bytes) -> bool:
    """Whether a member signed its sealing key; remembered, for a key is public and serves long."""
    parts = _signed_parts(session_id, member.sealing_key, member.first_round, member.last_round)
    return signature_is_valid(member.identity, member.signature, Usage.SEALING_KEY, *parts)


def _signed_parts(
    session_id: bytes, sealing_key: bytes, first_round: int, last_round: int
) -> tuple[bytes, ...]:
    rounds = first_round.to_bytes(8, "little") + last_round.to_bytes(8, "little")
    return session_id, sealing_key, rounds
