"""The table of rings: what the security page says, computed again."""

from __future__ import annotations

import re
from math import e, log2, pi
from pathlib import Path

import pytest

from secagg import ParameterError
from secagg.oneshot.gaussian import SIGMA_TENTHS
from secagg.oneshot.parameters import ALLOWED_RINGS, HINTED_SIGMA, AllowedRing, check_ring
from secagg.oneshot.ring import Ring

PAGE = Path(__file__).parents[3] / "docs" / "one-shot-security.md"


def hermite_factor(block: int) -> float:
    return ((pi * block) ** (1 / block) * block / (2 * pi * e)) ** (1 / (2 * (block - 1)))


def core_svp_bits(degree: int, q_bits: float, sigma: float) -> float:
    """0.292 times the smallest block size of the primal attack, over all numbers of samples."""
    best = 10**9
    for samples in range(degree // 2, 3 * degree, max(1, degree // 64)):
        d = samples + degree + 1
        low, high = 50, d
        while low < high:
            block = (low + high) // 2
            found = log2(sigma) + log2(block) / 2
            if found <= (2 * block - d - 1) * log2(hermite_factor(block)) + samples * q_bits / d:
                high = block
            else:
                low = block + 1
        best = min(best, low)
    return 0.292 * best


@pytest.mark.parametrize("allowed", ALLOWED_RINGS, ids=lambda allowed: allowed.name)
def test_bits_are_what_the_count_gives(allowed: AllowedRing) -> None:
    bits = core_svp_bits(allowed.ring.degree, log2(allowed.ring.modulus), HINTED_SIGMA)
    assert round(bits) == allowed.core_svp_bits
    assert allowed.weak == (bits < 103)


def test_the_count_sees_what_makes_it_easier() -> None:
    usual = core_svp_bits(4096, 81, HINTED_SIGMA)
    assert core_svp_bits(4096, 108, HINTED_SIGMA) < usual - 30
    assert core_svp_bits(2048, 81, HINTED_SIGMA) < usual - 30
    assert core_svp_bits(4096, 81, 2 * HINTED_SIGMA) > usual
    assert 2 * HINTED_SIGMA * 10 == SIGMA_TENTHS


def test_the_page_has_the_same_figures() -> None:
    row = re.compile(r"^\| (\d+) \| (\d+) \| (\d+) \| \(\d+\) \|", re.MULTILINE)
    page = {(int(n), int(q)): int(bits) for n, q, bits in row.findall(PAGE.read_text())}
    table = {
        (each.ring.degree, each.ring.modulus.bit_length()): each.core_svp_bits
        for each in ALLOWED_RINGS
    }
    assert page and page.items() <= table.items()


def test_what_may_be_used() -> None:
    assert check_ring(Ring(8192, 7)).core_svp_bits == 119
    assert check_ring(Ring(8192, 7), weak="4096x4").name == "8192x7"
    assert check_ring(Ring(4096, 4), weak="4096x4").core_svp_bits == 100
    for ring in (Ring(2, 1), Ring(2048, 3), Ring(1024, 2), Ring(16384, 7)):
        with pytest.raises(ParameterError, match="one of 1024x1"):
            check_ring(ring)
    for weak in (None, "8192x7", "4096"):
        with pytest.raises(ParameterError, match="100 bits"):
            check_ring(Ring(4096, 4), weak=weak)
