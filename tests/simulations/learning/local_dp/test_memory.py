"""What clients remember: zeros at first, what was written later, and all of it in blocks."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from simulations.learning.local_dp import ClientMemory
from simulations.learning.local_dp import memory as memory_module


def test_vectors_are_zero_until_written_and_kept_then() -> None:
    memory = ClientMemory(3)
    assert memory.dimension == 3 and memory.clients == []
    vector = memory.vector("residual", 7)
    assert vector.dtype == np.float32 and vector.tolist() == [0.0, 0.0, 0.0]
    vector += 1.0
    assert memory.vector("residual", 7) is vector
    assert memory.vector("residual", 8).sum() == memory.vector("momentum", 7).sum() == 0.0


def test_blocks_bring_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ClientMemory(2)
    for client in (9, 0, 4):
        memory.vector("residual", client)[:] = client
        memory.sent[client] += 2
    memory.vector("momentum", 4)[0] = -0.0
    memory.sent[7] += 1
    assert memory.clients == [0, 4, 7, 9] and len(memory) == 4 and memory.most_sent == 2
    # Two clients to a block.
    monkeypatch.setattr(memory_module, "BLOCK_BYTES", 2 * memory.row_bytes)
    blocks = list(memory.blocks(memory.clients))
    assert len(blocks) == 2
    restored = ClientMemory(2)
    for block in blocks:
        restored.learn(block)
    assert restored.sent == memory.sent
    # Copies: what is written to one is not felt by the other.
    restored.vector("residual", 9)[:] = -1.0
    assert memory.vector("residual", 9).tolist() == [9.0, 9.0]
    assert restored.vector("residual", 4).tolist() == [4.0, 4.0]
    assert np.signbit(restored.vector("momentum", 4)).tolist() == [True, False]
    # What comes later counts.
    for block in memory.blocks([9]):
        restored.learn(block)
    assert restored.vector("residual", 9).tolist() == [9.0, 9.0]
    assert list(ClientMemory(2).blocks([])) == [] and ClientMemory(2).most_sent == 0


def test_bad_arguments_are_refused() -> None:
    for dimension, error in ((0, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="dimension must be"):
            ClientMemory(dimension)
    memory = ClientMemory(2)
    with pytest.raises(ValueError, match="a name must be"):
        memory.vector("", 0)
    with pytest.raises(ValueError, match="client must not be negative, got -1"):
        memory.vector("residual", -1)


def test_what_is_no_block_is_refused() -> None:
    memory = ClientMemory(2)
    memory.vector("residual", 3)
    (block,) = memory.blocks([3])
    with pytest.raises(ValueError, match=r"2 numbers and 1 counts for 1 clients with 1 vectors"):
        ClientMemory(5).learn(block)
    for bad in (b"", block[:-1], block + b"x", b"\x93" + block[1:]):
        with pytest.raises(ValueError):
            ClientMemory(2).learn(bad)
    with pytest.raises(ValueError, match="0 counts for 1 clients"):
        ClientMemory(2).learn(msgspec.msgpack.encode(((), bytes(8), b"", b"")))
