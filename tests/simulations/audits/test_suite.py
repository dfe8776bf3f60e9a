"""The suite: every promise holds, every twin is rejected, and the results are plain values."""

from __future__ import annotations

import json

import pytest

from simulations.audits.base import Check, Effort
from simulations.audits.canaries import check_canaries
from simulations.audits.suite import audits, run_audits


@pytest.fixture(scope="module")
def checks() -> list[Check]:
    return list(run_audits(Effort.QUICK, 1))


@pytest.mark.statistical
@pytest.mark.slow
def test_every_promise_holds_and_every_twin_is_rejected(checks: list[Check]) -> None:
    for check in checks:
        assert not check.with_defence["rejected"], check
        assert check.without_defence["rejected"], check
        assert check.held


@pytest.mark.slow
def test_results_are_plain_and_named_once(checks: list[Check]) -> None:
    text = json.dumps([check.as_json() for check in checks], allow_nan=False)
    ids = [entry["id"] for entry in json.loads(text)]
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
def test_ids_known_beforehand_are_those_of_the_checks(checks: list[Check]) -> None:
    assert [check.id for check in checks] == [name for name, _ in audits(Effort.QUICK, 1)]
    *_, (name, _) = audits(Effort.FULL, 1)
    assert check_canaries(50, 0, real=True).id == name


def test_every_bound_has_its_ceiling_beside_it_and_every_test_its_power() -> None:
    """By the names of the figures, on one small check of each kind."""
    by_name = dict(audits(Effort.QUICK, 3))
    law = by_name["privacy-noise-law"]().with_defence
    assert {"ratio_found_below", "ratio_found_above", "variance_tolerance", "samples"} <= set(law)
    coins = by_name["privacy-two-worlds-coins"]().with_defence
    assert {"epsilon_ceiling", "gaussian_ceiling", "confidence"} <= set(coins)
    canaries = by_name["privacy-one-run-identity"]().with_defence
    assert {"epsilon_ceiling", "canaries", "guesses", "right"} <= set(canaries)


def test_the_full_size_adds_real_canaries() -> None:
    assert len(audits(Effort.FULL, 0)) == len(audits(Effort.QUICK, 0)) + 1


def test_audits_run_one_by_one() -> None:
    first = next(iter(run_audits(Effort.QUICK, 0)))
    assert first.id == "privacy-exact-accountants"
