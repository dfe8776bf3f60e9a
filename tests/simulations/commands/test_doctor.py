"""`veilsum doctor` names what is wrong with an installation, and what helps."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import NoReturn

import pytest
from command_line import invoke

from simulations.reports.doctor import Finding, Level, exit_status, kernels, machine, packages
from veilsum.compiled import KernelError, digest_of_sources, every_kernel
from veilsum.extras import install_command

ROOT = Path(__file__).parents[3]
ONE = "dp._kernels.extent"
"""Begins the name of another one, too."""


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are checked where a test can damage them."""
    monkeypatch.setattr(kernels, "_process", lambda: ThreadPoolExecutor(1))


def findings(*options: str, kernel: str = ONE) -> tuple[int, dict[str, list[Finding]]]:
    """Exit status and findings by subject, of this process."""
    result = invoke("doctor", "--kernels", kernel, "--json", *options)
    return result.exit_code, by_subject(result.stdout)


def by_subject(printed: str) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for each in json.loads(printed)["findings"]:
        finding = Finding(**{**each, "level": Level(each["level"])})
        found.setdefault(finding.subject, []).append(finding)
    return found


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
    )


def doctor(kernel: str, **variables: str) -> tuple[int, dict[str, list[Finding]]]:
    """Exit status and findings by subject, of a fresh process."""
    done = python("-m", "veilsum", "doctor", "--kernels", kernel, "--json", **variables)
    return done.returncode, by_subject(done.stdout)


@pytest.mark.slow
def test_a_poisoned_cache_is_named_at_the_first_use_and_by_the_doctor(tmp_path: Path) -> None:
    fill = (
        "from sketch._hadamard_kernels import _across_1, _across_8\n"
        "_across_1.check(), _across_8.check()"
    )
    assert python("-c", fill, NUMBA_CACHE_DIR=str(tmp_path)).returncode == 0
    (one,), (eight,) = tmp_path.rglob("*_across_1_*.nbc"), tmp_path.rglob("*_across_8_*.nbc")
    # The other way round it might write beyond its vector.
    shutil.copy(one, eight)
    (one.parent / "_hadamard_kernels._across_1_0123456789abcdef-9.py311.nbi").touch()
    use = (
        "import numpy as np\n"
        "from sketch._hadamard_kernels import walsh_hadamard\n"
        "walsh_hadamard(np.zeros(64), 1.0)"
    )
    said = python("-c", use, NUMBA_CACHE_DIR=str(tmp_path)).stderr.splitlines()[-1]
    assert "KernelError" in said and f"delete the folder {one.parent}," in said
    status, found = doctor("_hadamard_kernels._across_8", NUMBA_CACHE_DIR=str(tmp_path))
    assert status == 2
    (wrong,) = found["known answers"]
    assert wrong.level is Level.WRONG and "_across_8 gives a wrong answer" in wrong.found
    assert f"delete the folder {one.parent}," in str(wrong)
    kept, old = found["compiled code"]
    assert kept.level is Level.OK and "older sources" in old.found
    assert digest_of_sources() in str(old.remedy)


@pytest.mark.slow
def test_code_that_no_folder_keeps_is_a_warning() -> None:
    status, found = doctor(ONE, NUMBA_CACHE_LOCATOR_CLASSES="IPythonCacheLocator")
    (finding,) = found["compiled code"]
    assert finding.level is Level.WARNING and "NUMBA_CACHE_DIR" in str(finding.remedy)
    assert status == 1 and found["known answers"][0].level is Level.OK


def test_interpreted_kernels_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilsum.compiled.every_kernel", lambda: iter(()))
    status, found = findings()
    assert [each.level for each in found["compiled code"]] == [Level.WARNING]
    assert status == 1 and "known answers" not in found


@pytest.mark.usefixtures("in_this_process")
def test_people_get_a_line_for_each_finding_and_programs_an_object() -> None:
    status, found = findings()
    result = invoke("doctor", "--kernels", ONE)
    lines = result.stdout.splitlines()
    assert (
        result.exit_code == status and "ok       known answers: 2 of 2 kernels are right" in lines
    )
    assert len(lines) == sum(map(len, found.values()))
    assert {line.split()[0] for line in lines} <= set(Level)
    assert {"veilsum", "extra sim", "torch", "processor", "memory", "home"} <= set(found)


def test_a_name_that_no_kernel_has_is_a_warning() -> None:
    _, found = findings(kernel="nothing")
    (finding,) = found["known answers"]
    assert finding.level is Level.WARNING and "'nothing'" in finding.found


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KernelError(ONE, None), "gives a wrong answer"),
        (EOFError("Ran out of input"), "cannot be used: EOFError: Ran out of input"),
        (BrokenProcessPool("died"), "cannot be used: BrokenProcessPool: died"),
    ],
)
def test_a_wrong_kernel_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    def check() -> NoReturn:
        raise raised

    kernel = next(each for each in every_kernel() if each.name == ONE)
    monkeypatch.setattr(kernel, "check", check)
    status, found = findings()
    wrong, right = found["known answers"]
    assert (status, wrong.level, right.level) == (2, Level.WRONG, Level.OK)
    assert f"{ONE} {said}" in wrong.found and f"delete the folder {kernel.folder}," in str(wrong)


