"""Examples of one's own, in every form that is taken, and those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from protocol.errors import ConfigurationError
from simulations.learning.data import DataKind
from simulations.learning.data.own import digest, own_dataset

SIZES = (20, 11, 9)


def arrays(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(m, 4)), rng.integers(0, 3, m)) for m in SIZES]


class Table:
    """As much of a table of Hugging Face's `datasets` as is used."""

    def __init__(self, **columns: Any) -> None:
        self._columns, self._format = columns, None
        self.column_names = list(columns)

    def with_format(self, kind: str) -> Table:
        table = Table(**self._columns)
        table._format = kind
        return table

    def __getitem__(self, name: str) -> np.ndarray:
        assert self._format == "numpy"
        return np.asarray(self._columns[name])


class Federated:
    """As much of `flwr_datasets.FederatedDataset` as is used."""

    def __init__(self, parts: list[Any], test: Any) -> None:
        self._parts, self._test = parts, test
        self.partitioners = {"train": type("P", (), {"num_partitions": len(parts)})}

    def load_partition(self, index: int, split: str) -> Any:
        assert split == "train"
        return self._parts[index]

    def load_split(self, split: str) -> Any:
        assert split == "test"
        return self._test


def test_all_forms_are_one_data_set() -> None:
    parts, test = arrays(), arrays(1)[0]
    expected = digest(own_dataset(parts, test=test))
    tensors = [(torch.tensor(x), torch.tensor(y)) for x, y in parts]
    torchs = [torch.utils.data.TensorDataset(*pair) for pair in tensors]
    loaders = [torch.utils.data.DataLoader(each, 4, shuffle=True) for each in torchs]
    tables = [Table(features=x, label=y) for x, y in parts]
    many = [Table(spare=y, pixels=x, label=y) for x, y in parts]
    assert digest(own_dataset(tensors, test=test)) == expected
    assert digest(own_dataset(torchs, test=test)) == expected
    assert digest(own_dataset(loaders, test=test)) == expected
    assert digest(own_dataset(tables, test=test)) == expected
    found = own_dataset(
        many, test=Table(pixels=test[0], label=test[1]), columns=("pixels", "label")
    )
    assert digest(found) == expected
    assert digest(own_dataset(Federated(tables, test))) == expected
    assert digest(own_dataset(parts, test=arrays(2)[0])) != expected


def test_owners_are_the_clients() -> None:
    data = own_dataset(arrays(), test=arrays(1)[0])
    assert data.kind is DataKind.NUMBERS and data.classes == 3 and data.shape == (4,)
    assert data.train.owners is not None
    assert np.bincount(data.train.owners).tolist() == list(SIZES)
    np.testing.assert_array_equal(data.train.inputs[20:31], arrays()[1][0].astype(np.float32))


def test_every_tenth_example_is_held_out() -> None:
    data = own_dataset(arrays())
    assert data.train.owners is not None
    assert np.bincount(data.train.owners).tolist() == [18, 10, 9]
    x = [inputs.astype(np.float32) for inputs, _ in arrays()]
    np.testing.assert_array_equal(data.test.inputs, [x[0][9], x[0][19], x[1][9]])
    assert len(np.intersect1d(data.test.inputs[:, 0], data.train.inputs[:, 0])) == 0


def test_bytes_are_pixels_and_integers_are_tokens() -> None:
    pixels = [(np.full((10, 2, 2), 255, np.uint8), np.arange(10) % 2) for _ in range(2)]
    data = own_dataset(pixels)
    assert data.train.inputs.dtype == np.float32 and float(data.train.inputs.max()) == 1.0
    tokens = [(np.arange(30).reshape(10, 3), np.arange(10) % 2) for _ in range(2)]
    data = own_dataset(tokens)
    assert data.kind is DataKind.TEXT and data.vocabulary == 30


GOOD = (np.zeros((3, 2)), np.zeros(3, int))


PAIRS = torch.utils.data.TensorDataset(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))


class Endless(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(PAIRS)


def loader(drawn: range) -> Any:
    return torch.utils.data.DataLoader(PAIRS, sampler=torch.utils.data.SubsetRandomSampler(drawn))


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        (7, "clients: a int; valid: a list"),
        ("data", "clients: a str"),
        ([GOOD], "clients: 1 of them; valid: at least two"),
        ([GOOD, 3], r"clients\[1\]: a int"),
        ([GOOD, (np.zeros((3, 2)), np.zeros(2, int))], r"inputs \[3, 2\] and labels \[2\]"),
        ([GOOD, (np.zeros(3), np.zeros(3, int))], r"inputs \[3\]"),
        ([GOOD, (np.zeros((0, 2)), np.zeros(0, int))], "at least one example"),
        ([GOOD, ([[1.0], [1.0, 2.0]], [0, 0])], "inputs that are all of one shape"),
        ([GOOD, (np.zeros((3, 3)), np.zeros(3, int))], "inputs or labels of different shapes"),
        ([GOOD, (np.zeros((3, 2)), np.zeros(3))], "labels: of float64, .*; valid: integers"),
        ([GOOD, [(np.zeros(2), 0.5)] * 3], "labels: of float64, .* by numpy.digitize"),
        ([GOOD, (np.zeros((3, 2)), np.eye(3) * 2)], "or rows of 0 and 1"),
        ([GOOD, (np.zeros((3, 2)), np.eye(3))], "inputs or labels of different shapes"),
        (loader(range(3)), "clients: a DataLoader; valid: a list"),
        ([GOOD, loader(range(2))], "draws a part of its examples; valid: .*Subset"),
        ([GOOD, DataLoader(PAIRS, batch_sampler=[[0], [1, 2]])], "draws a part"),
        ([GOOD, DataLoader(Endless())], "valid: one over a map-style data set"),
        ([GOOD, DataLoader(PAIRS, collate_fn=list)], "a DataLoader with a collate_fn"),
        ([GOOD, (np.zeros((3, 2)), np.zeros((3, 1)))], r"labels\[:, 0\]"),
        ([GOOD, (np.zeros((3, 2)), np.array([0, -1, 0]))], "integers from 0 on"),
        ([GOOD, (np.full((3, 2), np.nan), np.zeros(3, int))], r"clients\[1\] inputs: not finite"),
        ([GOOD, (np.full((3, 2), "a"), np.zeros(3, int))], "floating-point numbers, bytes"),
        ([GOOD, [1, 2, 3]], r"clients\[1\]\[0\]: a int; valid: a pair"),
        ([GOOD, GOOD], "test: left out; valid: examples to test with"),
        ([Table(a=[[1.0]], b=[0])] * 2, "columns: left out; valid: two of a, b"),
    ],
)
def test_what_is_refused(clients: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        own_dataset(clients)


def test_wrong_columns_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two of a, label"):
        own_dataset([Table(a=[[1.0]], label=[0])] * 2, columns=("b", "label"))
