"""The campaign of autotuned sketches: its points and sums, and the command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ConfigurationError
from simulations.campaigns.federated import final_accuracy
from simulations.campaigns.wire import mean_bytes
from simulations.learning.configuration import RunConfig, write_config
from simulations.reproduce.autotune.campaign import (
    CAMPAIGN,
    PROTOCOLS,
    plot_curves,
    plot_sizes,
)
from simulations.reproduce.autotune.findings import harmonic
from simulations.reproduce.autotune.plan import (
    EMBEDDED,
    SHAKESPEARE,
    WRITERS,
    Plan,
    base_of,
    point_config,
)
from sketch.controllers import AdaptNorm, Published

PLAN = Plan(config=EMBEDDED, noise=(1.0,), rates=(4.0,), gammas=(0.2, 0.1), others=("two_stage",))


@pytest.fixture(scope="module")
def base() -> RunConfig:
    """A task that takes a second."""
    return base_of(PLAN)


def test_two_stage_does_not_compress_its_first_rounds() -> None:
    (arm,) = (each for each in PLAN.arms() if each.family == "two_stage")
    assert ("sketch.first_rate", 1.0) in arm.changes


def test_sizes_are_drawn_of_the_largest_and_smallest_gamma() -> None:
    """Below 1, where as much error as noise is asked for; a family of one has one line."""
    names = ["adapt_norm 1", "adapt_norm 0.2", "adapt_norm 0.1", "adapt_norm 0.05", "two_stage"]
    sizes = {name: [64, 32] for name in [*names, "adapt_budget 0.1"]}
    figure = plot_sizes({"dimension": 64, "results": [{"noise_multiplier": 1.0, "sizes": sizes}]})
    lines = {each.get_label(): each[0].get_linestyle() for each in figure.axes[0].containers}
    assert lines == {"adapt_norm 0.2": "-", "adapt_norm 0.05": ":", "adapt_budget 0.1": "-"}


def test_curves_are_drawn_of_the_arms_that_are_there() -> None:
    line = [{"round": 1.0, "accuracy": 0.5}, {"round": 2.0, "accuracy": 0.6}]
    names = ["genie 1", "genie 4", "two_stage", *(f"adapt_norm {g}" for g in (1, 0.2, 0.1, 0.05))]
    row = {"noise_multiplier": 1.0, "genie": 4.0, "curves": dict.fromkeys(names, line)}
    figure = plot_curves({"results": [row]})
    labels = [each.get_label() for each in figure.axes[0].containers]
    assert labels == ["genie 1", "genie 4", "adapt_norm 0.2", "adapt_norm 0.1"]
    row["curves"] = {"genie 1": line}
    assert len(plot_curves({"results": [row]}).axes[0].containers) == 1


def test_no_compression_is_always_there() -> None:
    assert Plan(rates=()).arms()[0].name == "genie 1"
    names = ["genie 1", "genie 4", "adapt_norm 0.2", "adapt_norm 0.1", "two_stage"]
    assert [arm.name for arm in PLAN.arms()] == names


def test_a_point_changes_sketch_noise_and_seed_only(base: RunConfig) -> None:
    for arm in PLAN.arms():
        config = point_config(PLAN, base, 0.7, arm, 3)
        assert (config.seed, config.privacy.noise_multiplier) == (3, 0.7)
        assert config.privacy.epsilon is None
        same = {"seed": base.seed, "sketch": base.sketch, "privacy": base.privacy}
        assert config.model_copy(update=same) == base
        config.sketch.build(config.rounds)
    assert point_config(replace(PLAN, rounds=2), base, 0.7, PLAN.arms()[0], 3).rounds == 2


def test_a_rate_of_the_server_for_each_noise(base: RunConfig) -> None:
    plan = replace(PLAN, noise=(0.5, 1.0), server_rates=(3.0, 0.25))
    rates = [
        point_config(plan, base, noise, plan.arms()[0], 1).server.learning_rate
        for noise in plan.noise
    ]
    assert rates == [3.0, 0.25]
    other = point_config(PLAN, base, 0.5, PLAN.arms()[0], 1)
    assert other.server.learning_rate == base.server.learning_rate
    with pytest.raises(ValueError, match="one for each noise, or none, got 1 for 2"):
        replace(plan, server_rates=(3.0,))


def test_the_published_rule_begins_at_its_own_rate(base: RunConfig) -> None:
    """The arms of one gamma differ in the rule, and in the first rate that only it needs."""
    plan = replace(PLAN, gammas=(0.1,), published=(0.1,), first_rate=5.0)
    arms = {arm.family: arm for arm in plan.arms() if arm.family != "genie"}
    built = {
        name: point_config(plan, base, 1.0, arm, 1).sketch.build(8) for name, arm in arms.items()
    }
    rows = base.sketch.build(8).rows  # type: ignore[attr-defined]
    assert built["published"] == Published(gamma=0.1, first_rate=5.0, rows=rows)
    assert built["adapt_norm"] == AdaptNorm(gamma=0.1, rows=rows)
    with pytest.raises(ValueError, match="published must be"):
        replace(PLAN, published=(0.0,))


@pytest.mark.slow
@pytest.mark.parametrize("plan", [WRITERS, SHAKESPEARE], ids=["writers", "shakespeare"])
def test_examples_that_presets_name_can_be_planned(plan: Plan) -> None:
    base = base_of(plan)
    for arm in plan.arms():
        for noise in plan.noise:
            config = point_config(plan, base, noise, arm, 1)
            assert config.rounds == plan.rounds
            config.sketch.build(config.rounds)
    for noise in plan.noise:
        config = point_config(plan, base, noise, plan.arms()[0], 1)
        # The real protocols, whose bytes are counted, can have as little noise as that.
        for protocol in PROTOCOLS:
            assert mean_bytes(config, protocol, 1_000_000, [3, 1_000_000]) > 0.0


@pytest.mark.parametrize(
    ("plan", "told"),
    [(replace(PLAN, others=("clever",)), r"sketch\.controller"), (Plan(), "config: no file")],
)
def test_what_cannot_run_is_refused_before_anything_runs(
    tmp_path: Path, plan: Plan, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        CAMPAIGN.run(CAMPAIGN.study(plan, tmp_path))
    assert not (tmp_path / "runs").exists()


def test_rates_are_averaged_by_what_is_sent() -> None:
    assert harmonic([1.0, 4.0]) == pytest.approx(1.6)


def test_only_the_last_tests_count() -> None:
    records = [{"round": n, "accuracy": float(n) if n % 2 else None} for n in range(1, 11)]
    assert final_accuracy(records) == 9.0


@pytest.mark.slow
def test_the_command_keeps_runs_and_goes_on(
    base: RunConfig,
    tmp_path: Path,
    reproduced: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write_config(base, tmp_path / "task.toml")
    changes = [f"config={path}", "noise=2", "rates=8", "gammas=0.1", "budgets=0.05", "rounds=2"]
    options = [word for change in changes for word in ("--set", change)]
    arguments = ["autotune", *options, "--seeds", 2, "--out", tmp_path / "out"]
    figures = reproduced(*arguments)
    arms = figures["results"][0]["arms"]
    assert set(arms) == {"genie 1", "genie 8", "adapt_norm 0.1", "adapt_budget 0.05"}
    assert figures["seeds"] == [1, 2] and len(arms["genie 1"]["accuracies"]) == 2
    row = figures["results"][0]
    assert set(row["sizes"]) == {"adapt_norm 0.1", "adapt_budget 0.05"}
    assert set(row["curves"]) == set(arms) and row["curves"]["genie 1"][-1]["round"] == 2
    # The real protocols send more than a sketch of so many rows, and no compression most.
    for protocol in PROTOCOLS:
        assert 0.0 < arms["genie 8"]["wire"][protocol] < arms["genie 1"]["wire"][protocol]
    assert "Adapt Budget, gamma 0.05" in (tmp_path / "out" / "autotune.md").read_text()
    for name in ("rates", "sizes", "curves"):
        plot = tmp_path / "out" / f"autotune-{name}.png"
        assert plot.read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "out" / "runs").glob("*/summary.json"))) == 8
    monkeypatch.setattr("simulations.learning.federated.Federation.round", None)
    assert reproduced(*arguments)["results"] == figures["results"]
