"""What ran, and where: versions, machine, commit, and a hash of the source."""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
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
    """What produced a result.

    Attributes:
        commit: of the git checkout, with "+ changes" if there are any; None outside of one.
        source: first 16 hex digits of the hash of all our modules.
        machine: system, processor, cores.
        versions: of Python and of libraries; those that are not installed are left out.
    """

    commit: str | None
    source: str
    machine: dict[str, str | int]
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
        folder = Path(str(importlib.import_module(name).__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{name}/{path.relative_to(folder)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


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
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
    }


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
