"""sqSGD's client: what is taken, what stays behind, and what the server makes of the reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dp.errors import NonFiniteUpdateError
from dp.events import LocalRelease
from dp.keystream import NoiseSeed
from dp.local import InfeasibleEpsilonError, Piecewise, SampledCoordinates, best_priv_quant
from simulations.learning.local_dp import ClientMemory
from simulations.learning.local_dp.sqsgd import (
    RESIDUAL,
    SqSgd,
    Subsample,
    SubsampledReports,
    kept_count,
)
from sketch import PublicSeed

D, KEPT = 60, 13
SEED = PublicSeed(bytes(range(32)))
NOISE = NoiseSeed(bytes(32))


@dataclass(frozen=True)
class Verbatim:
    """A randomiser that randomises nothing: what is sent can be looked at."""

    dimension: int
    epsilon: float = 1.0
    report_bits: float = 9.0

    def randomize(self, vectors: np.ndarray, seed: NoiseSeed) -> VerbatimReports:
        del seed
        assert np.abs(vectors).max() <= 1.0
        return VerbatimReports(vectors)

    def event(self) -> LocalRelease:
        return LocalRelease(self.epsilon)


@dataclass(frozen=True)
class VerbatimReports:
    vectors: np.ndarray

    def __len__(self) -> int:
        return len(self.vectors)

    def estimate(self, index: int) -> np.ndarray:
        return self.vectors[index]

    def total(self) -> np.ndarray:
        return self.vectors.sum(axis=0)


PLAIN = SqSgd(D, Verbatim(KEPT), bound=10.0)


@pytest.fixture
def updates() -> np.ndarray:
    """Random updates of four clients."""
    return np.random.default_rng(5).standard_normal((4, D))


def run(
    algorithm: SqSgd,
    updates: np.ndarray,
    memory: ClientMemory,
    clients: Sequence[int] = (3, 0, 7, 5),
    seed: PublicSeed = SEED,
) -> SubsampledReports:
    return algorithm.reports(clients, updates, memory, seed, NOISE)


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
def test_what_is_taken_arrives_and_the_rest_stays(
    updates: np.ndarray, common: bool, rotated: bool
) -> None:
    algorithm = replace(PLAIN, common=common, rotated=rotated)
    memory = ClientMemory(D)
    reports = run(algorithm, updates, memory)
    assert len(reports) == 4
    for index, client in enumerate((3, 0, 7, 5)):
        estimate, residual = reports.estimate(index), memory.vector(RESIDUAL, client)
        assert np.count_nonzero(estimate) == KEPT and np.count_nonzero(residual) == D - KEPT
        assert estimate + residual == pytest.approx(updates[index], abs=1e-6)
    summed = sum(reports.estimate(index) for index in range(4))
    assert reports.total() == pytest.approx(summed, abs=1e-12)
    places = {tuple(np.flatnonzero(reports.estimate(index))) for index in range(4)}
    assert len(places) == (1 if common else 4)


def test_everything_arrives_in_the_end(updates: np.ndarray) -> None:
    # Sum of what was sent + residual = sum of updates, round after round.
    wide = replace(PLAIN, bound=1000.0)  # residuals grow, and nothing shall be cut off
    memory, arrived = ClientMemory(D), np.zeros((4, D))
    for number in range(1, 41):
        reports = run(wide, updates, memory, seed=PublicSeed(number.to_bytes(32, "little")))
        arrived += [reports.estimate(index) for index in range(4)]
        left = [memory.vector(RESIDUAL, client) for client in (3, 0, 7, 5)]
        assert arrived + left == pytest.approx(number * updates, abs=1e-4)
    # After 40 rounds of 13 in 60, hardly a coordinate was never sent.
    assert np.abs(arrived).min() > 0.0


def test_weights_are_those_of_the_algorithm(updates: np.ndarray) -> None:
    memory = ClientMemory(D)
    memory.vector(RESIDUAL, 3)[:] = 1.0
    algorithm = replace(PLAIN, alpha=0.5, beta=2.0)
    reports = run(algorithm, updates[:1], memory, clients=[3])
    estimate, residual = reports.estimate(0), memory.vector(RESIDUAL, 3)
    sent = estimate != 0.0
    assert estimate[sent] == pytest.approx(1.0 + 2.0 * updates[0, sent])
    assert residual[~sent] == pytest.approx(1.0 + 0.5 * updates[0, ~sent], rel=1e-5)


def test_without_residual_the_scaled_estimate_is_unbiased(updates: np.ndarray) -> None:
    algorithm = replace(PLAIN, alpha=0.0, scaled=True)
    memory, total, rounds = ClientMemory(D), np.zeros((4, D)), 1500
    for number in range(rounds):
        reports = run(algorithm, updates, memory, seed=PublicSeed(number.to_bytes(32, "big")))
        total += [reports.estimate(index) for index in range(4)]
    assert not memory.clients
    # A coordinate is d/k times itself with probability k/d; z < 5.9 for all of 240 at 1e-6.
    deviation = np.abs(updates) * np.sqrt((D / KEPT - 1) / rounds)
    assert (np.abs(total / rounds - updates) <= 6.2 * deviation).all()
    unscaled = total / rounds * KEPT / D
    assert (np.abs(unscaled - updates) > 6.2 * deviation).any()


def test_updates_are_clipped_and_coordinates_cut_off(updates: np.ndarray) -> None:
    memory = ClientMemory(D)
    small = replace(PLAIN, bound=0.5)
    reports = run(small, updates, memory)
    whole = reports.estimate(0) + memory.vector(RESIDUAL, 3)
    assert np.linalg.norm(whole) == pytest.approx(0.5, rel=1e-5)
    # A residual has no bound of its own: what leaves is cut off all the same.
    memory.vector(RESIDUAL, 3)[:] = 100.0
    subsample = Subsample(small, SEED, 3)
    assert np.abs(subsample.taken(np.full(KEPT, 100.0))).max() == 1.0
    assert np.linalg.norm(run(small, updates, memory).estimate(0)) <= 0.5 * np.sqrt(KEPT) + 1e-9


def test_rotation_spreads_one_large_coordinate() -> None:
    subsample = Subsample(PLAIN, SEED, 0)
    spike = np.zeros(KEPT)
    spike[4] = 10.0
    turned = subsample.taken(spike)
    assert np.linalg.norm(turned) == pytest.approx(1.0)
    # 13 coordinates: blocks of 8, so that nothing is larger than 1/sqrt(8) of the norm twice over.
    assert np.abs(turned).max() < 0.8
    assert subsample.returned(turned) == pytest.approx(spike, abs=1e-12)


def test_subsamples_are_public_and_differ_by_client_and_round() -> None:
    again = Subsample(PLAIN, SEED, 2).coordinates
    assert (Subsample(PLAIN, SEED, 2).coordinates == again).all()
    assert (np.diff(again) > 0).all()
    assert (Subsample(PLAIN, SEED, 3).coordinates != again).any()
    assert (Subsample(PLAIN, PublicSeed(bytes(32)), 2).coordinates != again).any()


def test_reports_are_private_levels_that_a_secure_sum_can_add(updates: np.ndarray) -> None:
    algorithm = SqSgd(D, best_priv_quant(KEPT, 16, 1.0, 30.0), bound=5.0, common=True)
    assert algorithm.epsilon <= 30.0 and algorithm.report_bytes == -(-KEPT * 4 // 8)
    reports = run(algorithm, updates, ClientMemory(D))
    summed = algorithm.randomizer.decode_sum(reports.inner.level_sum(), 4)
    assert reports.decoded(summed) == pytest.approx(reports.total())
    other = run(algorithm, updates, ClientMemory(D))
    assert (other.inner.levels == reports.inner.levels).all()
    with pytest.raises(ValueError, match="all clients took the same"):
        run(replace(algorithm, common=False), updates, ClientMemory(D)).decoded(summed)


def test_other_randomisers_fit_in(updates: np.ndarray) -> None:
    piecewise = SampledCoordinates(KEPT, 65.0, KEPT, Piecewise(5.0))
    reports = run(SqSgd(D, piecewise, bound=5.0, rotated=False), updates, ClientMemory(D))
    assert np.count_nonzero(reports.estimate(2)) == KEPT


def test_the_printed_algorithm_has_the_papers_figures() -> None:
    algorithm = SqSgd.as_printed(119_850, 0.005, 16, 10.0, 400.0)
    assert algorithm.kept == 599 and algorithm.factor == 1.0
    assert algorithm.report_bytes == 300.0
    assert 395.0 < algorithm.epsilon <= 400.0
    assert kept_count(100, 0.29) == 29 and kept_count(100, 0.07) == 7 and kept_count(7, 1.0) == 7
    with pytest.raises(InfeasibleEpsilonError):
        SqSgd.as_printed(100, 0.01, 16, 1.0, 1.0)


def test_bad_arguments_are_refused(updates: np.ndarray) -> None:
    for changes, message in (
        ({"dimension": KEPT - 1}, "dimension must be at least the randomizer's 13, got 12"),
        ({"bound": 0.0}, "bound must be positive"),
        ({"bound": float("nan")}, "bound must be positive"),
        ({"alpha": 1.5}, "alpha must lie"),
        ({"beta": 0.0}, "beta must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(PLAIN, **changes)
    for ratio in (0.0, 1.1, float("nan"), 1e-9):
        with pytest.raises(ValueError, match="ratio"):
            kept_count(100, ratio)
    memory = ClientMemory(D)
    with pytest.raises(ValueError, match="clients must be 4 different numbers"):
        run(PLAIN, updates, memory, clients=[1, 1, 2, 3])
    with pytest.raises(ValueError, match="clients must be 4 different numbers"):
        run(PLAIN, updates, memory, clients=[1])
    with pytest.raises(ValueError, match="client must not be negative"):
        run(PLAIN, updates, memory, clients=[1, -1, 2, 3])
    with pytest.raises(ValueError, match="memory must be of dimension 60, got 61"):
        run(PLAIN, updates, ClientMemory(D + 1))
    with pytest.raises(TypeError, match="float64"):
        run(PLAIN, updates.astype(np.float32), memory)
    updates[3, 0] = np.nan
    with pytest.raises(NonFiniteUpdateError):
        run(PLAIN, updates, memory)
    assert not memory.clients
