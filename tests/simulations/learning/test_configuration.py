"""Configuration: round trips, and every mistake named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ConfigurationError
from protocol.planning.configuration import build_plan, load, parse, read
from simulations.learning.configuration import RunConfig, demo_config, write_config
from simulations.learning.run.overrides import with_changes
from sketch.controllers import AdaptNorm, FixedRate


def changed(key: str, value: Any) -> dict[str, Any]:
    return with_changes(demo_config().model_dump(), [(key, value)])


def test_a_configuration_survives_its_file(tmp_path: Path) -> None:
    path = write_config(demo_config(), tmp_path / "config.toml")
    assert load(path, RunConfig) == demo_config()


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        (
            "privacy.epsilom",
            "clip_l2, delta, epsilon, error_share, moment_order, noise_multiplier, "
            "wrap_probability",
        ),
        (
            "colour",
            "attackers, clipping, cohort, denoise, engine, evaluation, faults, local, local_dp, "
            "noise, powersgd, privacy, robust, rounds, scheme, seed, server, sketch, task",
        ),
    ],
)
def test_unknown_keys_are_named_with_the_known_ones(key: str, valid: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown key") as caught:
        parse(changed(key, 1), RunConfig)
    assert (caught.value.key, caught.value.valid) == (key, valid)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("privacy.epsilon", 0.0),
        ("privacy.epsilon", "five"),
        ("privacy.delta", 1.0),
        ("cohort.size", 1),
        ("scheme.mode", "trusting"),
        ("sketch.controller", "magic"),
        ("faults.dropout", 1.0),
        ("rounds", 0),
        ("rounds", 2.5),
        ("task.hidden", -1),
    ],
)
def test_values_out_of_range_are_named(key: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(changed(key, value), RunConfig)
    assert caught.value.key == key
    assert str(value) in str(caught.value)


def test_a_missing_key_is_named() -> None:
    raw = demo_config().model_dump()
    del raw["privacy"]["delta"]
    with pytest.raises(ConfigurationError) as caught:
        parse(raw, RunConfig)
    assert caught.value.key == "privacy.delta"


SKELLAM, GAUSSIAN = (
    {"noise.mechanism": mechanism} for mechanism in ("skellam", "discrete-gaussian")
)


@pytest.mark.parametrize(
    ("valid", "more", "key", "said"),
    [
        (
            {"faults.dropout": 0.04, "cohort.size": 192},
            {"cohort.size": 193},
            "cohort.size",
            "at most 192",
        ),
        (
            {"faults.dropout": 0.125},
            {"faults.dropout": 0.15},
            "faults.dropout",
            "loses 10 of 64.*tolerated_dropouts = 8",
        ),
        ({}, {"cohort.tolerated_dropouts": 40}, "cohort.tolerated_dropouts", "value 40"),
        # Noise that no client adds.
        (SKELLAM, {"engine.aggregator": "central"}, "noise.mechanism", "central"),
        (SKELLAM, {"engine.aggregator": "plain"}, "noise.mechanism", "plain"),
        # What coins alone can do.
        ({"privacy.wrap_probability": 0.0}, GAUSSIAN, "privacy.wrap_probability", "wrap"),
        ({"noise.exact": True}, GAUSSIAN, "noise.exact", "exact"),
    ],
)
def test_what_does_not_go_together_is_named(
    valid: dict[str, Any], more: dict[str, Any], key: str, said: str
) -> None:
    def plan(*changes: dict[str, Any]) -> None:
        raw = with_changes(demo_config().model_dump(), [p for c in changes for p in c.items()])
        config = parse(raw, RunConfig)
        config.check()
        build_plan(config, config.participations)

    plan(valid)
    with pytest.raises(ConfigurationError, match=said) as caught:
        plan(valid, more)
    assert caught.value.key == key


def test_no_such_mechanism() -> None:
    with pytest.raises(ConfigurationError, match="'binomial', 'skellam' or 'discrete-gaussian'"):
        parse(changed("noise.mechanism", "laplace"), RunConfig)


@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_have_64_bits(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"seed = {sign}{(1 << 63) - 1}")
    assert read(path) == {"seed": int(f"{sign}{(1 << 63) - 1}")}
    path.write_text(f"seed = {sign}{1 << 63}")
    with pytest.raises(ConfigurationError, match="64 bits") as caught:
        read(path)
    assert caught.value.key == "seed"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"rounds = ", b"[[[]"])
def test_files_that_are_no_toml_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="TOML"):
        load(path, RunConfig)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        load(tmp_path / "nowhere.toml", RunConfig)


def test_sections_build_the_controllers_they_name() -> None:
    config = demo_config()
    assert isinstance(config.sketch.build(config.rounds), AdaptNorm)
    fixed = parse(changed("sketch", {"controller": "fixed", "rate": 3.0}), RunConfig)
    assert fixed.sketch.build(1) == FixedRate(3.0)


def test_participations_are_those_of_the_busiest_client() -> None:
    assert demo_config().participations == 8
    assert parse(changed("rounds", 25), RunConfig).participations == 9
