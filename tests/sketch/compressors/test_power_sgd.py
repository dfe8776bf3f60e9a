"""PowerSGD: exact for low ranks, the best approximation in the end."""

from __future__ import annotations

import numpy as np
import pytest
from sketch_kit import SEED

from sketch import LayerShapes
from sketch.compressors import PowerSgd
from sketch.factors import FactorShapes

LAYERS = LayerShapes(
    (("bias", (9,)), ("dense", (40, 30)), ("conv", (16, 8, 3, 3)), ("tiny", (2, 2)))
)
D = LAYERS.dimension


def sent_once(compressor: PowerSgd, values: np.ndarray) -> np.ndarray:
    return compressor.decompress(compressor.compress(values, compressor.initial())[0])


def of_rank(rank: int) -> np.ndarray:
    rng = np.random.default_rng(rank)
    dense = rng.normal(size=(40, rank)) @ rng.normal(size=(rank, 30))
    conv = rng.normal(size=(16, rank)) @ rng.normal(size=(rank, 72))
    parts = [rng.normal(size=9), dense.ravel(), conv.ravel(), rng.normal(size=4)]
    return np.concatenate(parts)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_low_ranks_are_exact(rank: int) -> None:
    values = of_rank(rank)
    compressor = PowerSgd(LAYERS, 5, SEED, value_bits=64)
    np.testing.assert_allclose(sent_once(compressor, values), values, atol=1e-11)


def test_other_layers_are_sent_whole() -> None:
    values = np.random.default_rng(0).normal(size=D)
    received = sent_once(PowerSgd(LAYERS, 1, SEED, value_bits=64), values)
    np.testing.assert_array_equal(received[:9], values[:9])
    np.testing.assert_array_equal(received[-4:], values[-4:])
    assert np.abs(received[9:-4] - values[9:-4]).max() > 0.1


def test_warm_start_finds_the_singular_vectors() -> None:
    """Against the truncated SVD of each matrix, which no matrix of the rank can beat."""
    values = of_rank(4)
    compressor = PowerSgd(LAYERS, 2, SEED, value_bits=64)
    state, errors = compressor.initial(), []
    for _ in range(80):
        message, state = compressor.compress(values, state)
        errors.append(float(np.linalg.norm(compressor.decompress(message) - values)))
    best = values.copy()
    for part, shape in ((slice(9, 1209), (40, 30)), (slice(1209, 2361), (16, 72))):
        left, singular, right = np.linalg.svd(values[part].reshape(shape), full_matrices=False)
        best[part] = ((left[:, :2] * singular[:2]) @ right[:2]).ravel()
    least = float(np.linalg.norm(best - values))
    assert errors[0] > 1.02 * least
    assert errors[-1] == pytest.approx(least, rel=1e-9)
    # Without the warm start the error of the first step stays.
    message, _ = compressor.compress(values, compressor.initial())
    assert float(np.linalg.norm(compressor.decompress(message) - values)) == errors[0]


def test_bytes_by_hand() -> None:
    compressor = PowerSgd(LAYERS, 4, SEED)
    numbers = 9 + 4 * (40 + 30) + 4 * (16 + 72) + 4
    assert compressor.count == numbers
    message, _ = compressor.compress(np.zeros(D), compressor.initial())
    assert message.size_bytes == compressor.size_bytes == 2 + 4 * numbers


def test_hostile_factors_of_64_bits_are_refused() -> None:
    """Finite numbers whose products are not: honest factors have an orthonormal side."""
    compressor = PowerSgd(LAYERS, 2, SEED, value_bits=64)
    message, _ = compressor.compress(of_rank(2), compressor.initial())
    good = message.encode()
    numbers = np.frombuffer(good[2:], "<f8").copy()
    for value in (1e200, -1e200):
        numbers[9:] = value * (1.0 - 2.0 * (np.arange(numbers.size - 9) % 2))
        hostile = compressor.decode(good[:2] + numbers.tobytes())
        with pytest.raises(ValueError, match="must be finite"):
            compressor.decompress(hostile)
        vector = np.zeros(D)
        with pytest.raises(ValueError, match="must be finite"):
            compressor.add(hostile, vector, 1.0)
        assert not vector.any()


def test_zeros_and_after() -> None:
    compressor = PowerSgd(LAYERS, 3, SEED, value_bits=64)
    message, state = compressor.compress(np.zeros(D), compressor.initial())
    assert not compressor.decompress(message).any()
    message, _ = compressor.compress(of_rank(3), state)
    np.testing.assert_allclose(compressor.decompress(message), of_rank(3), atol=1e-10)


def test_bases_of_another_rank_are_refused() -> None:
    with pytest.raises(ValueError, match="right must have bases of shapes"):
        PowerSgd(LAYERS, 2, SEED).compress(np.zeros(D), FactorShapes(LAYERS, 3).initial_right(SEED))
