"""Rebuilding with liars among the holders: a right secret and their names, or nobody's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pairwise_rounds as kit
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secagg.pairwise.rebuild
from secagg import TooFewSurvivorsError, WrongSharesError, _shamir_kernels
from secagg.pairwise.rebuild import Rebuilt, rebuild
from secagg.shamir import LIMBS, PRIME, split

N = 7

Shares = dict[int, dict[int, np.ndarray]]


def secrets_of(n: int) -> dict[int, bytes]:
    return {owner: bytes([1 + owner]) * 32 for owner in range(n)}


SECRETS = secrets_of(N)


def right(owner: int, secret: bytes) -> bool:
    return secret == bytes([1 + owner]) * 32


def dealt(threshold: int, n: int = N) -> Shares:
    secrets = list(secrets_of(n).values())
    shares = split(secrets, range(n), threshold, kit.rand(b"rebuild"))
    return {h: {owner: shares[h, owner].copy() for owner in range(n)} for h in range(n)}


def spoil(shares: Shares, holder: int, owner: int, by: int = 1) -> None:
    shares[holder][owner][3] = (int(shares[holder][owner][3]) + by) % PRIME


def frame(shares: Shares, owner: int, liars: Iterable[int], honest: Iterable[int]) -> None:
    """The liars move to polynomials of the same secret, with which these honest shares agree.

    x times the product of (x - x_i) over the honest points is added: it vanishes there and at 0.
    """
    roots = [holder + 1 for holder in honest]
    for holder in liars:
        x = shift = holder + 1
        for root in roots:
            shift = shift * (x - root) % PRIME
        share = shares[holder][owner].astype(np.int64)
        shares[holder][owner] = ((share + shift) % PRIME).astype(np.uint32)


def rebuilt(shares: Shares, threshold: int, n: int = N, **options: Any) -> Rebuilt:
    holders = {owner: tuple(range(n)) for owner in range(n)}
    return rebuild(holders, shares, threshold, right, **{"corrupt": 0, **options})


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many shares were looked at in each decoding."""
    sizes: list[int] = []
    original = secagg.pairwise.rebuild.wrong_shares

    def counting(shares: np.ndarray, *rest: Any) -> tuple[int, ...] | None:
        sizes.append(len(shares))
        return original(shares, *rest)

    monkeypatch.setattr(secagg.pairwise.rebuild, "wrong_shares", counting)
    return sizes


def test_honest_holders_rebuild_everything(decodings: list[int]) -> None:
    found = rebuilt(dealt(4), 4)
    assert found.secrets == SECRETS
    assert found.culprits == {}
    assert found.suspects == frozenset()
    assert decodings == []


@given(
    threshold=st.integers(1, 5),
    lies=st.dictionaries(st.integers(0, N - 1), st.integers(1, PRIME - 1), max_size=6),
    owner=st.integers(0, N - 1),
)
def test_liars_are_named_or_nobody_is(threshold: int, lies: dict[int, int], owner: int) -> None:
    """Up to (m - t) / 2 lies: the secret and exactly the liars; with more, nobody honest."""
    shares = dealt(threshold)
    for holder, by in lies.items():
        spoil(shares, holder, owner, by)
    few = 2 * len(lies) <= N - threshold
    try:
        found = rebuilt(shares, threshold)
    except WrongSharesError as error:
        assert not few
        assert (error.owner, error.answered, error.threshold) == (owner, N, threshold)
        return
    assert found.secrets == SECRETS
    # Liars among the first t are noticed unless their lies cancel; others are not even asked.
    weights = np.empty(threshold, np.uint64)
    points = np.arange(1, threshold + 1, dtype=np.uint64)
    _shamir_kernels.lagrange_weights(points, np.uint64(0), weights)
    moved = sum(int(weights[holder]) * by for holder, by in lies.items() if holder < threshold)
    if moved % PRIME == 0:
        assert found.culprits == {}
    elif few:
        assert found.culprits == {owner: tuple(sorted(lies))}
        assert found.suspects == set(lies)
    else:
        # So many liars could frame honest holders: the truth is named, or nobody.
        assert found.culprits in ({owner: ()}, {owner: tuple(sorted(lies))})


def test_two_liars_of_sixty_are_named() -> None:
    """Neighbours of nobody, so that no run of holders leaves both out."""
    shares = dealt(34, 60)
    for owner in range(60):
        for liar in (3, 31):
            spoil(shares, liar, owner, 1 + liar * owner)
    found = rebuilt(shares, 34, 60, corrupt=6)
    assert found.secrets == secrets_of(60)
    assert set().union(*found.culprits.values()) == {3, 31}


def test_a_known_liar_is_asked_last(decodings: list[int]) -> None:
    """Two liars, about everything: they are decoded once, and not at all if known before."""
    shares = dealt(3)
    for owner in range(N):
        spoil(shares, 0, owner)
        spoil(shares, 2, owner, 77)
    found = rebuilt(shares, 3)
    assert found.culprits == {0: (0, 2)}
    assert decodings == [N]
    again = rebuilt(shares, 3, suspects=found.suspects)
    assert again.secrets == SECRETS
    assert again.culprits == {}
    assert again.suspects == {0, 2}
    assert decodings == [N]


def test_with_known_liars_the_first_choice_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """All owners at once, with one set of weights, as if the liars had not answered."""
    chosen = []
    original = secagg.pairwise.rebuild.combine

    def counting(shares: np.ndarray, holders: tuple[int, ...]) -> list[bytes | None]:
        chosen.append(holders)
        return original(shares, holders)

    monkeypatch.setattr(secagg.pairwise.rebuild, "combine", counting)
    shares = dealt(3)
    for owner in range(N):
        spoil(shares, 1, owner)
    assert rebuilt(shares, 3, suspects={1}).secrets == SECRETS
    assert chosen == [(0, 2, 3)]


