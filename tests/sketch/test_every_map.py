"""What every linear map does alike: inputs, refusals, one or many vectors, tensors as NumPy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from sketch_kit import SEED

from sketch import (
    CountMeanSketch,
    CountMedianSketch,
    LayerShapes,
    LinearSketch,
    NoSketch,
    Probe,
    top_k,
)
from sketch.factors import FactorShapes
from sketch.hashing import CHUNK
from sketch.power_factors import LeftFactorMap, RightFactorMap
from sketch.probed import ProbedSketch

DIMENSION = 50
X = np.random.default_rng(0).normal(size=DIMENSION)
SHAPES = FactorShapes(LayerShapes((("bias", (7,)), ("dense", (6, 7)), ("one", ()))), 2)
FIRST = LeftFactorMap(SHAPES, SHAPES.initial_right(SEED))
MAPS: list[LinearSketch] = [
    CountMeanSketch(DIMENSION, 2, 7, SEED),
    CountMedianSketch(DIMENSION, 2, 3, 3, SEED),
    NoSketch(DIMENSION),
    ProbedSketch(CountMeanSketch(DIMENSION, 2, 7, SEED), Probe(5), SEED),
    FIRST,
    RightFactorMap(SHAPES, FIRST.left(FIRST.encode(X))),
]

every_map = pytest.mark.parametrize("built", MAPS, ids=lambda built: type(built).__name__)


@every_map
class TestVectors:
    def test_is_a_linear_sketch(self, built: LinearSketch) -> None:
        assert isinstance(built, LinearSketch)
        assert built.dimension == DIMENSION
        assert built.encode(np.zeros(DIMENSION)).shape == (built.size,)
        assert built.decode(np.zeros(built.size)).shape == (DIMENSION,)

    def test_encoding_is_linear(self, built: LinearSketch) -> None:
        y = np.random.default_rng(1).normal(size=DIMENSION)
        apart = 2.0 * built.encode(X) - 3.0 * built.encode(y)
        np.testing.assert_allclose(built.encode(2.0 * X - 3.0 * y), apart, atol=1e-12)

    def test_single_precision_is_summed_in_double(self, built: LinearSketch) -> None:
        single = X.astype(np.float32)
        encoded = built.encode(single)
        assert encoded.dtype == np.float64
        np.testing.assert_array_equal(encoded, built.encode(single.astype(np.float64)))

    def test_inputs_may_be_read_only_and_are_left_alone(self, built: LinearSketch) -> None:
        x, y = X.copy(), np.ones(built.size)
        x.flags.writeable = y.flags.writeable = False
        encoded, decoded = built.encode(x), built.decode(y)
        assert not np.shares_memory(encoded, x) and not np.shares_memory(decoded, y)
        np.testing.assert_array_equal(encoded, built.encode(X))

    @pytest.mark.parametrize("method", ["encode", "decode"])
    def test_refusals(self, built: LinearSketch, method: str) -> None:
        apply, size = getattr(built, method), DIMENSION if method == "encode" else built.size
        with pytest.raises(TypeError, match="must be a NumPy array, not list"):
            apply([0.0] * size)
        for dtype in (np.int64, np.float16, np.complex128, object):
            with pytest.raises(TypeError, match="must have dtype float64"):
                apply(np.zeros(size, dtype=dtype))
        if method == "decode":
            with pytest.raises(TypeError, match="sketch must have dtype float64, not float32"):
                apply(np.zeros(size, dtype=np.float32))
        for shape in ((size - 1,), (size + 1,), (size, 1), (1, size), ()):
            with pytest.raises(ValueError, match=rf"must have shape \({size},\)"):
                apply(np.zeros(shape))
        for bad in (np.nan, np.inf, -np.inf):
            for where in range(size):
                values = np.ones(size)
                values[where] = bad
                with pytest.raises(ValueError, match="must be finite in every coordinate"):
                    apply(values)


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
