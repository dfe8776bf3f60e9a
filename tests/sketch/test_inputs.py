"""What an update may come as: NumPy or a tensor, single or double precision; one or many."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from sketch import (
    CountMeanSketch,
    CountMedianSketch,
    LinearSketch,
    NoSketch,
    Probe,
    PublicSeed,
    top_k,
)
from sketch.hashing import CHUNK
from sketch.probed import ProbedSketch

SEED = PublicSeed(bytes(range(32)))
DIMENSION = 50
MAPS: list[LinearSketch] = [
    CountMeanSketch(DIMENSION, 2, 7, SEED),
    CountMedianSketch(DIMENSION, 2, 3, 3, SEED),
    NoSketch(DIMENSION),
    ProbedSketch(CountMeanSketch(DIMENSION, 2, 7, SEED), Probe(5), SEED),
]
X = np.random.default_rng(0).normal(size=DIMENSION)

every_map = pytest.mark.parametrize("built", MAPS, ids=lambda built: type(built).__name__)


@every_map
class TestTensors:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_same_as_numpy(self, built: LinearSketch, dtype: torch.dtype) -> None:
        tensor = torch.tensor(X, dtype=dtype)
        np.testing.assert_array_equal(built.encode(tensor), built.encode(tensor.numpy()))

    def test_gradients_are_left_behind(self, built: LinearSketch) -> None:
        tensor = torch.tensor(X, requires_grad=True)
        np.testing.assert_array_equal(built.encode(tensor), built.encode(X))
        assert tensor.requires_grad

    def test_parameters(self, built: LinearSketch) -> None:
        parameter = torch.nn.Parameter(torch.tensor(X))
        np.testing.assert_array_equal(built.encode(parameter), built.encode(X))

    def test_strides(self, built: LinearSketch) -> None:
        wide = torch.tensor(np.repeat(X, 2))
        np.testing.assert_array_equal(built.encode(wide[::2]), built.encode(X))
        np.testing.assert_array_equal(built.encode(np.repeat(X, 2)[::2]), built.encode(X))
        np.testing.assert_array_equal(built.encode(X[::-1].copy()[::-1]), built.encode(X))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
    def test_other_precisions(self, built: LinearSketch, dtype: torch.dtype) -> None:
        with pytest.raises(TypeError, match=r"values must have dtype .*float32, not .*(16|int64)"):
            built.encode(torch.zeros(DIMENSION, dtype=dtype))

    def test_shape(self, built: LinearSketch) -> None:
        with pytest.raises(ValueError, match=r"values must have shape \(50,\), not \(5, 10\)"):
            built.encode(torch.zeros(5, 10))

    def test_not_finite(self, built: LinearSketch) -> None:
        with pytest.raises(ValueError, match="values must be finite"):
            built.encode(torch.full((DIMENSION,), float("nan")))


class OnDevice:
    """A tensor of some framework on some accelerator: readable once it has been moved."""

    dtype = "half"

    def __init__(self, home: np.ndarray[Any, Any] | None) -> None:
        self.home = home

    def cpu(self) -> object:
        """Where it can be read, or still not."""
        return self if self.home is None else self.home

    def __dlpack_device__(self) -> tuple[int, int]:
        """Say that the data lie on an accelerator."""
        return (2, 0)

    def __dlpack__(self, *_: Any, **__: Any) -> Any:
        """Refuse, as data on an accelerator cannot be shared."""
        raise BufferError("on another device")


def test_other_devices_are_moved() -> None:
    np.testing.assert_array_equal(NoSketch(DIMENSION).encode(OnDevice(X)), X)


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(TypeError, match="values must have dtype float64 or float32, not half"):
        NoSketch(DIMENSION).encode(OnDevice(None))


def test_top_k_takes_tensors() -> None:
    assert top_k(torch.tensor([1.0, -3.0, 2.0]), 1).tolist() == [0.0, -3.0, 0.0]


def test_no_framework_is_imported() -> None:
    code = "import sys, sketch, sketch.controllers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


@every_map
class TestMany:
    def test_equals_one_by_one(self, built: LinearSketch) -> None:
        vectors = np.random.default_rng(1).normal(size=(3, DIMENSION))
        expected = np.array([built.encode(vector) for vector in vectors])
        np.testing.assert_array_equal(built.encode_many(vectors), expected)
        np.testing.assert_array_equal(built.encode_many(iter(list(vectors))), expected)
        np.testing.assert_array_equal(built.encode_many(torch.tensor(vectors)), expected)

    def test_precisions_may_be_mixed(self, built: LinearSketch) -> None:
        single = X.astype(np.float32)
        both = built.encode_many([X, single])
        np.testing.assert_array_equal(both, [built.encode(X), built.encode(single)])

    def test_none(self, built: LinearSketch) -> None:
        assert built.encode_many([]).shape == (0, built.size)

    def test_errors_name_the_vector(self, built: LinearSketch) -> None:
        with pytest.raises(ValueError, match=r"vectors\[1\] must have shape"):
            built.encode_many([X, X[:3]])
        with pytest.raises(ValueError, match=r"vectors\[1\] must be finite"):
            built.encode_many([X, np.full(DIMENSION, np.inf)])


def test_many_across_chunks() -> None:
    sketch = CountMeanSketch(CHUNK + 9, 2, 5, SEED)
    vectors = np.random.default_rng(2).normal(size=(2, CHUNK + 9))
    expected = np.array([sketch.encode(vector) for vector in vectors])
    np.testing.assert_array_equal(sketch.encode_many(vectors), expected)
