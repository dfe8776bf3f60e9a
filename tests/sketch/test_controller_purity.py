"""Nothing un-noised reaches a controller: by types, by construction, and by experiment."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import sketch.controllers
from sketch import Probe, PublicSeed, spec_for_size
from sketch.controllers import (
    AdaptBudget,
    AdaptNorm,
    AdaptNormTwoSketches,
    AdaptProgress,
    AdaptTail,
    Controller,
    ControllerState,
    Decision,
    FixedRate,
    Prior,
    Published,
    Rationale,
    ReleasedProbe,
    ReleasedStats,
    TwoStage,
)
from sketch.controllers.release import released_stats

ROOT = Path(__file__).parents[2]
MAKER = Path("sketch/controllers/release.py")
CONTROLLERS: list[Controller] = [
    AdaptBudget(horizon=10, first_rate=4.0),
    AdaptNorm(first_rate=4.0),
    AdaptNormTwoSketches(first_rate=4.0, probe_size=64),
    AdaptProgress(first_rate=4.0),
    AdaptTail(first_rate=4.0, probe_size=64),
    FixedRate(4.0),
    Published(first_rate=4.0),
    TwoStage(warmup=1),
]


def makers(source: str) -> list[int]:
    """Lines that name `ReleasedStats` or `ReleasedProbe` in any way that could make one.

    Allowed are imports under their own names, annotations, and `isinstance`. All else counts: a
    call, an alias, `getattr` by string.
    """
    tree = ast.parse(source)
    harmless = set()
    for node in ast.walk(tree):
        for part in _harmless(node):
            harmless |= {id(inner) for inner in ast.walk(part)}
    names = {"ReleasedStats", "ReleasedProbe"}
    return sorted(
        {
            node.lineno
            for node in ast.walk(tree)
            if id(node) not in harmless
            and (
                (isinstance(node, ast.Name) and node.id in names)
                or (isinstance(node, ast.Attribute) and node.attr in names)
                or (isinstance(node, ast.alias) and node.name in names and node.asname)
                or (isinstance(node, ast.Constant) and node.value in names)
            )
        }
    )


def _harmless(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    elif isinstance(node, ast.FunctionDef) and node.returns is not None:
        yield node.returns
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            yield from node.args[1:]
    elif isinstance(node, ast.Assign):
        targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if targets == ["__all__"]:
            yield node.value


def product_modules() -> list[Path]:
    packages = ("secagg", "dp", "sketch", "protocol", "simulations")
    return [
        path.relative_to(ROOT) for name in packages for path in sorted((ROOT / name).rglob("*.py"))
    ]


class TestByTypes:
    @pytest.mark.parametrize("controller", CONTROLLERS, ids=repr)
    def test_step_takes_state_and_release_only(self, controller: Controller) -> None:
        step = type(controller).step
        assert list(inspect.signature(step).parameters) == ["self", "state", "released"]
        assert get_type_hints(step) == {
            "state": ControllerState,
            "released": ReleasedStats,
            "return": Decision,
        }
        initial = get_type_hints(type(controller).initial)
        assert initial == {"dimension": int, "prior": Prior | None, "return": Decision}

    def test_all_controllers_are_tested_here(self) -> None:
        found = {
            value
            for value in vars(sketch.controllers).values()
            if inspect.isclass(value) and hasattr(value, "step") and value is not Controller
        }
        assert found == {type(controller) for controller in CONTROLLERS}

    def test_what_comes_in_and_what_is_kept_are_scalars(self) -> None:
        scalars = {int, float, float | None}
        assert set(get_type_hints(Prior).values()) == {float}
        assert set(get_type_hints(ReleasedProbe).values()) <= scalars
        assert set(get_type_hints(ReleasedStats).values()) <= scalars | {ReleasedProbe | None}
        assert set(get_type_hints(ControllerState).values()) == {int, tuple[float, ...]}

    @pytest.mark.parametrize("controller", CONTROLLERS, ids=repr)
    def test_no_place_to_hide_a_memory(self, controller: Controller) -> None:
        """Frozen, and with slots for parameters only: a step can keep nothing in the controller."""
        cls: Any = type(controller)
        assert cls.__dataclass_params__.frozen
        assert set(cls.__slots__) == {field.name for field in dataclasses.fields(cls)}
        assert not hasattr(controller, "__dict__")

    def test_states_and_decisions_are_frozen(self) -> None:
        for cls in (Prior, ReleasedStats, ReleasedProbe, ControllerState, Decision, Rationale):
            assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


class TestByConstruction:
    def test_one_maker_in_the_product(self) -> None:
        assert [path for path in product_modules() if makers((ROOT / path).read_text())] == [MAKER]

    @pytest.mark.parametrize(
        "source",
        [
            "ReleasedStats(round_number=0)",
            "from sketch.controllers import ReleasedStats as Stats",
            "import sketch.controllers as c\nc.ReleasedProbe(size=3)",
            "make = ReleasedStats",
            "object.__new__(ReleasedStats)",
            "getattr(base, 'ReleasedStats')",
        ],
    )
    def test_the_reader_catches_what_it_should(self, source: str) -> None:
        assert makers(source)

    @pytest.mark.parametrize(
        "source",
        [
            "from sketch.controllers import ReleasedStats",
            "def step(released: ReleasedStats) -> ReleasedStats: ...",
            "def step(released: ReleasedProbe | None) -> None: ...",
            "isinstance(value, ReleasedStats)",
            "__all__ = ['ReleasedStats']",
        ],
    )
    def test_the_reader_lets_pass_what_makes_none(self, source: str) -> None:
        assert makers(source) == []

    def test_the_maker_takes_the_release_and_public_values_only(self) -> None:
        """It is given the noisy mean, what that was decoded to, and numbers.

        It refuses to call anything a release that has no noise.
        """
        assert list(inspect.signature(released_stats).parameters) == [
            "spec",
            "seed",
            "mean_sent",
            "update",
            "previous",
            "round_number",
            "noise_variance",
            "survivors",
        ]
        with pytest.raises(ValueError, match="noise_variance"):
            released_stats(
                spec_for_size(9, 9),
                PublicSeed(bytes(32)),
                np.ones(9),
                np.ones(9),
                previous=None,
                round_number=0,
                noise_variance=0.0,
                survivors=5,
            )


class TestByExperiment:
    """What nobody released may change at will: decisions follow the release."""

    DIMENSION = 600

    def release(
        self, decision: Decision, secret: Any, hidden_noise: Any, previous: Any, number: int
    ) -> tuple[ReleasedStats, Any]:
        spec, seed = decision.spec, PublicSeed(bytes([number]) * 32)
        sent = secret + hidden_noise
        update = spec.build(seed).decode(sent)
        stats = released_stats(
            spec,
            seed,
            sent,
            update,
            previous=previous,
            round_number=number,
            noise_variance=1e-3,
            survivors=10,
        )
        return stats, update

    def play(self, controller: Controller, hidden: int, released: int) -> list[Decision]:
        """Decisions where the secret means come from one seed and the released sums from another.

        The noise is what is left: it makes each secret into the sum that was released.
        """
        secrets, sums = np.random.default_rng(hidden), np.random.default_rng(released)
        decisions, previous = [controller.initial(self.DIMENSION)], None
        for number in range(5):
            size = decisions[-1].spec.size
            # Small integers, so that the secret and its noise add up to the very same floats.
            secret = secrets.integers(-8, 9, size).astype(float)
            noise = sums.integers(-8, 9, size) / 8.0 - secret
            stats, previous = self.release(decisions[-1], secret, noise, previous, number)
            decisions.append(controller.step(decisions[-1].state, stats))
        return decisions

    @pytest.mark.parametrize("controller", CONTROLLERS, ids=repr)
    def test_hidden_values_change_nothing(self, controller: Controller) -> None:
        """Other clients, the same release: the same decisions to the last number."""
        decisions = self.play(controller, hidden=1, released=7)
        assert decisions == self.play(controller, hidden=2, released=7)

    @pytest.mark.parametrize("controller", CONTROLLERS, ids=repr)
    def test_released_values_do(self, controller: Controller) -> None:
        """The control: with another release some number differs, except where the rate is fixed."""
        same = self.play(controller, hidden=1, released=7) == self.play(controller, 1, 8)
        assert same == isinstance(controller, FixedRate)

    def test_a_leaky_controller_would_be_seen(self) -> None:
        """The broken twin looks at a secret: the experiment tells it from the others."""
        seen: list[float] = []

        class Leaky:
            def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
                return FixedRate(4.0).initial(dimension, prior)

            def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
                decision = FixedRate(4.0).step(state, released)
                return dataclasses.replace(decision, rationale=Rationale("Leak.", {"x": seen[-1]}))

        original = self.release

        def spying(decision: Decision, secret: Any, *rest: Any) -> tuple[ReleasedStats, Any]:
            seen.append(float(secret.sum()))
            return original(decision, secret, *rest)

        self.release = spying  # type: ignore[method-assign]
        assert self.play(Leaky(), 1, 7) != self.play(Leaky(), 2, 7)

    def test_the_probe_is_a_release_too(self) -> None:
        """Both sketches come out of one noisy vector: there is no way in for the second alone."""
        spec = spec_for_size(self.DIMENSION, 60, probe=Probe(64))
        main, second = spec.split(np.arange(float(spec.size)))
        assert second is not None
        assert len(main) + len(second) == spec.size
