"""Columns of real tables, and words of speakers; made ones where there are no files."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simulations.campaigns.study import data_dir_here
from simulations.learning.data import catalog, uci
from simulations.learning.data.files import DataFolder, find_data_dir
from simulations.learning.data.shakespeare import read_moby_lines

Column = NDArray[np.float64]

MADE: Final = "made"
COLUMNS: Final[dict[str, Any]] = {
    "adult age": (catalog.ADULT_TRAIN, uci.ADULT_SCHEMA, {}, "age", (0.0, 127.0)),
    "adult fnlwgt": (catalog.ADULT_TRAIN, uci.ADULT_SCHEMA, {}, "fnlwgt", (0.0, 2.0**21 - 1)),
    "bank balance": (
        *(catalog.BANK, uci.BANK_SCHEMA, {"delimiter": ";", "header": True}),
        *("balance", (-(2.0**14), 2.0**17 - 1)),
    ),
    "kdd count": (catalog.KDD99_TRAIN, uci.KDD99_SCHEMA, {}, "count", (0.0, 511.0)),
}
"""File, how it is read, a column, and bounds that do not come from the data."""


def _folder() -> DataFolder:
    return DataFolder(find_data_dir(data_dir_here()))


@cache
def _numbers(source: str) -> Column:
    file, schema, options, name, _ = COLUMNS[source]
    table, _ = uci.read_uci(_folder(), file, schema, **options)
    return np.asarray(table.numbers[name], np.float64)


def column(source: str, clients: int, seed: int) -> tuple[Column, tuple[float, float]]:
    """Return the numbers of so many clients, drawn without replacement, and their bounds."""
    rng = np.random.default_rng(seed)
    if source == MADE:
        return np.clip(np.rint(rng.normal(40.0, 14.0, clients)), 0.0, 127.0), (0.0, 127.0)
    return rng.choice(_numbers(source), clients, replace=False), COLUMNS[source][4]


@cache
def scored(seed: int) -> tuple[NDArray[np.int64], Column]:
    """Return labels and probabilities of ADULT's test records, by logistic regression."""
    from sklearn.linear_model import LogisticRegression

    data = uci.load_adult(_folder())
    model = LogisticRegression(max_iter=300, random_state=seed)
    model.fit(data.train.inputs, data.train.labels)
    return data.test.labels, model.predict_proba(data.test.inputs)[:, 1]


def words(source: str, seed: int) -> list[list[str]]:
    """Return the different words of each speaker; `seed` is of made ones."""
    rng = np.random.default_rng(seed)
    if source == MADE:
        known = [f"{first}{second}" for first in "abcdefgh" for second in "mnopqrst"]
        odds = 1.0 / np.arange(1.0, len(known) + 1.0)
        spoken: Any = [rng.choice(known, 40, p=odds / odds.sum()) for _ in range(300)]
    else:
        lines = read_moby_lines(_folder())
        spoken = [re.findall("[a-z]+", " ".join(each).lower()) for each in lines.values()]
    return [sorted(set(map(str, each))) for each in spoken if len(each)]