def test_known_liars_make_room_for_others(decodings: list[int]) -> None:
    """Four of 13, t = 7, agree on another secret: too many, but with two of them known."""
    n, t = 13, 7
    shares = dealt(t, n)
    for holder in (0, 1, 2, 5):
        spoil(shares, holder, 0)
    with pytest.raises(WrongSharesError):
        rebuilt(shares, t, n)
    del decodings[:]
    found = rebuilt(shares, t, n, suspects={0, 5})
    assert found.secrets == secrets_of(n)
    assert found.culprits == {0: (1, 2)}
    assert decodings == [11]


def test_in_small_cohorts_any_right_shares_will_do() -> None:
    """Five of eleven agree on another secret, and the six others have t = 6: nobody is named."""
    n, t = 11, 6
    shares = dealt(t, n)
    for holder in (0, 2, 4, 5, 9):
        spoil(shares, holder, 0)
    found = rebuilt(shares, t, n)
    assert found.secrets == secrets_of(n)
    assert found.culprits == {0: ()}


def test_a_liar_found_by_trying_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """One share to spare decodes nothing: the choices are tried once, not for every secret."""
    n, t = 40, 39
    shares = dealt(t, n)
    for owner in range(n):
        spoil(shares, 0, owner)
    calls = []
    original = secagg.pairwise.rebuild.combine

    def counting(*arguments: Any) -> list[bytes | None]:
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(secagg.pairwise.rebuild, "combine", counting)
    found = rebuilt(shares, t, n)
    assert found.secrets == secrets_of(n)
    assert found.suspects == {0}
    assert set(found.culprits.values()) <= {()}
    # All owners at once, the choices for the first one, and once for each of the others.
    assert len(calls) <= 1 + n + 2 * n


def test_liars_who_lie_about_some_owners_only(decodings: list[int]) -> None:
    """Each costs a decoding of its own, once."""
    n, t = 30, 16
    shares = dealt(t, n)
    liars = (1, 4, 6, 8, 15)
    for place, liar in enumerate(liars):
        for owner in range(5 * place, n):
            spoil(shares, liar, owner, 1 + owner)
    found = rebuilt(shares, t, n)
    assert found.secrets == secrets_of(n)
    assert found.culprits == {5 * place: (liar,) for place, liar in enumerate(liars)}
    assert decodings == [30, 29, 28, 27, 26]


def test_framed_holders_do_not_stand_in_the_way() -> None:
    """Dealers that lie get honest holders suspected; those are asked if the rest does not do."""
    shares = dealt(5)
    for owner, holder in ((0, 1), (1, 2), (2, 3), (3, 4)):
        spoil(shares, holder, owner)
    spoil(shares, 0, 5)
    found = rebuilt(shares, 5)
    assert found.secrets == SECRETS
    assert found.suspects == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("corrupt", "named"), [(0, (3, 9)), (4, (3, 9)), (5, ()), (6, ())])
def test_liars_who_could_frame_honest_holders_name_nobody(
    corrupt: int, named: tuple[int, ...]
) -> None:
    """Liars are named only where no other set of parties could have lied.

    Six liars of ten, t = 4, move to polynomials that pass through the secret and through all
    honest shares but two. Had these two lied, everything would look the same: so they are named
    where at most four liars are to be expected, and not where there may be five.
    """
    n, t = 10, 4
    shares = dealt(t, n)
    frame(shares, 0, (0, 1, 2, 4, 5, 6), (7, 8))
    found = rebuilt(shares, t, n, corrupt=corrupt)
    assert found.secrets == secrets_of(n)
    assert found.culprits == {0: named}


def test_a_lead_needs_fewer_liars_than_are_left() -> None:
    """Three of seven with t = 3 are found, as their lies differ; two could have framed them."""
    shares = dealt(3)
    for holder in (0, 1, 2):
        shares[holder][0] = (shares[holder][0] + np.arange(LIMBS) ** (2 + holder)).astype(np.uint32)
    found = rebuilt(shares, 3)
    assert found.secrets == SECRETS
    assert found.culprits == {0: ()}
    assert found.suspects == {0, 1, 2}


def test_too_few_answers() -> None:
    shares = dealt(4)
    for holder in (0, 2, 3, 6):
        del shares[holder]
    with pytest.raises(TooFewSurvivorsError, match="3 clients answered, 4 are needed"):
        rebuilt(shares, 4)


def test_owners_with_different_holders() -> None:
    holders = {owner: tuple(h for h in range(N) if h != owner) for owner in range(N)}
    shares = dealt(3)
    spoil(shares, 1, 0)
    spoil(shares, 6, 5)
    found = rebuild(holders, shares, 3, right, corrupt=0)
    assert found.secrets == SECRETS
    assert found.culprits == {0: (1,)}


def test_a_dealer_of_garbage_ends_the_round_and_is_not_told_from_liars() -> None:
    shares = dealt(3)
    for holder in range(N):
        shares[holder][4][:] = np.arange(LIMBS) + holder**5 * 1_000_003 % PRIME
    with pytest.raises(WrongSharesError, match="more than 2 of those that answered lied") as raised:
        rebuilt(shares, 3)
    assert raised.value.owner == 4


def test_without_spare_shares_nobody_can_tell() -> None:
    shares = dealt(N)
    spoil(shares, 2, 3)
    with pytest.raises(WrongSharesError, match="more than 0"):
        rebuilt(shares, N)


def test_the_result_prints_no_secret() -> None:
    assert repr(rebuilt(dealt(2), 2)) == "Rebuilt(7 secrets, culprits={})"
