"""Bias and variance of gradients: known laws, and the closed forms of noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from simulations.learning.data import load_dataset
from simulations.learning.example_level.breakdown import (
    ErrorTally,
    break_down,
    noise_error,
    share_kept,
)
from simulations.learning.example_level.channel import Compressed
from simulations.learning.example_level.clipped import gradients_of
from simulations.learning.example_level.training import Examples
from simulations.learning.models import MlpTask
from sketch import LayerShapes
from sketch.compressors import NoCompression, TopK
from sketch.topk import top_k_indices

ALPHA = 1e-6
TASK = MlpTask(hidden=8)
PLACES = np.arange(0, 640, 20)


def tally(count: int, dimension: int, offset: float, deviation: float) -> ErrorTally:
    """Estimates of zero with a known bias and variance in every coordinate."""
    rng, found = np.random.default_rng(4), ErrorTally(np.zeros(dimension))
    for _ in range(count):
        found.add(offset + deviation * rng.standard_normal(dimension))
    return found


@pytest.mark.statistical
def test_bias_and_variance_are_told_apart() -> None:
    count, dimension = 50, 400
    found = tally(count, dimension, 0.1, 2.0).result()
    assert found.total == pytest.approx(found.bias + found.variance, rel=1e-12)
    degrees = (count - 1) * dimension
    low, high = stats.chi2.ppf([ALPHA / 2.0, 1.0 - ALPHA / 2.0], degrees)
    assert low < found.variance / 4.0 * (count - 1) < high
    # The mean's distance is 4 / n times a noncentral chi-square, d of it taken away again.
    shift = dimension * 0.01 * count / 4.0
    low, high = stats.ncx2.ppf([ALPHA / 2.0, 1.0 - ALPHA / 2.0], dimension, shift)
    assert low < found.bias * count / 4.0 + found.variance / 4.0 < high
    # Without the correction variance would pass for bias: it is outside the law of no bias.
    plain = tally(count, dimension, 0.0, 2.0).result()
    uncorrected = (plain.bias + plain.variance / count) * count / 4.0
    assert abs(plain.bias) * count / 4.0 < dimension / 2.0 < uncorrected


def test_two_estimates_are_the_least() -> None:
    with pytest.raises(ValueError, match="at least two, got 1"):
        tally(1, 3, 0.0, 1.0).result()


@pytest.mark.statistical
def test_stages_have_the_errors_of_clip_noise_and_top_k() -> None:
    torch.set_num_threads(1)
    examples = Examples(load_dataset("digits"))
    gradients, model = gradients_of(TASK), TASK.initial(torch.Generator().manual_seed(1))
    clip, noise, rate, calls = 0.2, 2.0, 16.0, []
    top = TopK(LayerShapes.flat(TASK.dimension), rate, value_bits=64)
    found = break_down(
        gradients,
        model,
        examples,
        PLACES,
        clip=clip,
        noise_multiplier=noise,
        opening=lambda: Compressed(top),
        seed=5,
        repeats=40,
        advance=lambda: calls.append(None),
    )
    assert len(calls) == 40
    inputs, labels = examples.part(PLACES)
    clean = gradients.clipped_sum(torch.tensor(model), inputs, labels, None)
    clipped = gradients.clipped_sum(torch.tensor(model), inputs, labels, clip)
    distance = float(((clean.total - clipped.total) / len(PLACES)).norm()) ** 2
    assert found.clipping.bias == pytest.approx(distance, rel=1e-3)
    assert found.clipping.variance == 0.0 < distance
    assert found.norm == pytest.approx(float(clean.total.norm()) / len(PLACES), rel=1e-5)
    assert found.norms == pytest.approx(float(clean.norms.median()))
    predicted = noise_error(TASK.dimension, clip, noise, len(PLACES))
    degrees = 39 * TASK.dimension
    low, high = stats.chi2.ppf([ALPHA / 2.0, 1.0 - ALPHA / 2.0], degrees) / degrees
    assert low < found.noise.variance / predicted < high
    assert found.channel.variance < found.noise.variance


def test_a_channel_that_loses_nothing_adds_nothing() -> None:
    examples, model = Examples(load_dataset("digits")), TASK.initial(torch.Generator())
    found = break_down(
        gradients_of(TASK),
        model,
        examples,
        PLACES,
        clip=1.0,
        noise_multiplier=0.5,
        opening=lambda: Compressed(NoCompression(TASK.dimension, 64)),
        seed=5,
        repeats=3,
    )
    assert found.channel == found.noise


def test_no_example_is_refused() -> None:
    with pytest.raises(ValueError, match="places must name at least one example"):
        break_down(
            gradients_of(TASK),
            TASK.initial(torch.Generator()),
            Examples(load_dataset("digits")),
            np.array([], np.int64),
            clip=1.0,
            noise_multiplier=0.5,
            opening=lambda: Compressed(NoCompression(TASK.dimension)),
            seed=5,
        )


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [1.0, 4.0, 16.0, 256.0])
def test_top_k_keeps_its_share_of_pure_noise(rate: float) -> None:
    """The kept energy is nearly normal; each coordinate adds at most the variance of Z^4."""
    dimension = 1 << 18
    noise = np.random.default_rng(6).standard_normal(dimension)
    chosen = top_k_indices(noise, math.ceil(dimension / rate))
    kept = float(noise[chosen] @ noise[chosen]) / dimension
    # The threshold moves as well: twice the deviation of a sum at a fixed one is ample.
    spread = 2.0 * math.sqrt(105.0 / rate / dimension) * float(stats.norm.isf(ALPHA / 2.0))
    assert abs(kept - share_kept(rate)) < min(spread, 0.3 * share_kept(rate))
    assert abs(kept - 1.0 / rate) > spread or rate == 1.0


def test_the_thesis_figures_follow_from_its_set_up() -> None:
    noise = noise_error(361_290, 5.0, 0.8, 128)
    assert noise == pytest.approx(353.0, abs=0.5)
    assert noise * share_kept(256.0) == pytest.approx(14.0, abs=0.5)
    with pytest.raises(ValueError, match="rate must be at least 1"):
        share_kept(0.5)
