"""`veilsum audit`: exit status, the one JSON object, going on after a stop, unknown ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import pytest
from audit_units import attack, rated, unit, unit_of
from command_line import Refused
from typer.testing import CliRunner, Result

from simulations.audits.base import Check
from simulations.commands import cli
from simulations.reports.audit import Unit
from simulations.reports.audit import runner as units_runner
from simulations.reports.audit import units as suite
from simulations.reports.audit.units import FLOWER
from simulations.threats.attack import Effort

runner = CliRunner()
SuiteOf: TypeAlias = Callable[..., list[tuple[Effort, int]]]
"""Replaces what an audit runs; returns what it was asked for."""


@pytest.fixture
def suite_of(monkeypatch: pytest.MonkeyPatch) -> SuiteOf:
    def replace(*units: Unit) -> list[tuple[Effort, int]]:
        asked = []

        def all_units(effort: Effort, seed: int) -> list[Unit]:
            asked.append((effort, seed))
            return list(units)

        monkeypatch.setattr(suite, "all_units", all_units)
        return asked

    return replace


def audit(*arguments: str) -> Result:
    return runner.invoke(cli.app, ["audit", *arguments])


def audit_json(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = audit(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


def explode() -> NoReturn:
    raise ZeroDivisionError("by <nobody>")


def test_promises_that_hold_are_status_0(suite_of: SuiteOf) -> None:
    asked = suite_of(unit(attack("A1")), unit(rated("A10")))
    status, found = audit_json("--seed", "5")
    assert status == 0
    assert found["passed"] is True
    assert asked == [(Effort.QUICK, 5)]
    assert (found["seed"], found["effort"], found["errors"]) == (5, "quick", {})


def test_json_has_the_checks_and_what_was_tried(suite_of: SuiteOf) -> None:
    span = Check.of(
        "span 3 active", "one sum", {"schedules": 7, "rejected": False}, {"rejected": True}
    )
    worlds = Check.of(
        "privacy-two-worlds-coins",
        "epsilon",
        {"runs_in_each_world": 50, "epsilon_ceiling": float("inf"), "rejected": False},
        {"runs_in_each_world": 50, "rejected": True},
    )
    parts = attack("A24", sum_trials=5)
    suite_of(unit(rated("A10")), unit(parts), unit(span), unit(worlds))
    _, found = audit_json()
    assert [set(c) for c in found["checks"]] == [
        {"id", "title", "with_defence", "without_defence", "held"}
    ] * 4
    assert [c["id"] for c in found["checks"]] == ["A10", "A24", span.id, worlds.id]
    assert found["checks"][3]["with_defence"]["epsilon_ceiling"] == "inf"
    assert found["counts"] == {
        "schedules": 7,
        "samples": 0,
        "canaries": 0,
        "trials": 85,
        "runs": 200,
    }
    assert found["versions"]["python"].startswith("3.")
    assert found["machine"]["cores"] >= 1
    assert len(found["source"]) == 16
    assert found["seconds"] >= 0.0
    assert set(found["seconds_each"]) == {"A10", "A24", span.id, worlds.id}


def test_a_promise_that_does_not_hold_is_status_1(suite_of: SuiteOf) -> None:
    suite_of(unit(attack("A1")), unit(attack("A2", held=False)), unit(attack("A3")))
    status, found = audit_json()
    assert (status, found["passed"]) == (1, False)
    assert [c["held"] for c in found["checks"]] == [True, False, True]
    assert audit().exit_code == 1


def test_an_untyped_error_counts_as_failed_and_the_others_run(suite_of: SuiteOf) -> None:
    suite_of(unit_of("A1", explode), unit(attack("A2")))
    status, found = audit_json()
    assert status == 1
    assert [c["held"] for c in found["checks"]] == [False, True]
    error = found["errors"]["A1"]
    assert error.startswith("ZeroDivisionError: by <nobody> (test_command.py, line ")
    assert found["checks"][0]["with_defence"] == {"error": error}


def test_figures_that_are_no_plain_values_are_an_error_of_that_check(suite_of: SuiteOf) -> None:
    suite_of(unit(attack("A1", strange={1, 2})), unit(attack("A2")))
    status, found = audit_json()
    assert status == 1
    assert found["errors"]["A1"].startswith("TypeError")
    assert found["checks"][1]["held"]


def test_only_what_was_asked_for_runs(suite_of: SuiteOf) -> None:
    calls = []
    suite_of(*(unit(attack(f"A{i}"), calls) for i in range(1, 5)), unit(attack("span 3 active")))
    _, found = audit_json("--only", "a3,A1", "--only", "span 3 active")
    assert calls == ["A1", "A3"]
    assert [c["id"] for c in found["checks"]] == ["A1", "A3", "span 3 active"]


def test_an_audit_of_a_part_says_so(suite_of: SuiteOf) -> None:
    suite_of(unit(attack("A1")), unit(attack("A2")))
    assert audit_json("--only", "A1")[1]["notes"] == [
        "Only part of the audit: 1 parts were left out."
    ]
    assert audit_json()[1]["notes"] == []


def test_an_unknown_id_is_one_clear_line(suite_of: SuiteOf, refused: Refused) -> None:
    calls = []
    suite_of(unit(attack("A1"), calls), unit(attack("A2"), calls))
    text = " ".join(refused("audit", "--only", "A1", "--only", "A99").split())
    assert "only: there is no check 'a99'; valid: A1, A2" in text
    assert calls == []


def test_nothing_tried_is_not_passed(suite_of: SuiteOf) -> None:
    suite_of(unit_of(FLOWER, list))
    status, found = audit_json("--only", FLOWER)
    assert (status, found["passed"], found["checks"]) == (1, False, [])
    assert "Flower is not installed" in found["notes"][0]


def test_without_flower_the_others_count_and_it_is_said(suite_of: SuiteOf, tmp_path: Path) -> None:
    suite_of(unit(attack("A1")), unit_of(FLOWER, list))
    result = audit("--out", str(tmp_path))
    assert result.exit_code == 0
    assert "Flower is not installed" in result.stdout
    assert "Flower is not installed" in (tmp_path / "index.html").read_text()


def test_a_table_for_people(suite_of: SuiteOf) -> None:
    suite_of(unit(attack("A1")), unit(attack("A2", held=False)), unit(rated("A10")))
    result = audit()
    text = " ".join(result.stdout.split())
    assert "quick audit, seed 1: 1 of 3 checks do not hold" in text
    for part in ("with the defence", "without it", "NO", "refused:", "40 of 40"):
        assert part in text
    assert "1 of 3 A1 held" in " ".join(result.stderr.split())
    assert "2 of 3 A2 NOT HELD" in " ".join(result.stderr.split())


def test_a_check_is_a_paragraph_where_the_terminal_is_narrow(
    suite_of: SuiteOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite_of(unit(attack("A2", held=False)))
    monkeypatch.setenv("COLUMNS", "80")
    narrow = [line.rstrip() for line in audit().stdout.splitlines()]
    assert max(map(len, narrow)) <= 80
    assert any(line.endswith("id: A2") for line in narrow)
    assert any("with the defence: " in line for line in narrow)
    assert any("without it: " in line for line in narrow)
    monkeypatch.setenv("COLUMNS", "200")
    (row,) = [line for line in audit().stdout.splitlines() if " A2 " in line]
    assert "NO" in row


def test_quiet_prints_nothing(suite_of: SuiteOf) -> None:
    suite_of(unit(attack("A1")))
    result = audit("--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_standard_output_is_for_the_result_alone(suite_of: SuiteOf) -> None:
    def chatty() -> list[Check]:
        print("chatter of an attack")
        return [attack("A1")]

    suite_of(unit_of("A1", chatty))
    result = audit("--json")
    assert json.loads(result.stdout)["passed"]
    assert "chatter" in result.stderr


# -- going on ---------------------------------------------------------------------------------


def test_a_stopped_audit_goes_on(suite_of: SuiteOf, tmp_path: Path) -> None:
    calls = []
    first, last = unit(rated("A10"), calls), unit(attack("A3"), calls)

    def stop() -> NoReturn:
        raise KeyboardInterrupt

    suite_of(first, unit_of("A2", stop, calls), last)
    assert audit("--out", str(tmp_path)).exit_code != 0
    assert calls == ["A10", "A2"]
    assert not (tmp_path / "index.html").exists()

    suite_of(first, unit(attack("A2"), calls), last)
    result = audit("--out", str(tmp_path), "--json")
    found = json.loads(result.stdout)
    assert calls == ["A10", "A2", "A2", "A3"]
    assert found["passed"]
    assert found["taken_up"] == ["A10"]
    assert found["checks"][0] == rated("A10").as_json()
    assert "1 of 3 parts are already finished" in " ".join(result.stderr.split())
    assert "1 of 3 parts from an earlier run" in (tmp_path / "index.html").read_text()
    # Its pictures are kept, too.
    assert 'alt="A grey square."' in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("other", [("--seed", "2"), ("--full",)])
def test_another_audit_starts_anew_and_spoils_nothing(
    suite_of: SuiteOf, tmp_path: Path, other: tuple[str, ...]
) -> None:
    calls = []
    suite_of(unit(attack("A1"), calls))
    folder = ("--out", str(tmp_path))
    for arguments, count in (((), 1), (other, 2), ((), 2), (other, 2)):
        assert audit(*folder, *arguments).exit_code == 0
        assert len(calls) == count


def test_changed_source_starts_anew(
    suite_of: SuiteOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simulations.common import provenance as made

    calls = []
    suite_of(unit(attack("A1"), calls))
    audit("--out", str(tmp_path))
    made.provenance.cache_clear()
    monkeypatch.setattr(made, "source_hash", lambda: "0" * 16)
    audit("--out", str(tmp_path))
    made.provenance.cache_clear()
    assert len(calls) == 2


def test_errors_run_again_and_failures_do_not(suite_of: SuiteOf, tmp_path: Path) -> None:
    calls = []
    suite_of(unit_of("A1", explode, calls), unit(attack("A2", held=False), calls))
    for _ in range(2):
        assert audit("--out", str(tmp_path)).exit_code == 1
    assert calls == ["A1", "A2", "A1"]


def test_a_line_that_was_cut_off_is_dropped(suite_of: SuiteOf, tmp_path: Path) -> None:
    calls = []
    suite_of(unit(attack("A1"), calls), unit(attack("A2"), calls))
    audit("--out", str(tmp_path))
    path = tmp_path / "checks.jsonl"
    # So are those that hold no unit.
    path.write_bytes(b"[]\n{\n" + path.read_bytes()[:-9])
    for _ in range(2):
        assert audit("--out", str(tmp_path)).exit_code == 0
    assert calls == ["A1", "A2", "A2"]
    assert [json.loads(line)["unit"] for line in path.read_text().splitlines()] == ["A1", "A2"]


def test_results_are_on_disk_before_the_next_unit_runs(tmp_path: Path, suite_of: SuiteOf) -> None:
    path = tmp_path / "checks.jsonl"
    lines = []

    def look() -> list[Check]:
        lines.append(len(path.read_text().splitlines()))
        return [attack("A2")]

    suite_of(unit(attack("A1")), unit_of("A2", look))
    assert audit("--out", str(tmp_path)).exit_code == 0
    assert lines == [1]


def test_units_are_announced_before_they_run() -> None:
    from simulations.reports.audit.journal import Journal

    order = []
    units = [unit(attack("A1"), order), unit(attack("A2"), order)]
    list(units_runner.run_units(units, Journal(None, {}), lambda u: order.append(f"begin {u.id}")))
    assert order == ["begin A1", "A1", "begin A2", "A2"]
