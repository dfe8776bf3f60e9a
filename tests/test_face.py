"""`import veilsum`: light, typed, and only with packages that are ours.

Each test of what is in the way runs Python away from this process, with a copy of the packages.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import veilsum
from veilsum import ownership
from veilsum.ownership import PACKAGES, ForeignPackageError, check_packages

ROOT = Path(__file__).parents[1]
HEAVY = {*PACKAGES, "numpy", "numba", "scipy", "torch", "typer", "importlib.metadata"}
CACHES = shutil.ignore_patterns("__pycache__", "*.nb?")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as an installation has them: in one folder, away from the source tree."""
    site = tmp_path_factory.mktemp("site")
    for package in (*PACKAGES, "veilsum"):
        shutil.copytree(ROOT / package, site / package, ignore=CACHES)
    return site


@pytest.fixture
def site(installed: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(installed, tmp_path / "site"))


def python(site: Path, *arguments: str, first: Path | None = None) -> tuple[int, str]:
    """Exit status and standard error of Python, which finds `first` before `site`."""
    search = [str(path) for path in (first, site) if path is not None]
    done = subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        cwd=site.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


def refused(site: Path, package: str, first: Path | None = None) -> str:
    """What is said, in the same words, by the import and by every way to call the command."""
    status, text = python(site, "-c", "import veilsum", first=first)
    assert status == 1
    said = text.splitlines()[-1].removeprefix("veilsum.ownership.")
    if package not in ("protocol", "simulations"):  # one that all commands import, and the last
        return said
    script = site.parent / "veilsum"
    script.write_text("from veilsum.__main__ import main\nmain()\n")
    for command in (["-m", "veilsum"], [str(script)], ["-m", "simulations"]):
        # Python does not get to the last of them if what it runs is the stranger.
        if package != command[-1]:
            assert python(site, *command, "doctor", first=first) == (2, said + "\n")
    return said


@pytest.mark.parametrize(
    ("package", "heavy"),
    [
        ("veilsum", HEAVY),
        ("protocol", {f"scipy.{part}" for part in ("linalg", "optimize", "sparse", "special")}),
    ],
)
def test_importing_it_loads_nothing_heavy(package: str, heavy: set[str]) -> None:
    code = f"import sys, {package}; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: S603
    assert done.stdout == "[]\n", done.stderr


def test_its_names_are_those_of_the_packages() -> None:
    """What a type checker reads is what a program gets."""
    source = ast.parse(Path(str(veilsum.__file__)).read_text())
    (checked,) = [
        node
        for node in source.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    homes = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == veilsum._HOMES
    assert set(veilsum.__all__) == {*homes, "ForeignPackageError"}
    for name, home in homes.items():
        assert getattr(veilsum, name) is getattr(sys.modules[str(home)], name)
    assert set(veilsum.__all__) <= set(dir(veilsum))
    with pytest.raises(AttributeError, match="'nothing'"):
        veilsum.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_an_installation_without_strangers_passes(site: Path) -> None:
    assert python(site, "-c", "import veilsum; veilsum.Ledger") == (0, "")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_folder_of_the_users_is_named(site: Path, package: str) -> None:
    own = site.parent / "project" / package / "__init__.py"
    own.parent.mkdir(parents=True)
    own.touch()
    assert refused(site, package, own.parents[1]) == (
        f"ForeignPackageError: {own} is in the way of veilsum's package {package}, which is in "
        f"{site / package}: rename it, or take its folder off sys.path"
    )


@pytest.mark.parametrize("imported", PACKAGES)
def test_each_package_by_itself_names_the_folder_and_imports_once_it_is_renamed(
    site: Path, imported: str
) -> None:
    stranger = "dp" if imported == "secagg" else "secagg"
    own = site.parent / "project" / stranger / "__init__.py"
    own.parent.mkdir(parents=True)
    own.touch()
    program = ["-c", f"import {imported}"]
    status, text = python(site, *program, first=own.parents[1])
    assert status == 1 and text.splitlines()[-1].endswith(
        f"ForeignPackageError: {own} is in the way of veilsum's package {stranger}, which is in "
        f"{site / stranger}: rename it, or take its folder off sys.path"
    )
    assert python(site, *program) == (0, "")
    own.parent.rename(own.parents[1] / "mine")
    assert python(site, *program, first=own.parents[1]) == (0, "")


def test_a_module_of_the_users_is_named(site: Path) -> None:
    own = site.parent / "project" / "protocol.py"
    own.parent.mkdir()
    own.touch()
    assert f"{own} is in the way of veilsum's package protocol" in refused(
        site, "protocol", own.parent
    )


def overwrite(site: Path, package: str) -> Path:
    """What pip leaves of ours after it has installed another distribution into the same folder."""
    file = site / package / "__init__.py"
    file.write_text('"""Somebody else\'s."""\n')
    record = site / "stranger-9.9.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 9.9\n")
    (record / "RECORD").write_text(f"{package}/__init__.py,,\n")
    return file


@pytest.mark.parametrize("package", PACKAGES)
def test_an_overwritten_package_names_who_did_it(site: Path, package: str) -> None:
    file = overwrite(site, package)
    assert refused(site, package) == (
        f"ForeignPackageError: {file} has been overwritten and is no longer veilsum's package "
        f"{package} (it belongs to the distribution stranger): pip uninstall stranger, then "
        'pip install --force-reinstall --no-deps "veilsum"'
    )


def test_what_is_left_after_the_stranger_was_uninstalled_is_not_ours(site: Path) -> None:
    overwrite(site, "sketch").unlink()
    shutil.rmtree(site / "stranger-9.9.dist-info")
    assert f"{site / 'sketch'} has been overwritten" in refused(site, "sketch")


def test_a_stranger_in_another_folder_is_named(site: Path) -> None:
    other = site.parent / "user-site"
    (other / "sketch").mkdir(parents=True)
    file = overwrite(other, "sketch")
    said = refused(site, "sketch", other)
    assert f"{file} is in the way" in said and said.endswith(": pip uninstall stranger")


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilsum.ownership.find_spec", lambda _: None)
    with pytest.raises(ForeignPackageError, match="finds no package secagg") as caught:
        check_packages()
    assert (caught.value.name, caught.value.path) == ("secagg", None)


def test_a_stranger_that_is_imported_already_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sketch", type(sys)("sketch"))
    with pytest.raises(ForeignPackageError) as caught:
        check_packages()
    assert caught.value.name == "sketch"


def test_a_program_without_sources_is_judged_by_place_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.machinery.SourceFileLoader.get_source", lambda self, name: None)
    check_packages()


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("python -m veilsum --help", True),
        ("python -um veilsum", True),
        ("python -msimulations", True),
        ("python -W error -m simulations", True),
        ("python -X dev -P /usr/bin/veilsum -m x", True),
        ("python tool.py -m veilsum", False),
        ("python -c pass -m simulations", False),
        ("python -c veilsum", False),
        ("python -cm veilsum", False),
        ("python /usr/bin/pytest -m simulations", False),
        ("python", False),
    ],
)
def test_only_our_own_command_ends_the_process(
    words: str, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", words.split())
    monkeypatch.setattr(ownership, "_is_ours", lambda *_: False)
    with pytest.raises(SystemExit if ours else ForeignPackageError):
        check_packages()
