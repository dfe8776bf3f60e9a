"""The figures of docs/compression.md are those of the code."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sketch.compressors.base import FORMAT_VERSION, MessageKind
from sketch.factors import ORTHONORMAL_TOLERANCE
from sketch.hashing import Usage

PAGE = (Path(__file__).parents[3] / "docs" / "compression.md").read_text()


def test_portable_definition_is_that_of_the_code() -> None:
    assert (Usage.RANDOM_K.value, Usage.FACTOR.value) == (6, 7)
    assert f"format version {FORMAT_VERSION};" in PAGE
    kinds = ", ".join(f"{kind.value} {kind.name.lower().replace('_', '-')}" for kind in MessageKind)
    assert f"kind: {kinds})" in PAGE
    assert f"{ORTHONORMAL_TOLERANCE:.0e}".replace("e-0", "e-") in PAGE


def test_the_variance_that_an_average_leaves() -> None:
    """From the weights (1 - b) b^i; and the mean age of what it holds is b / (1 - b)."""
    weights = 0.1 * 0.9 ** np.arange(1000)
    assert f"a {1.0 / float(weights @ weights):.0f}th at b = 0.9" in PAGE
    assert abs(float(weights @ np.arange(1000)) - 0.9 / 0.1) < 1e-9
