"""Secret sharing: against galois, for correctness, secrecy and refusal of what is wrong."""

from __future__ import annotations

from itertools import combinations

import galois
import numpy as np
import pairwise_rounds as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg import ParameterError, _shamir_kernels
from secagg.shamir import (
    LIMBS,
    PRIME,
    SHARE_BYTES,
    combine,
    decode_share,
    encode_share,
    from_limbs,
    random_elements,
    split,
    to_limbs,
)

SECRETS = [bytes(range(32)), bytes(32), b"\xff" * 32]


@pytest.fixture(scope="module")
def gf() -> type[galois.FieldArray]:
    return galois.GF(PRIME, compile="python-calculate")


@pytest.mark.parametrize(("n", "threshold"), [(1, 1), (2, 2), (5, 1), (5, 3), (5, 5), (9, 6)])
def test_split_equals_galois(gf: type[galois.FieldArray], n: int, threshold: int) -> None:
    holders = [3 * h for h in range(n)]
    shares = split(SECRETS, holders, threshold, kit.rand(b"split"))
    columns = len(SECRETS) * LIMBS
    raw = kit.rand(b"split")(4 * (threshold - 1) * columns)
    higher = (np.frombuffer(raw, "<u4") & PRIME).reshape(-1, columns)
    constants = np.concatenate([to_limbs(secret) for secret in SECRETS])
    for j in range(columns):
        ascending = [int(constants[j]), *higher[:, j].tolist()]
        values = galois.Poly(gf(ascending[::-1]))(gf([h + 1 for h in holders]))
        assert shares[:, j // LIMBS, j % LIMBS].tolist() == values.tolist()


def test_every_choice_of_threshold_holders_rebuilds() -> None:
    holders = [0, 1, 2, 7, 1000, PRIME - 2]
    shares = split(SECRETS, holders, 4, kit.rand(b"x"))
    for chosen in combinations(range(6), 4):
        assert combine(shares[list(chosen)], [holders[i] for i in chosen]) == SECRETS
    assert combine(shares[::-1], holders[::-1]) == SECRETS


def test_large_committees() -> None:
    shares = split(SECRETS, range(300), 151, kit.rand(b"x"))
    assert combine(shares[100:251], range(100, 251)) == SECRETS


@settings(deadline=None)
@given(secret=st.binary(min_size=32, max_size=32), data=st.data())
def test_round_trip(secret: bytes, data: st.DataObject) -> None:
    holders = data.draw(st.lists(st.integers(0, PRIME - 2), min_size=1, max_size=7, unique=True))
    threshold = data.draw(st.integers(1, len(holders)))
    shares = split([secret], holders, threshold, kit.rand(secret))
    chosen = data.draw(st.permutations(range(len(holders))))[:threshold]
    assert combine(shares[chosen], [holders[i] for i in chosen]) == [secret]
    assert from_limbs(to_limbs(secret)) == secret


@pytest.mark.parametrize("threshold", range(2, 7))
def test_fewer_shares_fit_every_secret(gf: type[galois.FieldArray], threshold: int) -> None:
    """From t - 1 shares nobody learns anything: one draw makes them for every other secret, too.

    The map from draws to t - 1 shares is invertible, so uniform draws make uniform shares whatever
    the secret is.
    """
    holders = [4, 899, 76, PRIME - 2, 11, 0][:threshold]
    known, points = threshold - 1, gf([holder + 1 for holder in holders])
    shares = split(SECRETS[:1], holders, threshold, kit.rand(b"x"))
    powers = gf([[int(x) ** k % PRIME for k in range(1, threshold)] for x in points[:known]])
    for other in SECRETS[1:]:
        moved = gf(shares[:known, 0].astype(np.int64)) - gf(to_limbs(other).astype(np.int64))
        draw = np.asarray(np.linalg.solve(powers, moved), "<u4")
        twin = split([other], holders, threshold, lambda _, draw=draw: draw.tobytes())
        assert np.array_equal(twin[:known], shares[:known])
        assert not np.array_equal(twin[known], shares[known])


def test_fewer_shares_do_not_rebuild() -> None:
    shares = split(SECRETS[:1], range(5), 4, kit.rand(b"x"))
    assert combine(shares[:3], range(3)) != SECRETS[:1]


@pytest.mark.parametrize("limb", range(LIMBS))
def test_a_changed_share_does_not_rebuild(limb: int) -> None:
    shares = split(SECRETS[:1], range(3), 3, kit.rand(b"x"))
    shares[1, 0, limb] = (int(shares[1, 0, limb]) + 1) % PRIME
    assert combine(shares, range(3)) != SECRETS[:1]


@pytest.mark.parametrize("limbs", [[1 << 30] + [0] * 8, [0] * 8 + [1 << 16], [PRIME - 1] * 9])
def test_limbs_of_no_secret(limbs: list[int]) -> None:
    assert from_limbs(np.array(limbs, np.uint64)) is None


def test_random_elements_draw_the_modulus_again() -> None:
    asked: list[int] = []
    answers = [b"\xff" * 4 + b"\x05\x00\x00\x80" + b"\xff\xff\xff\x7f", b"\xff" * 4 + b"\x07" * 4]
    answers.append(b"\xfe\xff\xff\xff")

    def rand(count: int) -> bytes:
        asked.append(count)
        return answers[len(asked) - 1]

    assert random_elements(3, rand).tolist() == [PRIME - 1, 5, 0x07070707]
    assert asked == [12, 8, 4]


@pytest.mark.parametrize("value", [0, 1, PRIME - 1, PRIME, 2 * PRIME, (1 << 62) - 1, PRIME * PRIME])
def test_reduction_at_the_borders(value: int) -> None:
    assert int(_shamir_kernels._reduce_31(np.uint64(value))) == value % PRIME


def test_lagrange_weights_equal_galois(gf: type[galois.FieldArray]) -> None:
    # Points for which intermediate products reach the largest values.
    points = [PRIME - 1, 1, PRIME - 2, 2, PRIME // 2, 12345]
    weights = np.empty(len(points), np.uint64)
    for target in (0, 1, 77, PRIME - 1):
        _shamir_kernels.lagrange_weights(np.array(points, np.uint64), np.uint64(target), weights)
        for i, x in enumerate(points):
            unit = gf([int(i == j) for j in range(len(points))])
            assert int(weights[i]) == int(galois.lagrange_poly(gf(points), unit)(target)), x


def test_share_encoding_round_trip() -> None:
    shares = split(SECRETS, range(2), 2, kit.rand(b"x"))
    encoded = encode_share(shares[1])
    assert len(encoded) == 3 * SHARE_BYTES
    assert np.array_equal(decode_share(encoded, 3), shares[1])
    for size in (0, 1, len(encoded) - 1, len(encoded) + 1):
        with pytest.raises(ValueError, match="expected"):
            decode_share(bytes(size), 3)


@pytest.mark.parametrize("element", [PRIME, PRIME + 1, 2**32 - 1])
@pytest.mark.parametrize("position", [0, LIMBS - 1])
def test_share_elements_are_below_p(element: int, position: int) -> None:
    share = np.zeros((1, LIMBS), np.uint32)
    share[0, position] = element
    with pytest.raises(ValueError, match="not below"):
        decode_share(share.tobytes(), 1)


@pytest.mark.parametrize(
    ("argument", "secrets", "holders", "threshold"),
    [
        ("threshold", SECRETS, range(3), 0),
        ("threshold", SECRETS, range(3), 4),
        ("holders", SECRETS, [], 1),
        ("holders", SECRETS, [1, 1], 1),
        ("holders", SECRETS, [-1, 1], 1),
        ("holders", SECRETS, [1, PRIME - 1], 1),
        ("secrets", [bytes(31)], range(3), 2),
    ],
)
def test_split_refuses(argument: str, secrets: list[bytes], holders: range, threshold: int) -> None:
    with pytest.raises(ParameterError) as raised:
        split(secrets, holders, threshold, kit.rand(b"x"))
    assert raised.value.argument == argument


@pytest.mark.parametrize(
    ("shape", "holders"),
    [((2, 1, LIMBS), [0]), ((1, LIMBS), [0]), ((1, 1, LIMBS - 1), [0]), ((2, 1, LIMBS), [4, 4])],
)
def test_combine_refuses(shape: tuple[int, ...], holders: list[int]) -> None:
    with pytest.raises(ParameterError):
        combine(np.zeros(shape, np.uint32), holders)
