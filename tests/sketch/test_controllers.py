"""Controllers: the rule, its clamps, and that nothing but released values can come in."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sketch_kit import assert_mean, estimated, releases_of

from sketch import Probe, PublicSeed, SketchKind, spec_for_size
from sketch.controllers import (
    AdaptBudget,
    AdaptNorm,
    AdaptNormTwoSketches,
    AdaptProgress,
    AdaptTail,
    Controller,
    Decision,
    FixedRate,
    Prior,
    Published,
    Rationale,
    ReleasedProbe,
    ReleasedStats,
    TwoStage,
)
from sketch.controllers.adapt_tail import TailUpdate
from sketch.controllers.options import OPTIONS, options_of
from sketch.controllers.release import released_stats

DIMENSION = 100_000
CONTROLLERS: list[Any] = [
    AdaptBudget(horizon=10),
    AdaptNorm(),
    AdaptNorm(first_rate=33.0, caution=0.0),
    AdaptNormTwoSketches(),
    AdaptNormTwoSketches(first_rate=20.0, probe_size=100),
    AdaptProgress(),
    AdaptProgress(first_rate=16.0, window=2),
    AdaptTail(),
    AdaptTail(update=TailUpdate.EXPONENTIAL, relative=True, first_rate=10.0),
    FixedRate(50.0),
    Published(),
    Published(first_rate=33.0, window=1),
    TwoStage(warmup=2),
]


def release(
    decision: Decision,
    norm_squared: float,
    noise_variance: float = 1e-4,
    number: int = 0,
    inner: float | None = None,
) -> ReleasedStats:
    """What a round with this decision releases if every estimate hits its mean exactly."""
    spec = decision.spec
    error = spec.dimension * (noise_variance + norm_squared / spec.main_size)
    probe = None
    if spec.probe is not None:
        probe = ReleasedProbe(
            size=spec.probe.size,
            norm_squared=norm_squared + spec.probe.size * 9.0 * noise_variance,
            noise_variance=9.0 * noise_variance,
            error_squared=error + spec.probe.size * 9.0 * noise_variance,
        )
    others = {"update_norm_squared": norm_squared + error, "previous_inner": inner, "probe": probe}
    return estimated(norm_squared, spec.main_size, noise_variance, number, **others)


def run(controller: Controller, norms: list[float], noise: float = 1e-4) -> list[Decision]:
    """All decisions over rounds whose estimates are given, on a problem without curvature."""
    decisions = [controller.initial(DIMENSION)]
    for number, norm_squared in enumerate(norms):
        inner = norm_squared if number else None
        stats = release(decisions[-1], norm_squared, noise, number, inner)
        decisions.append(controller.step(decisions[-1].state, stats))
    return decisions


class TestReleasedStats:
    GOOD: dict[str, Any] = {  # noqa: RUF012
        "round_number": 3,
        "dimension": 100,
        "size": 30,
        "sketch_norm_squared": 2.0,
        "noise_variance": 0.1,
        "survivors": 7,
        "update_norm_squared": 5.0,
    }
    PROBE: dict[str, Any] = {  # noqa: RUF012
        "size": 8,
        "norm_squared": 3.0,
        "noise_variance": 0.2,
        "error_squared": 4.0,
    }

    def test_every_field_is_tried_below(self) -> None:
        assert set(get_type_hints(ReleasedStats)) == {*self.GOOD, "previous_inner", "probe"}
        assert set(get_type_hints(ReleasedProbe)) == set(self.PROBE)

    @pytest.mark.parametrize("variance", [0.0, -1.0, math.nan])
    def test_nothing_without_noise(self, variance: float) -> None:
        with pytest.raises(ValueError, match="noise_variance must be finite and above 0"):
            ReleasedStats(**self.GOOD | {"noise_variance": variance})
        with pytest.raises(ValueError, match="noise_variance must be finite and above 0"):
            ReleasedProbe(**self.PROBE | {"noise_variance": variance})

    def test_what_may_be_missing(self) -> None:
        stats = ReleasedStats(**self.GOOD)
        assert (stats.previous_inner, stats.probe) == (None, None)
        assert ReleasedStats(**self.GOOD, previous_inner=-3.5).previous_inner == -3.5
        probe = ReleasedProbe(**self.PROBE)
        assert ReleasedStats(**self.GOOD, probe=probe).probe == probe
        for name, value in (("previous_inner", np.ones(2)), ("probe", self.PROBE)):
            with pytest.raises(TypeError, match=f"{name} must be"):
                ReleasedStats(**self.GOOD, **{name: value})
        with pytest.raises(ValueError, match="previous_inner must be finite"):
            ReleasedStats(**self.GOOD, previous_inner=math.nan)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("size", 0), ("norm_squared", -1.0), ("error_squared", math.inf)],
    )
    def test_ranges_of_a_probe(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=f"{name} must be"):
            ReleasedProbe(**self.PROBE | {name: value})

    @pytest.mark.parametrize("name", list(PROBE))
    def test_types_of_a_probe(self, name: str) -> None:
        with pytest.raises(TypeError, match=f"{name} must be"):
            ReleasedProbe(**self.PROBE | {name: np.ones(3)})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("round_number", -1),
            ("dimension", 0),
            ("size", 0),
            ("size", 101),
            ("sketch_norm_squared", -1e-9),
            ("sketch_norm_squared", math.nan),
            ("noise_variance", math.inf),
            ("survivors", 0),
        ],
    )
    def test_ranges(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=f"{name} must be"):
            ReleasedStats(**self.GOOD | {name: value})

    @pytest.mark.parametrize("name", list(GOOD))
    def test_types(self, name: str) -> None:
        for value in (np.ones(3), "1", None):
            with pytest.raises(TypeError, match=f"{name} must be"):
                ReleasedStats(**self.GOOD | {name: value})

    def test_names_are_spelled_out(self) -> None:
        with pytest.raises(TypeError):
            ReleasedStats(*self.GOOD.values())  # type: ignore[misc]


class TestMeasuring:
    """`released_stats` on vectors."""

    @staticmethod
    def measure(spec: Any, sent: Any, update: Any, **changes: Any) -> ReleasedStats:
        given = {
            "previous": None,
            "round_number": 1,
            "noise_variance": 0.5,
            "survivors": 2,
        }
        return released_stats(spec, PublicSeed(bytes(32)), sent, update, **given | changes)

    def test_without_a_probe(self) -> None:
        spec = spec_for_size(9, 2, rows=1)
        update, previous = np.arange(9.0), np.full(9, 2.0)
        stats = self.measure(spec, np.array([3.0, -4.0]), update, previous=previous)
        assert stats == ReleasedStats(
            round_number=1,
            dimension=9,
            size=2,
            sketch_norm_squared=25.0,
            noise_variance=0.5,
            survivors=2,
            update_norm_squared=204.0,
            previous_inner=72.0,
        )
        first = self.measure(spec, np.array([3.0, -4.0]), update)
        assert first.previous_inner is None

    def test_a_probe_in_its_own_units(self) -> None:
        """Each sketch is divided by its weight, and so is its noise."""
        spec = spec_for_size(9, 2, rows=1, probe=Probe(4, 0.25))
        update = np.arange(9.0)
        second = spec.probe.build(9, PublicSeed(bytes(32))).encode(update)  # type: ignore[union-attr]
        sent = np.concatenate((math.sqrt(0.75) * np.array([3.0, -4.0]), 0.5 * (second + 1.0)))
        stats = self.measure(spec, sent, update)
        assert (stats.size, stats.noise_variance) == (2, pytest.approx(0.5 / 0.75))
        assert stats.sketch_norm_squared == pytest.approx(25.0)
        assert stats.probe is not None
        assert (stats.probe.size, stats.probe.noise_variance) == (4, pytest.approx(2.0))
        assert stats.probe.norm_squared == pytest.approx(float(((second + 1.0) ** 2).sum()))
        assert stats.probe.error_squared == pytest.approx(4.0)

    def test_what_is_refused(self) -> None:
        spec = spec_for_size(9, 2, rows=1)
        good, update = np.ones(2), np.ones(9)
        with pytest.raises(ValueError, match="sketch_norm_squared must be finite"):
            self.measure(spec, np.array([np.nan, 1.0]), update)
        with pytest.raises(ValueError, match="noise_variance"):
            self.measure(spec, good, update, noise_variance=0.0)
        for sent, decoded in ((np.ones(3), update), (good, np.ones(8))):
            with pytest.raises(ValueError, match="shape"):
                self.measure(spec, sent, decoded)


@pytest.mark.parametrize("controller", CONTROLLERS, ids=repr)
class TestEveryController:
    def test_satisfies_the_protocol(self, controller: Controller) -> None:
        assert isinstance(controller, Controller)

    @pytest.mark.parametrize("raw", [np.ones(30), 2.0, {"sketch_norm_squared": 2.0}, None])
    def test_anything_else_is_refused(self, controller: Controller, raw: object) -> None:
        state = controller.initial(DIMENSION).state
        with pytest.raises(TypeError, match="released must be ReleasedStats"):
            controller.step(state, raw)  # type: ignore[arg-type]
        stats = release(controller.initial(DIMENSION), 1.0)
        with pytest.raises(TypeError, match="state must be a ControllerState"):
            controller.step(raw, stats)  # type: ignore[arg-type]

    def test_is_pure(self, controller: Controller) -> None:
        first = controller.initial(DIMENSION)
        stats = release(first, 3.0)
        once, again = controller.step(first.state, stats), controller.step(first.state, stats)
        assert once == again
        assert first == controller.initial(DIMENSION)
        rebuilt = dataclasses.replace(controller)  # type: ignore[type-var]
        assert rebuilt.step(first.state, stats) == once

    def test_refuses_a_foreign_release(self, controller: Controller) -> None:
        first = controller.initial(DIMENSION)
        stats = release(first, 3.0)
        for change in ({"size": stats.size - 1}, {"dimension": DIMENSION + 1}):
            with pytest.raises(ValueError, match="dimension and size"):
                controller.step(first.state, dataclasses.replace(stats, **change))

    def test_refuses_a_round_twice_but_not_a_gap(self, controller: Controller) -> None:
        first = controller.initial(DIMENSION)
        second = controller.step(first.state, release(first, 3.0, number=4))
        with pytest.raises(ValueError, match="must be after 4, not 4"):
            controller.step(second.state, release(second, 3.0, number=4))
        controller.step(second.state, release(second, 3.0, number=9))

    def test_state_matches_the_spec(self, controller: Controller) -> None:
        for decision in run(controller, [1.0, 0.0, 5.0, 100.0]):
            assert decision.state.size == decision.spec.main_size
            assert decision.state.dimension == decision.spec.dimension == DIMENSION
            assert decision.rationale.words.endswith(".")
            assert all(math.isfinite(value) for value in decision.rationale.numbers.values())
            assert decision.rationale.numbers["size"] == decision.spec.main_size
            assert all(isinstance(value, float) for value in decision.state.memory)


TRIED: dict[str, tuple[list[Any], list[Any]]] = {
    "rows": ([0, 2**32 + 1], [1]),
    "gamma": ([0.0, -1.0, math.inf, math.nan], [1e-9]),
    "window": ([0], [1]),
    "step_factor": ([1.0], [1.0 + 1e-9]),
    "first_rate": ([0.5], [1.0]),
    "probe_size": ([63, 2049], [64, 2048]),
    "probe_share": ([0.0, 1.0], [1e-9, 1.0 - 1e-9]),
    "horizon": ([0], [1]),
    "memory": ([0.0, 1.5], [1.0]),
    "warmup": ([0], [1]),
    "eta": ([0.0], [1e-9]),
    "update": ([], list(TailUpdate)),
    "relative": ([], [True, False]),
    "kappa": ([0.0, 1.5], [1.0]),
    "gamma_low": ([0.0], [1e-9]),
    "gamma_high": ([0.0], [9.0]),
    "caution": ([-0.1], [0.0]),
    "momentum": ([-0.1, 1.0], [0.0, 1.0 - 1e-9]),
    "rate": ([0.5], [1.0]),
}
"""Of every option, values out of range and the last ones within."""


class TestOptions:
    def test_every_option_is_tried(self) -> None:
        assert list(TRIED) == list(OPTIONS)
        assert set(OPTIONS) == {name for one in CONTROLLERS for name in options_of(type(one))}

    @pytest.mark.parametrize("controller", CONTROLLERS, ids=repr)
    def test_ranges_and_types(self, controller: Any) -> None:
        for name in options_of(type(controller)):
            out, within = TRIED[name]
            for value in within:
                assert getattr(dataclasses.replace(controller, **{name: value}), name) == value
            for value in out:
                with pytest.raises(ValueError, match=f"{name} must be"):
                    dataclasses.replace(controller, **{name: value})
            for value in ("1", np.ones(2), 1 if name == "relative" else True):
                if name != "relative" or value is not True:
                    with pytest.raises(TypeError, match=f"{name} must be"):
                        dataclasses.replace(controller, **{name: value})

    @pytest.mark.parametrize("kind", [FixedRate, Published])
    def test_a_rate_is_left_out_only_where_a_plan_has_one(self, kind: type) -> None:
        with pytest.raises(TypeError, match="rate must be"):
            kind(**{"rate" if kind is FixedRate else "first_rate": None})

    @pytest.mark.parametrize(
        "build",
        [
            lambda: AdaptBudget(horizon=10, gamma=1.5),
            lambda: AdaptBudget(horizon=10, gamma_low=2.0),
            lambda: AdaptProgress(gamma_high=0.05),
        ],
    )
    def test_the_largest_gamma_is_not_below_the_others(self, build: Callable[[], object]) -> None:
        with pytest.raises(ValueError, match="gamma_high must be"):
            build()


class TestFixedRate:
    def test_size_never_moves(self) -> None:
        sizes = {decision.spec.size for decision in run(FixedRate(50.0), [1.0, 100.0, 0.0])}
        assert sizes == {15 * (2000 // 15)}

    def test_rate_one_is_no_compression(self) -> None:
        assert FixedRate(1.0).initial(77).spec.kind is SketchKind.IDENTITY


class TestPublished:
    """The rule of version 0.1.0: the last norms are averaged, and a size moves by steps."""

    def test_starts_uncompressed_or_at_a_given_rate(self) -> None:
        """Whatever a plan says: it is kept for comparison."""
        prior = Prior(norm_squared=1.0, noise_variance=1.0)
        assert Published().initial(DIMENSION, prior).spec.kind is SketchKind.IDENTITY
        assert Published(first_rate=33.0).initial(DIMENSION, prior).spec.size == 3030

    def test_fixed_point(self) -> None:
        """L = |mu|^2 / (gamma sigma^2): 0.45 / (0.1 * 1e-4) = 45,000, a multiple of 15."""
        last = run(Published(), [0.45] * 10)[-1]
        assert last.spec.size == 45_000
        assert last.rationale.words == "The estimated norm asks for this size."

    @given(st.floats(1e-3, 10.0), st.floats(1e-6, 1e-2), st.floats(0.05, 1.0))
    def test_fixed_point_for_any_norm(self, norm: float, noise: float, gamma: float) -> None:
        last = run(Published(gamma=gamma, step_factor=1e9), [norm] * 3, noise)[-1]
        wanted = min(max(norm / (gamma * noise), 15.0), DIMENSION)
        assert wanted - 15 <= last.spec.size <= wanted + 1

    @given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8))
    def test_step_clamp(self, norms: list[float]) -> None:
        sizes = [decision.spec.size for decision in run(Published(step_factor=2.0), norms)]
        for before, after in itertools.pairwise(sizes):
            assert after <= 2 * before
            assert after > before / 2 - 15
            assert 15 <= after <= DIMENSION

    def test_shrinks_by_the_factor(self) -> None:
        sizes = [decision.spec.size for decision in run(Published(), [0.0] * 3)]
        assert sizes == [100_000, 49_995, 24_990, 12_495]

    def test_smallest_size_is_the_rows(self) -> None:
        assert run(Published(), [0.0] * 20)[-1].spec.size == 15

    def test_grows_back_to_no_compression(self) -> None:
        decisions = run(Published(first_rate=3000.0), [100.0] * 20)
        assert decisions[-1].spec.kind is SketchKind.IDENTITY
        assert "larger sketch than the clamps allow" in decisions[-1].rationale.words

    def test_window_averages(self) -> None:
        controller = Published(window=2, step_factor=1e9)
        decisions = run(controller, [0.1, 0.3, 0.5])
        averages = [decision.rationale.numbers["norm_squared"] for decision in decisions[1:]]
        assert averages == pytest.approx([0.1, 0.2, 0.4])
        assert len(decisions[-1].state.memory) == 2

    def test_negative_estimates_are_averaged_before_the_clamp(self) -> None:
        controller = Published(window=2)
        first = controller.initial(DIMENSION)
        low = dataclasses.replace(release(first, 0.0), sketch_norm_squared=9.8)
        second = controller.step(first.state, low)
        assert second.rationale.numbers["estimate"] == pytest.approx(-0.2)
        assert second.rationale.numbers["norm_squared"] == 0.0
        third = controller.step(second.state, release(second, 0.6, number=1))
        assert third.rationale.numbers["norm_squared"] == pytest.approx(0.2)


class TestAdaptNorm:
    """What it decides; `test_controller_arrival` has how it gets there."""

    def test_starts_uncompressed_or_at_a_given_rate(self) -> None:
        assert AdaptNorm().initial(DIMENSION).spec.kind is SketchKind.IDENTITY
        assert AdaptNorm(first_rate=33.0).initial(DIMENSION).spec.size == 3030

    @pytest.mark.parametrize("first_rate", [None, 50.0])
    def test_fixed_point(self, first_rate: float | None) -> None:
        """L = |mu|^2 / (gamma sigma^2): 0.45 / (0.1 * 1e-4) = 45,000, a multiple of 15.

        From above it stays at the upper end of the interval if caution asks for one.
        """
        decisions = run(AdaptNorm(first_rate=first_rate, caution=0.0), [0.45] * 10)
        assert {decision.spec.size for decision in decisions[1:]} == {45_000}

    @given(st.floats(1e-3, 10.0), st.floats(1e-6, 1e-2), st.floats(0.05, 1.0))
    def test_fixed_point_for_any_norm(self, norm: float, noise: float, gamma: float) -> None:
        last = run(AdaptNorm(gamma=gamma, caution=0.0), [norm] * 3, noise)[-1]
        wanted = min(max(norm / (gamma * noise), 15.0), DIMENSION)
        assert wanted * (1.0 - 1e-8) <= last.spec.size <= wanted + 15

    def test_smallest_size_is_the_rows(self) -> None:
        assert run(AdaptNorm(caution=0.0), [0.0] * 20)[-1].spec.size == 15

    def test_grows_back_to_no_compression(self) -> None:
        decisions = run(AdaptNorm(first_rate=3000.0), [100.0])
        assert decisions[-1].spec.kind is SketchKind.IDENTITY
        assert "up to its likeliest size at once" in decisions[-1].rationale.words

    @pytest.mark.statistical
    @pytest.mark.parametrize("kind", [AdaptNorm, Published])
    def test_estimates_from_real_sketches_are_unbiased(
        self, kind: type[AdaptNorm | Published]
    ) -> None:
        """The whole way: sketch, noise, release, estimate."""
        dimension, variance = 400, 0.02
        mu = np.random.default_rng(5).normal(size=dimension) / 20
        spec = spec_for_size(dimension, 150)
        controller = kind(first_rate=dimension / spec.size)
        first = controller.initial(dimension)
        assert first.spec == spec
        estimates = [
            controller.step(first.state, released).rationale.numbers["estimate"]
            for released in releases_of(spec, mu, variance, 1000)
        ]
        assert_mean(np.array(estimates), float(mu @ mu))


class TestTwoStage:
    def test_warms_up_and_takes_one_size(self) -> None:
        """The mean of 0.1, 0.3 and 0.2 asks for 0.2 / (0.1 * 1e-4) = 20,000, in rows of 15."""
        controller = TwoStage(warmup=3, first_rate=1.0)
        decisions = run(controller, [0.1, 0.3, 0.2, 9.0, 0.0, 7.0])
        kinds = [decision.spec.kind for decision in decisions]
        assert kinds == 3 * [SketchKind.IDENTITY] + 4 * [SketchKind.COUNT_MEAN]
        assert {decision.spec.size for decision in decisions[3:]} == {15 * (20_001 // 15)}
        words = [decision.rationale.words for decision in decisions]
        assert words[:3] == ["The first rate is given.", *2 * ["Warm-up: the size stays."]]
        assert words[3:] == [
            "The norm over the warm-up fixes the size.",
            *3 * ["The size is fixed."],
        ]

    def test_the_warm_up_may_be_compressed(self) -> None:
        """It has the size of the first round throughout, and a short one measures as well."""
        prior = Prior(norm_squared=0.5, noise_variance=1e-4)
        controller = TwoStage(warmup=2)
        assert controller.initial(DIMENSION, prior).spec.size == 5_010
        given = run(TwoStage(warmup=2, first_rate=20.0), [0.2] * 4)
        assert [decision.spec.size for decision in given[:2]] == 2 * [15 * (5_000 // 15)]
        assert {decision.spec.size for decision in given[2:]} == {15 * (20_001 // 15)}

    def test_stays_uncompressed_if_the_norm_asks_for_it(self) -> None:
        decisions = run(TwoStage(warmup=1), [100.0, 0.0])
        assert {decision.spec.kind for decision in decisions} == {SketchKind.IDENTITY}

    def test_no_norm_gives_the_smallest_sketch(self) -> None:
        assert run(TwoStage(warmup=1), [0.0])[-1].spec.size == 15


def test_rationale_is_words_and_numbers() -> None:
    assert Rationale("Why.", {"size": 3.0}).numbers["size"] == 3.0
