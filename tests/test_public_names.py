"""The public interface: a change here is a change that users see."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

NAMES: dict[str, list[str]] = json.loads((Path(__file__).parent / "public_names.json").read_text())


@pytest.mark.parametrize("package", sorted(NAMES))
def test_public_names_are_the_checked_in_ones(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == NAMES[package]
    for name in module.__all__:
        assert getattr(module, name).__doc__, f"{package}.{name} has no docstring"


def test_no_name_means_two_things() -> None:
    """A package may offer what another one has as well, under the same name; nothing else."""
    meanings: dict[str, set[int]] = {}
    for package, names in NAMES.items():
        module = importlib.import_module(package)
        for name in names:
            meanings.setdefault(name, set()).add(id(getattr(module, name)))
    assert [name for name, things in meanings.items() if len(things) > 1] == []


def test_the_policy_names_every_package() -> None:
    page = (Path(__file__).parents[1] / "docs" / "stability.md").read_text()
    assert [package for package in NAMES if f"`{package}`" not in page] == []
