"""What the package may know of: no framework, no scipy, no generator of random numbers."""

from __future__ import annotations

import ast
from pathlib import Path

import sketch

ALLOWED = (
    "__future__ abc collections cryptography dataclasses enum functools itertools math numpy "
    "sketch struct types typing veilsum"
).split()


def test_the_package_imports_nothing_else() -> None:
    found = set()
    for path in Path(sketch.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").split(".")[0])
    assert found <= set(ALLOWED)
