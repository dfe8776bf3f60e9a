"""The statistical helpers accept a correct sampler and reject a wrong one."""

from __future__ import annotations

import numpy as np
import pytest
from dp_statistics import (
    ALPHA,
    binomial_p_value,
    binomial_probabilities,
    mean_tolerance,
    variance_tolerance,
)

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize("coins", [1, 2, 17, 64, 500])
def test_probabilities_sum_to_one(coins: int) -> None:
    assert binomial_probabilities(coins).sum() == pytest.approx(1.0, abs=1e-11)


@pytest.mark.parametrize("coins", [1, 8, 64])
def test_correct_samples_are_accepted(coins: int, generator: np.random.Generator) -> None:
    assert binomial_p_value(generator.binomial(coins, 0.5, 100_000), coins) > ALPHA


@pytest.mark.parametrize("bias", [0.49, 0.51])
def test_biased_samples_are_rejected(bias: float, generator: np.random.Generator) -> None:
    assert binomial_p_value(generator.binomial(64, bias, 100_000), 64) < ALPHA


def test_samples_outside_the_support_are_rejected() -> None:
    assert binomial_p_value(np.array([0, 1, 2]), 1) == 0.0


def test_tolerances_shrink_with_the_root_of_the_count() -> None:
    assert mean_tolerance(2.0, 400) == pytest.approx(mean_tolerance(2.0, 100) / 2)
    assert variance_tolerance(2.0, 400) == pytest.approx(variance_tolerance(2.0, 100) / 2)
    assert mean_tolerance(1.0, 1) == pytest.approx(4.8916, abs=1e-4)
