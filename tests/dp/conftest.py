"""Fixtures of the dp tests. Helper modules of this folder are importable by their own names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dp.keystream import NoiseSeed

# Tests are collected in importlib mode, where a folder of tests is not on the path by itself.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)


@pytest.fixture
def seed() -> NoiseSeed:
    """A fixed noise seed: tests of distributions must not depend on luck of the day."""
    return NoiseSeed(bytes(range(32)))


@pytest.fixture
def generator() -> Iterator[np.random.Generator]:
    """Public pseudo-random test inputs from a fixed seed."""
    yield np.random.default_rng(20240607)
