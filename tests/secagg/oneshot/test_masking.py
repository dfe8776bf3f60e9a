"""Masking against polynomial products written out, sums that open, and the wire."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from itertools import product

import numpy as np
import pytest

from secagg import ParameterError
from secagg.oneshot import masking, wire
from secagg.oneshot.gaussian import CUT, sample
from secagg.oneshot.masking import Accumulator, mask
from secagg.oneshot.packing import Packing
from secagg.oneshot.public_element import expand
from secagg.oneshot.ring import Ring
from secagg.oneshot.wire import Ciphertext, decode, wire_bytes

PUBLIC = bytes(range(16))

CASES = [
    Packing(Ring(2, 1), 5, 3),
    Packing(Ring(8, 2), 100, 7, 3),
    Packing(Ring(16, 7), 32767, 50),
    Packing(Ring(16, 7), 32767, 50, 14),
    Packing(Ring(8, 7), 2**40, 7, 27),
    Packing(Ring(64, 3), 1, 40, 1),
    Packing(Ring(4, 1), 1, 1, 5),
    # 160 bits of a coefficient: whole words.
    Packing(Ring(8, 7), 2**20, 1, 29),
]


def name_of(packing: Packing) -> str:
    return f"{packing.ring.degree}x{packing.ring.limbs}-r{packing.rounding_bits}"


every_case = pytest.mark.parametrize("packing", CASES, ids=name_of)


def key_of(label: str) -> bytes:
    return hashlib.sha256(label.encode()).digest()[:16]


def client(packing: Packing, number: int, length: int) -> tuple[np.ndarray, np.ndarray, Ciphertext]:
    """A client's key, vector and ciphertext; its share of the largest sum."""
    key = sample(key_of(f"key {number}"), packing.ring.degree)
    most = packing.largest // packing.clients
    rng = np.random.default_rng(number)
    values = rng.integers(-most, most, length, endpoint=True)
    sent = mask(packing, PUBLIC, key, key_of(f"errors {number}"), values)
    ciphertext = decode(packing, length, sent)
    assert ciphertext.encode() == sent
    return key, values, ciphertext


