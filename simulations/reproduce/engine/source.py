"""A digest of the code that a result depends on: a module and all of ours that it imports.

Imports are read, not run: those inside functions count, and of a package that fetches its names
when they are asked for (``__getattr__``) every module does. A change elsewhere, of a page or of
another campaign, leaves the digest as it is.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from simulations.common.provenance import OURS


@cache
def source_of(module: str) -> str:
    """Return 16 hex digits that change with the module and with whatever of ours it imports."""
    seen: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if path is None or name in seen:
            continue
        seen[name] = path
        waiting += _imported(name)
    digest = hashlib.sha256()
    for name in sorted(seen):
        content = seen[name].read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


@cache
def _path(name: str) -> Path | None:
    """Return the file of a module; None if there is none, as for a function's name."""
    if name.partition(".")[0] not in OURS:
        return None
    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(found.origin) if found and found.origin else None


@cache
def _imported(name: str) -> tuple[str, ...]:
    """Return what a module may import: modules, names in them, and the packages they are in."""
    path = _path(name)
    if path is None:
        return ()
    tree = ast.parse(path.read_bytes())
    found = list(_named(tree))
    if path.name == "__init__.py" and any(
        isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body
    ):
        within = (
            each.relative_to(path.parent).with_suffix("") for each in path.parent.rglob("*.py")
        )
        found += [".".join([name, *each.parts]).removesuffix(".__init__") for each in within]
    parents = (each.rpartition(".")[0] for each in (name, *found))
    return tuple(dict.fromkeys(each for each in (*found, *parents) if each))


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.partition(".")[0] in OURS:
                yield node.module
                yield from (f"{node.module}.{each.name}" for each in node.names)
