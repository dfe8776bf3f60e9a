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

from sketch import PublicSeed, SketchKind, spec_for_size
from sketch.controllers import (
    AdaptNorm,
    Controller,
    ControllerState,
    Decision,
    FixedRate,
    Rationale,
    ReleasedStats,
)

DIMENSION = 100_000
CONTROLLERS: list[Any] = [AdaptNorm(), AdaptNorm(first_size=3000, window=1), FixedRate(50.0)]


def release(
    decision: Decision, norm_squared: float, noise_variance: float = 1e-4, number: int = 0
) -> ReleasedStats:
    """What a round with this decision releases if its estimate hits `norm_squared` exactly."""
    size = decision.spec.size
    return ReleasedStats(
        round_number=number,
        dimension=decision.spec.dimension,
        size=size,
        sketch_norm_squared=norm_squared + size * noise_variance,
        noise_variance=noise_variance,
        survivors=10,
    )


def run(controller: Controller, norms: list[float], noise: float = 1e-4) -> list[Decision]:
    """All decisions over rounds whose estimates are given."""
    decisions = [controller.initial(DIMENSION)]
    for number, norm_squared in enumerate(norms):
        stats = release(decisions[-1], norm_squared, noise, number)
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
    }

    def test_holds_scalars_only(self) -> None:
        """Nothing per client and no vector fits in."""
        hints = get_type_hints(ReleasedStats)
        assert {f.name for f in dataclasses.fields(ReleasedStats)} == set(self.GOOD)
        assert set(hints.values()) == {int, float}

    def test_nothing_without_noise(self) -> None:
        with pytest.raises(ValueError, match="noise_variance must be finite and above 0"):
            ReleasedStats(**self.GOOD | {"noise_variance": 0.0})

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

    def test_from_mean_sketch(self) -> None:
        stats = ReleasedStats.from_mean_sketch(
            np.array([3.0, -4.0]), round_number=1, dimension=9, noise_variance=0.5, survivors=2
        )
        assert (stats.size, stats.sketch_norm_squared) == (2, 25.0)
        with pytest.raises(ValueError, match="sketch_norm_squared must be finite"):
            ReleasedStats.from_mean_sketch(
                np.array([np.nan]), round_number=1, dimension=9, noise_variance=0.5, survivors=2
            )


@pytest.mark.parametrize("controller", CONTROLLERS, ids=repr)
class TestEveryController:
    def test_satisfies_the_protocol(self, controller: Controller) -> None:
        assert isinstance(controller, Controller)

    def test_signature_admits_released_values_only(self, controller: Controller) -> None:
        hints = get_type_hints(type(controller).step)
        assert hints == {
            "state": ControllerState,
            "released": ReleasedStats,
            "return": Decision,
        }
        assert get_type_hints(type(controller).initial) == {"dimension": int, "return": Decision}

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

    def test_is_frozen(self, controller: Controller) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            controller.rows = 3  # type: ignore[attr-defined]

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
            assert decision.state.size == decision.spec.size
            assert decision.state.dimension == decision.spec.dimension == DIMENSION
            assert decision.rationale.words.endswith(".")
            assert all(math.isfinite(value) for value in decision.rationale.numbers.values())
            assert decision.rationale.numbers["size"] == decision.spec.size


