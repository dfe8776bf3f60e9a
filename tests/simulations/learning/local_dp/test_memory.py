"""What clients remember: zeros at first, what was written later, and all of it in arrays."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.learning.local_dp import ClientMemory


def test_vectors_are_zero_until_written_and_kept_then() -> None:
    memory = ClientMemory(3)
    assert memory.dimension == 3 and memory.arrays() == {}
    vector = memory.vector("residual", 7)
    assert vector.dtype == np.float32 and vector.tolist() == [0.0, 0.0, 0.0]
    vector += 1.0
    assert memory.vector("residual", 7) is vector
    assert memory.vector("residual", 8).sum() == memory.vector("momentum", 7).sum() == 0.0


def test_arrays_bring_everything_back() -> None:
    memory = ClientMemory(2)
    for client in (9, 0, 4):
        memory.vector("residual", client)[:] = client
    memory.vector("momentum", 4)[0] = 0.5
    arrays = memory.arrays()
    assert arrays["residual/clients"].tolist() == [0, 4, 9]
    restored = ClientMemory.restore(2, arrays)
    # Copies: neither the arrays nor the first memory feel what is written now.
    restored.vector("residual", 4)[:] = -1.0
    assert memory.vector("residual", 4).tolist() == [4.0, 4.0]
    assert arrays["residual/vectors"][1].tolist() == [4.0, 4.0]
    assert restored.vector("momentum", 4).tolist() == [0.5, 0.0]
    assert restored.arrays().keys() == arrays.keys()
    assert ClientMemory.restore(2, {}).arrays() == {}


def test_bad_arguments_are_refused() -> None:
    for dimension, error in ((0, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="dimension must be"):
            ClientMemory(dimension)
    memory = ClientMemory(2)
    for name in ("", "a/b"):
        with pytest.raises(ValueError, match="a name must be"):
            memory.vector(name, 0)
    with pytest.raises(ValueError, match="client must not be negative, got -1"):
        memory.vector("residual", -1)
    memory.vector("residual", 3)
    arrays = memory.arrays()
    with pytest.raises(ValueError, match=r"must be float32\[1, 5\], got float32\[1, 2\]"):
        ClientMemory.restore(5, arrays)
    with pytest.raises(ValueError, match="must be float32"):
        ClientMemory.restore(2, arrays | {"residual/vectors": np.zeros((1, 2))})
    with pytest.raises(ValueError, match="not the arrays of a memory: residual/clients"):
        ClientMemory.restore(2, {"residual/clients": np.zeros(1, np.int64)})
    with pytest.raises(ValueError, match="not the arrays of a memory: other"):
        ClientMemory.restore(2, {"other": np.zeros(1)})
