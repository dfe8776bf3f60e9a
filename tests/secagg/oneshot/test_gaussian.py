"""The sampler: its table against mpmath, its stream against the definition, its distribution."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise

import mpmath
import numpy as np
import pairwise_rounds as kit
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from secagg import ParameterError
from secagg.oneshot import _gaussian_kernels
from secagg.oneshot.gaussian import CUT, _table, sample, thresholds

KEY = bytes(range(16))


def weights(precision: int = 600) -> list[mpmath.mpf]:
    """exp(-k^2 / (2 6.4^2)) for k = -84 .. 84."""
    with mpmath.workprec(precision):
        return [mpmath.exp(-mpmath.mpf(25 * k * k) / 2048) for k in range(-CUT, CUT + 1)]


def probabilities() -> np.ndarray:
    every = weights()
    total = mpmath.fsum(every)
    return np.array([float(each / total) for each in every])


def test_the_table_is_exact() -> None:
    with mpmath.workprec(600):
        every = weights()
        total = mpmath.fsum(every)
        exact = [
            int(mpmath.floor(2**128 * mpmath.fsum(every[: i + 1]) / total)) for i in range(168)
        ]
    assert list(thresholds()) == exact
    assert exact == sorted(exact) and exact[-1] < 2**128


def test_the_distance_that_is_stated() -> None:
    """2^-130 for the cut, below 2^-123 for the table."""
    with mpmath.workprec(600):
        every = weights()
        total = mpmath.fsum(every)
        beyond = 2 * mpmath.fsum(mpmath.exp(-mpmath.mpf(25 * k * k) / 2048) for k in range(85, 300))
        assert -131 < mpmath.log(beyond / (total + beyond), 2) < -130
        steps = [0, *thresholds(), 2**128]
        gaps = [high - low for low, high in pairwise(steps)]
        apart = mpmath.fsum(
            abs(gap - 2**128 * each / total) for gap, each in zip(gaps, every, strict=True)
        )
        assert -124 < mpmath.log(apart / 2, 2) - 128 < -123


def test_samples_follow_the_definition() -> None:
    count = 3000
    stream = Cipher(AES(KEY), CTR(bytes(16))).encryptor().update(bytes(16 * count))
    uniform = [int.from_bytes(stream[16 * i : 16 * i + 16], "little") for i in range(count)]
    expected = [sum(u >= c for c in thresholds()) - CUT for u in uniform[:200]]
    expected += [bisect_right(thresholds(), u) - CUT for u in uniform[200:]]
    assert sample(KEY, count).tolist() == expected


def test_the_edges_of_every_threshold() -> None:
    """A uniform C_k is passed, C_k - 1 is not, and likewise in the upper half alone."""
    around = sorted(
        {max(0, min(2**128 - 1, c + d)) for c in thresholds() for d in (-(2**64), -1, 0, 1, 2**64)}
        | {0, 2**128 - 1}
    )
    words = np.array([[u % 2**64, u >> 64] for u in around], np.uint64)
    samples = np.empty(len(around), np.int8)
    table = _table()
    _gaussian_kernels.count_passed(words, table.high, table.low, table.guide, -CUT, samples)
    assert samples.tolist() == [bisect_right(thresholds(), u) - CUT for u in around]


def test_any_part_of_the_stream() -> None:
    whole = sample(KEY, 40_000)
    assert np.array_equal(sample(KEY, 20_000, 17_001), whole[17_001:37_001])
    assert sample(KEY, 0).shape == (0,)
    assert not np.array_equal(sample(bytes(16), 100), whole[:100])
    assert sample(KEY, 1, (1 << 60) - 1).dtype == np.int8


def chi_square(counts: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """Statistic and degrees of freedom; cells of less than 20 expected samples are joined."""
    joined = expected < 20
    observed = np.append(counts[~joined], counts[joined].sum())
    wanted = np.append(expected[~joined], expected[joined].sum())
    return float(((observed - wanted) ** 2 / wanted).sum()), observed.size - 1


def critical(degrees: int, alpha: float) -> float:
    """The value that chi-square exceeds with probability alpha."""
    with mpmath.workprec(100):
        return float(
            mpmath.findroot(
                lambda x: mpmath.log(mpmath.gammainc(degrees / 2, x / 2, regularized=True) / alpha),
                degrees + 6 * math.sqrt(2 * degrees),
            )
        )


COUNT = 1_000_000


@pytest.mark.statistical
def test_distribution() -> None:
    counts = np.bincount(sample(KEY, COUNT).astype(int) + CUT, minlength=2 * CUT + 1)
    value, degrees = chi_square(counts, COUNT * probabilities())
    assert value < critical(degrees, kit.ALPHA)


@pytest.mark.statistical
@pytest.mark.parametrize("sigma", [6.35, 6.45])
def test_another_width_would_be_noticed(sigma: float) -> None:
    """A rounded continuous Gaussian, less than one per cent too narrow or too wide."""
    rounded = np.rint(np.random.default_rng(0).normal(0, sigma, COUNT)).astype(int)
    counts = np.bincount(rounded + CUT, minlength=2 * CUT + 1)
    value, degrees = chi_square(counts, COUNT * probabilities())
    assert value > critical(degrees, kit.ALPHA)


@pytest.mark.statistical
def test_neighbours_are_uncorrelated() -> None:
    """The mean product of neighbours has a standard deviation of sigma^2 / sqrt(N)."""
    samples = sample(KEY, COUNT).astype(float)
    deviation = 6.4**2 / math.sqrt(COUNT)
    bound = deviation * math.sqrt(2) * float(mpmath.erfinv(1 - kit.ALPHA))
    assert abs((samples[1:] * samples[:-1]).mean()) < bound
    assert abs((samples[1:] * samples[1:]).mean()) > bound


def test_bad_arguments() -> None:
    with pytest.raises(ParameterError, match="key"):
        sample(bytes(15), 1)
    with pytest.raises(ParameterError, match="count"):
        sample(KEY, -1)
    for start in (-1, 1 << 60):
        with pytest.raises(ParameterError, match="start"):
            sample(KEY, 1, start)
