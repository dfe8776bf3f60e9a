"""The command line: figures as JSON, errors as one line, the demo from end to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from command_line import Refused, invoke, run_json
from small_runs import small_demo

from protocol.errors import ConfigurationError, PolicyError
from protocol.planning.configuration import load
from protocol.round.policy import ClientPolicy
from protocol.training import local
from simulations.commands import cli
from simulations.learning.configuration import RunConfig, demo_config, write_config
from veilsum.extras import install_command

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial" / "1-demo.md"


@pytest.mark.parametrize("bits", [16, 32, 61])
def test_bench_mask_prints_its_figures(bits: int) -> None:
    figures = run_json("bench", "mask", "--dim", "5000", "--neighbours", "3", "--bits", bits)
    assert {
        "elements_per_second",
        "keystream_bytes_per_second",
        "masked_bytes_per_second",
        "ratio_to_keystream",
    } <= set(figures)
    ratio = figures["masked_bytes_per_second"] / figures["keystream_bytes_per_second"]
    assert figures["ratio_to_keystream"] == pytest.approx(ratio)


def test_bench_round_is_of_the_pairwise_protocol_by_default_and_counts_bytes() -> None:
    figures = run_json("bench", "round", "--clients", "12", "--dim", "900", "--dropout", "0.2")
    assert figures["correct"] is True
    assert figures["degree"] == 11 and "round_trips" not in figures
    assert not [name for name in figures if "cpu" in name]
    assert figures["dropped"] == 2
    assert figures["floor_bytes_per_client"] == 2700
    assert figures["bytes_ratio"] == figures["bytes_per_client"] / 2700
    assert figures["bytes_per_client"] > 2700
    assert min(figures["server_seconds"], figures["client_seconds_median"]) > 0
    assert figures["peak_rss_bytes"] > 1 << 20


@pytest.mark.slow
def test_bytes_of_a_large_round_are_near_the_floor() -> None:
    """The figure of the README: bytes do not depend on the machine, so a test may hold them."""
    figures = run_json("bench", "round", "--clients", "100", "--dim", "100000", "--dropout", "0")
    assert figures["bytes_ratio"] <= 1.15


def test_people_get_a_table() -> None:
    result = invoke("bench", "mask", "--dim", "100", "--neighbours", "1")
    assert result.exit_code == 0
    assert "ratio_to_keystream" in result.stdout


def test_a_field_that_does_not_exist_is_one_line_and_status_2(refused: Refused) -> None:
    assert "bits = 63: must be an int in 8 .. 62" in refused("bench", "mask", "--bits", 63)


@pytest.mark.slow
def test_the_demo_from_end_to_end(tmp_path: Path) -> None:
    """Two rounds with a small cohort; the configuration it leaves behind repeats it."""
    raw = demo_config().model_dump()
    raw["rounds"] = 2
    raw["cohort"] |= {"size": 12, "tolerated_dropouts": 3, "tolerated_colluders": 1}
    raw["task"]["population"] = 24
    given = write_config(RunConfig.model_validate(raw), tmp_path / "given.toml")
    out = tmp_path / "report"
    summary = run_json("demo", "--config", str(given), "--out", str(out), "--seed", "5", "--quiet")
    assert {
        "rounds",
        "accuracy",
        "accuracy_baseline",
        "epsilons",
        "average_compression",
        "compression_second_half",
        "bytes_per_client",
        "bytes_baseline",
        "dropped",
        "seconds",
    } <= set(summary)
    assert summary["rounds"] == 2
    assert summary["dropped"] == 2
    epsilons = summary["epsilons"]
    assert 0 < epsilons["outsider"] < epsilons["server"] <= 8.0 < epsilons["sybil"]
    assert epsilons["secagg_alone"] == "inf"
    assert json.loads((out / "summary.json").read_text()) == summary
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2]
    assert all(line["rationale"] for line in lines)
    assert load(out / "config.toml", RunConfig).seed == 5
    assert summary["page"] == str(out / "report.html")
    page = (out / "report.html").read_text()
    assert "3 runs side by side" in page and page.count("<svg ") > 9
    assert "pairwise" in page and summary["other_scheme"] == "one-shot"
    assert summary["bytes_baseline"] > 0.0 < summary["other_bytes_per_client"]
    plain = [json.loads(line) for line in (out / "plain" / "rounds.jsonl").read_text().splitlines()]
    assert plain[-1]["accuracy"] == summary["accuracy_baseline"]
    first = (out / "ledger.jsonl").read_text()
    assert len(first.splitlines()) == 3
    left = {"config.toml", "environment.json", "rounds.jsonl"}
    assert {path.name for path in (out / "plain").iterdir()} == left
    left |= {"ledger.jsonl"}
    assert {path.name for path in (out / "one-shot").iterdir()} == left
    left |= {"plain", "one-shot", "summary.json", "report.html"}
    assert {path.name for path in out.iterdir()} == left
    told = TUTORIAL.read_text()
    assert all(name in told for name in left) and "That one has no ledger" in told

    run_json("demo", "--config", str(given), "--out", str(out), "--quiet")
    run_json("demo", "--config", str(given), "--out", str(out), "--quiet")
    kept = [(out / f"ledger.previous-{number}.jsonl").read_text() for number in (1, 2)]
    assert kept[0] == first
    assert len({*kept, (out / "ledger.jsonl").read_text()}) == 3


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("active", "may deviate at will"),
        pytest.param("semi_honest", "only looks", marks=pytest.mark.slow),
    ],
)
def test_the_demo_says_what_it_trusts_the_server_with(
    tmp_path: Path, mode: str, words: str
) -> None:
    config = small_demo(rounds=1, scheme__mode=mode)
    given = write_config(config, tmp_path / "given.toml")
    out = tmp_path / "report"
    result = invoke("demo", "--config", str(given), "--out", str(out))
    assert result.exit_code == 0, result.output
    first = result.stderr.splitlines()[0]
    assert f"mode {mode}" in first and words in first
    assert f"Report: {out}/report.html" in result.stderr


def test_the_demo_refuses_what_it_does_not_run(tmp_path: Path) -> None:
    config = small_demo(powersgd={"rank": 2})
    given = write_config(config, tmp_path / "given.toml")
    arguments = ["demo", "--config", str(given), "--out", str(tmp_path / "report")]
    result = invoke(*arguments)
    assert isinstance(result.exception, ConfigurationError)
    assert result.exception.key == "powersgd"
    assert not (tmp_path / "report").exists()


def test_clients_that_refuse_are_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    """A server that forgets the noise gets no round, and the reason is told."""
    strict = ClientPolicy(minimum_noise_multiplier=1e9)
    monkeypatch.setattr(local, "client_policy", lambda *_: strict)
    given = write_config(small_demo(rounds=1), tmp_path / "given.toml")
    error = refused("demo", "--config", given, "--out", tmp_path / "report", "--quiet")
    assert "TooFewSurvivorsError" in error and "noise_multiplier" in " ".join(error.split())


def test_a_refusal_by_policy_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    def refuse() -> NoReturn:
        raise PolicyError("coins", 0, "at least [some]")

    monkeypatch.setattr(cli, "app", refuse)
    assert "at least [some]" in refused()


def test_an_unknown_key_is_the_first_line_and_status_2(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "config.toml").write_text("colour = 1\n")
    error = refused("demo", "--config", tmp_path / "config.toml")
    assert "problems:\ncolour: unknown key" in error


def test_a_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "simulations.commands.cli", raising=False)
    monkeypatch.delattr("simulations.commands.cli", raising=False)
    error = refused()
    assert "needs typer" in error and install_command("cli") in error
    assert error.count("\n") == 1
