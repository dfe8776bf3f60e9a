"""The Gaussian trade-off against dp-accounting and 50-digit arithmetic."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu


def _exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@settings(max_examples=300, deadline=None)
@given(st.floats(0.0, 50.0), st.floats(1e-4, 30.0))
def test_delta_is_an_upper_bound_and_tight_where_it_matters(epsilon: float, mu: float) -> None:
    exact = _exact_delta(epsilon, mu)
    found = gaussian_delta(epsilon, mu)
    assert found >= exact
    if exact > 1e-12:
        assert found <= exact * (1 + mpmath.mpf("1e-3")) + mpmath.mpf("1e-14")


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_epsilon_agrees_with_dp_accounting(mu: float, delta: float) -> None:
    gaussian_mechanism = pytest.importorskip("dp_accounting.gaussian_mechanism")
    theirs = gaussian_mechanism.get_epsilon_gaussian(1.0 / mu, delta)
    assert gaussian_epsilon(mu, delta) == pytest.approx(theirs, rel=1e-6, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 10.0), st.floats(1e-12, 0.5))
def test_epsilon_meets_delta_and_is_not_wasteful(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    if epsilon > 1e-6:
        assert gaussian_delta(epsilon * (1 - 1e-6), mu) > delta


def test_epsilon_at_the_extremes() -> None:
    assert gaussian_epsilon(0.0, 1e-9) == 0.0
    assert gaussian_epsilon(1e-3, 0.4) == 0.0
    for mu, delta in ((math.inf, 0.1), (1.0, 0.0), (1.0, -1e-9), (math.nan, 0.1), (1e5, 1e-5)):
        assert gaussian_epsilon(mu, delta) == math.inf


def test_delta_at_the_extremes() -> None:
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(1.0, math.inf) == 1.0
    assert gaussian_delta(1.0, math.nan) == 1.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (8.0, 1e-9), (0.0, 0.1)])
def test_mu_inverts_epsilon(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_epsilon(mu, delta) <= epsilon * (1 + 1e-9) + 1e-12
    assert gaussian_delta(epsilon, mu * (1 + 1e-9)) > delta


def test_mu_refuses_unreachable_targets() -> None:
    with pytest.raises(ValueError, match="too small"):
        gaussian_mu(0.0, 1e-15)
