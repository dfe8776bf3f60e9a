"""Keys, sealed messages and domain separation."""

from __future__ import annotations

import copy
import hashlib
import hmac
import pickle
from collections.abc import Callable
from functools import partial
from itertools import product

import pairwise_rounds as kit
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from secagg import Identity, LocalProtocolError, ParameterError, keys
from secagg.keys import AgreementKey, SecretSeed, check_public_key, signature_is_valid
from secagg.pairwise.masks import pairwise_is_subtracted, pairwise_key, self_key
from secagg.pairwise.reference import Stage
from secagg.sealing import SEAL_OVERHEAD_BYTES, seal, unseal
from secagg.tags import Usage, derive, digest, encode_index, encode_parts, tagged

SECRET = bytes(range(100, 132))
ROUND = bytes(32)
P = 2**255 - 19
# Points of small order, and encodings of them that are not reduced.
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


def test_agreement_vector() -> None:
    """RFC 7748, section 5.2, first round of the iterated test: X25519(9, 9)."""
    base = (9).to_bytes(32, "little")
    assert AgreementKey(base).agree(base).hex() == (
        "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    )
    assert AgreementKey(base).public == AgreementKey(base).agree(base)


@pytest.mark.parametrize("secret", [SecretSeed(SECRET), AgreementKey(SECRET)])
def test_secrets_do_not_print(secret: SecretSeed | AgreementKey) -> None:
    for text in (repr(secret), str(secret), f"{secret}", repr([secret]), repr({"key": secret})):
        assert "<secret>" in text
        assert SECRET.hex() not in text
        assert repr(SECRET)[2:-1] not in text
    assert secret.expose() == SECRET


def test_secrets_compare_by_value_and_type() -> None:
    assert SecretSeed(SECRET) == SecretSeed(SECRET)
    assert SecretSeed(SECRET) != SecretSeed(bytes(32))
    assert SecretSeed(SECRET) != AgreementKey(SECRET)
    assert SecretSeed(SECRET) != SECRET
    with pytest.raises(TypeError, match="unhashable"):
        hash(SecretSeed(SECRET))


@pytest.mark.parametrize("kind", [SecretSeed, AgreementKey])
@pytest.mark.parametrize("size", [0, 31, 33])
def test_secrets_of_another_length(kind: type, size: int) -> None:
    with pytest.raises(ParameterError, match="32 bytes"):
        kind(bytes(size))


def test_agreement_is_symmetric() -> None:
    a, b = AgreementKey(SECRET), AgreementKey(bytes(31) + b"\1")
    assert a.agree(b.public) == b.agree(a.public)
    assert a.public != b.public


@pytest.mark.parametrize("public", [*LOW_ORDER, bytes(31), bytes(33), b""])
def test_agreement_refuses_low_order_and_malformed_keys(public: bytes) -> None:
    with pytest.raises(ValueError):
        check_public_key(public)
    with pytest.raises(ValueError):
        AgreementKey(SECRET).agree(public)


def agreed(public: bytes) -> bytes | None:
    """What X25519 itself makes of a key; None for zero, which it refuses."""
    try:
        key = X25519PublicKey.from_public_bytes(public)
        return X25519PrivateKey.from_private_bytes(SECRET).exchange(key)
    except ValueError:
        return None


def roots_of(square: int) -> list[int]:
    """Square roots modulo P, which is 5 modulo 8."""
    root = pow(square, (P + 3) // 8, P)
    candidates = {root, -root % P, root * pow(2, (P - 1) // 4, P) % P}
    candidates |= {-each % P for each in candidates}
    return [each for each in candidates if (each * each - square) % P == 0]


def halves_of(double: int) -> set[int]:
    """All u whose double is +1 or -1: (u^2 - 1)^2 = +-4 u (u^2 + A u + 1), A = 486662.

    With w = u + 1/u this is w^2 -+ 4 w - 4 -+ 4 A = 0, that is w = +-2 +- 2 sqrt(2 +- A).
    """
    found = set()
    for root in roots_of(2 + double * 486662):
        w = 2 * double + 2 * root
        found |= {(w + other) * pow(2, -1, P) % P for other in roots_of(w * w - 4)}
    return found


def test_all_keys_of_small_order_are_refused() -> None:
    """The u coordinates of all points of small order.

    Order 2: u = 0. Order 4: its halves, +1 and -1. Order 8: their halves; the curve has no point
    of order 16, and its twist none of order 8.
    """
    small = {0, 1, P - 1} | halves_of(1) | halves_of(-1)
    assert {u.to_bytes(32, "little") for u in small} == keys._SMALL_ORDER
    for public in keys._SMALL_ORDER:
        assert agreed(public) is None


@pytest.mark.parametrize("number", [2, 3, 9, 18, P // 3])
def test_keys_have_one_encoding(number: int) -> None:
    """X25519 itself takes a key with its top bit set, or not reduced, for the same key."""
    key = number.to_bytes(32, "little")
    others = [(number + (1 << 255)).to_bytes(32, "little")]
    if number + P < 1 << 255:
        others += [(number + each).to_bytes(32, "little") for each in (P, P + (1 << 255))]
    check_public_key(key)
    for other in others:
        assert agreed(other) == agreed(key) == AgreementKey(SECRET).agree(key)
        with pytest.raises(ValueError, match="not below"):
            check_public_key(other)
        with pytest.raises(ValueError, match="not below"):
            AgreementKey(SECRET).agree(other)


SECRETS = [SecretSeed(SECRET), AgreementKey(SECRET), Identity.from_private_bytes(SECRET)]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: type(secret).__name__)
@pytest.mark.parametrize(
    "leak",
    [*(partial(pickle.dumps, protocol=number) for number in range(6)), copy.copy, copy.deepcopy],
)
def test_secrets_are_neither_pickled_nor_copied(
    secret: SecretSeed, leak: Callable[[object], object]
) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be pickled or copied") as raised:
        leak(secret)
    assert SECRET.hex() not in str(raised.value)
    if leak is not copy.copy:
        with pytest.raises(LocalProtocolError):
            leak({"inside": [secret]})


def test_identity_prints_only_its_public_half() -> None:
    identity = Identity.from_private_bytes(SECRET)
    assert repr(identity) == f"Identity(public={identity.public.hex()})"
    assert identity.private_bytes() == SECRET
    assert Identity.generate().public != Identity.generate().public


def test_identity_vector() -> None:
    """RFC 8032, section 7.1, test 1: the public key."""
    identity = Identity.from_private_bytes(
        bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    )
    assert identity.public.hex() == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )


def test_signatures_bind_usage_and_every_part() -> None:
    identity = Identity.from_private_bytes(SECRET)
    signature = identity.sign(Usage.SHARE, b"ab", b"c")
    assert signature_is_valid(identity.public, signature, Usage.SHARE, b"ab", b"c")
    for usage, parts in [
        (Usage.CONFIRM, (b"ab", b"c")),
        (Usage.SHARE, (b"a", b"bc")),
        (Usage.SHARE, (b"abc",)),
        (Usage.SHARE, (b"ab", b"c", b"")),
    ]:
        assert not signature_is_valid(identity.public, signature, usage, *parts)
    other = Identity.from_private_bytes(bytes(32)).public
    assert not signature_is_valid(other, signature, Usage.SHARE, b"ab", b"c")


@pytest.mark.parametrize("bad", [b"", bytes(63), bytes(64), bytes(65), b"\xff" * 64])
def test_malformed_signatures_and_keys_are_invalid(bad: bytes) -> None:
    identity = Identity.from_private_bytes(SECRET)
    assert not signature_is_valid(identity.public, bad, Usage.SHARE)
    good = identity.sign(Usage.SHARE)
    for public in (b"", bytes(31), b"\xff" * 32, bytes(33)):
        assert not signature_is_valid(public, good, Usage.SHARE)


def test_sealed_message_opens_only_for_its_exact_circumstances() -> None:
    sealed = seal(SECRET, ROUND, 1, 2, b"the shares")
    assert len(sealed) == len(b"the shares") + SEAL_OVERHEAD_BYTES
    assert unseal(SECRET, ROUND, 1, 2, sealed) == b"the shares"
    others = product([SECRET, bytes(32)], [ROUND, b"\1" + ROUND[1:]], [1, 3, 2], [2, 3, 1])
    for shared, round_hash, sender, recipient in list(others)[1:]:
        if (shared, round_hash, sender, recipient) == (SECRET, ROUND, 1, 2):
            continue
        with pytest.raises(ValueError, match="does not open"):
            unseal(shared, round_hash, sender, recipient, sealed)


def test_changed_or_cut_sealed_message_does_not_open() -> None:
    sealed = seal(SECRET, ROUND, 1, 2, b"the shares")
    for i in range(len(sealed)):
        changed = sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :]
        for bad in (changed, sealed[:i], sealed + b"\0"):
            with pytest.raises(ValueError, match="does not open"):
                unseal(SECRET, ROUND, 1, 2, bad)


@given(a=st.lists(st.binary(max_size=9), max_size=5), b=st.lists(st.binary(max_size=9), max_size=5))
def test_parts_are_encoded_injectively(a: list[bytes], b: list[bytes]) -> None:
    assert (encode_parts(*a) == encode_parts(*b)) == (a == b)


@given(parts=st.lists(st.binary(max_size=5), max_size=4), data=st.data())
def test_moving_a_border_changes_the_encoding(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    moved = [whole[:cut], whole[cut:]]
    assert (encode_parts(*parts) == encode_parts(*moved)) == (parts == moved)


def test_usages_are_distinct_and_separate() -> None:
    assert len({usage.value for usage in Usage}) == len(Usage)
    assert len({tagged(usage, b"x") for usage in Usage}) == len(Usage)
    assert len({derive(SECRET, usage, 32, b"x") for usage in Usage}) == len(Usage)
    assert len({digest(usage, b"x") for usage in Usage}) == len(Usage)


def test_digest_and_derivation_by_hand() -> None:
    """RFC 5869 with HMAC of the standard library, and the documented encoding."""
    info = b"".join(
        len(part).to_bytes(8, "little") + part for part in (b"veilsum/2", b"self mask", b"x")
    )
    assert tagged(Usage.SELF_MASK, b"x") == info
    assert digest(Usage.SELF_MASK, b"x") == hashlib.sha256(info).digest()
    prk = hmac.digest(bytes(32), SECRET, "sha256")
    first = hmac.digest(prk, info + b"\1", "sha256")
    second = hmac.digest(prk, first + info + b"\2", "sha256")
    assert derive(SECRET, Usage.SELF_MASK, 48, b"x") == (first + second)[:48]


@pytest.mark.parametrize("index", [-1, 1 << 32])
def test_index_that_does_not_fit(index: int) -> None:
    with pytest.raises(OverflowError):
        encode_index(index)


def test_pairwise_mask_keys_agree_and_their_signs_are_opposite() -> None:
    a, b = AgreementKey(SECRET), AgreementKey(bytes(31) + b"\1")
    key = pairwise_key(a, b.public, ROUND, 4, 9)
    assert key == pairwise_key(b, a.public, ROUND, 9, 4)
    assert pairwise_is_subtracted(9, 4)
    assert not pairwise_is_subtracted(4, 9)
    # Another pair, another round: another mask.
    assert key != pairwise_key(a, b.public, ROUND, 4, 8)
    assert key != pairwise_key(a, b.public, ROUND, 5, 9)
    assert key != pairwise_key(a, b.public, b"\1" * 32, 4, 9)


def test_self_mask_keys_bind_round_and_party() -> None:
    seed = SecretSeed(SECRET)
    keys = {self_key(seed, round_hash, u) for round_hash in (ROUND, SECRET) for u in (0, 1)}
    assert len(keys) == 4


@pytest.mark.parametrize("until", list(Stage)[1:])
def test_states_do_not_print_the_shares_that_they_hold(until: Stage) -> None:
    cohort = kit.Cohort(kit.context(3))
    cohort.run(until=until)
    for u, client in enumerate(cohort.clients):
        if until is Stage.MASK:
            assert client._state.own_share
            client.receive_bytes(cohort.pending[u])
        state = client._state
        for secret in getattr(state, "held", {}).values():
            assert repr(secret)[2:-1] not in repr(state)
        assert "held=" not in repr(state)
        assert "own_share=" not in repr(state)
