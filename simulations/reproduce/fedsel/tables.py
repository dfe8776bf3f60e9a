"""The tables of FedSel's experiments: 32, 123 and 114 features, and the synthetic ones.

The paper gives rows and features and says "one-hot-encoding every categorical attribute". What
gives its counts is chosen here:

- BANK, 45,211 x 32: numbers scaled to [0, 1]; yes and no one feature; job, marital, education and
  poutcome indicators. Contact, day and month of the last call are left out. With all columns there
  would be 51 features; another choice of columns can also give 32.
- ADULT, 48,842 x 123: the encoding of Platt 1998 (LIBSVM's a9a): numbers by fifths, capital gain
  and loss by whether there is any, indicators of everything else, none for a missing value. Two
  fifths are empty, as two quantiles coincide in two columns.
- KDD99, 70,000 x 114: rows drawn at random from the 10 % file; numbers, among them four binary
  ones, scaled to [0, 1]; indicators of protocol, service and flag. How many services occur depends
  on the rows drawn: other seeds give 112 to 115 features.

Label +1 is a deposit, an income above 50,000, an attack. There is no intercept: it would be one
feature more.

Source: Liu et al. 2020 (arXiv 2003.10637), Section 5.1; Platt 1998, "Fast training of support
vector machines"; Wangni et al. 2018 (arXiv 1710.09854), Section 5.1, for the synthetic tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ConfigurationError
from simulations.learning.data import DataFolder, catalog, find_data_dir
from simulations.learning.data.tabular import MISSING, Categorical, Table
from simulations.learning.data.uci import (
    ADULT_CLASSES,
    ADULT_SCHEMA,
    BANK_CLASSES,
    BANK_SCHEMA,
    KDD99_SCHEMA,
    read_uci,
)

Floats = NDArray[np.float32]

FIFTHS: Final = (0.2, 0.4, 0.6, 0.8)
KDD99_ROWS: Final = 70_000
KDD99_SEED: Final = 0
_KDD99_BINARY: Final = ("land", "logged_in", "is_host_login", "is_guest_login")


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Rows to learn from."""

    name: str  # as the paper has it
    inputs: Floats  # float32[N, d]
    labels: Floats  # float32[N], -1 or +1

    @property
    def majority(self) -> float:
        """Share of the more frequent label: the accuracy of a constant answer."""
        positive = float((self.labels > 0).mean())
        return max(positive, 1.0 - positive)


def bank(folder: DataFolder) -> Examples:
    """Read BANK: float32[45211, 32]."""
    table, subject = read_uci(folder, catalog.BANK, BANK_SCHEMA, delimiter=";", header=True)
    numbers = ("age", "balance", "duration", "campaign", "pdays", "previous")
    names = ("job", "marital", "education", "poutcome")
    blocks = [unit_scaled(table.numbers[name]) for name in numbers]
    blocks += [is_value(table.categories[name], "yes") for name in ("default", "housing", "loan")]
    blocks += [indicators([table.categories[name]]) for name in names]
    return _examples("BANK", blocks, table.labels(BANK_CLASSES, subject))


def adult(folder: DataFolder) -> Examples:
    """Read ADULT, both files in one: float32[48842, 123]."""
    train, train_subject = read_uci(folder, catalog.ADULT_TRAIN, ADULT_SCHEMA)
    test, test_subject = read_uci(folder, catalog.ADULT_TEST, ADULT_SCHEMA)
    labels = [train.labels(ADULT_CLASSES, train_subject), test.labels(ADULT_CLASSES, test_subject)]
    blocks = []
    for name in ADULT_SCHEMA.numbers:
        numbers = np.concatenate([train.numbers[name], test.numbers[name]])
        some = name.startswith("capital-")
        edges = np.zeros(1) if some else np.asarray(np.quantile(numbers, FIFTHS))
        blocks.append(intervals(numbers, edges))
    for name in ADULT_SCHEMA.categories:
        blocks.append(indicators([train.categories[name], test.categories[name]]))
    return _examples("ADULT", blocks, np.concatenate(labels))


def kdd99(folder: DataFolder) -> Examples:
    """Read KDD99: float32[70000, 114]."""
    table, _ = read_uci(folder, catalog.KDD99_TRAIN, KDD99_SCHEMA)
    drawn = np.random.default_rng(KDD99_SEED).choice(len(table), KDD99_ROWS, replace=False)
    return kdd99_of(table.take(np.sort(drawn)))


