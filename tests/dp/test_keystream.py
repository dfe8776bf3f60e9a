"""Seeds stay secret; the keystream is AES-CTR, continuous, and bound to its usage."""

from __future__ import annotations

import copy
import hashlib
import hmac
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dp import CopiedSecretError
from dp.keystream import CHUNK_BYTES, SEED_BYTES, Keystream, NoiseSeed, Usage


def _independent_keystream(material: bytes, length: int) -> bytes:
    """The definition written again with hmac (RFC 5869, T(1)) and a one-shot cipher."""
    info = b"veilsum/dp/noise/v1/keystream"
    secret = hmac.new(material, info + b"\x01", hashlib.sha256).digest()
    encryptor = Cipher(algorithms.AES(secret[:16]), modes.CTR(secret[16:])).encryptor()
    return encryptor.update(bytes(length))


def _stream(seed: NoiseSeed, length: int) -> bytes:
    buffer = np.empty(length, dtype=np.uint8)
    Keystream(seed).fill(buffer)
    return buffer.tobytes()


def test_repr_and_str_hide_the_bytes() -> None:
    seed = NoiseSeed(b"s3cr3t-bytes-that-must-not-show!")
    for text in (repr(seed), str(seed), f"{seed}", repr([seed])):
        assert "s3cr3t" not in text
        assert "<secret>" in text


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy])
def test_seeds_are_neither_pickled_nor_copied(leak: Callable[[object], object]) -> None:
    seed = NoiseSeed(b"s3cr3t-bytes-that-must-not-show!")
    with pytest.raises(CopiedSecretError, match="cannot be pickled or copied") as raised:
        leak(seed)
    assert "s3cr3t" not in str(raised.value)
    if leak is not copy.copy:
        with pytest.raises(CopiedSecretError):
            leak([{"inside": seed}])


def test_fresh_seeds_differ_and_have_the_right_length() -> None:
    seeds = {NoiseSeed.fresh().material for _ in range(8)}
    assert len(seeds) == 8
    assert {len(material) for material in seeds} == {SEED_BYTES}


@pytest.mark.parametrize("length", [0, 31, 33])
def test_wrong_length_is_refused_without_showing_it(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes") as caught:
        NoiseSeed(b"Q" * length)
    assert "QQ" not in str(caught.value)


def test_equality_compares_content_and_seeds_are_unhashable(seed: NoiseSeed) -> None:
    assert seed == NoiseSeed(seed.material)
    assert seed != NoiseSeed(bytes(32))
    assert seed != seed.material
    with pytest.raises(TypeError):
        hash(seed)


def test_usages_give_different_subseeds(seed: NoiseSeed) -> None:
    derived = {seed.derive(usage).material for usage in Usage}
    assert len(derived) == len(Usage)
    assert seed.material not in derived


def test_derivation_is_hkdf_expand(seed: NoiseSeed) -> None:
    info = b"veilsum/dp/noise/v1/coins"
    expected = hmac.new(seed.material, info + b"\x01", hashlib.sha256).digest()
    assert seed.derive(Usage.COINS).material == expected


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, CHUNK_BYTES, CHUNK_BYTES + 5])
def test_keystream_matches_an_independent_computation(seed: NoiseSeed, length: int) -> None:
    assert _stream(seed, length) == _independent_keystream(seed.material, length)


@pytest.mark.parametrize("first", [1, 16, 1000])
def test_filling_in_pieces_continues_the_stream(seed: NoiseSeed, first: int) -> None:
    stream = Keystream(seed)
    pieces = []
    for length in (first, 2000 - first):
        buffer = np.empty(length, dtype=np.uint8)
        stream.fill(buffer)
        pieces.append(buffer.tobytes())
    assert b"".join(pieces) == _stream(seed, 2000)


@pytest.mark.parametrize("dtype", ["<u1", "<u2", "<u4", "<u8"])
def test_chunks_are_the_same_stream(seed: NoiseSeed, dtype: str) -> None:
    word = np.dtype(dtype)
    total = CHUNK_BYTES // word.itemsize + 3
    joined = b"".join(part.tobytes() for part in Keystream(seed).chunks(word, total))
    assert joined == _stream(seed, total * word.itemsize)


def test_no_chunks_of_nothing(seed: NoiseSeed) -> None:
    assert list(Keystream(seed).chunks(np.dtype("<u8"), 0)) == []


def test_unsuitable_buffers_are_refused(seed: NoiseSeed) -> None:
    read_only = np.zeros(4, dtype=np.uint8)
    read_only.flags.writeable = False
    for buffer in (np.zeros(8, dtype=np.uint8)[::2], read_only):
        with pytest.raises(ValueError, match="contiguous and writable"):
            Keystream(seed).fill(buffer)
