"""What a release holds, and that it works away from the source tree.

By default the wheel is installed beside the libraries of this environment. With
VEILSUM_TEST_RELEASE set to a requirement for torch (`make test-release`), also in an environment of
its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import veilsum

ROOT = Path(__file__).parents[1]
PACKAGES = ("secagg", "dp", "sketch", "protocol", "simulations", "veilsum")
ABOVE = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "Makefile")
PAGES = ("CITATION.cff", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
CACHES = shutil.ignore_patterns("__pycache__", "*.py[cod]", ".*_cache", "*.egg-info")
VERSION = veilsum.__version__
TORCH = os.environ.get("VEILSUM_TEST_RELEASE")

pytestmark = pytest.mark.slow


def run(folder: Path, *command: str | Path, **environment: str) -> str:
    """What a program prints that has to succeed; it knows nothing of the source tree."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603
        command, cwd=folder, env={**inherited, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, made from a copy, and the wheel, made from the archive."""
    pytest.importorskip("build", reason="build is not installed: the extra dev has it")
    copy = tmp_path_factory.mktemp("release") / "source"
    for folder in (*PACKAGES, "docs", "examples", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=CACHES)
    for name in (*ABOVE, *PAGES):
        shutil.copy(ROOT / name, copy / name)
    run(copy, sys.executable, "-m", "build", "--no-isolation", "--outdir", "../dist", ".")
    return copy.parent / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's packages; libraries come from this environment."""
    target = tmp_path_factory.mktemp("site")
    options = ("--quiet", "--no-deps", "--no-index", "--target", target)
    run(target, sys.executable, "-m", "pip", "install", *options, wheel)
    return target


def files_of(folder: Path) -> set[str]:
    """Everything below a package that is not a cache."""
    return {
        path.relative_to(folder.parent).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_all_of_the_packages_and_nothing_else(dist: Path, wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    inside = {name for name in names if not name.startswith(f"veilsum-{VERSION}.dist-info/")}
    assert inside == set().union(*(files_of(dist.parent / "source" / each) for each in PACKAGES))
    assert {f"{package}/py.typed" for package in PACKAGES} <= inside
    assert {Path(name).suffix for name in inside} == {".py", ".typed", ".jinja", ".css", ".toml"}
    assert f"veilsum-{VERSION}.dist-info/licenses/LICENSE" in names


def test_the_wheel_claims_no_other_top_level_name(wheel: Path) -> None:
    text = zipfile.ZipFile(wheel).read(f"veilsum-{VERSION}.dist-info/top_level.txt").decode()
    assert set(text.split()) == set(PACKAGES)


def test_the_archive_has_what_its_tests_and_pages_need(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*ABOVE, *PAGES, "docs/conf.py", "examples/in_process.py", "tests/conftest.py"} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_the_changelog_has_this_version() -> None:
    headings = re.findall(r"^## (\S+)(?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if ".dev" in VERSION:
        assert headings.pop(0) == ("Unreleased", "")
    else:
        assert headings[0][0] == VERSION
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in headings)


def test_the_command_says_its_version(site: Path, tmp_path: Path) -> None:
    assert run(tmp_path, site / "bin" / "veilsum", "--version", PYTHONPATH=str(site)) == (
        f"veilsum {VERSION}\n"
    )


def test_the_examples_come_along(site: Path, tmp_path: Path) -> None:
    command = (site / "bin" / "veilsum", "init", "own.toml", "--example", "million")
    run(tmp_path, *command, PYTHONPATH=str(site))
    assert "population = 1000000" in (tmp_path / "own.toml").read_text()


def test_the_library_example_runs_away_from_the_source(site: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "in_process.py", tmp_path)
    where = "import protocol, secagg; print(protocol.__file__, secagg.__file__)"
    paths = run(tmp_path, sys.executable, "-c", where, PYTHONPATH=str(site)).split()
    assert all(path.startswith(str(site)) for path in paths)
    printed = run(tmp_path, sys.executable, "-W", "error", "in_process.py", PYTHONPATH=str(site))
    mean, epsilon = map(float, printed.split(" at epsilon "))
    # Noise of a mean of 100 coordinates: far below 0.2 at this epsilon.
    assert abs(mean - 0.5) < 0.2
    assert 0.0 < epsilon <= 8.0


@pytest.mark.skipif(TORCH is None, reason="takes minutes and gigabytes: `make test-release`")
def test_a_clean_environment_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    bin_ = tmp_path / "venv" / "bin"
    run(tmp_path, bin_ / "python", "-m", "pip", "install", "--quiet", TORCH, f"{wheel}[sim]")
    run(tmp_path, bin_ / "python", "-m", "pip", "check")
    assert run(tmp_path, bin_ / "veilsum", "--version") == f"veilsum {VERSION}\n"
    for name in ("in_process.py", "own_attack.py", "custom_transport.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
        run(tmp_path, bin_ / "python", name)
    summary = json.loads(run(tmp_path, bin_ / "veilsum", "demo", "--out", "demo", "--json"))
    assert summary["accuracy"] > 0.75
    assert summary["epsilons"]["server"] <= 5.0
    lines = (tmp_path / "demo" / "rounds.jsonl").read_text().splitlines()
    sizes = [json.loads(line)["sketch_size"] for line in lines]
    # What docs/tutorial/1-demo.md says of them; noise moves the last ones by some hundreds.
    assert sizes[0] == 4810 and sizes[-1] < 1200
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
