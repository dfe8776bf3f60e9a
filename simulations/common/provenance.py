"""What ran, and where: versions, machine, commit, and a hash of the source."""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OURS: Final = ("secagg", "dp", "sketch", "protocol", "simulations")
LIBRARIES: Final = (
    "veilsum",
    "numpy",
    "numba",
    "scipy",
    "cryptography",
    "dp-accounting",
    "torch",
    "flwr",
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """What produced a result."""

    # of the git checkout, with "+ changes" if there are any; None outside of one
    commit: str | None
    source: str  # first 16 hex digits of the hash of all our modules
    machine: dict[str, str | int]  # system, processor, cores
    # of Python and of libraries; those that are not installed are left out
    versions: dict[str, str]


@lru_cache(maxsize=1)
def provenance() -> Provenance:
    """Return what runs here."""
    return Provenance(_commit(), source_hash(), machine(), _versions())


def source_hash(packages: tuple[str, ...] = OURS) -> str:
    """Return 16 hex digits that change with any module of these packages.

    A commit says nothing about changes that are not committed, and an installed package has none.
    """
    digest = hashlib.sha256()
    for name in packages:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"no package {name}", name=name)
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{name}/{path.relative_to(folder)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


@cache
def source_of(module: str) -> str:
    """Return 16 hex digits that change with the module and with whatever of ours it imports.

    Imports are read, not run: those inside functions count, and of a package that fetches its
    names when they are asked for (``__getattr__``) every module does.
    """
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


def _commit() -> str | None:
    folder = Path(__file__).parents[2]
    git = shutil.which("git")
    if git is None or not (folder / ".git").exists():
        return None
    head = _output(git, folder, "rev-parse", "--short=12", "HEAD")
    if not head:
        return None
    return f"{head} + changes" if _output(git, folder, "status", "--porcelain") else head


def _output(git: str, folder: Path, *arguments: str) -> str:
    """What git prints; nothing if it fails."""
    done = subprocess.run(  # noqa: S603 - our own arguments, the git that is found first
        [git, "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> dict[str, str | int]:
    """Return system, processor and cores."""
    return {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count() or 1}


def _processor() -> str:
    """The processor's name where Linux tells it; else what Python knows."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
