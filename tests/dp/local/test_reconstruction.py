"""Protection from reconstruction: the bound, its exact form, and where it says nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dp.local.reconstruction import ReconstructionProtection


def test_the_bound_is_the_printed_one() -> None:
    protection = ReconstructionProtection(200, 3.0, 0.5)
    a = 0.4
    printed = math.sqrt(8) * math.exp(-199 * a**2 / 2) * math.exp(3.0 + 0.5)
    assert protection.breach(a) == pytest.approx(printed)


@pytest.mark.parametrize("targets", [4, 7, 30, 1000])
def test_the_printed_bound_covers_the_exact_one(targets: int) -> None:
    for a in np.linspace(0.0, 1.0, 21):
        protection = ReconstructionProtection(targets, 0.0)
        assert protection.exact_breach(a) <= protection.breach(a)
        # A half-line of the law of one coordinate of a uniform direction, which is a beta law.
        law = stats.beta(0.5, 0.5 * (targets - 1))
        assert protection.exact_breach(a) == pytest.approx(0.5 * law.sf(a**2), rel=1e-9, abs=1e-290)


def test_the_share_of_a_cap_by_simulation(generator: np.random.Generator) -> None:
    directions = generator.standard_normal((200_000, 6))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    hits = int((directions[:, 0] >= 0.5).sum())
    share = ReconstructionProtection(6, 0.0).exact_breach(0.5)
    assert stats.binomtest(hits, 200_000, share).pvalue > 1e-6
    assert stats.binomtest(hits, 200_000, 1.1 * share).pvalue < 1e-6


def test_inverses_meet_the_bound() -> None:
    protection = ReconstructionProtection(119_850, 400.0)
    closeness = protection.closeness_for(1e-6)
    assert closeness is not None and protection.breach(closeness) == pytest.approx(1e-6)


def test_the_bound_says_nothing_of_the_papers_reports() -> None:
    # LeNet-5 at epsilon = 400 sends 599 coordinates: not even a = 1, reconstruction to the letter,
    # is bounded below 1. Of the whole gradient of 119,850 it is, from a = 0.083 on.
    sent = ReconstructionProtection(599, 400.0)
    assert sent.breach(1.0) == 1.0 and sent.closeness_for(0.5) is None
    whole = ReconstructionProtection(119_850, 400.0)
    assert whole.closeness_for(1e-6) == pytest.approx(0.0832, abs=1e-4)
    # An epoch of 188 reports spends 188 times as much.
    assert ReconstructionProtection(119_850, 188 * 400.0).breach(1.0) == 1.0
