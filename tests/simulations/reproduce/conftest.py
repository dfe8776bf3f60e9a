"""What the tests of all campaigns share: the embedded digits, and a command that prints JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from simulations.commands import cli
from simulations.learning.data import Dataset, load_dataset


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """The embedded digits."""
    return load_dataset("digits")


@pytest.fixture(scope="session")
def reproduced() -> Callable[..., dict[str, Any]]:
    """Run `veilsum reproduce ... --json` and return what it prints."""

    def run(*arguments: object) -> dict[str, Any]:
        command = ["reproduce", *map(str, arguments), "--json"]
        result = CliRunner().invoke(cli.app, command)
        assert result.exit_code == 0, result.output
        figures: dict[str, Any] = json.loads(result.stdout)
        return figures

    return run
