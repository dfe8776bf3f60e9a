"""The campaign of autotuned sketches: its points and sums, and that it goes on after a stop."""

from __future__ import annotations

import pytest

from protocol.errors import ConfigurationError
from simulations.learning.configuration import RunConfig, demo_config, write_config
from simulations.learning.federated import load_data
from simulations.learning.run.overrides import changed
from simulations.reproduce.autotune import campaign as autotune
from simulations.reproduce.autotune.campaign import Cell, Plan, harmonic, point_config
from simulations.reproduce.autotune.report import rows_of

PLAN = Plan(noise=(1.0,), rates=(4.0,), gammas=(0.2, 0.1), others=("two_stage",), seeds=(1, 2))


@pytest.fixture(scope="module")
def base() -> RunConfig:
    changes = [("rounds", 3), ("engine.aggregator", "central"), ("cohort.size", 16)]
    return changed(demo_config(), [*changes, ("engine.test_examples", 60)])


def figures_of(accuracies: dict[str, list[float]], rates: dict[str, float], noise: float = 1.0):
    """Figures of made-up runs."""
    cells = {
        (noise, name): Cell(values, [rates[name]] * len(values), [rates[name]] * len(values), 1.0)
        for name, values in accuracies.items()
    }
    return autotune.summarise(demo_config(), PLAN, cells)


MADE_UP = {"genie 1": 1.0, "genie 4": 4.0, "adapt_norm 0.2": 20.0, "adapt_norm 0.1": 10.0}
MADE_UP["two_stage"] = 2.0


class TestPoints:
    def test_every_combination_comes_once(self):
        points = list(PLAN.points())
        names = {arm.name for _, arm, _ in points}
        assert names == set(MADE_UP)
        assert len(points) == len({(noise, arm.name, seed) for noise, arm, seed in points}) == 10

    def test_no_compression_is_always_there(self):
        assert Plan(rates=()).arms()[0].name == "genie 1"

    def test_a_point_changes_sketch_noise_and_seed_only(self, base):
        for noise, arm, seed in PLAN.points():
            config = point_config(base, PLAN, noise, arm, seed)
            assert (config.seed, config.privacy.noise_multiplier) == (seed, noise)
            assert config.privacy.epsilon is None
            same = {"seed": base.seed, "sketch": base.sketch, "privacy": base.privacy}
            assert config.model_copy(update=same) == base
            config.sketch.build(config.rounds)

    def test_an_unknown_controller_is_refused_before_anything_runs(self, base, tmp_path):
        plan = Plan(others=("clever",))
        with pytest.raises(ConfigurationError, match=r"sketch\.controller"):
            autotune.reproduce(base, plan, load_data(base), tmp_path)
        assert not list(tmp_path.iterdir())


class TestSums:
    def test_the_genie_takes_the_largest_rate_within_the_slack(self):
        rates = MADE_UP
        for lost, choice in ((0.009, 4.0), (0.011, 1.0)):
            accuracies = {name: [0.9] for name in rates} | {"genie 4": [0.9 - lost]}
            assert figures_of(accuracies, rates)["results"][0]["genie"] == choice

    def test_the_law_of_gamma(self):
        accuracies = {name: [0.9] for name in MADE_UP}
        assert figures_of(accuracies, MADE_UP)["results"][0]["gamma_slope"] == pytest.approx(1.0)
        flat = MADE_UP | {"adapt_norm 0.2": 1.0}
        assert figures_of(accuracies, flat)["results"][0]["gamma_slope"] is None

    def test_rates_are_averaged_by_what_is_sent(self):
        assert harmonic([1.0, 4.0]) == pytest.approx(1.6)
        records = [{"dimension": 100, "sketch_size": size} for size in (100, 25)]
        assert autotune.average_rate(records) == pytest.approx(1.6)

    def test_only_the_last_tests_count(self):
        records = [{"round": n, "accuracy": float(n) if n % 2 else None} for n in range(1, 11)]
        assert autotune.final_accuracy(records) == 9.0


def test_a_campaign_goes_on_where_it_stopped(base, tmp_path, monkeypatch):
    data, told = load_data(base), []
    first = autotune.reproduce(base, PLAN, data, tmp_path, told.append)
    assert len(told) == 10
    accuracies = first["results"][0]["arms"]["genie 4"]["accuracies"]
    assert len(accuracies) == 2
    monkeypatch.setattr("simulations.learning.federated.Federation.round", None)
    assert autotune.reproduce(base, PLAN, data, tmp_path) == first


def test_the_command_writes_figures_table_and_plot(base, tmp_path, reproduced):
    path = write_config(base, tmp_path / "task.toml")
    arguments = ["autotune", path, "--noise", "2", "--rate", "8", "--gamma", "0.1"]
    arguments += ["--budget-gamma", "0.05", "--rounds", "2", "--out", tmp_path / "out"]
    figures = reproduced(*arguments)
    assert set(figures["results"][0]["arms"]) == {
        "genie 1",
        "genie 8",
        "adapt_norm 0.1",
        "adapt_budget 0.05",
    }
    table = (tmp_path / "out" / "autotune-table.md").read_text()
    assert "adapt_budget 0.05" in table
    assert (tmp_path / "out" / "autotune.png").read_bytes().startswith(b"\x89PNG")
    assert {len(row) for row in rows_of(figures)} == {2}
