"""The one way in: names, options, errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ConfigurationError
from simulations.learning.data import (
    CATALOG,
    DATA_DIR_VARIABLE,
    DATASETS,
    DataError,
    DataFolder,
    dataset_options,
    load_dataset,
    sets_in,
)


def test_the_digits_need_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    assert load_dataset("digits", test_fraction=0.5).name == "digits"


@pytest.mark.parametrize("name", [name for name in DATASETS if name in CATALOG])
def test_every_other_set_says_which_file_is_missing(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file") as caught:
        load_dataset(name, tmp_path)
    first = CATALOG[name][0]
    assert first.path in str(caught.value) and first.sha256 in str(caught.value)


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        *((name, [file.path for file in files]) for name, files in CATALOG.items()),
        ("mnist", [file.paths[1] for file in CATALOG["mnist"]]),
        ("cifar10", ["cifar10/cifar-10-binary.tar.gz"]),
        ("leaf-femnist", ["leaf-femnist/train/a.json", "leaf-femnist/test/a.json"]),
    ],
)
def test_a_set_is_there_when_all_its_files_are(name: str, paths: list[str], tmp_path: Path) -> None:
    for path in paths:
        assert sets_in(DataFolder(tmp_path)) == []
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert sets_in(DataFolder(tmp_path)) == ([name] if name in DATASETS else [])


def test_every_set_in_the_catalogue_can_be_loaded_by_name() -> None:
    assert set(CATALOG) - set(DATASETS) == {"qmnist"}


def test_unknown_names_and_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown data set 'imagenet'; valid: digits"):
        load_dataset("imagenet", tmp_path)
    with pytest.raises(ConfigurationError, match=r"mnist\.writer: no such option; valid: writers"):
        load_dataset("mnist", tmp_path, writer=True)
    with pytest.raises(ConfigurationError, match=r"fashion-mnist\.x: .*no option at all"):
        load_dataset("fashion-mnist", tmp_path, x=1)


def test_options_out_of_range_are_configuration_errors() -> None:
    with pytest.raises(ConfigurationError, match="digits: test_fraction must lie"):
        load_dataset("digits", test_fraction=2)


@pytest.mark.parametrize(
    ("name", "option", "value", "wanted"),
    [
        ("digits", "test_fraction", "half", "float"),
        ("digits", "test_fraction", True, "float"),
        ("digits", "seed", 1.5, "int"),
        ("mnist", "writers", "no", "bool"),
        ("mnist", "writers", 1, "bool"),
        ("bank", "without", "duration", "tuple"),
    ],
)
def test_options_of_another_type_are_named(
    name: str, option: str, value: object, wanted: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}.{option}: value .*; valid: {wanted}"):
        load_dataset(name, **{option: value})


def test_options_and_defaults_can_be_asked_for() -> None:
    assert dataset_options("mnist") == {"writers": False}
    assert dataset_options("shakespeare") == {
        "length": 80,
        "stride": 20,
        "minimum_lines": 2,
        "test_fraction": 0.2,
    }
