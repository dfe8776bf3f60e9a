"""Prime fields, vectors over them, and their packed form."""

from __future__ import annotations

import galois
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import CapacityError, FieldVector, ParameterError, PrimeField, centre, lift
from secagg.field import MAX_BITS, MIN_BITS, add_into, pack, required_bits, unpack

ALL_BITS = range(MIN_BITS, MAX_BITS + 1)


def vector(bits: int, elements: list[int]) -> FieldVector:
    field = PrimeField(bits)
    return FieldVector(field, np.array(elements, field.dtype))


def pack_plainly(bits: int, elements: list[int]) -> bytes:
    """Independent packing: one large integer."""
    whole = sum(element << (bits * i) for i, element in enumerate(elements))
    return whole.to_bytes((bits * len(elements) + 7) // 8, "little")


@pytest.mark.parametrize("bits", ALL_BITS)
def test_modulus_is_the_largest_prime_below_two_to_the_bits(bits: int) -> None:
    assert PrimeField(bits).modulus == galois.prev_prime(2**bits)


@pytest.mark.parametrize("bits", [True, -1, 0, 7, 63, 64, 8.0, "16", None])
def test_bits_out_of_range(bits: object) -> None:
    with pytest.raises(ParameterError, match="bits"):
        PrimeField(bits)  # type: ignore[arg-type]


@pytest.mark.parametrize(("bits", "word_bytes"), [(8, 2), (16, 2), (17, 4), (32, 4), (33, 8)])
def test_words_are_the_smallest_that_hold_an_element(bits: int, word_bytes: int) -> None:
    assert PrimeField(bits).dtype.itemsize == word_bytes
    assert PrimeField(bits).dtype.kind == "u"


@pytest.mark.parametrize("bits", ALL_BITS)
def test_pack_equals_one_large_integer(bits: int) -> None:
    p = PrimeField(bits).modulus
    for length in (1, 2, 7, 8, 9, 64, 65):
        elements = [(p - 1, 0, p // 3, 1, p - 2)[i % 5] for i in range(length)]
        packed = pack(vector(bits, elements))
        assert packed == pack_plainly(bits, elements)
        assert unpack(packed, length, PrimeField(bits)).elements.tolist() == elements


@given(data=st.binary(max_size=24), length=st.integers(0, 20), bits=st.integers(8, 62))
def test_unpack_accepts_exactly_what_pack_makes(data: bytes, length: int, bits: int) -> None:
    field = PrimeField(bits)
    try:
        accepted = unpack(data, length, field)
    except ValueError:
        value = int.from_bytes(data, "little")
        digits = [value >> (bits * i) & field.word_mask for i in range(length)]
        assert (
            len(data) != field.packed_bytes(length)
            or value >> (bits * length)
            or max(digits) >= field.modulus
        )
    else:
        assert pack(accepted) == data


@pytest.mark.parametrize("bits", ALL_BITS)
def test_unpack_rejects_elements_not_below_p(bits: int) -> None:
    p, last = PrimeField(bits).modulus, (1 << bits) - 1
    for bad in {p, last}:
        for position in range(3):
            elements = [0, 0, 0]
            elements[position] = bad
            with pytest.raises(ValueError, match="below"):
                unpack(pack_plainly(bits, elements), 3, PrimeField(bits))


@pytest.mark.parametrize("bit", range(1, 8))
def test_unpack_rejects_padding_bits(bit: int) -> None:
    # One element of 9 bits leaves bits 1 .. 7 of the second byte.
    with pytest.raises(ValueError, match="padding"):
        unpack(bytes([0, 1 << bit]), 1, PrimeField(9))
    # Seven of them leave a single bit.
    with pytest.raises(ValueError, match="padding"):
        unpack(bytes(7) + b"\x80", 7, PrimeField(9))


@pytest.mark.parametrize("size", [0, 1, 3])
def test_unpack_rejects_another_length(size: int) -> None:
    with pytest.raises(ValueError, match="2 expected"):
        unpack(bytes(size), 1, PrimeField(9))


@pytest.mark.parametrize("bits", ALL_BITS)
def test_lift_and_centre_at_the_borders(bits: int) -> None:
    field = PrimeField(bits)
    top = field.largest_centred
    values = np.array([0, 1, -1, top, -top, top - 1, 1 - top], np.int64)
    lifted = lift(values, field)
    assert lifted.elements.tolist() == [int(value) % field.modulus for value in values]
    assert centre(lifted).tolist() == values.tolist()


@given(data=st.data(), bits=st.integers(MIN_BITS, MAX_BITS))
def test_centre_of_a_sum_is_the_sum(data: st.DataObject, bits: int) -> None:
    field = PrimeField(bits)
    half = field.largest_centred // 2
    pair = st.tuples(st.integers(-half, half), st.integers(-half, half))
    pairs = np.array(data.draw(st.lists(pair, min_size=1, max_size=9)), np.int64)
    a, b = (lift(np.ascontiguousarray(pairs[:, i]), field).elements for i in (0, 1))
    total = (a.astype(object) + b.astype(object)) % field.modulus
    assert centre(FieldVector(field, total.astype(field.dtype))).tolist() == pairs.sum(1).tolist()


@pytest.mark.parametrize("bits", ALL_BITS)
@pytest.mark.parametrize("sign", [1, -1])
def test_lift_refuses_values_that_do_not_fit(bits: int, sign: int) -> None:
    field = PrimeField(bits)
    with pytest.raises(CapacityError) as raised:
        lift(np.array([0, sign * (field.largest_centred + 1)], np.int64), field)
    assert raised.value.bits == bits
    assert raised.value.required_bits == bits + 1


@pytest.mark.parametrize("extreme", [np.iinfo(np.int64).min, np.iinfo(np.int64).max])
def test_lift_refuses_the_largest_integers_without_printing_them(extreme: int) -> None:
    with pytest.raises(CapacityError) as raised:
        lift(np.array([extreme], np.int64), PrimeField(62))
    assert str(abs(extreme)) not in str(raised.value)
    assert raised.value.required_bits > 62


@pytest.mark.parametrize(
    "values", [np.zeros(2), np.zeros(2, np.int32), np.zeros((2, 2), np.int64), np.int64(0)]
)
def test_lift_refuses_other_types(values: object) -> None:
    with pytest.raises(ParameterError, match="values"):
        lift(values, PrimeField(16))  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", ALL_BITS)
def test_required_bits_is_the_smallest(bits: int) -> None:
    largest = PrimeField(bits).largest_centred
    assert required_bits(largest) == bits
    if bits < MAX_BITS:
        assert required_bits(largest + 1) == bits + 1


@pytest.mark.parametrize("magnitude", [-1, PrimeField(MAX_BITS).largest_centred + 1])
def test_required_bits_out_of_range(magnitude: int) -> None:
    with pytest.raises(ParameterError, match="largest_magnitude"):
        required_bits(magnitude)


@pytest.mark.parametrize("bits", ALL_BITS)
def test_vector_elements_are_below_p(bits: int) -> None:
    field = PrimeField(bits)
    assert len(FieldVector(field, np.array([field.modulus - 1], field.dtype))) == 1
    with pytest.raises(ParameterError, match="elements"):
        FieldVector(field, np.array([0, field.modulus], field.dtype))


@pytest.mark.parametrize("dtype", ["u1", ">u2", "<i2", "<u4", "<f8"])
def test_vector_of_another_type_or_shape(dtype: str) -> None:
    with pytest.raises(ParameterError, match="elements"):
        FieldVector(PrimeField(16), np.zeros(3, dtype))
    with pytest.raises(ParameterError, match="2 dimensions"):
        FieldVector(PrimeField(16), np.zeros((2, 2), "<u2"))


def test_vector_is_read_only_and_does_not_print_its_elements() -> None:
    secret = vector(16, [54321, 12345])
    with pytest.raises(ValueError, match="read-only"):
        secret.elements[0] = 1
    assert "54321" not in repr(secret)


def test_vectors_of_strided_elements_pack_alike() -> None:
    strided = FieldVector(PrimeField(13), np.arange(40, dtype="<u2")[::3])
    assert pack(strided) == pack_plainly(13, list(range(40))[::3])


def test_a_vector_does_not_lock_its_callers_array() -> None:
    """A caller's array stays writable, and later writes to it do not reach the vector."""
    mine = np.arange(3, dtype="<u2")
    vector = FieldVector(PrimeField(16), mine)
    mine[0] = 65535
    assert vector.elements.tolist() == [0, 1, 2]
    view = np.arange(5, dtype="<u2")[1:]
    view.flags.writeable = False
    locked = FieldVector(PrimeField(16), view)
    view.base[1] = 65535
    assert locked.elements.tolist() == [1, 2, 3, 4]


def test_lift_of_nothing() -> None:
    assert len(lift(np.zeros(0, np.int64), PrimeField(8))) == 0


@pytest.mark.parametrize("bits", [8, 16, 31, 32, 33, 62])
def test_add_into(bits: int) -> None:
    p = PrimeField(bits).modulus
    total = np.array([0, p - 1, p - 1, 1], PrimeField(bits).dtype)
    add_into(total, vector(bits, [0, 1, p - 1, 1]))
    assert total.tolist() == [0, 0, p - 2, 2]


@pytest.mark.parametrize("total", [np.zeros(2, "<u2"), np.zeros(3, "<u4"), np.zeros((3, 1), "<u2")])
def test_add_into_another_shape(total: np.ndarray) -> None:
    with pytest.raises(ParameterError, match="total"):
        add_into(total, vector(16, [1, 2, 3]))
