"""Random mutants of whole packages, the same ones for the same seed and sources.

Neither mutmut nor cosmic-ray removes a statement, which is what a forgotten check looks like, and
both mutate annotations. Left alone here: annotations and decorators, what an exception says, and
compiled kernels, whose callers keep the unchanged kernel in their caches.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from . import Mutant

_SWAPS: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}
_SKIPPED = ("annotation", "returns", "decorator_list", "type_params")


def drawn(
    root: Path, packages: Sequence[str], count: int, seed: int, tests: Sequence[str]
) -> list[Mutant]:
    """Random mutants of packages or files."""
    paths = (path for each in packages for path in (root / each, *(root / each).rglob("*.py")))
    files = sorted({path for path in paths if path.suffix == ".py"})
    found = [
        Mutant(str(path.relative_to(root)), *made, tuple(tests) or _mirrored(root, path))
        for path in files
        if not path.stem.endswith("_kernels")
        for made in _mutations(path.read_text())
    ]
    return random.Random(seed).sample(found, min(count, len(found)))


def _mirrored(root: Path, path: Path) -> tuple[str]:
    folders = (root / "tests" / each for each in path.relative_to(root).parents)
    return (str(next(each for each in folders if each.is_dir()).relative_to(root)),)


def _mutations(source: str) -> Iterator[tuple[str, str]]:
    """Every mutated source, and what was changed."""
    data = source.encode()
    starts = [0, *accumulate(map(len, data.splitlines(keepends=True)))]
    for node, changed in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        new = data[:start] + changed.encode() + data[end:]
        old = " ".join(data[start:end].decode().split())
        yield new.decode(), f"line {node.lineno}: {old} -> {changed}"


def _changes(tree: ast.AST) -> Iterator[tuple[Any, str]]:
    """Nodes and what stands in their place."""
    for name, field in ast.iter_fields(tree):
        for node in field if isinstance(field, list) else [field]:
            if not isinstance(node, ast.AST) or name in _SKIPPED or isinstance(node, ast.JoinedStr):
                continue
            yield from ((node, changed) for changed in _changed(node))
            if not isinstance(node, ast.Raise):
                yield from _changes(node)


def _changed(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield str(value + 1)
        case ast.Compare(left, [op], [right]):
            yield _written(ast.Compare(left, [_SWAPS[type(op)]()], [right]))
        case ast.BoolOp(op, values):
            yield _written(ast.BoolOp(_SWAPS[type(op)](), values))
        case ast.BinOp(left, op, right) if type(op) in _SWAPS:
            yield _written(ast.BinOp(left, _SWAPS[type(op)](), right))
        case ast.UnaryOp(ast.Not(), operand):
            yield _written(operand)


def _written(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"
