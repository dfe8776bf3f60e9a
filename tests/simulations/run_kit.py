"""What tests of runs share: kinds of runs, folders with a known key, what is left, launchers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from small_runs import lines, timeless

from simulations.learning.configuration import RunConfig
from simulations.learning.local_dp.journal import PATTERN
from simulations.learning.run.folder import RunFolder

_COMMITTEE: Final[Mapping[str, Any]] = {
    "engine.aggregator": "real",
    "scheme.kind": "one-shot",
    "scheme.committee.size": 8,
    "scheme.committee.corrupt": 1,
    "scheme.committee.away": 1,
}
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ideal": {"engine.aggregator": "ideal"},
    "real": {"engine.aggregator": "real"},
    "central": {"engine.aggregator": "central"},
    "plain": {"engine.aggregator": "plain"},
    "fedsel": {"engine.aggregator": "local", "local_dp": {"algorithm": "fedsel", "momentum": 0.5}},
    "secure levels": {
        "engine.aggregator": "local",
        "privacy.epsilon": 300.0,
        "local_dp": {"algorithm": "sqsgd", "sample_share": 0.05, "through": "secure_sum"},
    },
    "skellam": {"engine.aggregator": "real", "noise.mechanism": "skellam"},
    "discrete gaussian": {"engine.aggregator": "ideal", "noise.mechanism": "discrete-gaussian"},
    "one-shot": {"engine.aggregator": "real", "scheme.kind": "one-shot"},
    "named": {**_COMMITTEE, "scheme.committee.kind": "named"},
    # Now and then too few of the thirty are drawn, and a number is passed over.
    "drawn": {**_COMMITTEE, "scheme.committee.kind": "drawn", "scheme.committee.odds": 0.3},
    "powersgd": {"engine.aggregator": "ideal", "powersgd": {"rank": 2}},
    "clipping": {"engine.aggregator": "ideal", "clipping": {"smallest": 0.01}},
    "evaluated": {
        "engine.aggregator": "real",
        "evaluation": {"every": 1, "held_out": 2},
        "clipping": {"smallest": 0.01},
    },
    "denoised": {"engine.aggregator": "central", "denoise": {"rate": 4.0}},
}
KEY: Final = bytes(range(32))


def folder_of(path: Path, config: RunConfig, key: bytes = KEY) -> Path:
    """The folder of a run that has not begun, with secrets that are known."""
    with RunFolder(path, config) as folder:
        folder.key.write_bytes(key)
    return path


def left(path: Path, *others: str) -> dict[str, Any]:
    """All that a run leaves but times and other entries of records: models, ledger, memories."""
    with np.load(path / "checkpoint.npz") as arrays:
        kept = {name: arrays[name].tobytes() for name in arrays.files if name != "public"}
    ledger = path / "ledger.jsonl"
    return {
        **kept,
        "records": timeless(lines(path / "rounds.jsonl"), *others),
        "ledger": ledger.read_bytes() if ledger.exists() else b"",
        **{file.name: file.read_bytes() for file in path.glob(PATTERN)},
    }


def torchrun(size: int, *words: object) -> list[str]:
    """The command line of so many ranks of ours; of one process if there is one."""
    engine = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(size), "-m"]
    return [sys.executable, "-m", *(engine if size > 1 else []), "simulations", *map(str, words)]


def process_of(rank: int, folder: Path) -> int:
    """The number of the process of a rank whose command names a folder."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            told = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder) in words and b"RANK=%d" % rank in told:
            return int(place.name)
    raise AssertionError(f"no rank {rank}")
