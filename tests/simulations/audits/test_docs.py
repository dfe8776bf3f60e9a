"""The figures of docs/auditing.md are those of the code."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy.stats import norm

from dp import BinomialRelease
from dp.accounting import BinomialNoise, gaussian_epsilon
from dp.accounting.losses import shift_losses
from simulations.audits.base import Effort
from simulations.audits.canaries import CANARY_DELTA
from simulations.audits.distribution import CELLS, MIN_EXPECTED, noise_test
from simulations.audits.exact import randomised_response
from simulations.audits.paths import FAR_BEYOND
from simulations.audits.releases import CoinRelease
from simulations.audits.suite import audits
from simulations.audits.two_worlds import HELD_OUT, two_worlds

PAGE = (Path(__file__).parents[3] / "docs" / "auditing.md").read_text()


def test_the_power_stated() -> None:
    noise = np.random.default_rng(1).binomial(70_992, 0.5, 40_000) - 70_992 / 2
    test = noise_test(noise, BinomialRelease(70_992, 0.0, 1, 1))
    assert f"they are {test.power_below:.3f} and {test.power_above:.3f}" in PAGE
    assert f"at most {CELLS} cells" in PAGE
    assert f"at least {MIN_EXPECTED:.0f} expected" in PAGE
    assert f"{FAR_BEYOND:.0f} times the clip" in PAGE
    assert f"the checks use {CANARY_DELTA:.0e}".replace("e-0", "e-") in PAGE


def test_the_caveat_about_randomised_response() -> None:
    wrong = randomised_response(2, 1.0)[0, 1]
    mu = 2.0 * float(norm.isf(wrong))
    assert f"a = b = {wrong:.2f}, hence mu = {mu:.2f}" in PAGE
    assert f"epsilon {gaussian_epsilon(mu, 1e-5):.1f} at delta" in PAGE


def test_the_figures_of_two_worlds() -> None:
    true = shift_losses(BinomialNoise(10_000), 50, 2.0**-12, 1e-14).epsilon(1e-5)
    assert f"true epsilon {true:.3f}" in PAGE
    assert f"is {100 * (1 - gaussian_epsilon(1.0, 1e-5) / true):.2f} % below" in PAGE
    bound = two_worlds(CoinRelease(10_000, 50), 100_000, 0, 1e-5)
    assert f"of a ceiling of {bound.epsilon_ceiling:.2f}" in PAGE
    assert 0.954 <= bound.gaussian_epsilon / true <= 0.994
    assert math.isclose(HELD_OUT, 1 / 5)
    assert "A fifth of them" in PAGE


def test_the_number_of_audits() -> None:
    assert len(audits(Effort.QUICK, 0)) == 21
    assert "the first of twenty-one" in PAGE
