"""The list of commands is read without importing any, and says what they say themselves."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import invoke, run_json
from typer.main import get_command

from simulations.commands import cli
from simulations.learning.configuration import RunConfig, demo_config, write_config
from veilsum.extras import install_command

HEAVY = {"numpy", "numba", "scipy", "torch", "pydantic", "matplotlib", "sklearn", "secagg", "dp"}
VERBS = cli.Commands.verbs


@pytest.mark.parametrize("name", sorted(VERBS))
def test_the_list_says_what_the_command_says(name: str) -> None:
    command = get_command(cli.app).commands[name]
    assert command.name == name
    assert command.help.partition("\n\n")[0] == VERBS[name].help


def test_the_list_shows_every_command() -> None:
    shown = " ".join(invoke("--help").stdout.replace("│", " ").split())
    for name, verb in VERBS.items():
        assert f"{name} {verb.help}" in shown


def test_a_misspelt_command_is_guessed() -> None:
    result = invoke("plam")
    assert result.exit_code == 2
    assert "Did you mean 'plan'?" in result.stderr


def test_no_application_prints_locals_in_a_traceback() -> None:
    """Locals may be secrets, and Typer prints them unless told otherwise, up to 0.20.1."""
    found = [
        {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        for package in ("simulations", "veilsum", "protocol")
        for path in (Path(cli.__file__).parents[2] / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Typer")
    ]
    assert found
    assert {each.get("pretty_exceptions_show_locals") for each in found} == {"False"}


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def imported(heavy: set[str], *arguments: str) -> str:
    """A program that is the command, and says at its end what it imported of these packages."""
    return (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(sorted({heavy!r} & sys.modules.keys()), file=sys.stderr))\n"
        f"sys.argv = {['veilsum', *arguments]!r}\n"
        "from veilsum.__main__ import main\n"
        "main()\n"
    )


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_command(option: str) -> None:
    done = python("-c", imported(HEAVY, option))
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.parametrize("line", ["", "run", "bench", "bench mask", "reproduce", "init"])
def test_the_short_option_is_the_help(line: str) -> None:
    short, long = invoke(*line.split(), "-h"), invoke(*line.split(), "--help")
    assert short.exit_code == 0 and "Usage" in short.stdout
    assert short.stdout == long.stdout


def completed(line: str) -> tuple[set[str], str]:
    """What bash would offer after a line, and what was imported to know it.

    Typer itself reads the requests of shells by pydantic.
    """
    request = {
        "_VEILSUM_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    done = python("-c", imported(HEAVY - {"pydantic"}), **request)
    return set(done.stdout.split()), done.stderr.strip()


def test_a_shell_completes_names_without_importing_a_command_and_its_options() -> None:
    assert completed("veilsum r") == ({"registry", "report", "reproduce", "run"}, "[]")
    assert completed("veilsum run --d")[0] == {"--data-dir", "--dry-run"}


def test_the_script_of_a_shell_is_shown() -> None:
    detection = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = python("-m", "veilsum", "--show-completion", "zsh", **detection)
    assert done.returncode == 0 and "COMPLETE=complete_zsh" in done.stdout


# Does something with packages that cannot be imported, as where no extra but `cli` is installed.
WITHOUT = """
import sys

MISSING = {"torch", "sklearn", "matplotlib", "jinja2", "galois", "flwr"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
MAIN = "from veilsum.__main__ import main\nmain()"


def without_extras(*arguments: str) -> tuple[int, str]:
    """Exit status and standard error of a command that has the extra `cli` alone."""
    done = python("-c", WITHOUT + MAIN, *arguments)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "plan --clients 100 --epsilon 5",
        "account --coins 1024",
        "bench round --clients 8 --dim 100",
        "bench mask --dim 100 --repeats 1",
        "bench sampler --samples 100 --repeats 1",
        "bench encode --dim 100 --repeats 1",
        "bench sketch --dim 1000 --repeats 1",
        "bench faults --schedules 3",
        "bench fuzz --cases 20",
        "audit --only A4",
    ],
)
def test_what_does_not_train_needs_no_torch(line: str) -> None:
    status, error = without_extras(*line.split())
    assert status == 0, error


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("demo", "sim"),
        ("bench compress", "sim"),
        ("audit --only A24", "sim"),
        ("provision client --home nowhere", "flower"),
    ],
)
def test_a_command_says_which_extra_is_missing(line: str, extra: str) -> None:
    status, error = without_extras(*line.split())
    assert status == 2
    assert error.splitlines()[-1].endswith(install_command(extra))
    assert "Traceback" not in error


# What importing some packages one after the other comes to, as text.
IMPORTING = """
import importlib, traceback
for name in ("dp", "protocol", "veilsum.mean"):
    try:
        importlib.import_module(name)
    except ImportError:
        traceback.print_exc(0)
"""


@pytest.mark.parametrize(("work", "times"), [(IMPORTING, 3), (MAIN, 1)])
def test_windows_is_told_that_it_is_not_supported(work: str, times: int) -> None:
    done = python("-c", f"{WITHOUT}MISSING |= {{'fcntl'}}\n{work}", "account")
    assert done.returncode == (2 if work is MAIN else 0)
    said = [line for line in done.stderr.splitlines() if not line.startswith(" ")]
    told = "ImportError: veilsum does not run on Windows: "
    assert sum(line.startswith(told) for line in said) == times, said


def test_a_finished_run_is_said_to_be_so_without_loading_what_trains(tmp_path: Path) -> None:
    raw = demo_config().model_dump()
    raw["rounds"] = 1
    raw["cohort"] |= {"size": 12, "tolerated_dropouts": 3, "tolerated_colluders": 1}
    raw["task"] |= {"population": 24, "hidden": 4}
    config = write_config(RunConfig.model_validate(raw), tmp_path / "small.toml")
    first = run_json("run", config, "--out", tmp_path / "out", "--quiet")
    (tmp_path / "out" / "secrets.key").touch()
    again = run_json("run", config, "--out", tmp_path / "out", "--quiet")
    assert again == first
    assert not (tmp_path / "out" / "secrets.key").exists()
    status, error = without_extras("run", str(config), "--out", str(tmp_path / "out"))
    assert status == 0
    assert "out is finished: nothing is run again" in " ".join(error.split())
