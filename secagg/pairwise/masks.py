"""Which masks a vector carries, and their signs.

Party u's upload is x_u + PRG(b_u) + sum over neighbours v of sign(u, v) PRG(s_uv), where s_uv is
agreed between u and v and sign(u, v) = +1 for u < v, -1 for u > v: pairwise masks cancel in sums.
Source: Bonawitz et al. 2017, Fig. 4, Round 2.
"""

from __future__ import annotations

from secagg.keys import AgreementKey, SecretSeed
from secagg.pairwise.prg import MASK_KEY_BYTES
from secagg.tags import Usage, derive, encode_index


def pairwise_key(own: AgreementKey, peer_public: bytes, round_hash: bytes, u: int, v: int) -> bytes:
    """Mask key of the pair {u, v}; the same from either side."""
    low, high = min(u, v), max(u, v)
    shared = own.agree(peer_public)
    parts = (round_hash, encode_index(low), encode_index(high))
    return derive(shared, Usage.PAIR_MASK, MASK_KEY_BYTES, *parts)


def pairwise_is_subtracted(u: int, v: int) -> bool:
    """Whether party u subtracts the mask it shares with v."""
    return u > v


def self_key(seed: SecretSeed, round_hash: bytes, u: int) -> bytes:
    """Key of party u's self mask."""
    return derive(seed.expose(), Usage.SELF_MASK, MASK_KEY_BYTES, round_hash, encode_index(u))
