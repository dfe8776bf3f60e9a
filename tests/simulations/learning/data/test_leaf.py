"""LEAF's JSON: users in many files, and every way to be no such file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulations.learning.data import DataError, DataFolder, DataKind, DataProblem, load_dataset
from simulations.learning.data.leaf import load_leaf_femnist, load_leaf_shakespeare, read_leaf
from simulations.learning.data.text import encode_text, pad_left


def content(users: dict[str, tuple[list[Any], list[Any]]]) -> dict[str, Any]:
    """Return what a file of these users holds."""
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def write(path: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    """Write a LEAF file of some users."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content(users)))


def image(value: float) -> list[float]:
    """Return one flat image."""
    return [value] * 784


def test_users_of_all_files_are_owners(tmp_path: Path) -> None:
    root = tmp_path / "leaf-femnist"
    write(root / "train" / "b.json", {"w2": ([image(1.0)], [61])})
    write(root / "train" / "a.json", {"w3": ([image(0.5)] * 2, [0, 1]), "w9": ([], [])})
    write(root / "test" / "a.json", {"w1": ([image(0.0)], [5]), "w3": ([image(0.25)], [2])})
    data = load_dataset("leaf-femnist", tmp_path)
    assert (data.kind, data.classes, data.shape) == (DataKind.IMAGE, 62, (28, 28))
    # By name: w1 is 0, w2 is 1, w3 is 2, and w9 has nothing.
    assert data.train.owners.tolist() == [2, 2, 1] and data.test.owners.tolist() == [0, 2]
    assert data.train.labels.tolist() == [0, 1, 61]
    assert data.train.inputs[:, 0, 0].tolist() == [0.5, 0.5, 1.0]


def test_shakespeare_is_tokens(tmp_path: Path) -> None:
    root = tmp_path / "leaf-shakespeare"
    write(root / "train" / "a.json", {"PLAY_HAMLET": (["a" * 80, "to be"], ["b", "!"])})
    write(root / "test" / "a.json", {"PLAY_GHOST": (["c" * 80], ["d"])})
    data = load_leaf_shakespeare(DataFolder(tmp_path))
    assert data.shape == (80,) and data.kind is DataKind.TEXT
    assert np.array_equal(data.train.inputs[1], pad_left(encode_text("to be"), 80))
    assert np.array_equal(data.train.labels, encode_text("b!"))
    assert data.train.owners.tolist() == [1, 1] and data.test.owners.tolist() == [0]


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([[0.0] * 783], [1]),
        ([image(0.0)], [62]),
        ([image(0.0)], [-1]),
        ([image(1.5)], [1]),
        ([image(float("nan"))], [1]),
        (["text"], [1]),
        ([image(0.0)], ["a"]),
    ],
)
def test_broken_images_are_refused_with_their_user(tmp_path: Path, x: Any, y: Any) -> None:
    for part in ("train", "test"):
        write(tmp_path / "leaf-femnist" / part / "a.json", {"w7": (x, y)})
    with pytest.raises(DataError, match="user w7") as caught:
        load_leaf_femnist(DataFolder(tmp_path))
    assert caught.value.reason is DataProblem.FORMAT


@pytest.mark.parametrize(
    ("x", "y"), [(["text"], ["two"]), ([1], ["a"]), (["text"], [3]), (["a" * 81], ["a"])]
)
def test_broken_texts_are_refused(tmp_path: Path, x: Any, y: Any) -> None:
    for part in ("train", "test"):
        write(tmp_path / "leaf-shakespeare" / part / "a.json", {"w7": (x, y)})
    with pytest.raises(DataError, match="user w7"):
        load_leaf_shakespeare(DataFolder(tmp_path))


def test_a_folder_without_files_or_examples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no \*\.json file.*TalwalkarLab/leaf") as caught:
        load_leaf_femnist(DataFolder(tmp_path))
    assert caught.value.reason is DataProblem.MISSING
    for part in ("train", "test"):
        write(tmp_path / "leaf-femnist" / part / "a.json", {"w7": ([], [])})
    with pytest.raises(DataError, match="no user has an example"):
        load_leaf_femnist(DataFolder(tmp_path))


def test_a_user_may_not_be_in_two_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        write(path, {"w1": ([1], [1])})
    with pytest.raises(DataError, match="user w1 is also in another file"):
        read_leaf(paths)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_samples": [3]}, DataProblem.COUNT),
        ({"num_samples": []}, DataProblem.COUNT),
        ({"users": ["w1", "w1"]}, DataProblem.COUNT),
        ({"users": ["w2"]}, DataProblem.FORMAT),
        ({"user_data": {"w1": {"x": [1, 2]}}}, DataProblem.FORMAT),
        ({"user_data": {"w1": {"x": [1, 2], "y": [1]}}}, DataProblem.COUNT),
        ({"user_data": {"w1": {"x": 1, "y": 2}}}, DataProblem.FORMAT),
        ({"user_data": []}, DataProblem.FORMAT),
        ({"num_samples": 7}, DataProblem.FORMAT),
    ],
)
def test_parts_that_disagree_are_refused(
    tmp_path: Path, change: dict[str, Any], problem: DataProblem
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**content({"w1": ([1, 2], [3, 4])}), **change}))
    with pytest.raises(DataError) as caught:
        read_leaf([path])
    assert caught.value.reason is problem


@pytest.mark.parametrize("blob", [b"", b"{", b"[]", b"7", b"\xff", b'{"users": []}'])
def test_other_files_are_refused(tmp_path: Path, blob: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(blob)
    with pytest.raises(DataError, match="valid: LEAF JSON"):
        read_leaf([path])
