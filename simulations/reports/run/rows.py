"""Runs as one flat table, a row for each round, for tools that read tables: CSV or Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from protocol.errors import ConfigurationError
from simulations.common.files import write_whole
from simulations.learning.records import Cell, flat
from simulations.reports.run.comparison import flattened, settings_that_differ
from simulations.reports.run.folders import Run

Format = Literal["csv", "parquet"]


@dataclass(frozen=True, slots=True)
class Column:
    """What a column is about."""

    unit: str  # of its numbers; empty for words
    meaning: str  # a few words


COLUMNS: Final[Mapping[str, Column]] = {
    "run": Column("", "name of the run's folder"),
    "config": Column("", "a setting in which the runs differ, such as `config.privacy.epsilon`"),
    "round": Column("rounds", "number of the round, from 1"),
    "accuracy": Column("share, 0 to 1", "right answers of the test; empty without a test"),
    "loss": Column("nats", "mean loss of the test, a cross entropy for most models"),
    "seconds": Column("seconds", "the whole round"),
    "stages": Column("seconds", "its parts: `training`, `aggregation`, `test`, `compiling`"),
    "cohort": Column("clients", "invited to the round"),
    "step": Column("units of the model", "Euclidean length of the model's change"),
    "survivors": Column("clients", "in the sum"),
    "lost": Column("clients", "lost before their update was in the sum, by stage"),
    "lost_later": Column("clients", "lost after it was, by stage"),
    "refused": Column("clients", "whose message or update was refused"),
    "dimension": Column("values", "parameters of the model"),
    "sketch_size": Column("values", "that a client sends"),
    "compression": Column("ratio", "`dimension` over `sketch_size`"),
    "bits": Column("bits", "of one value that is sent"),
    "bytes_per_client": Column("bytes", "all messages of a client, sent and received"),
    "error": Column(
        "squared units of an update",
        "of the mean update, by part; `error.clipped_clients` is a number of clients",
    ),
    "epsilons": Column(
        "epsilon",
        "spent so far, by adversary; `epsilons.guaranteed` wherever the run stops; `delta`, "
        "`colluders`, `adjacency` and the rest say what they hold for",
    ),
    "coins": Column("coins", "fair coins that each client adds to a value"),
    "variance": Column("steps squared", "variance of the noise that each client adds to a value"),
    "scale": Column("steps per unit", "of an update when it is rounded"),
    "clip_l2": Column("units of an update", "bound on the length of what a client sends"),
    "noise_variance": Column("squared units of an update", "noise of one released value"),
    "sum_noise_variance": Column(
        "squared units of an update", "the same of the sum of all rounds, where noise comes back"
    ),
    "sum_independent_variance": Column(
        "squared units of an update", "what independent noise for the same promise would have there"
    ),
    "members": Column("members", "who added noise"),
    "members_returning": Column("members", "who took back the noise of the round before"),
    "released_norm_squared": Column(
        "squared units of an update", "squared length of the released mean of what clients sent"
    ),
    "rationale": Column("", "why the sketch has its size"),
    "figures": Column("", "numbers behind the rationale; they depend on the controller"),
    "clip_of_an_update": Column("units of an update", "the clip, where it follows the norms"),
    "threshold": Column("units of an update", "that clients vote on"),
    "share_below": Column("share, 0 to 1", "released share of clients below the threshold"),
    "clipping": Column("", "numbers behind the clip"),
    "by_clients": Column(
        "share, 0 to 1, or nats",
        "`accuracy` and `loss` as clients say, each with its standard error, `_error`",
    ),
    "backdoor": Column("share", "of marked test examples that get the label attackers want"),
    "insecure_seed": Column("", "that all secrets follow from: such a run protects nobody"),
}
"""Of every column, or of all whose names begin so and go on after a dot."""

COUNTS: Final = ("lost.", "lost_later.")
"""Where nothing is recorded, there is nothing to count."""


def column_of(name: str) -> Column:
    """What a column of this name is about; nothing is known of one that another version wrote."""
    return COLUMNS.get(name.partition(".")[0], Column("", ""))


def rows_of(runs: Sequence[Run]) -> list[dict[str, Cell]]:
    """A row for each round of each run; all have the same columns, None where there is no value."""
    differing = settings_that_differ(runs) if len(runs) > 1 else []
    found = []
    for run in runs:
        settings = flat(flattened(run.config.model_dump()))
        first = {"run": run.name, **{f"config.{key}": settings.get(key) for key in differing}}
        found += [{**first, **flat(record)} for record in run.records]
    if not found:
        raise ConfigurationError(str(runs[0].path), "no round in it", "a run with a finished round")
    names = {name: None for row in found for name in row}
    places = {name: place for place, name in enumerate(COLUMNS)}
    columns = sorted(names, key=lambda name: places.get(name.partition(".")[0], len(places)))
    return [{name: row.get(name, _absent(name)) for name in columns} for row in found]


def write_rows(rows: Sequence[Mapping[str, Cell]], path: Path, form: Format) -> None:
    """Write a table whose rows have the same columns; the folder is made if need be."""
    data = _parquet(rows) if form == "parquet" else _csv(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)


def _absent(name: str) -> Cell:
    return 0 if name.startswith(COUNTS) else None


def _csv(rows: Sequence[Mapping[str, Cell]]) -> bytes:
    """Names in the first line; empty cells for None, true and false in small letters."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        words = {k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()}
        writer.writerow(words)
    return text.getvalue().encode()


def _parquet(rows: Sequence[Mapping[str, Cell]]) -> bytes:
    """Typed columns, with unit and meaning as metadata of each."""
    import pyarrow
    from pyarrow import parquet

    fields, arrays = [], []
    for name in rows[0]:
        values = [row[name] for row in rows]
        kind = _kind(values, pyarrow)
        if kind == pyarrow.string():
            values = [None if value is None else str(value) for value in values]
        about = column_of(name)
        metadata = {"unit": about.unit, "meaning": about.meaning}
        fields.append(pyarrow.field(name, kind, metadata=metadata))
        arrays.append(pyarrow.array(values, kind))
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(arrays, pyarrow.schema(fields)), sink)
    return bytes(sink.getvalue().to_pybytes())


def _kind(values: Sequence[Cell], pyarrow: Any) -> Any:
    """The narrowest type of a column that holds all of its values."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        # A column without any value is one of numbers.
        return pyarrow.int64() if kinds == {int} else pyarrow.float64()
    return pyarrow.bool_() if kinds == {bool} else pyarrow.string()
