"""The public elements: the rule word by word, and words that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from secagg import ParameterError
from secagg.field import PrimeField
from secagg.keystream import MAX_BLOCKS as KEYSTREAM_BLOCKS
from secagg.keystream import Keystream
from secagg.oneshot import _mask_kernels
from secagg.oneshot.public_element import MAX_BLOCKS, PublicElements, expand
from secagg.oneshot.ring import Ring
from secagg.pairwise.prg import expand_mask

KEY = bytes(range(16))


def word(stream: int, coordinate: int) -> int:
    """The 32-bit word of a stream at a coordinate, masked to 27 bits."""
    counter = stream.to_bytes(4, "big") + (coordinate // 4).to_bytes(12, "big")
    block = Cipher(AES(KEY), ECB()).encryptor().update(counter)  # noqa: S305
    place = 4 * (coordinate % 4)
    return int.from_bytes(block[place : place + 4], "little") % 2**27


def value(coordinate: int, p: int) -> tuple[int, int]:
    """The first word below p, and which stream it is from."""
    stream = 0
    while word(stream, coordinate) >= p:
        stream += 1
    return word(stream, coordinate), stream


@pytest.mark.parametrize(("degree", "limbs"), [(2, 1), (2, 3), (4, 5), (64, 7)])
def test_every_value_of_small_rings(degree: int, limbs: int) -> None:
    ring = Ring(degree, limbs)
    for block in (0, 1, 6):
        element = expand(ring, KEY, block)
        assert element.shape == (limbs, degree)
        for i, p in enumerate(ring.primes):
            first = (block * limbs + i) * degree
            expected = [value(first + j, p)[0] for j in range(degree)]
            assert element[i].tolist() == expected


def test_words_that_are_refused_come_from_later_streams() -> None:
    """In the largest ring one word in 120 is not below the last prime."""
    ring = Ring(8192, 7)
    element = expand(ring, KEY, 3)
    p = ring.primes[6]
    first = (3 * 7 + 6) * 8192
    streams = [value(first + j, p)[1] for j in range(8192)]
    refused = np.flatnonzero(streams)
    assert len(refused) > 20
    for j in [*refused.tolist(), 0, 8191]:
        assert element[6, j] == value(first + j, p)[0]
    assert (element < np.array(ring.primes)[:, None]).all()


def test_a_word_refused_twice_waits_for_the_stream_after() -> None:
    refused = np.array([0, 5, 9], np.int64)
    words = np.zeros(10, np.uint32)
    blocks = np.array([[7, 0, 0, 0], [0, 99, 0, 0], [0, 5, 0, 0]], np.uint32)
    primes = np.array([11, 7], np.uint32)
    left = _mask_kernels.take_accepted(words, blocks, 0, primes, 5, 7, refused)
    # Position 5 belongs to the second row: 99 is not below 7. Position 9 takes 5.
    assert refused[:left].tolist() == [5]
    assert (words[0], words[9]) == (7, 5)


def test_the_rule_is_that_of_masks() -> None:
    """With the field's prime instead of the ring's the words are those of pairwise masks."""
    field = PrimeField(27)
    words = Keystream(KEY).blocks(0, 4096).view("<u4").copy()
    refused = np.empty(words.size, np.int64)
    primes = np.array([field.modulus], np.uint32)
    found = _mask_kernels.find_refused(words, primes, words.size, 27, refused)
    accepted = np.setdiff1d(np.arange(words.size), refused[:found])
    assert np.array_equal(words[accepted], expand_mask(field, KEY, words.size)[accepted])


def test_elements_by_the_group() -> None:
    for ring in (Ring(2, 1), Ring(2, 3), Ring(64, 7)):
        elements = PublicElements(ring, KEY)
        group = elements.expand(3, 5)
        for i in range(5):
            assert np.array_equal(group[i], expand(ring, KEY, 3 + i))
    assert elements.expand(1, 0).shape == (0, 7, 64)


def test_bad_arguments() -> None:
    ring = Ring(8, 2)
    with pytest.raises(ParameterError, match="key"):
        expand(ring, bytes(17), 0)
    for block in (-1, MAX_BLOCKS):
        with pytest.raises(ParameterError, match="block"):
            expand(ring, KEY, block)
    with pytest.raises(ParameterError, match="block"):
        PublicElements(ring, KEY).expand(0, -1)
    for first, count in ((-1, 1), (0, -1), (KEYSTREAM_BLOCKS, 1)):
        with pytest.raises(ParameterError, match="blocks"):
            Keystream(KEY).blocks(first, count)
