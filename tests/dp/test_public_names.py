"""The public names of dp, as a list that a reviewer sees change."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dp

FORBIDDEN = {
    "secagg",
    "sketch",
    "protocol",
    "simulations",
    "torch",
    "socket",
    "asyncio",
    "threading",
    "time",
    "random",
    "logging",
}
SOURCES = sorted(Path(dp.__file__).parent.rglob("*.py"))


def test_all_is_sorted_and_complete() -> None:
    assert dp.__all__ == sorted(dp.__all__)
    for name in dp.__all__:
        assert hasattr(dp, name)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_imports_and_global_randomness(source: Path) -> None:
    tree = ast.parse(source.read_text())
    # A ledger takes a lock; tests/test_imports.py sees that it takes nothing else from there.
    forbidden = FORBIDDEN - ({"threading"} if source.name == "ledger.py" else set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & forbidden
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in forbidden
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) != ("np", "random")