class TestFixedRate:
    def test_size_never_moves(self) -> None:
        sizes = {decision.spec.size for decision in run(FixedRate(50.0), [1.0, 100.0, 0.0])}
        assert sizes == {15 * (2000 // 15)}

    def test_rate_one_is_no_compression(self) -> None:
        assert FixedRate(1.0).initial(77).spec.kind is SketchKind.IDENTITY

    def test_rate_below_one(self) -> None:
        with pytest.raises(ValueError, match=r"rate must be finite and at least 1"):
            FixedRate(0.5)


class TestAdaptNorm:
    def test_starts_uncompressed_or_from_a_prior(self) -> None:
        assert AdaptNorm().initial(DIMENSION).spec.kind is SketchKind.IDENTITY
        assert AdaptNorm(first_size=3000).initial(DIMENSION).spec.size == 3000

    def test_fixed_point(self) -> None:
        """L = |mu|^2 / (gamma sigma^2): 0.45 / (0.1 * 1e-4) = 45,000, a multiple of 15."""
        last = run(AdaptNorm(), [0.45] * 10)[-1]
        assert last.spec.size == 45_000
        assert last.rationale.words == "The estimated norm asks for this size."

    @given(st.floats(1e-3, 10.0), st.floats(1e-6, 1e-2), st.floats(0.05, 1.0))
    def test_fixed_point_for_any_norm(self, norm: float, noise: float, gamma: float) -> None:
        last = run(AdaptNorm(gamma=gamma, step_factor=1e9), [norm] * 3, noise)[-1]
        wanted = min(max(norm / (gamma * noise), 15.0), DIMENSION)
        assert wanted - 15 <= last.spec.size <= wanted + 1

    @given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8))
    def test_step_clamp(self, norms: list[float]) -> None:
        sizes = [decision.spec.size for decision in run(AdaptNorm(step_factor=2.0), norms)]
        for before, after in itertools.pairwise(sizes):
            assert after <= 2 * before
            assert after > before / 2 - 15
            assert 15 <= after <= DIMENSION

    def test_shrinks_by_the_factor(self) -> None:
        sizes = [decision.spec.size for decision in run(AdaptNorm(), [0.0] * 3)]
        assert sizes == [100_000, 49_995, 24_990, 12_495]

    def test_smallest_size_is_the_rows(self) -> None:
        assert run(AdaptNorm(), [0.0] * 20)[-1].spec.size == 15

    def test_grows_back_to_no_compression(self) -> None:
        decisions = run(AdaptNorm(first_size=30), [100.0] * 20)
        assert decisions[-1].spec.kind is SketchKind.IDENTITY
        assert "larger sketch than the clamps allow" in decisions[-1].rationale.words

    def test_window_averages(self) -> None:
        controller = AdaptNorm(window=2, step_factor=1e9)
        decisions = run(controller, [0.1, 0.3, 0.5])
        averages = [decision.rationale.numbers["norm_squared"] for decision in decisions[1:]]
        assert averages == pytest.approx([0.1, 0.2, 0.4])
        assert len(decisions[-1].state.memory) == 2

    def test_negative_estimates_are_averaged_before_the_clamp(self) -> None:
        controller = AdaptNorm(window=2)
        first = controller.initial(DIMENSION)
        low = dataclasses.replace(release(first, 0.0), sketch_norm_squared=9.8)
        second = controller.step(first.state, low)
        assert second.rationale.numbers["estimate"] == pytest.approx(-0.2)
        assert second.rationale.numbers["norm_squared"] == 0.0
        third = controller.step(second.state, release(second, 0.6, number=1))
        assert third.rationale.numbers["norm_squared"] == pytest.approx(0.2)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("gamma", 0.0),
            ("gamma", -1.0),
            ("window", 0),
            ("step_factor", 1.0),
            ("first_size", 0),
            ("rows", 0),
        ],
    )
    def test_ranges(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=f"{name} must be"):
            AdaptNorm(**{name: value})

    @pytest.mark.statistical
    def test_estimates_from_real_sketches_are_unbiased(
        self, seeds: Callable[[int], PublicSeed], mean_check: Callable[..., None]
    ) -> None:
        """The whole way: sketch, noise, release, estimate."""
        dimension, variance = 400, 0.02
        mu = np.random.default_rng(5).normal(size=dimension) / 20
        spec = spec_for_size(dimension, 150)
        controller = AdaptNorm(first_size=spec.size, window=1)
        first = controller.initial(dimension)
        rng = np.random.default_rng(6)
        estimates = []
        for i in range(1000):
            noise = math.sqrt(variance) * rng.normal(size=spec.size)
            released = ReleasedStats.from_mean_sketch(
                spec.build(seeds(i)).encode(mu) + noise,
                round_number=0,
                dimension=dimension,
                noise_variance=variance,
                survivors=5,
            )
            numbers = controller.step(first.state, released).rationale.numbers
            estimates.append(numbers["estimate"])
        mean_check(np.array(estimates), float(mu @ mu))


def test_rationale_is_words_and_numbers() -> None:
    assert Rationale("Why.", {"size": 3.0}).numbers["size"] == 3.0
