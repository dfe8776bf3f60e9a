"""Whole runs in two worlds: below the claim and not far below it, and every twin is found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special

from protocol import Pipeline
from simulations.audits.whole_runs import (
    DELTA,
    HONEST,
    OWN,
    ROUNDS,
    SHIFT,
    CountMistake,
    RunMistake,
    RunRelease,
    WholeRun,
    audit_model_noise,
    claimed_epsilon,
    run_figures,
)

RUNS = 20_000
SEED = 1


@pytest.mark.statistical
def test_a_bound_is_below_the_claim_and_not_far_below_it() -> None:
    figures = run_figures(RunMistake.NONE, claimed_epsilon(SEED), RUNS, SEED)
    assert not figures["rejected"]
    assert float(figures["gaussian_epsilon_at_least"]) < float(figures["claimed_epsilon"])
    # One of 13 honest members is not counted, a Renyi bound is no Gaussian's, and the bound is of
    # few runs: together they cost a fifth.
    assert 0.75 < float(figures["tightness"]) < 1.0


def test_claims_that_leave_something_out_are_smaller() -> None:
    whole = claimed_epsilon(SEED)
    for mistake in CountMistake:
        assert claimed_epsilon(SEED, mistake) < 0.75 * whole
    assert claimed_epsilon(SEED, CountMistake.OWN_ROUNDS) < 0.4 * whole


def test_the_claim_is_that_of_the_covariance() -> None:
    """Epsilon of the events, from a matrix that is written down here."""
    parts = WholeRun(SEED, 64).parts
    kept, back = 6 * parts.client_variance, 12 * parts.member_variance
    taken = np.eye(ROUNDS) - np.eye(ROUNDS, k=-1)
    sigma = back * taken @ taken.T + kept * np.eye(ROUNDS)
    shifts = np.isin(np.arange(ROUNDS), OWN) * float(SHIFT)
    mu = float(shifts @ np.linalg.solve(sigma, shifts)) ** 0.5

    def beyond(epsilon: float) -> float:
        first, second = special.ndtr([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return float(first - math.exp(epsilon) * second) - DELTA

    assert claimed_epsilon(SEED) == pytest.approx(optimize.brentq(beyond, 0.0, 20.0), rel=1e-3)


def test_a_run_is_shifted_by_the_victim_alone() -> None:
    """The two worlds differ by exactly the shift, in the victim's rounds only."""
    whole = WholeRun(SEED, 256)
    (without, events, records), (with_victim, _, _) = (whole.run(9, world) for world in (0, 1))
    difference = np.rint(np.stack(with_victim) - np.stack(without))
    expected = np.isin(np.arange(ROUNDS), OWN) * SHIFT
    assert np.array_equal(difference, np.broadcast_to(expected[:, None], (ROUNDS, 256)))
    assert [event.index for event in events] == list(range(1, ROUNDS + 1))
    assert [event.l2_sensitivity > 0 for event in events] == [t in OWN for t in range(ROUNDS)]
    assert all(len(record.entered) == 14 for record in records)
    assert [len(record.returned) for record in records] == [0, *[13] * (ROUNDS - 1)]


def test_the_adversary_knows_what_is_its_own() -> None:
    """Without honest members' and clients' noise, what is left of a sum is what it subtracts."""
    whole = WholeRun(SEED, 128)
    sums, _, _ = whole.run(3)
    # The corrupt member adds noise and takes none back.
    corrupt = whole.added(3, 2, [0])
    members = whole.change(3, 2, HONEST) + corrupt
    clients = sums[2] - members
    known = whole.corrupt_noise(3, 2) - corrupt
    # Seven clients' noise, one of them corrupt.
    ratio = np.var(clients - known) / np.var(clients)
    assert 0.6 < ratio < 1.1
    assert np.array_equal(known, np.rint(known))


@pytest.mark.statistical
def test_less_noise_is_found_in_the_figures() -> None:
    whole, broken = (RunRelease(SEED, each) for each in (RunMistake.NONE, RunMistake.OWN_ROUND))
    kept = np.var(broken.release(0, 4000, 5)[:, 2])
    both = np.var(whole.release(0, 4000, 5)[:, 2])
    parts = WholeRun(SEED).parts
    assert kept == pytest.approx(6 * parts.client_variance, rel=0.15)
    expected = 6 * parts.client_variance + 26 * parts.member_variance
    assert both == pytest.approx(expected, rel=0.15)


@pytest.mark.statistical
def test_a_product_that_divides_by_survivors_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "_divisor", lambda self, survivors: survivors)
    assert audit_model_noise(20_000, SEED).product()["rejected"]
