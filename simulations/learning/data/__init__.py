"""Data sets: the embedded digits, and readers for the files of the usual benchmarks.

:func:`load_dataset` is the way in. Only ``digits`` needs no files; nothing is ever downloaded,
and an error says which file is missing and where to get it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.errors import ConfigurationError
from simulations.learning.data.base import DataKind, Dataset, Split
from simulations.learning.data.catalog import CATALOG, CIFAR10_BINARY, CIFAR10_PYTHON
from simulations.learning.data.cifar import load_cifar10, load_cifar100
from simulations.learning.data.digits import load_digits_dataset
from simulations.learning.data.errors import DataError, DataProblem
from simulations.learning.data.files import DATA_DIR_VARIABLE, DataFile, DataFolder, find_data_dir
from simulations.learning.data.images import load_fashion_mnist, load_mnist
from simulations.learning.data.leaf import load_leaf_femnist, load_leaf_shakespeare
from simulations.learning.data.names import load_names
from simulations.learning.data.shakespeare import load_shakespeare, load_tinyshakespeare
from simulations.learning.data.uci import load_adult, load_bank, load_kdd99

__all__ = [
    "CATALOG",
    "DATASETS",
    "DATA_DIR_VARIABLE",
    "DataError",
    "DataFile",
    "DataFolder",
    "DataKind",
    "DataProblem",
    "Dataset",
    "Split",
    "dataset_options",
    "find_data_dir",
    "load_dataset",
    "load_digits_dataset",
    "sets_in",
]

_LOADERS: dict[str, Callable[..., Dataset]] = {
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "shakespeare": load_shakespeare,
    "tinyshakespeare": load_tinyshakespeare,
    "names": load_names,
    "adult": load_adult,
    "bank": load_bank,
    "kdd99": load_kdd99,
    "leaf-femnist": load_leaf_femnist,
    "leaf-shakespeare": load_leaf_shakespeare,
}

DATASETS = ("digits", *_LOADERS)
"""The names that :func:`load_dataset` knows."""


def load_dataset(
    name: str, data_dir: Path | None = None, *, check: bool = True, **options: Any
) -> Dataset:
    """Load a data set by name.

    Args:
        data_dir: the folder of data sets; by default what ``VEILSUM_DATA_DIR`` says. The embedded
            digits need none.
    """
    _check_options(name, options)
    try:
        if name == "digits":
            return load_digits_dataset(**options)
        return _LOADERS[name](DataFolder(find_data_dir(data_dir), check), **options)
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError(name, str(error), "the options of its loader") from error


def dataset_options(name: str) -> dict[str, Any]:
    """Return the options of a data set and their defaults."""
    if name not in DATASETS:
        raise ConfigurationError("name", f"unknown data set {name!r}", ", ".join(DATASETS))
    loader = load_digits_dataset if name == "digits" else _LOADERS[name]
    parameters = inspect.signature(loader).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def sets_in(folder: DataFolder) -> list[str]:
    """Return the data sets whose files a folder has; what is in the files is not looked at."""
    return [name for name in _LOADERS if _is_in(folder, name)]


def _is_in(folder: DataFolder, name: str) -> bool:
    if name not in CATALOG:
        # LEAF's, which are in files of any names.
        return all(any((folder.root / name / part).glob("*.json")) for part in ("train", "test"))
    forms = [CATALOG[name]]
    if name == "cifar10":
        forms += [(CIFAR10_PYTHON,), (CIFAR10_BINARY,)]
    return any(all(folder.has(file) for file in files) for files in forms)


def _check_options(name: str, options: dict[str, Any]) -> None:
    """See that the options exist and are of the types of their defaults."""
    known = dataset_options(name)
    for option, value in options.items():
        if option not in known:
            valid = ", ".join(known) or "no option at all"
            raise ConfigurationError(f"{name}.{option}", "no such option", valid)
        wanted = type(known[option])
        accepted = {float: (float, int), tuple: (tuple, list)}.get(wanted, (wanted,))
        if not isinstance(value, accepted) or (isinstance(value, bool) and wanted is not bool):
            raise ConfigurationError(f"{name}.{option}", f"value {value!r}", wanted.__name__)