def kdd99_of(table: Table) -> Examples:
    """Encode a table of connections."""
    blocks = [unit_scaled(table.numbers[name]) for name in KDD99_SCHEMA.numbers]
    blocks += [is_value(table.categories[name], "1") for name in _KDD99_BINARY]
    names = [name for name in KDD99_SCHEMA.categories if name not in _KDD99_BINARY]
    blocks += [indicators([table.categories[name]]) for name in names]
    return _examples("KDD", blocks, 1.0 - is_value(table.target, "normal.")[:, 0])


def synthetic(
    rows: int, features: int, small: float, share: float, seed: int, name: str
) -> Examples:
    """Draw a table of N rows and d features in which most features are small.

    Dense rows z and a separator are standard normal, and the label is the side on which z lies.
    Feature j is b_j z_j with b_j uniform in [0, 1], times ``small`` (C1) if it is at most ``share``
    (C2).
    """
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((rows, features), dtype=np.float32)
    scales = rng.random(features)
    scales = np.where(scales <= share, small * scales, scales).astype(np.float32)
    separator = rng.standard_normal(features).astype(np.float32)
    labels = np.where(dense @ separator >= 0.0, 1.0, -1.0).astype(np.float32)
    inputs: Floats = (dense * scales).astype(np.float32)
    return Examples(name, inputs, labels)


LOADERS: Final[dict[str, Callable[[DataFolder], Examples]]] = {
    "BANK": bank,
    "KDD": kdd99,
    "ADULT": adult,
}

# Rows and features. S is this project's own, to try things out.
SYNTHETIC: Final = {"syn-L": (60_000, 100), "syn-H": (100_000, 300), "syn-S": (4_000, 20)}

SYNTHETIC_SEED: Final = 1


@cache
def load(name: str, data_dir: Path | None = None) -> Examples:
    """Return a table by its name: BANK, KDD, ADULT, or such as syn-L-0.01-0.9; once a process."""
    if name in LOADERS:
        return LOADERS[name](DataFolder(find_data_dir(data_dir)))
    found = re.fullmatch(r"(syn-[LHS])-([0-9.]+)-([0-9.]+)", name)
    if found is None:
        known = ", ".join([*LOADERS, *(f"{kind}-C1-C2" for kind in SYNTHETIC)])
        raise ConfigurationError("table", f"{name!r} is unknown", known)
    kind, small, share = found.groups()
    rows, features = SYNTHETIC[kind]
    return synthetic(rows, features, float(small), float(share), SYNTHETIC_SEED, name)


def unit_scaled(numbers: Floats) -> Floats:
    """Return float32[N, 1], from 0 for the smallest to 1 for the largest; a missing one is 0."""
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    scaled = (numbers - low) / (high - low) if high > low else np.zeros_like(numbers)
    return np.nan_to_num(scaled).astype(np.float32)[:, None]


def is_value(column: Categorical, value: str) -> Floats:
    """Return float32[N, 1]: 1 where the column has the value."""
    code = column.values.index(value) if value in column.values else -1
    marks: Floats = (column.codes == code).astype(np.float32)[:, None]
    return marks


def intervals(numbers: Floats, edges: NDArray[np.float64]) -> Floats:
    """Return one indicator for each interval that ends with an edge, and one for what is above."""
    places = np.searchsorted(edges, numbers, side="left")
    marks: Floats = np.eye(edges.size + 1, dtype=np.float32)[places]
    return marks


def indicators(parts: Sequence[Categorical]) -> Floats:
    """Return one indicator for each value that occurs in the parts of a column, none if missing."""
    present = {part.values[code] for part in parts for code in np.unique(part.codes)}
    values = sorted(present - {MISSING})
    return np.concatenate(
        [np.concatenate([is_value(part, value) for value in values], axis=1) for part in parts]
    )


def _examples(name: str, blocks: Sequence[Floats], classes: NDArray[np.generic]) -> Examples:
    labels = np.where(np.asarray(classes) > 0, 1.0, -1.0).astype(np.float32)
    return Examples(name, np.ascontiguousarray(np.concatenate(blocks, axis=1)), labels)
