"""How hard a ring is to attack, by the formula that docs/one-shot-security.md states."""

from __future__ import annotations

from math import e, log2, pi

_SIGMA = 3.2
"""Width of secret and errors that the proof is left with."""
_BITS_PER_BLOCK = 0.292
_SMALLEST_BLOCK = 50
"""Below it the formula for the quality of a reduced basis does not hold."""


def core_svp(degree: int, modulus_bits: float) -> float:
    """Bits of the primal attack on ring-LWE with any number of samples.

    Source: Alkim, Ducas, Poeppelmann and Schwabe 2016, section 6.3.
    """
    step = max(degree // 64, 1)
    blocks = (
        _smallest_block(degree, samples, modulus_bits)
        for samples in range(degree // 2, 3 * degree, step)
    )
    return _BITS_PER_BLOCK * min(blocks)


def _smallest_block(degree: int, samples: int, modulus_bits: float) -> int:
    """The smallest block size with which a short vector of so many samples is found."""
    dimension = samples + degree + 1
    low, high = _SMALLEST_BLOCK, dimension
    while low < high:
        block = (low + high) // 2
        found = log2(_SIGMA) + log2(block) / 2
        if found <= _shortest_seen(block, dimension) + samples * modulus_bits / dimension:
            high = block
        else:
            low = block + 1
    return low


def _shortest_seen(block: int, dimension: int) -> float:
    """log2 of the length below which the last block's vector is noticed, without the volume."""
    root = ((pi * block) ** (1 / block) * block / (2 * pi * e)) ** (1 / (2 * (block - 1)))
    return (2 * block - dimension - 1) * log2(root)