def plain_mask(packing: Packing, key: list[int], errors: list[int], values: list[int]) -> list[int]:
    """A k + e + Delta m modulo q, as integers, every product written out."""
    ring = packing.ring
    n, q = ring.degree, ring.modulus
    idempotents = [q // p * pow(q // p, -1, p) for p in ring.primes]
    count = packing.coefficients(len(values))
    result = []
    for block in range(packing.blocks(len(values))):
        element = ring.inverse(expand(ring, PUBLIC, block)).T.tolist()
        a = [sum(r * e for r, e in zip(each, idempotents, strict=True)) % q for each in element]
        product = [0] * n
        for i, x in enumerate(a):
            for j, y in enumerate(key):
                product[(i + j) % n] += x * y if i + j < n else -x * y
        for t in range(min(n, count - block * n)):
            first = (block * n + t) * packing.per
            packed = sum(
                x * packing.base**j for j, x in enumerate(values[first : first + packing.per])
            )
            result.append((product[t] + errors[block * n + t] + packing.delta * packed) % q)
    return result


def numbers_of(ciphertext: Ciphertext) -> list[int]:
    """What is sent, as integers."""
    packing = ciphertext.packing
    columns = ciphertext.residues.T.tolist()
    q = packing.ring.modulus
    idempotents = [q // p * pow(q // p, -1, p) for p in packing.ring.primes]
    whole = [sum(r * e for r, e in zip(column, idempotents, strict=True)) % q for column in columns]
    return [c >> packing.rounding_bits for c in whole]


def plain_bits(numbers: list[int], bits: int) -> bytes:
    """Little-endian bit fields."""
    whole = sum(number << (bits * i) for i, number in enumerate(numbers))
    return whole.to_bytes(-(-bits * len(numbers) // 8), "little")


@every_case
@pytest.mark.parametrize("blocks", [0, 1, 2.3])
def test_masking_equals_products_written_out(packing: Packing, blocks: float) -> None:
    length = max(1, int(blocks * packing.ring.degree * packing.per) - 1)
    key, values, ciphertext = client(packing, 1, length)
    errors = sample(key_of("errors 1"), packing.coefficients(length)).tolist()
    expected = plain_mask(packing, key.tolist(), errors, values.tolist())
    sent = [c >> packing.rounding_bits for c in expected]
    assert numbers_of(ciphertext) == sent
    q = packing.ring.modulus
    for i, p in enumerate(packing.ring.primes):
        back = [(c << packing.rounding_bits) % p for c in sent]
        assert ciphertext.residues[i].tolist() == back
    if packing.rounding_bits:
        bits = ((q - 1) >> packing.rounding_bits).bit_length()
        assert ciphertext.encode() == plain_bits(sent, bits)
    else:
        residues = ciphertext.residues.T.reshape(-1).tolist()
        assert ciphertext.encode() == plain_bits(residues, 27)
        assert residues == [c % p for c in expected for p in packing.ring.primes]


def test_groups_of_blocks_equal_blocks_alone() -> None:
    """A large ring, more blocks than are expanded at once, the last one incomplete."""
    ring = Ring(8192, 7)
    packing = Packing(ring, 32767, 50)
    length = (4 * 8192 + 17) * packing.per + 3
    key, values, ciphertext = client(packing, 1, length)
    errors = ring.reduce(np.resize(sample(key_of("errors 1"), 5 * 8192), (5, 8192)))
    transformed = ring.forward(ring.reduce(key))
    encoded = packing.encode(values)
    primes = np.array(ring.primes, np.uint64)[:, None]
    for block in range(5):
        product = ring.inverse(ring.multiply(expand(ring, PUBLIC, block), transformed))
        here = encoded[:, block * 8192 : (block + 1) * 8192].astype(np.uint64)
        used = here.shape[1]
        expected = (product[:, :used] + errors[block][:, :used] + here) % primes
        got = ciphertext.residues[:, block * 8192 : block * 8192 + used]
        assert np.array_equal(got, expected)


@every_case
@pytest.mark.parametrize("clients", [1, 3])
def test_sums_open(packing: Packing, clients: int) -> None:
    length = 2 * packing.ring.degree * packing.per + 1
    total = Accumulator(packing, length)
    parts = [client(packing, number, length) for number in range(min(clients, packing.clients))]
    for _, _, ciphertext in parts:
        total.add(ciphertext.encode())
    key_sum = np.sum([key.astype(np.int64) for key, _, _ in parts], axis=0)
    opened, mean_square = masking.open(total, PUBLIC, key_sum)
    assert np.array_equal(opened, np.sum([values for _, values, _ in parts], axis=0))
    assert 0 < mean_square < 3 * len(parts) * packing.error_variance < packing.delta**2 / 12


def test_residues_that_an_error_takes_past_a_prime_come_back() -> None:
    ring = Ring(1024, 1)
    packing = Packing(ring, (ring.primes[0] // 117 - 3) // 2, 1)
    values = np.zeros(4096, np.int64)
    # Before its error the coefficient is below the prime by less than the error.
    values[2] = -350270
    key = sample(b"k" * 16, ring.degree)
    sent = mask(packing, bytes(16), key, b"e" * 16, values)
    assert int(decode(packing, values.size, sent).residues.max()) < ring.primes[0]
    sums = Accumulator(packing, values.size)
    sums.add(sent)
    assert np.array_equal(masking.open(sums, bytes(16), key.astype(np.int64))[0], values)


def test_the_error_is_what_was_drawn() -> None:
    packing = Packing(Ring(64, 3), 1000, 5)
    length = 64 * packing.per
    total = Accumulator(packing, length)
    keys = np.zeros(64, np.int64)
    errors = np.zeros(64, np.int64)
    for number in range(5):
        key, _, ciphertext = client(packing, number, length)
        total.add(ciphertext.encode())
        keys += key
        errors += sample(key_of(f"errors {number}"), 64)
    assert masking.open(total, PUBLIC, keys)[1] == np.mean(errors**2)


@pytest.mark.parametrize("rounding_bits", [1, 6, 12])
def test_rounding_of_many_clients_stays_in_the_middle(rounding_bits: int) -> None:
    """Without the average that `open` adds, the error of 400 clients would leave its room.

    Roundings are known here, so that the sum of errors must be theirs, shifted by the average.
    """
    clients = 400
    packing = Packing(Ring(64, 3), clients, clients, rounding_bits)
    length = 64 * packing.per
    total = Accumulator(packing, length)
    keys, values, errors = (np.zeros(size, np.int64) for size in (64, length, 64))
    for number in range(clients):
        key, vector, ciphertext = client(packing, number, length)
        total.add(ciphertext.encode())
        keys += key
        values += vector
        drawn = sample(key_of(f"errors {number}"), 64)
        exact = plain_mask_low(packing, key, drawn, vector)
        errors += drawn - exact
    errors += clients * (2**rounding_bits - 1) // 2
    opened, mean_square = masking.open(total, PUBLIC, keys)
    assert np.array_equal(opened, values)
    assert mean_square == np.mean(errors**2)
    deviation = math.sqrt(clients * (6.4**2 + (4**rounding_bits - 1) / 12))
    # 64 coefficients beyond six deviations: 64 * 2e-9.
    assert np.abs(errors).max() < 6 * deviation
    if rounding_bits > 1:
        assert clients * (2**rounding_bits - 1) / 2 > packing.delta / 2


def plain_mask_low(
    packing: Packing, key: np.ndarray, errors: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """The bits that rounding takes off a block: c modulo 2^r."""
    plain = Packing(packing.ring, packing.largest, packing.clients)
    ring = packing.ring
    product = ring.inverse(ring.multiply(expand(ring, PUBLIC, 0), ring.forward(ring.reduce(key))))
    primes = np.array(ring.primes, np.uint64)[:, None]
    sums = (product.astype(np.uint64) + ring.reduce(errors) + packing.encode(values)) % primes
    whole = numbers_of(Ciphertext(plain, 64 * plain.per, sums.astype(np.uint32)))
    return np.array([c % 2**packing.rounding_bits for c in whole])


def test_sums_of_several_machines_are_added() -> None:
    packing = Packing(Ring(16, 7), 32767, 50, 14)
    parts = [client(packing, number, 500) for number in range(5)]
    whole, left, right = (Accumulator(packing, 500) for _ in range(3))
    for number, (_, _, ciphertext) in enumerate(parts):
        whole.add(ciphertext.encode())
        (left if number < 2 else right).add(ciphertext.encode())
    others = (right.sums, right.count)
    added = left.sums + right.sums
    together = left.together(lambda *own: [one + two for one, two in zip(own, others, strict=True)])
    assert together.count == whole.count == 5
    assert np.array_equal(together.sums, whole.sums) and together.sums.dtype == whole.sums.dtype
    for sums, count, argument in (
        (added.astype(np.uint32), 5, "sums"),
        (added[:, 1:], 5, "sums"),
        (added, 51, "ciphertext"),
    ):
        with pytest.raises(ParameterError) as raised:
            left.together(lambda *_, sums=sums, count=count: [sums, np.array([count])])
        assert raised.value.argument == argument
    with pytest.raises(ValueError, match="read-only"):
        whole.sums[0, 0] = 1


def test_a_wrong_key_opens_nothing() -> None:
    """One entry off by one, and sums and errors are noise."""
    packing = Packing(Ring(64, 3), 1000, 5)
    length = 64 * packing.per
    key, values, ciphertext = client(packing, 1, length)
    total = Accumulator(packing, length)
    total.add(ciphertext.encode())
    wrong = key.astype(np.int64)
    wrong[5] += 1
    opened, large = masking.open(total, PUBLIC, wrong)
    assert (opened != values).mean() > 0.95
    right, small = masking.open(total, PUBLIC, key.astype(np.int64))
    assert np.array_equal(right, values)
    assert small < packing.delta**2 / 40 < large


def test_the_same_key_for_two_vectors_gives_away_their_difference() -> None:
    """Why a key masks one vector: everything but the difference cancels."""
    packing = Packing(Ring(64, 3), 1000, 2)
    key, values, first = client(packing, 1, 64)
    other = values[::-1].copy()
    second = decode(packing, 64, mask(packing, PUBLIC, key, key_of("others"), other))
    primes = np.array(packing.ring.primes, np.uint64)[:, None]
    difference = (first.residues + primes - second.residues) % primes
    decoded, _ = packing.decode(difference.astype(np.uint32), 64)
    assert np.array_equal(decoded, values - other)


@every_case
def test_bytes_that_do_not_decode(packing: Packing) -> None:
    length = packing.ring.degree * packing.per + 1
    _, _, ciphertext = client(packing, 1, length)
    data = ciphertext.encode()
    assert len(data) == wire_bytes(packing, length)
    for bad in (data[:-1], data + b"\0", b""):
        with pytest.raises(ValueError, match="bytes"):
            decode(packing, length, bad)
    total = Accumulator(packing, length)
    count, q = packing.coefficients(length), packing.ring.modulus
    bits = packing.wire_bits if packing.rounding_bits else 27 * packing.ring.limbs
    if count * bits % 8:
        with pytest.raises(ValueError, match="padding"):
            decode(packing, length, data[:-1] + bytes([data[-1] | 0x80]))
    if packing.rounding_bits:
        numbers, width = numbers_of(ciphertext), bits
        limits = [(q - 1) >> packing.rounding_bits] * count
    else:
        numbers, width = ciphertext.residues.T.reshape(-1).tolist(), 27
        limits = [p - 1 for p in packing.ring.primes] * count
    for place in (0, 1, len(numbers) // 2, len(numbers) - 1):
        changed = list(numbers)
        changed[place] = limits[place]
        assert decode(packing, length, plain_bits(changed, width)).encode() == plain_bits(
            changed, width
        )
        for beyond in {limits[place] + 1, (1 << width) - 1} - {limits[place], 1 << width}:
            changed[place] = beyond
            with pytest.raises(ValueError, match="out of range"):
                total.add(plain_bits(changed, width))
            assert total.count == 0 and not total.sums.any()


@pytest.mark.parametrize("rounding_bits", [0, 5])
def test_long_vectors_cross_every_chunk_of_the_wire(rounding_bits: int) -> None:
    ring = Ring(2, 3)
    count = 2 * 8192 + 5
    residues = np.random.default_rng(0).integers(0, ring.primes[-1], (3, count)).astype(np.uint32)
    packing = Packing(ring, 1000, 3, rounding_bits)
    length = count * packing.per
    ciphertext = Ciphertext(packing, length, residues)
    numbers, bits = residues.T.reshape(-1).tolist(), 27
    if rounding_bits:
        numbers, bits = numbers_of(ciphertext), packing.wire_bits
    data = ciphertext.encode()
    assert data == plain_bits(numbers, bits)
    assert decode(packing, length, data).encode() == data
    total = Accumulator(packing, length)
    total.add(data)
    sums = total.sums.copy()
    beyond = int.from_bytes(data, "little") | ((1 << bits) - 1) << bits * (len(numbers) - 1)
    for change in (total.add, total.subtract):
        with pytest.raises(ValueError, match="out of range"):
            change(beyond.to_bytes(len(data), "little"))
        assert np.array_equal(total.sums, sums)
    total.subtract(data)
    assert total.count == 0 and not total.sums.any()


@pytest.mark.parametrize(
    ("limbs", "rounding_bits"),
    [*product((2, 3, 5, 7), (1, 2, 13, 14, 27, 28, 29)), (1, 1), (1, 2), (1, 14)],
)
def test_rounding_equals_integers_at_the_edges(limbs: int, rounding_bits: int) -> None:
    """0 and q - 1, of which the first quotient is wrong; borders of limbs; ends of stretches."""
    ring = Ring(8, limbs)
    q, r = ring.modulus, rounding_bits
    packing = Packing(ring, 1, 1, r)
    borders = [1 << r + 28 * w for w in range(7)]
    edges = {(x + d) % q for x in (0, q // 2, *borders) for d in (-1, 0, 1)}
    for count in (64, 1023, 1024, 1025, 2049):
        rng = np.random.default_rng(count)
        drawn = [int.from_bytes(rng.bytes(24), "little") % q for _ in range(count)]
        numbers = [*edges, *drawn[len(edges) :]]
        residues = np.array([[x % p for x in numbers] for p in ring.primes], np.uint32)
        data = Ciphertext(packing, count * packing.per, residues).encode()
        assert data == plain_bits([x >> r for x in numbers], packing.wire_bits)


@pytest.mark.parametrize("packing", [case for case in CASES if case.rounding_bits], ids=name_of)
def test_a_quotient_that_is_one_too_small_would_be_sent_wrong(packing: Packing) -> None:
    """It is rounded up and then corrected: rounded down it would need the other correction."""
    count = 64
    residues = np.zeros((packing.ring.limbs, count), np.uint32)
    right = Ciphertext(packing, count * packing.per, residues)
    *weights, ratio = packing.tables.limbs
    assert right.encode() == bytes(wire_bytes(packing, count * packing.per))
    wrong = dataclasses.replace(packing.tables, limbs=(*weights, ratio * 0.99))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Packing, "tables", wrong)
        assert any(right.encode())


def test_what_may_not_be_added() -> None:
    packing = Packing(Ring(8, 2), 100, 2)
    _, _, ciphertext = client(packing, 1, 20)
    total, other = Accumulator(packing, 20), Accumulator(packing, 20)
    total.add(ciphertext.encode())
    other_length = client(packing, 1, 400)[2].encode()
    for change in (total.add, total.subtract):
        with pytest.raises(ValueError, match="bytes"):
            change(other_length)
    other.add(ciphertext.encode())
    other.add(ciphertext.encode())
    with pytest.raises(ParameterError, match="at most 2"):
        other.add(ciphertext.encode())
    assert total.count == 1
    assert np.array_equal(total.sums, ciphertext.residues)


def test_bad_arguments() -> None:
    packing = Packing(Ring(8, 2), 100, 2)
    key, values, ciphertext = client(packing, 1, 20)
    for bad_key in (
        key.astype(np.int64),
        key[:7],
        np.full(8, CUT + 1, np.int8),
        np.full(8, -128, np.int8),
    ):
        with pytest.raises(ParameterError, match="key"):
            mask(packing, PUBLIC, bad_key, PUBLIC, values)
    for bad in (bytes(15), bytes(17)):
        with pytest.raises(ParameterError, match="key"):
            mask(packing, bad, key, PUBLIC, values)
        with pytest.raises(ParameterError, match="key"):
            mask(packing, PUBLIC, key, bad, values)
    for vector in (values.astype(np.int32), values[:0], values + 101):
        with pytest.raises(ParameterError, match="values"):
            mask(packing, PUBLIC, key, PUBLIC, vector)
    with pytest.raises(ParameterError, match="residues"):
        Ciphertext(packing, 20, ciphertext.residues[:1])
    assert "residues" not in repr(ciphertext)
    total = Accumulator(packing, 20)
    total.add(ciphertext.encode())
    wide = key.astype(np.int64)
    for bad_sum in (key, wide[:7], np.full(8, CUT + 1), np.full(8, -CUT - 1)):
        with pytest.raises(ParameterError, match="key_sum"):
            masking.open(total, PUBLIC, bad_sum)
    with pytest.raises(ParameterError, match="length"):
        Accumulator(packing, 0)
    with pytest.raises(ParameterError, match="length"):
        wire.decode(packing, 0, b"")
