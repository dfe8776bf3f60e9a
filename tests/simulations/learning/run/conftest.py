"""The examples of all small runs: they differ in what is made of them."""

from __future__ import annotations

import pytest

from simulations.learning.data import Dataset, load_dataset


@pytest.fixture(scope="session")
def data() -> Dataset:
    """The embedded digits."""
    return load_dataset("digits")
