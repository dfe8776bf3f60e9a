"""What runs the tests: the targets of make, continuous integration, and what a run leaves out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))


def make(*arguments: str) -> str:
    """The commands that make would run."""
    command = ["make", "--dry-run", "--directory", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603


def test_no_target_is_a_file() -> None:
    """A folder with the name of a target, as docs and dist, must not stand for its result."""
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)).split())
    assert phony == TARGETS
    assert "sphinx-build" in make("docs")


def test_continuous_integration_runs_everything() -> None:
    """The README's commands in its order, what is left of the tests, every adapter, the kernels."""
    script = (ROOT / ".ci" / "run").read_text()
    named = re.findall(r"^make ([\w-]+)$", script, re.MULTILINE)
    assert named == ["demo", "test", "test-long", "test-minima", "test-adapters"]
    assert "make test-long\n.venv/bin/veilsum doctor\n" in script
    (adapters,) = re.findall(r"^test-adapters: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(adapters.split()) == {each for each in TARGETS if each.startswith("test-")} - {
        "test-adapters",
        "test-long",
        "test-minima",
        "test-release",
    }
    # Every test that a framework decides on is named by one of those targets.
    guarded = {
        path
        for path in (ROOT / "tests" / "protocol" / "adapters").rglob("test_*.py")
        if "importorskip" in path.read_text()
    }
    planned = make("test-adapters").split()
    for path in guarded:
        parts = [path, *path.parents]
        assert any(str(part.relative_to(ROOT)) in planned for part in parts[:3]), path


@pytest.mark.slow
def test_a_run_without_data_sets_says_what_it_leaves_out(tmp_path: Path) -> None:
    test = "tests/simulations/learning/data/test_real_data.py"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", test],
        cwd=ROOT,
        env={**os.environ, "VEILSUM_DATA_DIR": str(tmp_path / "nowhere")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    line = r"^(\d+) skipped for want of data sets.*VEILSUM_DATA_DIR=FOLDER make test"
    found = re.search(line, done.stdout, re.MULTILINE)
    assert found, done.stdout
    assert int(found[1]) == len(re.findall(r"^def test_", (ROOT / test).read_text(), re.MULTILINE))


def test_other_skipped_tests_are_not_said_to_want_data(request: pytest.FixtureRequest) -> None:
    suite = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))

    def skipped(reason: str) -> SimpleNamespace:
        return SimpleNamespace(longrepr=("test_it.py", 1, f"Skipped: {reason}"))

    assert suite.left_out([skipped("no Chromium on PATH")]) == ""
    both = [skipped("no Chromium on PATH"), skipped("no data sets in nowhere: ...")]
    assert suite.left_out(both).startswith("1 skipped for want of data sets")


def test_every_listed_mutant_is_a_fault_in_todays_sources() -> None:
    """Its text stands in its file once, what takes its place compiles, and its tests are there."""
    mutants = tomllib.loads((ROOT / "tests" / "mutants" / "listed.toml").read_text())["mutants"]
    assert len(mutants) >= 40
    for mutant in mutants:
        source = (ROOT / mutant["file"]).read_text()
        assert source.count(mutant["text"]) == 1, mutant
        compile(source.replace(mutant["text"], mutant["mutant"]), mutant["file"], "exec")
        assert mutant["breaks"].endswith("."), mutant
        assert mutant["tests"] and all((ROOT / test).is_file() for test in mutant["tests"]), mutant
