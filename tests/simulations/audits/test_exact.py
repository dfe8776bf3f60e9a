"""Enumeration finds what is claimed, and finds claims that are too good."""

from __future__ import annotations

import math

import numpy as np
import pytest

from secagg import ParameterError
from simulations.audits.exact import (
    RUNS,
    accountant_margin,
    audit_accountants,
    audit_randomiser,
    doubled_noise,
    largest_hockey_stick,
    largest_log_ratio,
    randomised_response,
)


def test_no_accountant_claims_less_than_enumeration() -> None:
    check = audit_accountants().check()
    assert check.held
    assert check.with_defence["claims_too_good"] == 0
    assert check.with_defence["smallest_claimed_over_exact"] >= 1.0
    # Every accountant, on every run: none of them may escape.
    assert check.without_defence["claims_too_good"] == check.without_defence["comparisons"]


@pytest.mark.parametrize("event", [event for event, _ in RUNS[::3]])
def test_each_kind_of_noise_told_twice_is_caught(event: object) -> None:
    assert accountant_margin([(event, 1)], reported=doubled_noise).ratio < 0.8  # type: ignore[list-item]


@pytest.mark.parametrize("outcomes", [2, 5, 64])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_randomised_response_has_its_epsilon(outcomes: int, epsilon: float) -> None:
    pmf = randomised_response(outcomes, epsilon)
    assert largest_log_ratio(pmf) == pytest.approx(epsilon, rel=1e-12)
    assert largest_hockey_stick(pmf, epsilon) == pytest.approx(0.0, abs=1e-15)
    # At epsilon 0 it is the total variation distance of two rows.
    difference = 0.5 * np.abs(pmf[0] - pmf[1]).sum()
    assert largest_hockey_stick(pmf, 0.0) == pytest.approx(difference)


def test_an_output_that_only_one_input_has_means_no_epsilon() -> None:
    pmf = np.array([[0.5, 0.5, 0.0], [0.5, 0.4, 0.1]])
    assert largest_log_ratio(pmf) == math.inf
    # What no epsilon covers is the mass of that output.
    assert largest_hockey_stick(pmf, 30.0) == pytest.approx(0.1)


def test_outputs_that_never_happen_do_not_count() -> None:
    assert largest_log_ratio(np.array([[1.0, 0.0], [1.0, 0.0]])) == 0.0


def test_one_changed_entry_is_caught() -> None:
    check = audit_randomiser().check()
    assert check.held
    assert check.without_defence["exact_epsilon"] > 1.05 > check.with_defence["exact_epsilon"]


@pytest.mark.parametrize(
    ("pmf", "match"),
    [
        (np.ones(3) / 3, "matrix"),
        (np.empty((0, 3)), "matrix"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "negative"),
        (np.array([[math.nan, 1.0], [0.5, 0.5]]), "non-finite"),
        (np.array([[0.5, 0.5], [0.5, 0.4]]), "row 1 adds up to 0.9"),
    ],
)
def test_what_is_no_randomiser_is_refused(pmf: np.ndarray, match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        largest_log_ratio(pmf)
