"""The members' sealing keys at the server: which are taken in, and who is asked for the next."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from one_shot_rounds import identity

from protocol.exchange.sealing_book import AHEAD_ROUNDS, ASK_SECONDS, SealingBook, read_request
from protocol.exchange.stages import Refusal
from protocol.round.committee_policy import KEY_ROUNDS
from protocol.round.member import SealingKeys
from secagg import Identity, RemoteProtocolError
from secagg.keys import AgreementKey
from secagg.oneshot.committee import Member

SESSION = bytes(range(16))
WHO, OTHER = identity("member", 0), identity("member", 1)
Spoil = Callable[[bytes], bytes]


@pytest.fixture
def book() -> SealingBook:
    return SealingBook(SESSION)


def keys(who: Identity, first: int, rounds: int = 20) -> Member:
    """An entry for some rounds."""
    return SealingKeys(who, SESSION, first, rounds).entry


def test_entries_are_known_by_identity_and_round(book: SealingBook) -> None:
    entry = keys(WHO, 3, 2)
    assert book.add(WHO.public, entry.encode(), 3) is None
    assert book.entries(2) == book.entries(5) == {}
    assert book.entries(3) == book.entries(4) == {WHO.public: entry}


def test_the_next_key_is_wanted_before_the_present_one_ends(book: SealingBook) -> None:
    assert book.wanted(WHO.public, 5) == 5
    book.add(WHO.public, keys(WHO, 0).encode(), 5)
    early = 19 - AHEAD_ROUNDS
    assert [book.wanted(WHO.public, n) for n in (5, early, early + 1, 19)] == [None, None, 20, 20]
    following = keys(WHO, 20)
    assert book.add(WHO.public, following.encode(), 20) is None
    # Both are there until the first one ends, and nobody is asked twice.
    assert [book.wanted(WHO.public, n) for n in (early + 1, 19, 20)] == [None, None, None]
    assert book.entries(19)[WHO.public].last_round == 19
    assert book.entries(20) == {WHO.public: following}
    # A member that was away all the time is asked for a key of the round itself.
    assert book.wanted(WHO.public, 40) == 40


def test_a_key_is_asked_for_again_before_its_time_is_over() -> None:
    now = [0.0]
    book = SealingBook(SESSION, lambda: now[0])
    book.add(WHO.public, keys(WHO, 0).encode(), 0)
    wanted = []
    for now[0] in (ASK_SECONDS, ASK_SECONDS + 1.0):
        wanted.append(book.wanted(WHO.public, 3))
    assert wanted == [None, 3]
    # The same one, if the member has no other yet.
    book.add(WHO.public, book.entries(3)[WHO.public].encode(), 3)
    assert book.wanted(WHO.public, 3) is None


def test_of_two_keys_for_one_round_the_later_counts(book: SealingBook) -> None:
    """As of a member whose folder was lost, and made anew."""
    first, second = keys(WHO, 0), keys(WHO, 0)
    for entry in (first, second):
        assert book.add(WHO.public, entry.encode(), 0) is None
    assert book.entries(0) == {WHO.public: second}


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda entry: b"", "no sealing key"),
        (lambda entry: entry + b"x", "no sealing key"),
        (lambda entry: entry[:32] + bytes(32) + entry[64:], "bad sealing key"),
        (lambda entry: entry[:-1] + bytes([entry[-1] ^ 1]), "without its own signature"),
        (lambda entry: SealingKeys(WHO, bytes(16)).entry.encode(), "without its own signature"),
        (lambda entry: SealingKeys(OTHER, SESSION).entry.encode(), "without its own signature"),
        (lambda entry: keys(WHO, 0, KEY_ROUNDS + 1).encode(), "for too many rounds"),
        (lambda entry: entry[:64] + bytes([255] * 16) + entry[80:], "without its own signature"),
        (lambda entry: keys(WHO, 21).encode(), "does not serve round 20"),
        (lambda entry: keys(WHO, 0).encode(), "does not serve round 20"),
    ],
)
def test_bad_ones_are_not_taken_in(book: SealingBook, spoil: Spoil, problem: str) -> None:
    good = keys(WHO, 20).encode()
    refusal = book.add(WHO.public, spoil(good), 20)
    assert isinstance(refusal, Refusal) and problem in refusal.reason
    assert book.entries(20) == {}
    assert book.add(WHO.public, good, 20) is None


def test_nobody_takes_the_key_of_another(book: SealingBook) -> None:
    """Two members with one key would make every committee with both impossible."""
    key = AgreementKey(bytes(range(32)))
    first = SealingKeys(WHO, SESSION, key=key).entry
    copied = Member.sign(OTHER, SESSION, key.public, 0, 9)
    assert book.add(WHO.public, first.encode(), 0) is None
    refusal = book.add(OTHER.public, copied.encode(), 0)
    assert refusal is not None and "another client's" in refusal.reason
    assert book.add(WHO.public, first.encode(), 0) is None
    assert list(book.entries(0)) == [WHO.public]


def test_requests_are_read_back(book: SealingBook) -> None:
    assert read_request(book.request(70_000)) == (SESSION, 70_000)
    for bad in (b"", SESSION, book.request(1) + b"x"):
        with pytest.raises(RemoteProtocolError, match="request for a sealing key"):
            read_request(bad)
