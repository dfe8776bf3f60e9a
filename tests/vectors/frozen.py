"""Ties all frozen vectors and hashed labels to the versions that they belong to.

Run from the root of the repository, with a new version: python -m tests.vectors.frozen
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import veilsum
from dp import NoiseSeed
from dp.sampling import SkellamLaw, sample_law
from secagg.tags import WIRE_VERSION

TESTS = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("frozen.json")


def labels() -> Iterator[str]:
    """Everything in the sources that separates what is hashed, derived or signed."""
    for package in ("secagg", "dp", "sketch", "protocol"):
        for path in (TESTS.parent / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef) and node.name == "Usage":
                    yield from (ast.unparse(n) for n in node.body if isinstance(n, ast.Assign))
                elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
                    if node.value.startswith(b"veilsum"):
                        yield repr(node.value)


def now() -> dict[str, str | int]:
    """The versions, and the hash of what must not change without them."""
    digest = hashlib.sha256("\n".join(sorted(labels())).encode())
    noise = sample_law(SkellamLaw(900.0), NoiseSeed(bytes(range(32))), 64)
    digest.update(noise.astype("<i8").tobytes())
    for path in sorted((*TESTS.glob("vectors/*/*.json"), *TESTS.glob("*/vectors/*.json"))):
        digest.update(f"\n{path.relative_to(TESTS).as_posix()}\n".encode() + path.read_bytes())
    return {"version": veilsum.__version__, "wire": WIRE_VERSION, "sha256": digest.hexdigest()}


def renew(record: Path = RECORD) -> None:
    """Write what there is now."""
    made, old = now(), json.loads(record.read_text())
    if made != old and all(made[key] == old[key] for key in ("version", "wire")):
        raise SystemExit(
            f"vectors or labels differ from those of version {old['version']}, wire version "
            f"{old['wire']}: raise veilsum.__version__, and secagg.tags.WIRE_VERSION too unless "
            "vectors were only added"
        )
    record.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    renew()
