"""The section [sketch] of a configuration: every controller by name, every mistake named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ConfigurationError
from protocol.planning.configuration import CONTROLLERS, Sketch, load, parse
from sketch.controllers import (
    AdaptBudget,
    AdaptNorm,
    AdaptNormTwoSketches,
    AdaptProgress,
    AdaptTail,
    Controller,
    FixedRate,
    Published,
    TwoStage,
)
from sketch.controllers.adapt_tail import TailUpdate

EXAMPLES: dict[str, Controller] = {
    "adapt_budget": AdaptBudget(horizon=50, memory=0.2, gamma_low=0.05, gamma_high=3.0),
    "adapt_norm": AdaptNorm(gamma=0.2, caution=2.0, first_rate=4.0),
    "adapt_norm_two_sketches": AdaptNormTwoSketches(gamma=0.2, probe_size=100, probe_share=0.2),
    "adapt_progress": AdaptProgress(
        kappa=0.05, gamma_low=0.2, gamma_high=4.0, window=9, caution=1.0, momentum=0.9
    ),
    "adapt_tail": AdaptTail(eta=0.5, update=TailUpdate.LINEAR, relative=True, rows=7),
    "fixed": FixedRate(30.0, rows=4),
    "published": Published(gamma=0.2, window=5, step_factor=3.0, first_rate=4.0),
    "two_stage": TwoStage(warmup=4, gamma=0.3, first_rate=2.0),
}


def written(name: str) -> dict[str, Any]:
    """The parameters of an example as a configuration writes them, if they are set."""
    values = dataclasses.asdict(EXAMPLES[name])  # type: ignore[call-overload]
    values = {key: getattr(value, "value", value) for key, value in values.items()}
    return {key: value for key, value in values.items() if value is not None}


def section(**values: object) -> Sketch:
    return parse(values, Sketch)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_parameters_reach_their_controller(name: str) -> None:
    assert section(controller=name, **written(name)).build(20) == EXAMPLES[name]


@pytest.mark.parametrize("name", CONTROLLERS)
def test_what_is_left_out_has_the_default_of_the_controller(name: str) -> None:
    needed: dict[str, dict[str, object]] = {"fixed": {"rate": 1.0}, "adapt_budget": {"horizon": 20}}
    expected = CONTROLLERS[name](**needed.get(name, {}))
    assert section(controller=name).build(20) == expected
    assert isinstance(expected, Controller)


def test_nothing_said_is_adapt_norm() -> None:
    assert section().build(20) == AdaptNorm()


def test_every_parameter_of_every_controller_can_be_configured() -> None:
    parameters = {f.name for kind in CONTROLLERS.values() for f in dataclasses.fields(kind)}
    assert parameters | {"controller"} == set(Sketch.model_fields)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_parameter_of_another_controller_is_refused_by_name(name: str) -> None:
    known = {field.name for field in dataclasses.fields(CONTROLLERS[name])}
    values = {key: value for other in EXAMPLES for key, value in written(other).items()}
    foreign = set(values) - known
    assert foreign
    for key in foreign:
        with pytest.raises(ConfigurationError, match=f"left out: {name} has") as caught:
            section(controller=name, **{key: values[key]})
        assert caught.value.key == key


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("adapt_norm", "gamma", 0.0),
        ("adapt_norm", "caution", -1.0),
        ("published", "window", 0),
        ("published", "step_factor", 1.0),
        ("published", "first_rate", 0.5),
        ("adapt_norm", "first_rate", 0.5),
        ("adapt_norm", "rows", 0),
        ("adapt_norm_two_sketches", "probe_size", 63),
        ("adapt_norm_two_sketches", "probe_size", 2049),
        ("adapt_norm_two_sketches", "probe_share", 1.0),
        ("adapt_progress", "kappa", 1.5),
        ("adapt_progress", "gamma_low", 0.0),
        ("adapt_progress", "gamma_high", -1.0),
        ("adapt_progress", "caution", -0.5),
        ("adapt_progress", "momentum", 1.0),
        ("adapt_tail", "eta", 0.0),
        ("adapt_tail", "update", "cubic"),
        ("adapt_tail", "relative", "yes"),
        ("fixed", "rate", 0.9),
        ("two_stage", "warmup", 0),
        ("magic", "controller", "magic"),
    ],
)
def test_values_out_of_range_are_named(name: str, key: str, value: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        section(**{"controller": name, key: value})
    assert caught.value.key == key
    assert str(value) in str(caught.value)


def test_values_that_do_not_fit_together_are_refused() -> None:
    mistaken = section(controller="adapt_progress", gamma_low=3.0)
    with pytest.raises(ConfigurationError, match=r"gamma_high must be finite and at least 3\.0"):
        mistaken.build(20)


def test_survives_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sketch.toml"
    path.write_text('controller = "adapt_tail"\nupdate = "power"\nfirst_rate = 8\n')
    expected = AdaptTail(update=TailUpdate.POWER, first_rate=8.0)
    assert load(path, Sketch).build(20) == expected
    again = parse(load(path, Sketch).model_dump(exclude_none=True), Sketch)
    assert again.build(20) == expected
