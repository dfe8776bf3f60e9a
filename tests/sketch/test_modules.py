"""What the modules of the package may import; the exported names are in tests/public_names.json."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sketch

SOURCES = sorted(Path(sketch.__file__).parent.rglob("*.py"))
COMPILED = {"_hadamard_kernels.py", "_kernels.py"}
ALLOWED = {
    "__future__",
    "collections",
    "cryptography",
    "dataclasses",
    "enum",
    "itertools",
    "math",
    "numba",
    "numpy",
    "sketch",
    "struct",
    "types",
    "typing",
    "veilsum",
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= ALLOWED
    assert "np.random" not in path.read_text()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_kernels_are_kept_apart(path: Path) -> None:
    if path.name not in COMPILED:
        assert "numba" not in path.read_text()
