"""What the tests of all campaigns share: the digits, a command, and small campaigns, run once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simulations.campaigns.campaign import Campaign
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
        return json.loads(result.stdout)

    return run


@pytest.fixture(scope="session")
def written(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., tuple[dict[str, Any], Path]]:
    """Run a campaign with a small plan, once; return its figures and the folder.

    Figures, page and plots are there, and the page is the one that these figures make.
    """
    known: dict[Any, tuple[dict[str, Any], Path]] = {}

    def run(campaign: Campaign[Any], plan: Any, seed: int = 1) -> tuple[dict[str, Any], Path]:
        key = (campaign.name, plan, seed)
        if key in known:
            return known[key]
        folder = tmp_path_factory.mktemp(campaign.name)
        paths = campaign.write(campaign.run(campaign.study(plan, folder, seed)), folder)
        figures = json.loads(paths["figures"].read_text())
        page = paths["page"].read_text(encoding="utf-8")
        assert figures["seed"] == seed and page == campaign.page(figures)
        for claim in figures.get("claims", []):
            assert f"| {claim['statement']} |" in page and claim["verdict"] in page
        for name in campaign.plots:
            assert f"![{name}]({paths[name].name})" in page
            assert paths[name].read_bytes().startswith(b"\x89PNG")
            assert paths[name].stat().st_size > 10_000
        known[key] = figures, folder
        return known[key]

    return run
