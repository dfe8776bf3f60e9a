"""Arithmetic modulo any prime below 2^50, for compiled kernels.

A product a b is taken with its quotient by a double: a and b are exact as doubles, the quotient is
below 2^50, and three roundings of 2^-53 each leave it less than 3/8 off; so the whole quotient is
off by one at most, and the rest in [-q, 2q). All numbers but the reciprocal are uint64.

Source: products by a quotient of floats as in NTL, `MulMod`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilsum.compiled import compiled


@compiled()
def reciprocal(q: Any) -> Any:
    """What `times` multiplies by: 1 / q as a double."""
    return 1.0 / np.float64(np.int64(q))


@compiled()
def times(a: Any, b: Any, q: Any, ratio: Any) -> Any:
    """The product of residues; every argument but the reciprocal is a uint64."""
    quotient = np.int64(np.float64(np.int64(a)) * np.float64(np.int64(b)) * ratio)
    rest = a * b - np.uint64(quotient) * q
    rest = min(rest, rest + q)  # below zero is above all else
    return min(rest, rest - q)


@compiled()
def plus(a: Any, b: Any, q: Any) -> Any:
    """The sum of residues."""
    whole = a + b
    return min(whole, whole - q)


@compiled()
def minus(a: Any, b: Any, q: Any) -> Any:
    """The difference of residues."""
    rest = a - b
    return min(rest, rest + q)


@compiled()
def reduced(value: Any, q: Any, ratio: Any) -> Any:
    """A value below 2^60 modulo q."""
    quotient = np.int64(np.float64(np.int64(value)) * ratio)
    rest = value - np.uint64(quotient) * q
    rest = min(rest, rest + q)
    return min(rest, rest - q)


@compiled()
def power(base: Any, exponent: Any, q: Any, ratio: Any) -> Any:
    """Raise a residue to a power."""
    result, square, left = np.uint64(1), base, exponent
    while left > np.uint64(0):
        if left & np.uint64(1):
            result = times(result, square, q, ratio)
        square = times(square, square, q, ratio)
        left >>= np.uint64(1)
    return result
