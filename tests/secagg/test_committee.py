"""Whose signatures on a survivor set convince a client of a sparse round."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import SERVER, Reason, RemoteProtocolError, TooFewSurvivorsError
from secagg.committee import SMALLEST_COMMITTEE, choose_committee, full_quorum
from secagg.keys import SIGNATURE_BYTES
from secagg.messages import decode_from_server, decode_set, encode_set
from secagg.reference import Stage
from secagg.tags import Usage

N = 80


def chance(population: int, marked: int, size: int, counts: range) -> Fraction:
    """Probability that a random subset has so many marked members, any of the counts."""
    ways = (comb(marked, j) * comb(population - marked, size - j) for j in counts if j <= size)
    return Fraction(sum(ways), comb(population, size))


@given(members=st.integers(2, 400), data=st.data())
def test_a_committee_is_safe_and_does_not_get_stuck(members: int, data: st.DataObject) -> None:
    corrupt = data.draw(st.integers(0, members // 3))
    alive = data.draw(st.integers(members // 2, members))
    chosen = choose_committee(members, corrupt, alive)
    if chosen.size == members:
        assert chosen.quorum == full_quorum(members, corrupt)
        assert 2 * chosen.quorum > members + corrupt
        return
    assert SMALLEST_COMMITTEE <= chosen.size < members
    # Two quorums fit around this many corrupt members, and around no more.
    most = 2 * chosen.quorum - chosen.size - 1
    split = chance(members, corrupt, chosen.size, range(most + 1, corrupt + 1))
    assert split <= Fraction(1, 2**80)
    assert chance(members, alive, chosen.size, range(chosen.quorum)) <= Fraction(1, 2**20)


@pytest.mark.parametrize("dropout", [0.1, 0.3])
def test_committees_stop_growing(dropout: float) -> None:
    """Otherwise n clients verify of the order of n signatures each."""
    sizes = [choose_committee(n, n // 20, n - int(dropout * n)).size for n in (1000, 8000, 64_000)]
    assert sizes[-1] <= 1.6 * sizes[0] <= 480


def test_a_quorum_is_never_above_that_of_the_whole_roster() -> None:
    """The bound on the length of a message rests on it."""
    for members in range(2, 300, 7):
        for corrupt in (0, members // 20, members // 3):
            chosen = choose_committee(members, corrupt, members - members // 10)
            assert chosen.quorum <= full_quorum(members, corrupt)


def convinced(kit: SimpleNamespace) -> Any:
    """A ring of eighty before anybody releases a share; client 0 has signed."""
    cohort = kit.Cohort(kit.context(N, degree=6, threshold=4, minimum_survivors=N - 2))
    cohort.run(until=Stage.UNMASK)
    return cohort


def signed_by(kit: SimpleNamespace, cohort: Any, signers: list[int]) -> Any:
    """Signatures that these clients rightly made over the survivor set."""
    message = decode_from_server(cohort.pending[0], SERVER, len(cohort.pending[0]))
    signed = encode_set(cohort.server.survivors, N)
    parts = (Usage.CONFIRM, cohort.round_hash(), signed)
    signatures = b"".join(kit.identity(u).sign(*parts) for u in signers)
    return msgspec.structs.replace(
        message, confirmers=encode_set(signers, N), signatures=signatures
    )


def refuses(cohort: Any, message: Any, reason: Reason) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.clients[0].receive(message)
    assert raised.value.reason is reason


def test_any_quorum_of_the_committee_convinces(secagg_kit: SimpleNamespace) -> None:
    cohort = convinced(secagg_kit)
    committee = cohort.server._checked_roster().committee
    assert (len(committee.members), committee.quorum) == (64, 33)
    last = sorted(committee.members)[-committee.quorum :]
    assert cohort.clients[0].receive(signed_by(secagg_kit, cohort, last)) is not None


def test_one_signature_less_does_not(secagg_kit: SimpleNamespace) -> None:
    cohort = convinced(secagg_kit)
    committee = cohort.server._checked_roster().committee
    few = sorted(committee.members)[: committee.quorum - 1]
    refuses(cohort, signed_by(secagg_kit, cohort, few), Reason.MISSING_SIGNATURES)


def test_signatures_of_others_do_not_count(secagg_kit: SimpleNamespace) -> None:
    """All survivors outside the committee and all but one of a quorum inside."""
    cohort = convinced(secagg_kit)
    committee = cohort.server._checked_roster().committee
    outside = set(range(N)) - committee.members
    inside = sorted(committee.members)[: committee.quorum - 1]
    signers = sorted({*outside, *inside})
    assert len(signers) > committee.quorum
    refuses(cohort, signed_by(secagg_kit, cohort, signers), Reason.SET_NOT_NESTED)


def test_the_server_shows_a_quorum_of_the_committee_only(secagg_kit: SimpleNamespace) -> None:
    cohort = convinced(secagg_kit)
    committee = cohort.server._checked_roster().committee
    message = decode_from_server(cohort.pending[0], SERVER, len(cohort.pending[0]))
    assert set(decode_set(message.confirmers, N)) <= committee.members
    assert len(message.signatures) == committee.quorum * SIGNATURE_BYTES


def test_a_committee_that_went_away_ends_the_round(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.Cohort(
        secagg_kit.context(N, degree=6, threshold=4, minimum_survivors=N - 2)
    )
    cohort.run(until=Stage.CONFIRM)
    committee = cohort.server._checked_roster().committee
    gone = sorted(committee.members)[committee.quorum - 1 :]
    for u in set(range(N)) - set(gone):
        cohort.server.receive_bytes(u, cohort.clients[u].receive_bytes(cohort.pending[u]))
    with pytest.raises(TooFewSurvivorsError) as raised:
        cohort.server.close_round()
    assert (raised.value.survivors, raised.value.needed) == (committee.quorum - 1, committee.quorum)
