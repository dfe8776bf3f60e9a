"""The list of commands is read without importing any, and says what they say themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import invoke
from typer.main import get_command

from simulations.commands import cli

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


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_command(option: str) -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr))\n"
        f"sys.argv = ['veilsum', {option!r}]\n"
        "from veilsum.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "[]\n")
