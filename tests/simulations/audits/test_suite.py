"""The suite: every promise holds, every twin is rejected, and the results are plain values."""

from __future__ import annotations

import json

import pytest

from simulations.audits.base import Check
from simulations.audits.suite import FULL, QUICK, AuditSize, audits, full_audit, run_audits

SMALL = AuditSize(
    length=20_000, rounds=1, coin_runs=20_000, path_runs=150, canaries=600, real_canaries=0
)


@pytest.fixture(scope="module")
def checks() -> tuple[list[Check], list[tuple[str, int, int]]]:
    heard: list[tuple[str, int, int]] = []
    return full_audit(1, lambda *words: heard.append(words), SMALL), heard


@pytest.mark.statistical
@pytest.mark.slow
def test_every_promise_holds_and_every_twin_is_rejected(
    checks: tuple[list[Check], list[tuple[str, int, int]]],
) -> None:
    found, _ = checks
    for check in found:
        assert not check.with_defence["rejected"], check
        assert check.without_defence["rejected"], check
        assert check.held


@pytest.mark.slow
def test_results_are_plain_and_named_once(
    checks: tuple[list[Check], list[tuple[str, int, int]]],
) -> None:
    found, heard = checks
    text = json.dumps([check.as_json() for check in found], allow_nan=False)
    assert len({entry["id"] for entry in json.loads(text)}) == len(found)
    assert [number for _, number, _ in heard] == list(range(1, len(found) + 1))
    assert {total for _, _, total in heard} == {len(found)}


def test_every_bound_has_its_ceiling_beside_it_and_every_test_its_power() -> None:
    """By the names of the figures, on one small check of each kind."""
    by_name = dict(audits(SMALL, 3))
    law = by_name["privacy-noise-law"]().with_defence
    assert {"ratio_found_below", "ratio_found_above", "variance_tolerance", "samples"} <= set(law)
    coins = by_name["privacy-two-worlds-coins"]().with_defence
    assert {"epsilon_ceiling", "gaussian_ceiling", "confidence"} <= set(coins)
    canaries = by_name["privacy-one-run-identity"]().with_defence
    assert {"epsilon_ceiling", "canaries", "guesses", "right"} <= set(canaries)


def test_the_full_size_adds_real_canaries() -> None:
    assert len(audits(FULL, 0)) == len(audits(QUICK, 0)) + 1


def test_audits_run_one_by_one() -> None:
    first = next(iter(run_audits(SMALL, 0)))
    assert first.id == "privacy-exact-accountants"
