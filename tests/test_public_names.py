"""The public interface: a change here is a change that users see."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

NAMES = json.loads((Path(__file__).parent / "public_names.json").read_text())


@pytest.mark.parametrize("package", sorted(NAMES))
def test_public_names_are_the_checked_in_ones(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == NAMES[package]
    for name in module.__all__:
        assert getattr(module, name).__doc__, f"{package}.{name} has no docstring"
