"""LEAF's files: JSON with one record of examples per user, in any number of files.

A file is ``{"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}``.
LEAF's scripts write a folder ``train`` and a folder ``test`` of such files.

May use numpy; must not know torch, models or the protocol.

Source: Caldas et al. 2018, "LEAF: a benchmark for federated settings" (arXiv 1812.01097).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.learning.data.base import DataKind, Dataset, Inputs, Labels, Owners, Split
from simulations.learning.data.errors import DataError, DataProblem
from simulations.learning.data.files import DataFolder
from simulations.learning.data.text import VOCABULARY, encode_text, pad_left

FEMNIST_CLASSES = 62
"""Ten digits, 26 capital and 26 small letters."""

FEMNIST_SIDE = 28
"""Pixels per side of a FEMNIST image."""

SHAKESPEARE_LENGTH = 80
"""Characters per context in LEAF's Shakespeare."""

_VALID = 'LEAF JSON: "users", "num_samples", "user_data" with "x" and "y" for each user'


@dataclass(frozen=True, slots=True)
class LeafUser:
    """The examples of one user, as they are in the file."""

    x: Sequence[Any]  # inputs
    y: Sequence[Any]  # labels, one per input


Examples = tuple[Inputs, Labels]
"""Inputs and labels of one user."""


def load_leaf_femnist(folder: DataFolder) -> Dataset:
    """Load handwritten characters by writer, from ``leaf-femnist/{train,test}/*.json``.

    Post: inputs are float32[m, 28, 28] in [0, 1].
    """
    train, test = _load_users(folder.root / "leaf-femnist", _femnist_examples)
    return Dataset(
        name="leaf-femnist", kind=DataKind.IMAGE, classes=FEMNIST_CLASSES, train=train, test=test
    )


def load_leaf_shakespeare(folder: DataFolder) -> Dataset:
    """Load next-character examples by role, from ``leaf-shakespeare/{train,test}/*.json``.

    Post: inputs are int64[m, 80] in the alphabet of :mod:`simulations.learning.data.text`.
    """
    train, test = _load_users(folder.root / "leaf-shakespeare", _shakespeare_examples)
    return Dataset(
        name="leaf-shakespeare",
        kind=DataKind.TEXT,
        classes=VOCABULARY,
        vocabulary=VOCABULARY,
        train=train,
        test=test,
    )


def read_leaf(paths: Iterable[Path]) -> dict[str, LeafUser]:
    """Read the users of any number of files."""
    users: dict[str, LeafUser] = {}
    for path in paths:
        for name, user in _read_file(path).items():
            if name in users:
                raise DataError(
                    str(path), DataProblem.FORMAT, f"user {name} is also in another file", _VALID
                )
            users[name] = user
    return users


def _read_file(path: Path) -> dict[str, LeafUser]:
    """Read one file and check that its three parts agree."""
    subject = str(path)
    try:
        content = json.loads(path.read_bytes())
        names, counts = content["users"], [(n, n) for n in content["num_samples"]]
        records = {name: content["user_data"][name] for name in names}
        users = {name: LeafUser(record["x"], record["y"]) for name, record in records.items()}
        sizes = [(len(user.x), len(user.y)) for user in users.values()]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(subject, DataProblem.FORMAT, f"{error!r}"[:120], _VALID) from error
    if sizes != counts or len(users) != len(names):
        raise DataError(
            subject, DataProblem.COUNT, "num_samples, x and y differ in length for a user", _VALID
        )
    return users


def _load_users(root: Path, convert: Callable[[LeafUser], Examples]) -> tuple[Split, Split]:
    """Read both folders; a user has the same number in both, by the order of the names."""
    parts = [_read_folder(root / part) for part in ("train", "test")]
    numbers = {name: i for i, name in enumerate(sorted({*parts[0], *parts[1]}))}
    train, test = (_split(users, numbers, convert, str(root)) for users in parts)
    return train, test


def _read_folder(folder: Path) -> dict[str, LeafUser]:
    """Read all files of a folder, in the order of their names."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(
            str(folder),
            DataProblem.MISSING,
            "no *.json file",
            "the files that preprocess.sh of github.com/TalwalkarLab/leaf writes",
        )
    return read_leaf(paths)


def _split(
    users: Mapping[str, LeafUser],
    numbers: Mapping[str, int],
    convert: Callable[[LeafUser], Examples],
    subject: str,
) -> Split:
    """Convert and join the users who have examples."""
    inputs: list[Inputs] = []
    labels: list[Labels] = []
    owners: list[Owners] = []
    for name, user in users.items():
        if not user.x:
            continue
        try:
            some, answers = convert(user)
        except (ValueError, TypeError) as error:
            raise DataError(subject, DataProblem.FORMAT, f"user {name}: {error}", _VALID) from error
        inputs.append(some)
        labels.append(answers)
        owners.append(np.full(len(answers), numbers[name], dtype=np.int64))
    if not inputs:
        raise DataError(subject, DataProblem.COUNT, "no user has an example", _VALID)
    joined: NDArray[Any] = np.concatenate(inputs)
    return Split(joined, np.concatenate(labels), np.concatenate(owners))


def _femnist_examples(user: LeafUser) -> Examples:
    """Return float32[m, 28, 28] and int64[m]."""
    pixels = np.array(user.x, dtype=np.float32).reshape(-1, FEMNIST_SIDE, FEMNIST_SIDE)
    labels = np.array(user.y, dtype=np.int64)
    if len(pixels) != len(labels) or labels.min() < 0 or labels.max() >= FEMNIST_CLASSES:
        raise ValueError(f"examples are 784 pixels and a label below {FEMNIST_CLASSES}")
    if not (pixels.min() >= 0.0 and pixels.max() <= 1.0):
        raise ValueError("pixels must lie in [0, 1]")
    return pixels, labels


def _shakespeare_examples(user: LeafUser) -> Examples:
    """Return int64[m, 80] and int64[m]."""
    for text, answer in zip(user.x, user.y, strict=True):
        if not (isinstance(text, str) and len(text) <= SHAKESPEARE_LENGTH):
            raise ValueError(f"inputs must be texts of at most {SHAKESPEARE_LENGTH} characters")
        if not (isinstance(answer, str) and len(answer) == 1):
            raise ValueError("labels must be single characters")
    contexts = [pad_left(encode_text(text), SHAKESPEARE_LENGTH) for text in user.x]
    return np.stack(contexts), encode_text("".join(user.y))
