"""The `veilsum` command as tests call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from typer.testing import CliRunner

from simulations.commands import cli

Refused: TypeAlias = Callable[..., str]
"""Runs a command as from a shell; it must end with status 2. What it wrote to standard error."""


def invoke(*arguments: object) -> Any:
    """Run a command in this process."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def run_json(*arguments: object) -> Any:
    """Run a command that must end well, and return what it prints as JSON."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
