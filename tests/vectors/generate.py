"""Write all vector files, the same bytes every time.

Run from the root of the repository: python -m tests.vectors.generate
A change of a file that is not a new file is a breaking change of the wire format (*).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from . import blocks, corpus, endings, framing, positive, refusals
from .one_shot import blocks as one_shot_blocks
from .one_shot import endings as one_shot_endings
from .one_shot import framing as one_shot_framing
from .one_shot import refusals as one_shot_refusals
from .one_shot import rounds as one_shot_rounds


def vectors() -> dict[str, Iterable[tuple[str, Mapping[str, Any]]]]:
    """All files, by folder."""
    return {
        "rounds": positive.vectors(),
        "refusals": chain(corpus.files(refusals), endings.vectors()),
        "one-shot-rounds": one_shot_rounds.vectors(),
        "one-shot-refusals": chain(corpus.files(one_shot_refusals), one_shot_endings.vectors()),
        "messages": chain(framing.vectors(), one_shot_framing.vectors()),
        "primitives": chain(blocks.vectors(), one_shot_blocks.vectors()),
    }


def write(folder: Path) -> int:
    """Replace the files below a folder; returns how many there are."""
    written = 0
    for kind, files in vectors().items():
        shutil.rmtree(folder / kind, ignore_errors=True)
        (folder / kind).mkdir(parents=True)
        for name, vector in files:
            path = folder / kind / f"{name}.json"
            if path.exists():
                raise ValueError(f"two vectors are called {kind}/{name}")
            path.write_text(to_json(vector) + "\n")
            written += 1
    return written


def to_json(value: object, indent: int = 0) -> str:
    """JSON with one line for whatever fits: short enough to keep, long enough to read in a diff."""
    flat = json.dumps(value)
    if len(flat) + indent <= 98 or not isinstance(value, dict | list):
        return flat
    inner, end = "\n" + " " * (indent + 1), "\n" + " " * indent
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {to_json(item, indent + 1)}" for key, item in value.items()]
        return "{" + inner + ("," + inner).join(items) + end + "}"
    if all(isinstance(item, int) for item in value):
        return flat
    return "[" + inner + ("," + inner).join(to_json(item, indent + 1) for item in value) + end + "]"


if __name__ == "__main__":
    target = Path(__file__).parent
    sys.stdout.write(f"{write(target)} files below {target}\n")
