"""The discrete Laplace law: bits, draws, moments, and the ratio that privacy rests on."""

from __future__ import annotations

import math

import mpmath
import pytest
from dp_laws import law_p_value, leading_bits, probability
from dp_statistics import ALPHA, mean_tolerance

from dp.keystream import NoiseSeed
from dp.sampling import sample_law
from dp.sampling.laplace import DiscreteLaplaceLaw

SCALES = (0.5, 1.0, 3.7, 20.0)
SAMPLES = 200_000


@pytest.mark.parametrize("bits", [1, 8, 64, 128])
@pytest.mark.parametrize("scale", SCALES)
def test_words_are_the_leading_bits(scale: float, bits: int) -> None:
    law = DiscreteLaplaceLaw(scale)
    found = law.cumulative(bits)
    expected = [leading_bits(law, found.first + i, bits) for i in range(len(found.words))]
    assert list(found.words) == expected


@pytest.mark.statistical
@pytest.mark.parametrize("scale", SCALES)
def test_draws_follow_the_law(scale: float, seed: NoiseSeed) -> None:
    samples = sample_law(DiscreteLaplaceLaw(scale), seed, SAMPLES)
    assert law_p_value(samples, DiscreteLaplaceLaw(scale)) > ALPHA
    deviation = math.sqrt(DiscreteLaplaceLaw(scale).variance)
    assert abs(samples.mean()) < mean_tolerance(deviation, SAMPLES)


@pytest.mark.statistical
@pytest.mark.parametrize("scale", SCALES)
def test_draws_of_another_scale_are_noticed(scale: float, seed: NoiseSeed) -> None:
    samples = sample_law(DiscreteLaplaceLaw(scale * 1.05), seed, SAMPLES)
    assert law_p_value(samples, DiscreteLaplaceLaw(scale)) < ALPHA


@pytest.mark.parametrize("scale", SCALES)
def test_variance(scale: float) -> None:
    law = DiscreteLaplaceLaw(scale)
    exact = float(mpmath.fsum(z * z * probability(law, z) for z in range(-2000, 2001)))
    assert law.variance == pytest.approx(exact, rel=1e-9)
    assert law.noise_limit is None
