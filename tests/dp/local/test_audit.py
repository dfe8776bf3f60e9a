"""The referee of local laws: worst ratios in floats, logarithms and exact numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dp.local.audit import AuditedRatio, audit_laws, worst_exact_ratio, worst_log_ratio, worst_ratio

LAWS = [[0.5, 0.25, 0.25, 0.0], [0.2, 0.3, 0.5, 0.0], [0.4, 0.4, 0.2, 0.0]]


def test_the_worst_ratio_is_over_all_pairs_and_messages() -> None:
    assert worst_ratio(LAWS) == 2.5
    assert worst_exact_ratio([[5, 3, 2], [2, 3, 5], [4, 4, 2]]) == Fraction(5, 2)
    with np.errstate(divide="ignore"):
        assert worst_log_ratio(np.log(LAWS)) == pytest.approx(math.log(2.5), rel=1e-15)


def test_a_message_that_gives_an_input_away_is_infinite() -> None:
    assert worst_ratio([[0.5, 0.5], [1.0, 0.0]]) == math.inf
    assert worst_exact_ratio([[1, 1], [2, 0]]) is None
    assert worst_log_ratio([[-1.0, -1.0], [0.0, -math.inf]]) == math.inf


def test_one_input_has_nothing_to_hide_from() -> None:
    assert worst_ratio([[0.3, 0.7]]) == 1.0
    assert worst_exact_ratio([[Fraction(1, 3), Fraction(2, 3)]]) == 1


def test_the_verdict_says_what_is_left() -> None:
    kept = audit_laws(LAWS, 1.0)
    assert kept.holds
    assert kept.margin == pytest.approx(1.0 - math.log(2.5))
    assert "margin" in str(kept)
    broken = AuditedRatio(0.5, 0.6)
    assert not broken.holds
    assert broken.margin < 0.0
