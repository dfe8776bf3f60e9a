"""Clopper-Pearson bounds are exact, and never too narrow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from simulations.audits.intervals import lower_bound, upper_bound


@pytest.mark.parametrize("trials", [1, 7, 400])
@pytest.mark.parametrize("alpha", [0.05, 1e-6])
def test_bounds_solve_their_equations(trials: int, alpha: float) -> None:
    counts = np.arange(trials)
    upper = upper_bound(counts, trials, alpha)
    assert np.allclose(stats.binom.cdf(counts, trials, upper), alpha, rtol=1e-6)
    lower = lower_bound(counts + 1, trials, alpha)
    assert np.allclose(stats.binom.sf(counts, trials, lower), alpha, rtol=1e-6)


def test_ends() -> None:
    assert upper_bound(9, 9, 0.01) == 1.0
    assert lower_bound(0, 9, 0.01) == 0.0
    assert upper_bound(0, 9, 0.01) == pytest.approx(1.0 - 0.01 ** (1 / 9))


@pytest.mark.parametrize("probability", [0.003, 0.3])
def test_coverage_is_at_least_nominal_exactly(probability: float) -> None:
    """Summed over all outcomes, so no tolerance is needed; the plain normal interval fails."""
    trials, alpha = 500, 0.05
    counts = np.arange(trials + 1)
    masses = stats.binom.pmf(counts, trials, probability)
    assert masses[upper_bound(counts, trials, alpha) < probability].sum() <= alpha
    share = counts / trials
    wald = share + stats.norm.isf(alpha) * np.sqrt(share * (1 - share) / trials)
    assert masses[wald < probability].sum() > alpha
