"""Rebuilding with liars among the holders: a right secret and their names, or the owner's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import Reason, RemoteProtocolError, TooFewSurvivorsError, _shamir_kernels
from secagg.rebuild import rebuild
from secagg.shamir import split

N = 7
SECRETS = {owner: bytes([owner]) * 32 for owner in range(N)}
HOLDERS = {owner: tuple(range(N)) for owner in range(N)}


def right(owner: int, secret: bytes) -> bool:
    return secret == SECRETS[owner]


def dealt(kit: SimpleNamespace, threshold: int) -> dict[int, dict[int, np.ndarray]]:
    shares = split(list(SECRETS.values()), range(N), threshold, kit.rand(b"rebuild"))
    return {h: {owner: shares[h, owner].copy() for owner in range(N)} for h in range(N)}


def spoil(shares: dict[int, dict[int, np.ndarray]], holder: int, owner: int, by: int = 1) -> None:
    shares[holder][owner][3] = (int(shares[holder][owner][3]) + by) % (2**31 - 1)


def test_honest_holders_rebuild_everything(secagg_kit: SimpleNamespace) -> None:
    rebuilt = rebuild(HOLDERS, dealt(secagg_kit, 4), 4, right)
    assert rebuilt.secrets == SECRETS
    assert rebuilt.culprits == {}


@given(
    threshold=st.integers(1, 5),
    lies=st.dictionaries(st.integers(0, N - 1), st.integers(1, 2**31 - 2), max_size=6),
    owner=st.integers(0, N - 1),
)
def test_liars_are_named_or_the_owner_is(
    secagg_kit: SimpleNamespace, threshold: int, lies: dict[int, int], owner: int
) -> None:
    """With t honest answers the secret and exactly the liars come out; with fewer, an error."""
    shares = dealt(secagg_kit, threshold)
    for holder, by in lies.items():
        spoil(shares, holder, owner, by)
    if N - len(lies) < threshold:
        try:
            rebuilt = rebuild(HOLDERS, shares, threshold, right)
        except RemoteProtocolError as error:
            assert (error.reason, error.party) == (Reason.WRONG_REBUILT, owner)
        else:
            # The lies cancel somewhere: the secret is right, and nobody can be named for sure.
            assert rebuilt.secrets == SECRETS
            assert rebuilt.culprits in ({}, {owner: ()})
        return
    rebuilt = rebuild(HOLDERS, shares, threshold, right)
    assert rebuilt.secrets == SECRETS
    # Liars among the first t are noticed unless their lies cancel; others are not even asked.
    weights = np.empty(threshold, np.uint64)
    points = np.arange(1, threshold + 1, dtype=np.uint64)
    _shamir_kernels.lagrange_weights(points, np.uint64(0), weights)
    moved = sum(int(weights[holder]) * by for holder, by in lies.items() if holder < threshold)
    if moved % (2**31 - 1) == 0:
        assert rebuilt.culprits == {}
    elif 2 * len(lies) <= N - threshold:
        assert rebuilt.culprits == {owner: tuple(sorted(lies))}
    else:
        # So many liars could frame honest holders: the truth is named, or nobody.
        assert rebuilt.culprits in ({owner: ()}, {owner: tuple(sorted(lies))})


def test_too_few_answers(secagg_kit: SimpleNamespace) -> None:
    shares = dealt(secagg_kit, 4)
    for holder in (0, 2, 3, 6):
        del shares[holder]
    with pytest.raises(TooFewSurvivorsError, match="3 clients answered, 4 are needed"):
        rebuild(HOLDERS, shares, 4, right)


def test_owners_with_different_holders(secagg_kit: SimpleNamespace) -> None:
    holders = {owner: tuple(h for h in range(N) if h != owner) for owner in range(N)}
    shares = dealt(secagg_kit, 3)
    spoil(shares, 1, 0)
    spoil(shares, 6, 5)
    rebuilt = rebuild(holders, shares, 3, right)
    assert rebuilt.secrets == SECRETS
    assert rebuilt.culprits == {0: (1,)}


def test_liars_in_the_majority_cannot_frame_honest_holders(secagg_kit: SimpleNamespace) -> None:
    """Four of seven with t = 3 make polynomials of their own that pass through the secret."""
    shares = dealt(secagg_kit, 3)
    for holder in (0, 1, 2, 4):
        spoil(shares, holder, 0)
    rebuilt = rebuild(HOLDERS, shares, 3, right)
    assert rebuilt.secrets == SECRETS
    assert rebuilt.culprits == {0: ()}


def test_a_dealer_of_garbage_is_named(secagg_kit: SimpleNamespace) -> None:
    shares = dealt(secagg_kit, 3)
    for holder in range(N):
        spoil(shares, holder, 4, 1 + holder * holder * holder)
    with pytest.raises(RemoteProtocolError) as raised:
        rebuild(HOLDERS, shares, 3, right)
    assert raised.value.party == 4


def test_the_result_prints_no_secret(secagg_kit: SimpleNamespace) -> None:
    text = repr(rebuild(HOLDERS, dealt(secagg_kit, 2), 2, right))
    assert text == "Rebuilt(7 secrets, culprits={})"
