"""What the machine refuses is one line and status 2, and costs nothing of what was there."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from command_line import Refused, invoke
from small_runs import small_demo

from protocol.errors import ConfigurationError, PolicyError, RankFailedError
from simulations.__main__ import main
from simulations.commands import cli
from simulations.common.failures import (
    EXTRAS,
    KEPT,
    CallbackError,
    DivergedError,
    interrupted,
    kept_so_far,
    one_line,
)
from simulations.common.files import append_durably, write_whole
from simulations.learning.configuration import RunConfig, write_config
from simulations.learning.data.errors import DataError, DataProblem
from simulations.learning.run.folder import RunFolder
from simulations.learning.training import require_device
from veilsum.extras import install_command

ROOT = Path(__file__).parents[3]


@pytest.fixture
def told(refused: Refused) -> Refused:
    """The one line that a command ends with."""

    def line(*arguments: object) -> str:
        error = refused(*arguments)
        assert error.count("\n") == 1, error
        return error

    return line


@contextmanager
def full_disk(room_bytes: int) -> Iterator[None]:
    """No file of this process can grow beyond so many bytes: the system itself refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def small(aggregator: str = "real") -> RunConfig:
    return small_demo(rounds=3, engine__workers=1, engine__aggregator=aggregator)


def test_every_extra_of_a_user_is_known() -> None:
    """The names of packages on an index differ from those that Python imports."""
    imported = {"scikit-learn": "sklearn", "tomli-w": "tomli_w"}
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    wanted = {}
    for extra in optional.keys() - {"docs", "dev", "notebook"}:
        for requirement in set(optional[extra]) - {"veilsum[cli]"}:
            name = re.split(r"[\[<>=]", requirement)[0]
            wanted[imported.get(name, name)] = extra
    assert wanted == EXTRAS


def test_a_log_level_of_debug_adds_the_traceback_to_the_one_line() -> None:
    """No other has one: see `refused`."""
    command = [sys.executable, "-m", "veilsum", "--log-level", "debug", "audit-ledger", "/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("LedgerError: ledger /nowhere cannot be read")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("package", sorted(EXTRAS))
def test_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, told: Refused, package: str
) -> None:
    def ends() -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=f"{package}.part")

    monkeypatch.setattr(cli, "app", ends)
    error = told()
    assert f"needs {package}" in error
    assert install_command(EXTRAS[package]) in error


