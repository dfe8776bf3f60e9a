"""Controllers with a second sketch: Adapt Norm in Mode A, and Adapt Tail."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sketch_kit import assert_mean, estimated, releases_of

from sketch import Probe, SketchKind, SketchSpec
from sketch.controllers import (
    AdaptNormTwoSketches,
    AdaptTail,
    Controller,
    Decision,
    ReleasedProbe,
    ReleasedStats,
)
from sketch.controllers.adapt_tail import TailUpdate
from sketch.controllers.by_norm import best_probe_size
from sketch.controllers.norm_belief import believed_measured
from sketch.error import norm_estimate_variance

DIMENSION = 100_000
NOISE = 1e-4
MAIN_NOISE, PROBE_NOISE = NOISE / 0.9, NOISE / 0.1


def release(
    spec: SketchSpec, number: int, *, norm_squared: float = 1.0, error_squared: float = 1.0
) -> ReleasedStats:
    """What a round releases if the second sketch sees just these two.

    The norm of the first sketch is one that these controllers do not ask.
    """
    assert spec.probe is not None
    size = spec.probe.size
    probe = ReleasedProbe(
        size=size,
        norm_squared=max(norm_squared + size * PROBE_NOISE, 0.0),
        noise_variance=PROBE_NOISE,
        error_squared=error_squared + size * PROBE_NOISE,
    )
    return estimated(
        123.0, spec.main_size, MAIN_NOISE, number, dimension=spec.dimension, probe=probe
    )


def run(controller: Controller, **seen: list[float]) -> list[Decision]:
    """All decisions over rounds in which the second sketch sees the values of the lists."""
    decisions = [controller.initial(DIMENSION)]
    rounds = [dict(zip(seen, values, strict=True)) for values in zip(*seen.values(), strict=True)]
    for number, values in enumerate(rounds):
        stats = release(decisions[-1].spec, number, **values)
        decisions.append(controller.step(decisions[-1].state, stats))
    return decisions


@pytest.mark.parametrize("controller", [AdaptNormTwoSketches(), AdaptTail()], ids=repr)
class TestBoth:
    def test_every_spec_has_a_probe_and_counts_it(self, controller: Controller) -> None:
        for decision in run(controller, norm_squared=[0.1] * 5, error_squared=[1e-9] * 5):
            spec = decision.spec
            assert spec.probe is not None
            assert spec.probe.share == 0.1
            assert spec.size == spec.main_size + spec.probe.size
            assert spec.rate == DIMENSION / spec.size < DIMENSION / spec.main_size
            assert decision.rationale.numbers["probe_size"] == spec.probe.size

    def test_a_release_without_a_probe_is_refused(self, controller: Controller) -> None:
        first = controller.initial(DIMENSION)
        stats = dataclasses.replace(release(first.spec, 0), probe=None)
        with pytest.raises(ValueError, match="must have a probe"):
            controller.step(first.state, stats)


class TestTwoSketches:
    def test_fixed_point(self) -> None:
        """The norm is the second sketch's, the noise the first one's."""
        last = run(AdaptNormTwoSketches(caution=0.0), norm_squared=[0.45] * 10)[-1]
        assert last.spec.main_size == 15 * (math.ceil(0.45 / (0.1 * MAIN_NOISE)) // 15)
        assert last.rationale.numbers["norm_squared"] == pytest.approx(0.45)

    def test_uncompressed_rounds_keep_their_probe(self) -> None:
        first = AdaptNormTwoSketches().initial(DIMENSION).spec
        assert (first.kind, first.probe) == (SketchKind.IDENTITY, Probe(1024, 0.1))

    def test_probe_follows_the_belief(self) -> None:
        """|mu|^2 / sigma2^2 = 0.3 / 1e-3, then out of both ends of its range by surprises."""
        sizes = [
            decision.spec.probe.size  # type: ignore[union-attr]
            for decision in run(AdaptNormTwoSketches(), norm_squared=[0.3, 9.0, -0.5])
        ]
        assert sizes == [1024, 300, 2048, 64]

    def test_the_belief_is_that_of_the_second_sketch(self) -> None:
        """Its estimates and their variances: here with size and noise of a probe."""
        first, second = run(AdaptNormTwoSketches(), norm_squared=[0.3, 0.4])[1:]
        start = believed_measured(None, 0.3, 1024, PROBE_NOISE)
        then = believed_measured(start, 0.4, 300, PROBE_NOISE)
        assert first.state.memory == pytest.approx(start.memory)
        assert second.state.memory == pytest.approx(then.memory)

    def test_negative_estimates_keep_their_sign(self) -> None:
        """Clamping each at zero would make the belief too large on average."""
        first, second = run(AdaptNormTwoSketches(), norm_squared=[-0.02, 0.03])[1:]
        assert first.rationale.numbers["norm_squared"] == 0.0
        assert first.state.memory[0] == pytest.approx(-0.02)
        assert -0.02 < second.state.memory[0] < 0.03

    @given(st.floats(1e-3, 1.0), st.floats(1e-6, 1e-2))
    def test_best_size_has_the_least_variance(self, norm: float, noise: float) -> None:
        """No other size of the range does better: the formula of the variance is convex."""
        best = best_probe_size(norm, noise)

        def variance(size: int) -> float:
            return norm_estimate_variance(size, norm, 0.0, noise)

        neighbours = [size for size in (best - 2, best + 2) if 64 <= size <= 2048]
        assert all(variance(best) <= variance(size) for size in neighbours)
        if 64 < best < 2048:
            assert variance(best) == pytest.approx(8.0 * norm**2 / best, rel=0.02)

    @pytest.mark.statistical
    def test_estimates_from_real_sketches(self) -> None:
        """The whole way: both sketches in one noisy sum; without bias, and as precise as said.

        The broken twin takes the noise of the sum for that of the second sketch.
        """
        dimension, variance, rounds = 400, 1e-3, 1500
        mu = np.random.default_rng(5).normal(size=dimension) / 20
        controller = AdaptNormTwoSketches(first_rate=4.0, probe_size=128)
        first = controller.initial(dimension)
        estimates, twin = [], []
        for released in releases_of(first.spec, mu, variance, rounds):
            estimates.append(controller.step(first.state, released).rationale.numbers["estimate"])
            assert released.probe is not None
            twin.append(released.probe.norm_squared - 128 * variance)
        norm = float(mu @ mu)
        assert_mean(np.array(estimates), norm)
        with pytest.raises(AssertionError, match="mean off"):
            assert_mean(np.array(twin), norm)
        squares = (np.array(estimates) - norm) ** 2
        expected = norm_estimate_variance(128, norm, float((mu**4).sum()), variance / 0.1)
        assert_mean(squares, expected)


def tail(update: TailUpdate, **changes: Any) -> AdaptTail:
    return AdaptTail(update=update, first_rate=100.0, **changes)


TARGET = math.sqrt(1.1 * DIMENSION * MAIN_NOISE)


class TestAdaptTail:
    @pytest.mark.parametrize("update", TailUpdate)
    def test_grows_above_the_target_and_shrinks_below(self, update: TailUpdate) -> None:
        for factor, larger in ((1.3, True), (0.7, False)):
            first, second = run(tail(update), error_squared=[(factor * TARGET) ** 2])
            assert (second.spec.main_size > first.spec.main_size) is larger
            words = "above" if larger else "at or below"
            assert second.rationale.words == f"The seen error is {words} its target."

    @pytest.mark.parametrize("step", [1.2, 1.5, 2.0])
    def test_the_shortest_sketch_can_grow_again(self, step: float) -> None:
        """A step of 1.2 up from one to four numbers in each row is less than one more."""
        controller = AdaptTail(first_rate=DIMENSION / 15, rows=15, step_factor=step)
        sizes = [each.spec.main_size for each in run(controller, error_squared=[1e9] * 6)]
        assert sizes == [15, 30, 45, 60, 75, 90, 105]

    def test_target_is_the_noise_and_the_share(self) -> None:
        numbers = run(AdaptTail(gamma=0.25), error_squared=[1.0])[-1].rationale.numbers
        assert numbers["target_squared"] == pytest.approx(1.25 * DIMENSION * MAIN_NOISE)
        assert numbers["error_squared"] == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("update", "gap", "factor"),
        [
            (TailUpdate.SIGN, 3.0, 1.2),
            (TailUpdate.SIGN, -1e-9, 0.8),
            (TailUpdate.SIGN, 0.0, 1.0),
            (TailUpdate.POWER, 3.0, 2.0**0.2),
            (TailUpdate.POWER, -3.0, 2.0**-0.2),
            (TailUpdate.EXPONENTIAL, 3.0, math.exp(0.6)),
            (TailUpdate.EXPONENTIAL, -3.0, math.exp(-0.6)),
            (TailUpdate.LINEAR, 3.0, 1.6),
            (TailUpdate.LINEAR, -3.0, 0.4),
            (TailUpdate.LINEAR, -30.0, 0.0),
        ],
    )
    def test_factors(self, update: TailUpdate, gap: float, factor: float) -> None:
        assert update.factor(gap, 0.2) == pytest.approx(factor)

    def test_powers_of_two_double_and_halve(self) -> None:
        """With eta = 1 it is the doubling of Algorithm 2."""
        sizes = [
            decision.spec.main_size
            for decision in run(tail(TailUpdate.POWER, eta=1.0), error_squared=[99.0, 99.0, 0.0])
        ]
        assert sizes == [990, 1980, 3960, 1980]

    def test_relative_error_has_no_unit(self) -> None:
        """Scaled by 1 / target: half above gives exp(0.2 * 0.5)."""
        seen = [(1.5 * TARGET) ** 2]
        first, second = run(tail(TailUpdate.EXPONENTIAL, relative=True), error_squared=seen)
        assert second.rationale.numbers["factor"] == pytest.approx(math.exp(0.1))
        absolute = run(tail(TailUpdate.EXPONENTIAL), error_squared=seen)[-1]
        factor = absolute.rationale.numbers["factor"]
        assert factor == pytest.approx(math.exp(0.2 * 0.5 * TARGET))
        assert first.spec.main_size == 990

    @pytest.mark.parametrize("update", TailUpdate)
    def test_step_clamp(self, update: TailUpdate) -> None:
        seen = [1e12, 0.0, 1e12, 0.0, 0.0]
        sizes = [d.spec.main_size for d in run(tail(update, eta=1e3), error_squared=seen)]
        for before, after in itertools.pairwise(sizes):
            assert before / 2 - 15 < after <= 2 * before

    def test_signs_drift_downward(self) -> None:
        """Equally many signs up and down shrink the size: (1 + eta)(1 - eta) < 1.

        It is one of the reasons why it compresses too much; the update by powers has none of it.
        """
        seen = [99.0, 0.0] * 10
        signs = run(tail(TailUpdate.SIGN, rows=1), error_squared=seen)[-1].spec.main_size
        powers = run(tail(TailUpdate.POWER, rows=1), error_squared=seen)[-1].spec.main_size
        assert signs == pytest.approx(1000 * 0.96**10, rel=0.02)
        assert powers == pytest.approx(1000, rel=0.02)

    @pytest.mark.statistical
    def test_error_from_real_sketches(self) -> None:
        """The seen error has the mean of Lemma 6, first sketch and noise included.

        The broken twin compares with the error of the noise alone.
        """
        dimension, variance, rounds = 300, 1e-3, 1000
        mu = np.random.default_rng(5).normal(size=dimension) / 20
        controller = AdaptTail(first_rate=4.0, probe_size=128)
        first = controller.initial(dimension)
        seen = []
        for released in releases_of(first.spec, mu, variance, rounds):
            numbers = controller.step(first.state, released).rationale.numbers
            seen.append(numbers["error_squared"])
        noise = dimension * variance / 0.9
        compression = (dimension - 1) * float(mu @ mu) / first.spec.main_size
        assert_mean(np.array(seen), noise + compression)
        with pytest.raises(AssertionError, match="mean off"):
            assert_mean(np.array(seen), noise)


@pytest.mark.parametrize("controller", [AdaptNormTwoSketches(first_rate=2.0), AdaptTail()])
def test_the_second_sketch_never_outgrows_the_update(
    controller: AdaptNormTwoSketches | AdaptTail,
) -> None:
    """Rounds with a sketch longer than the update are refused, and a run would end for good."""
    decision = controller.initial(300)
    for number in range(4):
        spec = decision.spec
        assert spec.probe is not None
        assert spec.probe.size <= 300
        stats = release(spec, number, norm_squared=1e6, error_squared=1e6)
        decision = controller.step(decision.state, stats)
