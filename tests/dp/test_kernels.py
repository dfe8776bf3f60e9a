"""Compiled loops against their own Python source and against plain definitions.

``kernel.py_func`` is the function before compilation: running both finds a compiler's or a
type's surprise, and comparing with plain integers finds ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dp import _kernels
from dp.accounting import _kernels as search_kernels

WORDS = np.array([0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF, 0xF0F0F0F0F0F0F0F0], dtype=np.uint64)


def _plain(kernel: Any) -> Callable[..., Any]:
    """The kernel before compilation, calling the popcount before compilation."""
    # Wrapping multiplication is intended; NumPy scalars warn about it, machine words do not.
    plain = _kernels._popcount.py_func

    def quiet(word: np.uint64) -> np.uint64:
        with np.errstate(over="ignore"):
            return np.uint64(plain(word))

    def run(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_kernels, "_popcount", quiet)
            return kernel.py_func(*arguments)

    return run


def _both(kernel: Any) -> list[Callable[..., Any]]:
    return [kernel, _plain(kernel)]


@pytest.mark.parametrize("kernel", _both(_kernels.popcount_words), ids=["compiled", "plain"])
@pytest.mark.parametrize("bits", [1, 7, 63, 64])
def test_popcount_of_single_words(kernel: Callable[..., None], bits: int) -> None:
    mask = (1 << bits) - 1
    out = np.arange(WORDS.size, dtype=np.int64)
    kernel(WORDS, np.uint64(mask), out)
    assert out.tolist() == [i + (int(word) & mask).bit_count() for i, word in enumerate(WORDS)]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_popcount_of_narrow_words(dtype: type) -> None:
    words = np.arange(200).astype(dtype)
    out = np.zeros(200, dtype=np.int64)
    _kernels.popcount_words(words, np.uint64(0x7F), out)
    assert out.tolist() == [(i & 0x7F).bit_count() for i in range(200)]


@pytest.mark.parametrize("kernel", _both(_kernels.popcount_runs), ids=["compiled", "plain"])
@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 12])
def test_popcount_of_runs_in_any_pieces(kernel: Callable[..., None], piece: int) -> None:
    """Four coordinates of three words each, delivered in pieces of every size."""
    words = np.concatenate([WORDS, WORDS[::-1]])
    last_mask = (1 << 20) - 1
    out = np.zeros(4, dtype=np.int64)
    for start in range(0, words.size, piece):
        kernel(words[start : start + piece], start, 3, np.uint64(last_mask), out)
    expected = [
        int(a).bit_count() + int(b).bit_count() + (int(c) & last_mask).bit_count()
        for a, b, c in words.reshape(4, 3)
    ]
    assert out.tolist() == expected


@pytest.mark.parametrize("kernel", _both(_kernels.round_piece), ids=["compiled", "plain"])
def test_rounding_compares_the_fraction_with_the_word(kernel: Callable[..., int]) -> None:
    quarter = 2**30
    cases = [
        # value, word, expected (scale 2, limit 5)
        (0.125, quarter - 1, 1),  # fraction 1/4: words below 2^30 round up
        (0.125, quarter, 0),
        (-0.125, 3 * quarter - 1, 0),  # floor -1, fraction 3/4
        (-0.125, 3 * quarter, -1),
        (1.5, 0, 3),  # integers never move
        (-2.0, 2**32 - 1, -4),
        (9.0, 0, 5),  # clipped
        (-9.0, 2**32 - 1, -5),
        (0.5 * (1 - 2.0**-40), 2**32 - 1, 1),  # the threshold itself rounds to 2^32
        (0.0, 0, 0),
    ]
    values = np.array([case[0] for case in cases])
    words = np.array([case[1] for case in cases], dtype=np.uint32)
    out = np.empty(len(cases), dtype=np.int64)
    squares = kernel(values, 2.0, 5.0, words, out)
    assert out.tolist() == [case[2] for case in cases]
    assert squares == sum(case[2] ** 2 for case in cases)


@pytest.mark.parametrize("kernel", _both(_kernels.sum_of_squares), ids=["compiled", "plain"])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 1000])
def test_squares_are_summed_in_one_order(kernel: Callable[..., float], size: int) -> None:
    values = np.random.default_rng(size).normal(size=size)
    lanes = [0.0] * 256
    for i, value in enumerate(values.tolist()):
        lanes[i % 256] += value * value
    total = 0.0
    for lane in lanes:
        total += lane
    assert kernel(values) == total
    assert kernel(values) == pytest.approx(math.fsum(values**2), rel=1e-14)


@pytest.mark.parametrize("kernel", _both(_kernels.extent), ids=["compiled", "plain"])
@pytest.mark.parametrize(
    "values", [[], [3], [-3], [2, -(2**63), 2**63 - 1], [0, 0]], ids=["none", "+", "-", "both", "0"]
)
def test_extent_counts_zero_in(kernel: Callable[..., tuple[int, int]], values: list[int]) -> None:
    assert kernel(np.array(values, np.int64)) == (min([0, *values]), max([0, *values]))


@pytest.mark.parametrize("kernel", _both(_kernels.extent_and_squares), ids=["compiled", "plain"])
def test_extent_and_squares_are_exact(kernel: Callable[..., tuple[int, int, int, int]]) -> None:
    values = np.array([2**31 - 1, -(2**31) + 1, 65536, -65536, 3, 0], dtype=np.int64)
    smallest, largest, high, low = kernel(values)
    assert (smallest, largest) == (-(2**31) + 1, 2**31 - 1)
    assert (int(high) << 32) + int(low) == sum(int(v) ** 2 for v in values)


@pytest.mark.parametrize("kernel", _both(search_kernels.largest_bounds), ids=["compiled", "plain"])
def test_largest_bound_of_each_row(
    kernel: Callable[..., None], generator: np.random.Generator
) -> None:
    upper, base, slope = (generator.normal(size=n) for n in (40, 30, 30))
    upper[37:] = math.inf
    shifts, failures = np.array([1, 4, 10]), np.array([0.1, 0.2, 0.3])
    first, last = np.array([0, 5, 9]), np.array([30, 20, 9])
    best = np.empty(3)
    kernel(upper, base, slope, shifts, failures, first, last, best)
    for row in range(3):
        rows = range(first[row], last[row])
        bounds = [upper[j + shifts[row]] + base[j] - failures[row] * slope[j] for j in rows]
        # The compiler may fuse the product and the difference.
        assert best[row] == pytest.approx(max(bounds, default=-math.inf), rel=1e-14)
