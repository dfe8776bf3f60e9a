"""The discrete Laplace law: bits, draws, moments, and the ratio that privacy rests on."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_statistics import ALPHA, chi_square_p_value, mean_tolerance

from dp.keystream import NoiseSeed
from dp.sampling import sample_law
from dp.sampling.laplace import MAX_SCALE, MIN_SCALE, DiscreteLaplaceLaw

SCALES = (0.5, 1.0, 3.7, 20.0)
SAMPLES = 200_000


def probability(scale: float, z: int) -> float:
    """Closed form: (1 - q) / (1 + q) q^|z|, q = exp(-1 / scale)."""
    q = math.exp(-1.0 / scale)
    return (1.0 - q) / (1.0 + q) * q ** abs(z)


@pytest.mark.parametrize("bits", [1, 8, 64, 128])
@pytest.mark.parametrize("scale", SCALES)
def test_words_are_the_leading_bits(scale: float, bits: int) -> None:
    found = DiscreteLaplaceLaw(scale).cumulative(bits)
    with mpmath.workdps(100):
        q = mpmath.exp(-1 / mpmath.mpf(scale))
        for i, word in enumerate(found.words):
            x = found.first + i
            # P[X <= x] = q^-x / (1 + q) below zero, 1 - q^(x + 1) / (1 + q) from there.
            exact = q**-x / (1 + q) if x < 0 else 1 - q ** (x + 1) / (1 + q)
            assert word == int(mpmath.floor(mpmath.ldexp(exact, bits)))


def _p_value(scale: float, samples: np.ndarray) -> float:
    low, high = int(samples.min()), int(samples.max())
    inner = [probability(scale, z) for z in range(low, high + 1)]
    q = math.exp(-1.0 / scale)
    tails = [q ** abs(low - 1) / (1 + q), q ** (high + 1) / (1 + q)]
    counts = np.concatenate([[0], np.bincount(samples - low), [0]])
    return chi_square_p_value(counts, np.array([tails[0], *inner, tails[1]]))


@pytest.mark.statistical
@pytest.mark.parametrize("scale", SCALES)
def test_draws_follow_the_law(scale: float, seed: NoiseSeed) -> None:
    samples = sample_law(DiscreteLaplaceLaw(scale), seed, SAMPLES)
    assert _p_value(scale, samples) > ALPHA
    deviation = math.sqrt(DiscreteLaplaceLaw(scale).variance)
    assert abs(samples.mean()) < mean_tolerance(deviation, SAMPLES)


@pytest.mark.statistical
@pytest.mark.parametrize("scale", SCALES)
def test_draws_of_another_scale_are_noticed(scale: float, seed: NoiseSeed) -> None:
    samples = sample_law(DiscreteLaplaceLaw(scale * 1.05), seed, SAMPLES)
    assert _p_value(scale, samples) < ALPHA


@pytest.mark.parametrize("scale", SCALES)
def test_variance(scale: float) -> None:
    exact = sum(z * z * probability(scale, z) for z in range(-2000, 2001))
    law = DiscreteLaplaceLaw(scale)
    assert law.variance == pytest.approx(exact, rel=1e-9)
    assert law.noise_limit is None


@pytest.mark.parametrize(
    ("scale", "error"),
    [
        (0.0, ValueError),
        (-1.0, ValueError),
        (MIN_SCALE / 2, ValueError),
        (MAX_SCALE * 2, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (1, TypeError),
    ],
)
def test_bad_scales(scale: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="scale"):
        DiscreteLaplaceLaw(scale)  # type: ignore[arg-type]
