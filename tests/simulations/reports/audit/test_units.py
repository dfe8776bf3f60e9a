"""What an audit consists of: ids, promises, the Span check as a check, what is hashed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from audit_units import attack

from secagg import Mode
from simulations.audits.suite import audits
from simulations.common.provenance import provenance, source_hash
from simulations.reports.audit import one_shot
from simulations.reports.audit.one_shot import (
    RUNS_ID,
    SHARES_ID,
    check_one_shot_span,
    check_returned_runs,
    check_shares,
)
from simulations.reports.audit.promises import OTHERS, PROMISES, by_promise, records
from simulations.reports.audit.span import check_span, ended, mutant_figures
from simulations.reports.audit.units import (
    all_units,
    attack_units,
    one_shot_units,
    privacy_units,
    span_units,
)
from simulations.threats.attack import Effort, Findings
from simulations.threats.catalogue import table
from simulations.threats.span import Mutant, span_check
from simulations.threats.span.one_shot import OneShotMutant, one_shot_span

DOCS = Path(__file__).parents[4] / "docs"


def test_an_attack_is_run_with_its_effort_and_seed() -> None:
    def run(effort: Effort, seed: int) -> Findings:
        return Findings({"succeeded": False, "told": f"{effort.value} {seed}"}, {"succeeded": True})

    entry = replace(records()["A7"], title="no replay", stopped_by="the session", run=run)
    (unit,) = attack_units([entry], Effort.FULL, 9)
    (check,) = unit.run()
    assert (unit.id, unit.title, unit.defence) == ("A7", "no replay", "the session")
    assert check.held
    assert check.with_defence["told"] == "full 9"


def test_the_span_check_and_its_mutants() -> None:
    check = check_span(3, Mode.ACTIVE)
    assert check.id == "span 3 active"
    assert check.held
    assert check.with_defence["schedules"] == 104
    assert check.with_defence["broken_schedules"] == 0
    assert check.without_defence["caught"] == check.without_defence["mutants"] == 5
    assert check.without_defence["no_self_mask"].startswith("caught: the server computes x_")


def test_a_mutant_that_is_not_caught_is_not_a_control() -> None:
    reports = [span_check(3, Mode.ACTIVE), span_check(3, Mode.ACTIVE, Mutant.NO_SELF_MASK)]
    figures = mutant_figures([ended(report) for report in reports])
    assert (figures["caught"], figures["mutants"], figures["rejected"]) == (1, 2, False)
    assert mutant_figures([])["rejected"] is False


def test_a_full_audit_has_five_clients() -> None:
    quick = {f"span {n} {mode.value}" for n in (3, 4) for mode in Mode}
    assert {unit.id for unit in span_units(Effort.QUICK)} == quick
    five = {f"span 5 {mode.value}" for mode in Mode}
    assert {unit.id for unit in span_units(Effort.FULL)} == quick | five


@pytest.mark.slow
def test_small_one_shot_rounds_and_their_mutants() -> None:
    check = check_one_shot_span(3, 3)
    assert check.id == "one-shot span 3 x 3"
    assert check.held
    assert check.with_defence["schedules"] == 6088
    assert check.with_defence["broken_schedules"] == 0
    assert check.without_defence["caught"] == check.without_defence["mutants"] == 6
    assert check.without_defence["no_minimum"] == "the server computes x_0"
    smaller = check_one_shot_span(2, 2)
    assert smaller.held
    assert smaller.without_defence["mutants"] == 2


def test_the_shares_of_small_committees() -> None:
    check = check_shares(4)
    assert check.id == SHARES_ID
    assert check.held
    assert check.with_defence["exactly_the_sums"] == check.with_defence["committees"] > 50
    assert check.without_defence["more_than_the_sums"] == check.without_defence["committees"] > 50
    assert check.with_defence["rules_that_suffice"] == 6
    assert check.without_defence["more_than_promised"] == 6


@pytest.mark.slow
def test_runs_whose_noise_comes_back_and_members_that_lack_a_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = check_returned_runs(600, 2)
    assert check.id == RUNS_ID
    assert check.held
    assert check.with_defence["broken_schedules"] == 0
    assert int(check.with_defence["with_several_sums"]) > 30
    assert check.without_defence["caught"] == check.without_defence["mutants"] == 5
    # A product that signs late is found; so is a twin that is no twin.
    late = one_shot.WEAK_RUNS["late_signatures"]
    right = one_shot.run_schedules
    monkeypatch.setattr(
        one_shot, "run_schedules", lambda count, seed, rules=late: right(count, seed, rules)
    )
    assert not check_returned_runs(300, 2).held
    monkeypatch.setattr(one_shot, "run_schedules", lambda count, seed, *_: right(count, seed))
    assert not check_returned_runs(60, 2).held


def test_a_one_shot_check_that_finds_something_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_shot, "one_shot_span", lambda n, s, mutant=None: one_shot_span(n, s))
    assert not check_one_shot_span(2, 2).held
    broken = one_shot_span(2, 2, OneShotMutant.NO_MINIMUM)
    monkeypatch.setattr(one_shot, "one_shot_span", lambda n, s, mutant=None: broken)
    check = check_one_shot_span(2, 2)
    assert not check.held
    assert "the server computes x_0" in str(check.with_defence["first_broken_schedule"])


def test_one_shot_checks_are_known_by_their_ids() -> None:
    sizes = [(3, 3), (4, 3), (3, 4), (4, 4)]
    for effort, count in ((Effort.QUICK, 2), (Effort.FULL, 4)):
        names = [f"one-shot span {n} x {s}" for n, s in sizes[:count]]
        assert [unit.id for unit in one_shot_units(effort, 1)] == [*names, SHARES_ID, RUNS_ID]


def test_every_privacy_audit_is_known_by_an_id() -> None:
    for effort in Effort:
        assert [unit.id for unit in privacy_units(effort, 0)] == [
            audit.id for audit in audits(effort, 0)
        ]


def test_units_have_ids_of_their_own() -> None:
    ids = [unit.id for unit in all_units(Effort.FULL, 0)]
    assert len(ids) == len({i.casefold() for i in ids})


def test_every_attack_tries_a_promise() -> None:
    assert {attack.promise for attack in records().values()} <= {each.name for each in PROMISES}


def test_every_check_is_shown_once() -> None:
    measured = [audit.id for audit in audits(Effort.FULL, 0)]
    names = [*records(), *measured, "span 3 active", "F1", "a new one"]
    groups = by_promise([attack(name) for name in names])
    shown = [check.id for _, checks in groups for check in checks]
    assert sorted(shown) == sorted(names)
    assert groups[-1][0] is OTHERS
    assert [check.id for check in groups[-1][1]] == ["a new one"]


def test_the_threat_model_has_the_same_promises_and_attacks() -> None:
    text = (DOCS / "threat-model.md").read_text()
    rows = re.findall(r"^\| A\d+ \|.*$", text, re.MULTILINE)
    assert rows == table()
    promised = dict(re.findall(r"^\| (P\d+) \| (.+) \|$", text, re.MULTILINE))
    assert list(promised) == [promise.name for promise in PROMISES]
    for promise in PROMISES:
        assert promised[promise.name].startswith(f"{promise.title} |")
        assert re.findall(r"\bA\d+\b", promised[promise.name]) == list(promise.attacks)


def test_what_is_not_in_git_changes_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("a = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = source_hash(("some_package",))
    assert source_hash(("some_package",)) == before
    (package / "__init__.py").write_text("a = 2\n")
    changed = source_hash(("some_package",))
    (package / "more.py").write_text("")
    assert len({before, changed, source_hash(("some_package",))}) == 3


def test_what_ran_is_named() -> None:
    made = provenance()
    assert re.fullmatch("[0-9a-f]{16}", made.source)
    assert {"python", "veilsum", "numpy"} <= set(made.versions)
    assert {"system", "processor", "cores"} == set(made.machine)
    assert made.commit is None or re.match("[0-9a-f]{12}", made.commit)
