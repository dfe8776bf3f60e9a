"""Several entries of a key in one secret: sums come back, whatever the number of clients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from secagg import ParameterError
from secagg.oneshot.gaussian import sample
from secagg.oneshot.key_entries import base_for, combine, entries_for, split
from secagg.shamir import PRIME


def test_bases_and_entries() -> None:
    assert (base_for(64), entries_for(64)) == (923, 3)
    for clients in (1, 2, 10, 64, 1000, 10**4, 10**6):
        base, entries = base_for(clients), entries_for(clients)
        assert base == 2 * math.ceil(9 * 6.4 * math.sqrt(clients) - 1e-9) + 1
        assert base**entries <= PRIME < base ** (entries + 1)
    assert entries_for(2 * 10**14) == 1


@pytest.mark.parametrize("clients", [1, 2, 64, 1000])
@pytest.mark.parametrize("degree", [1, 2, 7, 8, 1024])
def test_sums_of_combined_keys_split_into_sums(clients: int, degree: int) -> None:
    base = base_for(clients)
    keys = [sample(number.to_bytes(16, "big"), degree) for number in range(clients)]
    for entries in range(1, entries_for(clients) + 1):
        combined = [combine(key, entries, base) for key in keys]
        assert combined[0].shape == (math.ceil(degree / entries),)
        total = (np.sum(combined, axis=0, dtype=np.uint64) % PRIME).astype(np.uint32)
        found = split(total, entries, base, degree)
        assert np.array_equal(found, np.sum(keys, axis=0, dtype=np.int64))


def test_the_order_of_entries() -> None:
    key = np.array([1, 2, 3, -4, 5], np.int8)
    # Count is 3: entry e of secret j is key[3 e + j].
    expected = [(1 - 4 * 11) % PRIME, 2 + 5 * 11, 3]
    assert combine(key, 2, 11).tolist() == expected
    assert split(combine(key, 2, 11), 2, 11, 5).tolist() == key.tolist()


def test_one_entry_is_the_centred_element() -> None:
    """Nothing is cut off, so that a sum that is too large to be one shows."""
    elements = np.array([0, 1, PRIME - 1, PRIME // 2, PRIME // 2 + 1], np.uint32)
    expected = [0, 1, -1, PRIME // 2, -(PRIME // 2)]
    assert split(elements, 1, 3, 5).tolist() == expected


def test_the_highest_entry_takes_what_is_left() -> None:
    element = np.array([7 + 11 * 123_456], np.uint32)
    assert split(element, 2, 11, 2).tolist() == [-4, 123_457]


def test_bad_arguments() -> None:
    key = np.ones(8, np.int8)
    for base in (1, 2, 10, -3):
        with pytest.raises(ParameterError, match="base"):
            combine(key, 1, base)
    for entries, base in ((0, 11), (3, 2001), (2, PRIME)):
        with pytest.raises(ParameterError, match="entries"):
            combine(key, entries, base)
        with pytest.raises(ParameterError, match="entries"):
            split(np.zeros(4, np.uint32), entries, base, 8)
    for bad in (key[:0], key.reshape(2, 4)):
        with pytest.raises(ParameterError, match="key"):
            combine(bad, 2, 11)
    for secrets in (np.zeros(3, np.uint32), np.zeros(4, np.int64)):
        with pytest.raises(ParameterError, match="secrets"):
            split(secrets, 2, 11, 8)
    with pytest.raises(ParameterError, match="clients"):
        base_for(0)