def test_a_check_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> NoReturn:
        raise ImportError("numba needs another llvmlite")

    monkeypatch.setattr("veilsum.compiled.every_kernel", broken)
    status, found = findings()
    assert status == 2
    for subject in ("known answers", "compiled code"):
        assert "numba needs another llvmlite" in found[subject][0].found


@pytest.mark.parametrize(
    ("levels", "status"),
    [(["ok", "note"], 0), (["ok", "warning", "note"], 1), (["wrong", "warning"], 2), ([], 0)],
)
def test_the_exit_status_is_that_of_the_worst(levels: list[str], status: int) -> None:
    assert exit_status(Finding(Level(level), "", "") for level in levels) == status


def versions_here(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    """Of packages that need lines are in the metadata, only these are installed."""

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    lines = ["numpy>=2.0", "numba>=0.61,<1", 'torch>=2.6; extra == "sim"']
    lines += ['veilsum[cli]; extra == "sim"', 'flwr<2,>=1.41; extra == "flower"']
    lines += ['nvflare>=2; extra == "nvflare"', 'fcntl; sys_platform == "nothing"']
    monkeypatch.setattr(packages, "requires", lambda _: lines)
    monkeypatch.setattr(packages, "version", version)


def test_a_violated_bound_is_wrong_and_one_of_an_extra_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions_here(monkeypatch, numpy="1.26.4", numba="0.62.0rc1", torch="2.6.0+cpu", flwr="1.40.0")
    _, _, numpy, numba = packages.versions()
    assert (numpy.level, numba.level) == (Level.WRONG, Level.OK)
    assert "1.26.4 (needs >=2.0)" in numpy.found and numpy.remedy == 'pip install "numpy>=2.0"'
    found = {each.subject: each for each in packages.extras()}
    assert found["extra flower"].level is Level.WARNING
    assert found["extra flower"].remedy == install_command("flower")
    assert found["extra nvflare"].level is Level.NOTE
    assert found["extra sim"] == Finding(Level.OK, "extra sim", "torch 2.6.0+cpu (needs >=2.6)")
    assert len(found) == 3


def test_what_is_not_installed_has_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(packages.provenance(), versions={})
    monkeypatch.setattr(packages, "provenance", lambda: made)
    (finding,) = packages.versions()
    assert finding.level is Level.WARNING and finding.remedy == install_command()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that pip has installed one file of ours into."""
    (tmp_path / "sketch").mkdir()
    (tmp_path / "sketch" / "hashing.py").write_bytes(b"ours")
    digest = urlsafe_b64encode(hashlib.sha256(b"ours").digest()).decode().rstrip("=")
    record(tmp_path, "veilsum", f"sketch/hashing.py,sha256={digest},4\nsketch/other.pyc,,\n")
    monkeypatch.setattr(packages, "_HOME", tmp_path.resolve())
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def record(site: Path, name: str, files: str) -> None:
    """What pip writes down of a distribution."""
    folder = site / f"{name}-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
    (folder / "RECORD").write_text(files)


def test_files_as_they_were_installed_are_ours(site: Path) -> None:
    assert [each.level for each in packages.strangers()] == [Level.OK]


def test_a_file_of_another_distribution_is_wrong(site: Path) -> None:
    record(site, "stranger", "stranger.py,,\nsketch/hashing.py,,\nsketch/more.py,,\n")
    (finding,) = packages.strangers()
    assert finding.level is Level.WRONG and str(site / "sketch" / "hashing.py") in finding.found
    assert str(finding.remedy).startswith("pip uninstall stranger, then pip install")


@pytest.mark.parametrize("content", [b"theirs", None])
def test_a_file_that_is_not_as_it_was_installed_is_a_warning(
    site: Path, content: bytes | None
) -> None:
    file = site / "sketch" / "hashing.py"
    file.unlink() if content is None else file.write_bytes(content)
    (finding,) = packages.strangers()
    assert finding.level is Level.WARNING and str(file) in finding.found


def test_a_folder_that_cannot_be_written_to_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    temporary, home, current = machine.folders()
    assert (temporary.level, home.level, current.level) == (Level.WRONG, Level.WARNING, Level.OK)
    assert "set TMPDIR" in str(temporary) and "set HOME" in str(home)


def test_data_sets_are_found_where_they_are_read(tmp_path: Path) -> None:
    for name in ("names/Arabic.txt", "shakespeare/tinyshakespeare.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (finding,) = machine.data_sets(tmp_path)
    assert finding.found == f"digits, tinyshakespeare; looked for in {tmp_path}"
    (finding,) = machine.data_sets(tmp_path / "none")
    assert finding.level is Level.NOTE and "no such folder" in finding.found
