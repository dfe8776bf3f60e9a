"""Folders of runs that never ran, with records as a run writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simulations.common.pages import Chart
from simulations.learning.configuration import demo_config, write_config
from simulations.learning.records import Record
from simulations.learning.run.overrides import changed
from simulations.reports.run.folders import Run, read_run

ENVIRONMENT = {
    "python": "3.11.7",
    "system": "Linux",
    "processor": "a processor",
    "cores": 2,
    "packages": {"numpy": "2.4.6"},
    "commit": "0123abcd + changes",
    "source": "feedfacefeedface",
}


def record(number: int, **changes: Any) -> dict[str, Any]:
    """One round of a private run of 64 clients, 6 of whom are lost."""
    size = max(600, 4810 - 300 * number)
    values: dict[str, Any] = {
        "round": number,
        "accuracy": 0.92 - 0.8 / (1 + number),
        "loss": 2.3 / number,
        "seconds": 2.0,
        "stages": {"training": 0.5, "aggregation": 1.25, "test": 0.125},
        "cohort": 64,
        "survivors": 60,
        "sketch_size": size,
        "dimension": 4810,
        "compression": 4810 / size,
        "bits": 18,
        "bytes_per_client": 2.5 * size,
        "epsilons": {
            "server": 0.8 * number,
            "outsider": 0.7 * number,
            "sybil": 9.0,
            "secagg_alone": "inf",
            "delta": 1e-5,
            "colluders": 2,
            "amplified": False,
            "adjacency": "zero-out: one client's contribution replaced by the zero vector",
        },
        "rationale": "The estimated norm asks for this size.",
        "figures": {"wanted_size": 2778.79},
        "lost": {"advertise": 1, "share": 2, "input": 1},
        "lost_later": {"confirm": 1, "unmask": 1},
        "refused": 0,
        "error": {
            "measured": 0.5,
            "noise": 0.2,
            "sketch": 0.02,
            "rounding": 1e-6,
            "clipping": 0.25,
            "clipped_clients": 58,
        },
    }
    return {**values, **changes}


def folder_of(path: Path, records: Sequence[Record], **tables: dict[str, Any]) -> Path:
    """Write the folder of a run with these records; tables change the demo's, at epsilon 5."""
    changes: list[tuple[str, Any]] = [
        ("rounds", max(len(records), 1)),
        ("engine.aggregator", "real"),
        ("privacy.epsilon", 5.0),
    ]
    changes += [(f"{table}.{key}", v) for table, keys in tables.items() for key, v in keys.items()]
    path.mkdir(parents=True)
    write_config(changed(demo_config(), changes), path / "config.toml")
    (path / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def drawn(
    make: Callable[[Run, str], Chart | None], path: Path, records: Sequence[Record], **tables: Any
) -> Any:
    """The one plot of a run with these records, or None: a whole page takes half a second."""
    return make(read_run(folder_of(path / "run", records, **tables)), "plot")
