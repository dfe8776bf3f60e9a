"""Put one fault at a time into a copy of the sources, and see whether the tests notice.

Run from the root of the repository: python -m tests.mutants --help
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from . import Mutant, listed
from .drawn import drawn

ROOT = Path(__file__).parents[2]
ALLOWED_SURVIVORS = 2
"""Of the list."""
_LEFT_OUT = ".git .venv* .*_cache .hypothesis build dist demo-report *.egg-info".split()


def main() -> int:
    """Exit code 0 if enough mutants were killed, 1 if not, 2 if the tests fail without a mutant."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("--json", type=Path, help="write results here, and go on from those here")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each mutant")
    parser.add_argument(
        "--random", type=int, metavar="N", help="random mutants in the list's place"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", nargs="+", default=[], help="packages or files, for --random")
    parser.add_argument("--tests", nargs="+", default=[], help="for --random; see drawn.py")
    given = parser.parse_args()
    if (given.random is None) == bool(given.under):
        parser.error("--random N and --under belong together")
    if given.random is None:
        mutants = listed(ROOT)
    else:
        mutants = drawn(ROOT, given.under, given.random, given.seed, given.tests)
    known: list[dict[str, str]] = []
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        known = json.loads(given.json.read_text()) if given.json.exists() else []
    found = {each["key"]: each for each in known}
    keys = [_key(each) for each in mutants]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(shutil.copytree(ROOT, Path(folder) / "tree", ignore=_ignored))
        left = [each for each, key in zip(mutants, keys, strict=True) if key not in found]
        tests = sorted({test for each in left for test in each.tests})
        if tests and (said := _failing(tree, tests, given.timeout * len(left))):
            print(f"the tests fail without any mutant: {said}")
            return 2
        for number, (key, mutant) in enumerate(zip(keys, mutants, strict=True), start=1):
            if key not in found:
                found[key] = {"key": key, **_tried(tree, mutant, given.timeout)}
            if given.json:
                results = [found[each] for each in keys if each in found]
                given.json.write_text(json.dumps(results, indent=1) + "\n")
            by = found[key]["killed_by"]
            said = f"killed by {by}" if by else "SURVIVED"
            print(f"{number}/{len(mutants)} {mutant.file}: {mutant.breaks} {said}", flush=True)
    survived = sum(not found[key]["killed_by"] for key in keys)
    print(f"{len(mutants) - survived} of {len(mutants)} mutants killed")
    return int(given.random is None and survived > ALLOWED_SURVIVORS)


def _tried(tree: Path, mutant: Mutant, timeout: float) -> dict[str, str]:
    path = tree / mutant.file
    kept = path.rename(path.with_suffix(".kept"))
    path.write_text(mutant.source)
    said = _failing(tree, mutant.tests, timeout)
    kept.replace(path)
    return {"file": mutant.file, "breaks": mutant.breaks, "killed_by": said}


def _failing(tree: Path, tests: Sequence[str], timeout: float) -> str:
    """The first test that fails, or what else went wrong; empty if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
    # A module's bytecode is looked up by size and second: none of a mutant's must be left behind.
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(  # noqa: S603
            command, cwd=tree, env=env, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return f"time: more than {timeout:g} s"
    # Tests that are all skipped, for want of a framework, kill nothing.
    if ran.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    lines = (ran.stdout + ran.stderr).splitlines()
    named = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return (named or lines[-1:] or ["no output"])[0].split(" - ")[0]


def _key(mutant: Mutant) -> str:
    """Of a mutant and its tests as they stand: results of others say nothing about it."""
    files = sorted(
        path for test in mutant.tests for path in (ROOT / test, *(ROOT / test).rglob("*.py"))
    )
    read = [path.read_bytes() for path in files if path.is_file()]
    return hashlib.sha256(
        b"\0".join([mutant.file.encode(), mutant.source.encode(), *read])
    ).hexdigest()


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Times and __pycache__ are copied, or all kernels would be compiled again."""
    found = shutil.ignore_patterns(*_LEFT_OUT)(folder, names)
    return found if Path(folder) == ROOT else set()


if __name__ == "__main__":
    raise SystemExit(main())