def test_a_package_of_another_version_says_what_it_lacks() -> None:
    error = ImportError("cannot import name 'Grid' from 'flwr'", name="flwr")
    line = one_line(error)
    assert line is not None
    assert "cannot import name 'Grid'" in line and install_command("flower") in line


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'simulations.nothing'", name="simulations.nothing"),
        ValueError("a mistake in the program"),
        RuntimeError("another"),
    ],
)
def test_mistakes_in_the_program_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def ends() -> None:
        raise error

    monkeypatch.setattr(cli, "app", ends)
    with pytest.raises(type(error)) as caught:
        main()
    assert caught.value is error


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "No space left on device; make room"),
        (errno.EROFS, "Read-only file system; choose a folder on a writable disk"),
        (errno.EACCES, "Permission denied; choose a folder that you may write to"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_system_refuses_names_file_reason_and_cure(
    monkeypatch: pytest.MonkeyPatch, told: Refused, code: int, words: str
) -> None:
    def ends() -> None:
        raise OSError(code, os.strerror(code), "out/rounds.jsonl")

    monkeypatch.setattr(cli, "app", ends)
    assert f"out/rounds.jsonl: {words}\n" in told()


def test_a_system_error_without_a_number_keeps_its_words() -> None:
    assert one_line(OSError("the browser wrote\nno picture")) == (
        "OSError: the browser wrote no picture"
    )


@pytest.mark.parametrize("error", [TimeoutError(), OSError()])
def test_a_system_error_that_says_nothing_keeps_its_traceback(error: Exception) -> None:
    assert one_line(error) is None


def test_a_link_is_followed_and_a_pipe_written_to(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    write_whole(link, "first")
    write_whole(link, "second")
    assert link.is_symlink()
    assert target.read_text() == "second"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        write_whole(pipe, "through")
        assert read.result(60) == b"through"
    assert pipe.is_fifo()


def test_a_run_that_diverges_is_told() -> None:
    line = one_line(DivergedError(2, float("nan")))
    assert line is not None and "round 3" in line and "learning_rate" in line


@pytest.mark.parametrize("below", ["", "deeper"])
@pytest.mark.parametrize("command", ["run", "demo", "report", "audit", "equal-error"])
def test_out_on_a_file_is_one_line(tmp_path: Path, told: Refused, command: str, below: str) -> None:
    given = write_config(small(aggregator="plain"), tmp_path / "given.toml")
    file = tmp_path / "file"
    file.write_text("mine")
    out = file / below if below else file
    arguments = {
        "run": ("run", given, "--quiet", "--out", out),
        "demo": ("demo", "--config", given, "--quiet", "--out", out),
        "report": ("report", tmp_path / "nothing", "--out", out / "page.html"),
        "audit": ("audit", "--only", "A1", "--quiet", "--out", out),
        "equal-error": ("reproduce", "equal-error", "--quick", "--out", out),
    }[command]
    error = told(*arguments)
    if command != "report":
        assert str(out) in error and "there is a file where a folder should be" in error
    assert file.read_text() == "mine"


def test_epsilon_beyond_all_accounting_is_one_line(told: Refused) -> None:
    error = told("plan", "--clients", "100", "--epsilon", "1e9")
    assert "epsilon = 1000000000.0: must be" in error and "1e+06" in error


@pytest.mark.parametrize(
    ("words", "told_of"),
    [
        ("plan --clients 100 --corrupt nan", "corrupt: value nan"),
        ("plan --clients 100 --dropout inf", "dropout: value inf"),
        ("plan --clients 100 --dropout -0.1", "dropout: value -0.1"),
        ("account --target-epsilon 2 --l2 1e300", "l2: value 1e+300"),
        ("account --coins 100 --l2 nan", "l2_sensitivity"),
        ("account --target-epsilon 1e9", "epsilon"),
    ],
)
def test_figures_out_of_range_are_one_line(told: Refused, words: str, told_of: str) -> None:
    error = told(*words.split())
    assert told_of in error and "ConfigurationError" in error


@pytest.mark.parametrize("option", ["--clients", "--dim"])
def test_counts_beyond_all_arithmetic_are_refused(option: str) -> None:
    result = invoke("plan", "--clients", "100", option, "99999999999999999999")
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("device", ["cuda:99", "abacus", "meta"])
def test_a_device_that_is_not_there_is_one_line_and_leaves_no_folder(
    tmp_path: Path, told: Refused, device: str
) -> None:
    given = write_config(small(aggregator="plain"), tmp_path / "given.toml")
    out = tmp_path / "out"
    change = f"engine.device={device}"
    error = told("run", given, "--set", change, "--quiet", "--out", out)
    assert f"engine.device: torch cannot compute on {device!r}" in error and "cpu" in error
    assert not out.exists()


def test_devices_that_are_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigurationError, match=r"valid: cpu, cuda:0, cuda:1$"):
        require_device("abacus")


def test_an_unknown_data_set_is_one_line(tmp_path: Path, told: Refused) -> None:
    given = write_config(small(), tmp_path / "given.toml")
    out = tmp_path / "out"
    error = told("run", given, "--set", "task.data=digitz", "--out", out)
    assert "task.data: unknown data set 'digitz'; valid: digits, mnist" in error
    assert not out.exists()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_whole(path, "before")
    with full_disk(100), pytest.raises(OSError, match="File too large") as caught:
        write_whole(path, b"x" * 5000)
    assert caught.value.filename == str(path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]


def test_a_file_is_as_private_as_it_is_meant_to_be(tmp_path: Path) -> None:
    path = tmp_path / "secrets.key"
    (tmp_path / "secrets.key.new").touch(0o644)
    write_whole(path, b"secret", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_named_where_a_line_is_added(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    append_durably(path, b"one\n")
    with full_disk(4), pytest.raises(OSError, match=re.escape(str(path))), kept_so_far():
        append_durably(path, b"two\n")
    assert path.read_bytes() == b"one\n"


def test_a_rank_that_another_one_stopped_says_what_is_kept() -> None:
    with pytest.raises(RankFailedError) as caught, kept_so_far():
        raise RankFailedError(1, 3, "OSError: no room")
    told = one_line(caught.value)
    assert told == f"RankFailedError: rank 1 of 3 ended the round: OSError: no room; {KEPT}"


def finish(monkeypatch: pytest.MonkeyPatch, arguments: tuple[Path | str, ...]) -> None:
    """Run a command that must end well."""
    monkeypatch.setattr(sys, "argv", ["veilsum", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0


def accuracies(out: Path) -> list[float]:
    return [
        json.loads(line)["accuracy"] for line in (out / "rounds.jsonl").read_text().splitlines()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", ["plain", "ideal"])
def test_a_run_on_a_full_disk_goes_on_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Refused, aggregator: str
) -> None:
    """Disks of several sizes end the run at one write or another; with room it comes to its end."""
    given = write_config(small(aggregator=aggregator), tmp_path / "given.toml")
    finish(monkeypatch, ("run", given, "--quiet", "--out", tmp_path / "whole"))
    largest = max(each.stat().st_size for each in (tmp_path / "whole").iterdir())
    done = set()
    for share in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9):
        out = tmp_path / str(share)
        arguments = ("run", given, "--quiet", "--out", out)
        with full_disk(int(share * largest)):
            error = told(*arguments)
        assert str(out) in error
        assert "File too large" in error or "could not be written" in error  # the ledger's words
        before = out / "rounds.jsonl"
        done.add(before.read_bytes().count(b"\n") if before.exists() else -1)
        finish(monkeypatch, arguments)
        assert len(accuracies(out)) == 3
        if aggregator == "plain":
            assert accuracies(out) == accuracies(tmp_path / "whole")
        else:
            # Charged once each, whenever the disk was full.
            lines = (out / "ledger.jsonl").read_text().splitlines()
            assert sum(json.loads(line)["kind"] == "event" for line in lines) == 3
    assert len(done) > 1


def test_a_run_says_that_the_same_command_goes_on(tmp_path: Path, told: Refused) -> None:
    given = write_config(small(aggregator="plain"), tmp_path / "given.toml")
    with full_disk(2500):
        error = told("run", given, "--quiet", "--out", tmp_path / "out")
    assert KEPT in error


def test_a_folder_that_cannot_be_used_is_not_said_to_be_in_use(tmp_path: Path) -> None:
    with full_disk(0), pytest.raises(OSError, match="File too large"):
        RunFolder(tmp_path / "out", small())
    with RunFolder(tmp_path / "out", small()):
        pass


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("key", "problem", "valid"),
        PolicyError("clip", 3, "2"),
        DivergedError(3, math.inf),
        CallbackError("Tracker", "gone"),
        RankFailedError(1, 3, "OSError: full"),
        DataError("file", DataProblem.MISSING, "gone", "a file"),
    ],
)
def test_errors_come_back_whole_from_another_process(error: Exception) -> None:
    """A pool that cannot rebuild what its process raised calls itself broken."""
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(back) is type(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sweep a.toml --set x=1,2", "kept; to resume: python -m veilsum sweep a.toml --set x=1,2"),
        ("reproduce cpsgd --quick", "kept; to resume: python -m veilsum reproduce cpsgd --quick"),
        ("audit --out=a", "kept; to resume: python -m veilsum audit --out=a"),
        ("audit --full", "can be resumed: python -m veilsum audit --full --out veilsum-audit"),
        ("bench round", "nothing was kept; to begin again: python -m veilsum bench round"),
    ],
)
def test_an_interruption_says_what_goes_on(words: str, said: str) -> None:
    line = interrupted(["veilsum/__main__.py", *words.split()])
    assert line.endswith(said) and "\n" not in line
