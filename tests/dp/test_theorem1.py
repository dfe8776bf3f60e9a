"""cpSGD Theorem 1: its constants, its precondition, its figures."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dp.accounting.theorem1 import (
    Theorem1Parameters,
    failed_precondition,
    theorem1,
    theorem1_epsilon,
)

BASE = Theorem1Parameters(coins=65536, l1=16384.0, l2=128.0, linf=16.0, dimension=10**6)
DELTA = 1e-5


def test_terms_at_p_one_half() -> None:
    """The formula by hand, with b = 1/3, c = 7 sqrt(2)/4 and d = 2/3 put in."""
    variance = 65536 / 4
    ten, gauss = math.log(10 / DELTA), math.log(1.25 / DELTA)
    dimension = math.log(20 * 10**6 / DELTA)
    first = 128 * math.sqrt(2 * gauss) / math.sqrt(variance)
    second = 128 * 7 * math.sqrt(2) / 4 * math.sqrt(ten) + 16384 / 3
    third = 16 * (2 / 3) * (gauss + dimension * ten)
    expected = first + second / (variance * (1 - DELTA / 10)) + third / variance
    assert theorem1_epsilon(BASE, DELTA) == pytest.approx(expected, rel=1e-14)


def test_published_check_values() -> None:
    """With c rounded up to 5/2, as the paper prints it, these are 5.513 and 28.40."""
    assert theorem1_epsilon(BASE, DELTA) == pytest.approx(5.512, abs=5e-4)
    small = Theorem1Parameters(4096, 4096.0, 64.0, 64.0, 10**6)
    assert theorem1_epsilon(small, DELTA) == pytest.approx(28.392, abs=5e-4)


def test_coins_for_epsilon_one() -> None:
    """In steps of 64 coins, 54,272 is the first that gives epsilon 1."""
    parameters = Theorem1Parameters(54272, 256.0, 16.0, 16.0, 10**6)
    assert theorem1_epsilon(parameters, DELTA) <= 1.0
    assert theorem1_epsilon(replace(parameters, coins=54272 - 64), DELTA) > 1.0


@pytest.mark.parametrize("coins", [256, 1024])
def test_precondition_on_the_dimension(coins: int) -> None:
    result = theorem1(replace(BASE, coins=coins), DELTA)
    assert result.epsilon == math.inf
    assert "23 ln(10 d / delta)" in result.reason


def test_precondition_on_the_largest_coordinate() -> None:
    result = theorem1(replace(BASE, coins=4096, linf=600.0), DELTA)
    assert result.epsilon == math.inf
    assert "2 Dinf / s" in result.reason


def test_precondition_is_inclusive_and_silent_where_met() -> None:
    assert failed_precondition(replace(BASE, coins=4800, linf=600.0), DELTA) == ""
    assert theorem1(BASE, DELTA).reason == ""


def test_unfair_coins_and_step() -> None:
    """Scaling values and step together changes nothing; p below one half costs more."""
    halved = replace(BASE, l1=BASE.l1 / 2, l2=64.0, linf=8.0, step=0.5)
    assert theorem1_epsilon(halved, DELTA) == pytest.approx(theorem1_epsilon(BASE, DELTA))
    assert theorem1_epsilon(replace(BASE, probability=0.3), DELTA) > theorem1_epsilon(BASE, DELTA)


def test_monotone_in_coins_and_delta() -> None:
    values = [theorem1_epsilon(replace(BASE, coins=n), DELTA) for n in (10**4, 10**5, 10**6)]
    assert values == sorted(values, reverse=True)
    assert theorem1_epsilon(BASE, 1e-6) > theorem1_epsilon(BASE, 1e-5)
