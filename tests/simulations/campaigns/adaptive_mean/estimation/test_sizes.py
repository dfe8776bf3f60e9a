"""Do the sizes follow the theory: constants of the paper, Lemma 6, stopping, and slacks."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from estimation_doubles import ALPHA, ExactMeans, central, estimate, goal_for, keys, table, task_of
from scipy import stats

from dp import Ledger, NoiseSeed, noise_multiplier_for_epsilon
from protocol.exchange.aggregators import IdealAggregator
from protocol.goal import PrivacyGoal
from simulations.reproduce.adaptive_mean.estimation.adapt_norm import AdaptNormMean
from simulations.reproduce.adaptive_mean.estimation.adapt_tail import AdaptTailMean
from simulations.reproduce.adaptive_mean.estimation.base import Bar, Floats, Released
from simulations.reproduce.adaptive_mean.estimation.bounds import (
    jl_size,
    median_factor,
    squared_norm_excess,
    squared_norm_upper,
)
from simulations.reproduce.adaptive_mean.estimation.central import CentralMeans
from simulations.reproduce.adaptive_mean.estimation.distributed import DistributedMeans
from simulations.reproduce.adaptive_mean.estimation.fixed import Doubling, FixedRateMean
from simulations.reproduce.adaptive_mean.estimation.laplace import AboveThreshold
from sketch import Probe, SketchKind, SketchSpec, spec_for_size

EPSILON, DELTA = 1.0, 1e-5


def test_the_noise_and_the_slack_of_a_trusted_server() -> None:
    """Half of epsilon for the means, a zeroed vector moves their sum by B, a norm by B / n."""
    n, b, beta = 50, 2.0, 0.05
    means = CentralMeans(task_of(np.zeros((n, 256))), EPSILON, DELTA, gauged=True)
    sigma = noise_multiplier_for_epsilon(EPSILON / 2, DELTA) * b / n
    for share in (1.0, 1 / 8):
        # Rounding costs sensitivity: one or two percent of variance here.
        found = means.noise_variance(spec_for_size(256, 60), share)
        assert sigma**2 / share <= found <= 1.02 * sigma**2 / share
    slack = means.norm(60, 1.0, beta).slack
    assert slack == pytest.approx(2 * b / (n * EPSILON) * math.log(4 / beta), rel=2e-3)


@pytest.mark.parametrize("norm", [0.1, 0.3, 1.0])
def test_without_slack_compression_adds_as_much_as_noise(norm: float) -> None:
    """Lemma 6 at the size that Adapt Norm picks: (d - 1)|mu|^2 / L is d sigma^2, up to rounding."""
    d, variance = 20_000, 1e-4
    mean = np.full(d, norm / math.sqrt(d))
    means = ExactMeans(mean, np.random.default_rng(0), variance)
    found = AdaptNormMean(rows=5).run(means)
    size = found.specs[-1].size
    floor = jl_size(2, 0.05)
    assert size == pytest.approx(max(floor, norm**2 / variance), abs=5)


def test_a_norm_that_asks_for_more_than_d_sends_everything() -> None:
    means = ExactMeans(np.ones(50), np.random.default_rng(0), 1e-9)
    assert AdaptNormMean().run(means).specs[-1].kind is SketchKind.IDENTITY


@pytest.mark.statistical
def test_the_untrusted_norm_bound_holds(tmp_path: Path) -> None:
    """n_hat + slack covers the length of the sketched mean but for failure / 4; half does not."""
    d, n, runs, failure = 64, 8, 120, 0.8
    mean = np.full(d, 0.4 / math.sqrt(d))
    task = task_of(table(n, d, mean))
    truth = float(np.linalg.norm(mean))
    missed = half = 0
    goal = PrivacyGoal(8.0, DELTA, 2)
    for run in range(runs):
        with Ledger.open(tmp_path / f"ledger-{run}") as ledger:
            means = DistributedMeans(task, goal, keys(n), IdealAggregator(), ledger)
            # All coordinates are sent, so no hashes blur the length.
            reading = means.norm(d, 0.5, failure)
        missed += reading.value + reading.slack < truth
        half += reading.value < truth
    assert stats.binom.sf(missed - 1, runs, failure / 4) > ALPHA
    # Without slack the estimate falls short about every second time.
    assert stats.binom.sf(half - 1, runs, failure / 4) < ALPHA


@pytest.mark.statistical
def test_closed_form_tails_against_gaussians() -> None:
    rng, runs, size, variance, norm = np.random.default_rng(8), 20_000, 30, 0.5, 9.0
    mean = np.full(size, math.sqrt(norm / size))
    noisy = mean + math.sqrt(variance) * rng.standard_normal((runs, size))
    measured = np.sum(noisy**2, axis=1)
    for failure in (0.3, 0.05):
        upper = [squared_norm_upper(m, size, variance, failure) for m in measured[:4000]]
        short = int(np.sum(np.array(upper) < norm))
        assert stats.binom.sf(short - 1, 4000, failure) > ALPHA
        excess = squared_norm_excess(norm, size, variance, failure)
        beyond = int(np.sum(measured - size * variance > norm + excess))
        assert stats.binom.sf(beyond - 1, runs, failure) > ALPHA
        # A third of the excess would be exceeded too often.
        beyond = int(np.sum(measured - size * variance > norm + excess / 3))
        assert stats.binom.sf(beyond - 1, runs, failure) < ALPHA or failure == 0.3
    assert squared_norm_upper(0.0, 30, 0.5, 0.05) >= 0.0


@pytest.mark.statistical
@pytest.mark.parametrize("copies", [1, 3, 5, 15])
def test_median_factor(copies: int) -> None:
    draws = np.random.default_rng(copies).standard_normal((100_000, copies))
    measured = float(copies * np.var(np.median(draws, axis=1)))
    assert measured == pytest.approx(median_factor(copies), rel=0.05)
    assert median_factor(1) == pytest.approx(1.0)
    assert median_factor(301) == pytest.approx(math.pi / 2, rel=1e-2)


class _Watched(CentralMeans):
    """Keeps what a trusted server knows of each trial: the true error and the answer."""

    def __init__(self, truth: Floats, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.truth, self.seen = truth, []

    def trial(
        self, spec: SketchSpec, probe: Probe, share: float, bar: Bar, top: int | None
    ) -> tuple[Released, bool]:
        released, small = super().trial(spec, probe, share, bar, top)
        error = float(np.linalg.norm(released.update - self.truth))
        slack = self._stream.slack(bar.questions, bar.failure)
        self.seen.append((error, bar.height, slack, small))
        return released, small


def _violations(runs: int) -> tuple[int, list[int]]:
    """How often the stream stopped, or went on, against Theorem 3.24 and the second sketch."""
    n, d = 100, 256
    mean = np.zeros(d)
    mean[:2] = (0.4, 0.3)
    vectors = table(n, d, mean)
    task, wrong, rounds = task_of(vectors), 0, []
    algorithm = AdaptTailMean(copies=3)
    for _ in range(runs):
        means = _Watched(vectors.mean(axis=0), task, 20.0, DELTA, gauged=True)
        rounds.append(len(algorithm.run(means).steps))
        for error, height, slack, small in means.seen:
            # The second sketch keeps squared lengths within a half.
            if small:
                wrong += error * math.sqrt(0.5) > height + 2 * slack
            else:
                wrong += error * math.sqrt(1.5) < height
    return wrong, rounds


@pytest.mark.statistical
def test_adapt_tail_stops_where_it_should() -> None:
    wrong, rounds = _violations(12)
    # Each run fails with probability 0.05 for the stream and hardly at all for the second sketch.
    assert stats.binom.sf(wrong - 1, 12, 0.2) > ALPHA
    assert len(set(rounds) - {1}) >= 1


@pytest.mark.slow
@pytest.mark.statistical
def test_a_stream_that_stops_at_once_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AboveThreshold, "below", lambda self, value, threshold: True)
    wrong, _ = _violations(100)
    assert stats.binom.sf(wrong - 1, 100, 0.2) < ALPHA


@pytest.mark.parametrize("form", ["central", "untrusted"])
@pytest.mark.slow
def test_a_sparse_mean_needs_a_smaller_sketch_than_its_length_asks_for(
    form: str, tmp_path: Path
) -> None:
    """The point of Adapt Tail: three entries of length 0.5 fit in a few buckets."""
    n, d = 400, 2048
    mean = np.zeros(d)
    mean[[5, 700, 2000]] = (0.4, -0.2, 0.2)
    task = task_of(table(n, d, mean) * np.ones((n, 1)))
    found = estimate(form, AdaptTailMean(), task, 20.0, tmp_path)
    norm = estimate(form, AdaptNormMean(), task, 20.0, tmp_path)
    last = found.specs[-1]
    assert last.main_size < norm.specs[-1].main_size


def test_doubling_stops_when_results_agree() -> None:
    flat = ExactMeans(np.zeros(4096), np.random.default_rng(1))
    assert len(Doubling().run(flat).steps) == 2
    long = ExactMeans(np.full(4096, 50.0), np.random.default_rng(1))
    assert Doubling().run(long).specs[-1].kind is SketchKind.IDENTITY


@pytest.mark.statistical
@pytest.mark.parametrize("form", ["central", "untrusted"])
def test_lemma_six_through_a_form(form: str, tmp_path: Path) -> None:
    """The measured error of a fixed rate is (d - 1)|mu|^2 / L + d sigma^2."""
    n, d, runs = 8, 64, 80
    mean = np.full(d, 0.5 / math.sqrt(d))
    task = task_of(table(n, d, mean))
    truth = np.array([task.updates(i) for i in range(n)]).mean(axis=0)
    algorithm = FixedRateMean(rate=2.0, rows=4)
    spec = spec_for_size(d, 32, 4)
    errors = [
        float(np.sum((estimate(form, algorithm, task, 8.0, tmp_path).update - truth) ** 2))
        for _ in range(runs)
    ]
    if form == "central":
        variance = central(task, algorithm, 8.0).noise_variance(spec, 1.0)
    else:
        with Ledger.open(tmp_path / "other") as ledger:
            goal = goal_for(task, algorithm, 8.0)
            means = DistributedMeans(task, goal, keys(n), IdealAggregator(), ledger)
            variance = means.noise_variance(spec, 1.0)
    expected = (d - 1) * float(truth @ truth) / spec.size + d * variance
    error_of_mean = float(np.std(errors, ddof=1)) / math.sqrt(runs)
    critical = float(stats.t.isf(ALPHA / 2, runs - 1)) * error_of_mean
    assert abs(float(np.mean(errors)) - expected) < critical
    # Noise that was counted at half its variance would be noticed.
    assert abs(float(np.mean(errors)) - (expected - d * variance / 2)) > critical


def test_seeds_are_fresh() -> None:
    assert NoiseSeed.fresh() != NoiseSeed.fresh()
    task = task_of(table(4, 32, np.zeros(32)))
    algorithm = FixedRateMean(rate=2.0)
    one, two = (algorithm.run(central(task, algorithm, 4.0)).update for _ in range(2))
    assert not np.array_equal(one, two)
