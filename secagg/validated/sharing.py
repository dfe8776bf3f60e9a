"""Packed secret sharing over GF(q), l secrets to a polynomial; members have the points 1, 2, ...

As `secagg.oneshot.packed_sharing`, for another field, and for polynomials of several degrees.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from secagg.shamir import Rand, points_of
from secagg.validated.parameters import Parameters
from secagg.validated.ring import PrimeRing, Residues


def packed(values: Residues, per_polynomial: int) -> Residues:
    """Values, l to a polynomial, zeros where there are no more: uint64[..., polynomials, l]."""
    missing = -values.shape[-1] % per_polynomial
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])
    return padded.reshape(*values.shape[:-1], -1, per_polynomial)


def deal(p: Parameters, slots: Residues, degree: int, rand: Rand) -> Residues:
    """Shares of polynomials of at most this degree, otherwise uniform.

    Args:
        slots: uint64[polynomials, l], their values at -1, -2, ..., -l.

    Returns:
        uint64[members, polynomials].
    """
    drawn = degree + 1 - p.per_polynomial
    random = p.ring.random(drawn * len(slots), rand).reshape(drawn, len(slots))
    known = np.concatenate([slots.T, random])
    others = p.ring.product(_dealing(p.ring, p.per_polynomial, drawn, p.members), known)
    return np.concatenate([random, others])[: p.members]


def at_member(p: Parameters, slots: Residues, member: int) -> Residues:
    """Values at a member's point of polynomials of degree below l: uint64[...].

    Args:
        slots: uint64[..., l].
    """
    matrix = _dealing(p.ring, p.per_polynomial, 0, p.members)[member : member + 1]
    values = p.ring.product(matrix, slots.reshape(-1, p.per_polynomial).T)
    return values.reshape(slots.shape[:-1])


def slots_at(p: Parameters, values: Residues, members: list[int], degree: int) -> Residues:
    """Slots of the polynomials through the values at degree + 1 members: uint64[polynomials, l].

    Args:
        values: uint64[degree + 1, polynomials].
    """
    matrix = p.ring.interpolation(points_of(members), _secret_points(p.ring, p.per_polynomial))
    return p.ring.product(matrix, values).T


def _secret_points(ring: PrimeRing, per_polynomial: int) -> Residues:
    return ring.q - np.arange(1, per_polynomial + 1, dtype=np.uint64)


@lru_cache(maxsize=16)
def _dealing(ring: PrimeRing, per_polynomial: int, drawn: int, members: int) -> Residues:
    """Takes secrets and the first members' values to the values of all other members."""
    points = np.arange(1, max(drawn, members) + 1, dtype=np.uint64)
    known = np.concatenate([_secret_points(ring, per_polynomial), points[:drawn]])
    return ring.interpolation(known, points[drawn:members])
