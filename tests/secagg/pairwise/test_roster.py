"""Rosters on a ring, where a client sees its neighbours only.

What it refuses is in the corpus: test_refusals.py.
"""

from __future__ import annotations

from typing import Any

import pairwise_rounds as kit
import pytest
from msgspec.structs import replace

from secagg import Mode, Reason, RemoteProtocolError, TooFewSurvivorsError
from secagg.framing import encode_message, encode_set
from secagg.keys import AgreementKey
from secagg.merkle import HASH_BYTES
from secagg.pairwise.graph import HararyGraph
from secagg.pairwise.messages import (
    ADVERTISEMENT_ENTRY_BYTES,
    Advertisement,
    decode_from_client,
    sealed_share_bytes,
)
from secagg.pairwise.reference import Stage
from secagg.pairwise.roster import RoundRoster, advertisement_parts
from secagg.pairwise.transitions import ClientPhase
from secagg.shamir import SHARE_BYTES
from secagg.tags import Usage

N, DEGREE = 20, 6
ENTRY = ADVERTISEMENT_ENTRY_BYTES


def at(stage: Stage, **options: Any) -> Any:
    """Twenty clients on a ring with k = 6, t = 4, before a stage."""
    context = kit.context(N, Mode.ACTIVE, degree=DEGREE, threshold=4, minimum_survivors=15)
    cohort = kit.Cohort(context, **options)
    cohort.run(until=stage)
    return cohort


def items(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def advertised(cohort: Any) -> dict[int, Advertisement]:
    return dict(cohort.server._advertisements)


def shown(cohort: Any, advertisements: dict[int, Advertisement], u: int = 0) -> Any:
    """The roster that a server which chose these advertisements would show to client u."""
    return RoundRoster.build(cohort.context, advertisements).to_message(cohort.context, u)


def changed_by(cohort: Any, v: int, **fields: bytes) -> Advertisement:
    """Client v's advertisement with other keys or nonce, rightly signed by client v."""
    new = replace(advertised(cohort)[v], **fields)
    parts = advertisement_parts(cohort.context, v, new.sealing_key, new.masking_key, new.nonce)
    signature = kit.identity(v).sign(Usage.ADVERTISE, *parts)
    return replace(new, signature=signature)


def neighbours(cohort: Any, u: int = 0) -> tuple[int, ...]:
    return cohort.server._checked_roster().graph.neighbours(u)


def test_a_client_sees_its_neighbours_and_nobody_else() -> None:
    cohort = at(Stage.SHARE)
    for u in range(N):
        roster = cohort.incoming(u)
        assert len(roster.entries) == DEGREE * ENTRY
        entries = [advertised(cohort)[v].entry() for v in neighbours(cohort, u)]
        assert items(roster.entries, ENTRY) == entries
        assert len(roster.proof) <= 5 * HASH_BYTES
        cohort.clients[u].receive(roster)
        state = cohort.clients[u]._state
        assert set(state.roster.advertisements) == {u, *neighbours(cohort, u)}
        assert state.roster.hash == cohort.round_hash()
        assert state.roster.published is None
        with pytest.raises(ValueError, match="only the server's roster"):
            state.roster.to_message(cohort.context, u)


# -- a server that shows different rosters to different clients -------------------------------


def test_two_rings_cannot_complete() -> None:
    """Half of the clients see a tree in which a corrupt client has another nonce.

    That is another ring and another round hash: between the halves no share opens, even where two
    clients are neighbours on both rings.
    """
    cohort = at(Stage.SHARE)
    forged = changed_by(cohort, 19, nonce=b"another nonce...")
    trees = [advertised(cohort), {**advertised(cohort), 19: forged}]
    graphs = [RoundRoster.build(cohort.context, tree).graph for tree in trees]
    assert all(isinstance(graph, HararyGraph) for graph in graphs)
    side = {u: u % 2 for u in range(N)}
    bundles = {u: cohort.clients[u].receive(shown(cohort, trees[side[u]], u)) for u in range(19)}
    size = sealed_share_bytes(cohort.context)
    delivered = at(Stage.MASK)
    refused = 0
    for u in range(19):
        owners = [v for v in graphs[side[u]].neighbours(u) if v != 19]
        sealed = []
        for v in owners:
            holders = graphs[side[v]].holders(v)
            # Where v shares nothing with u, the server has nothing better than some of its items.
            number = holders.index(u) if u in holders else 0
            sealed.append(items(bundles[v].sealed, size)[number])
        message = replace(
            delivered.incoming(u),
            participants=encode_set(range(19), N),
            sealed=b"".join(sealed),
        )
        strangers = [v for v in owners if side[v] != side[u]]
        if not strangers:
            cohort.clients[u].receive(message)
            continue
        with pytest.raises(RemoteProtocolError) as raised:
            cohort.clients[u].receive(message)
        assert (raised.value.reason, raised.value.party) == (Reason.BAD_SEAL, strangers[0])
        refused += any(u in graphs[side[v]].holders(v) for v in strangers)
        cohort.assert_over(u)
    # The interesting case did occur: neighbours on both rings.
    assert refused


def test_a_client_that_was_shown_another_root_is_not_heard() -> None:
    """An honest server would not take its shares; here something between them changed the tree."""

    def other_tree(u: int, data: bytes) -> list[bytes]:
        if u != 3:
            return [data]
        forged = changed_by(cohort, 19, nonce=b"another nonce...")
        return [encode_message(shown(cohort, {**advertised(cohort), 19: forged}, 3))]

    down = (Stage.ADVERTISE, kit.Direction.DOWN)
    context = kit.context(N, degree=DEGREE, threshold=4, minimum_survivors=15)
    cohort = kit.Cohort(context, tampers={down: other_tree})
    total = cohort.run()
    assert [(e.party, e.reason) for e in cohort.refused] == [(3, Reason.BAD_SIGNATURE)]
    assert total.survivors == tuple(u for u in range(N) if u != 3)
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)


def test_two_entries_of_a_corrupt_client_gain_nothing() -> None:
    """Neighbours do not check each other's entries against the root.

    Under one root, a client that works for the server may show two of them different masking keys.
    Its own mask with one of them then does not cancel, so the server gets noise; it learns no
    honest client's secret by it.
    """
    cohort = at(Stage.SHARE)
    corrupt = neighbours(cohort)[2]
    entries = items(cohort.incoming().entries, ENTRY)
    forged = changed_by(cohort, corrupt, masking_key=AgreementKey(b"\5" * 32).public)
    entries[2] = forged.entry()
    message = encode_message(replace(cohort.incoming(), entries=b"".join(entries)))

    def show(u: int, data: bytes) -> list[bytes]:
        return [message if u == 0 else data]

    down = (Stage.ADVERTISE, kit.Direction.DOWN)
    again = kit.Cohort(cohort.context, tampers={down: show})
    total = again.run()
    assert total.survivors == tuple(range(N))
    assert total.vector.elements.tolist() != again.expected(range(N))


# -- signatures of neighbours only ------------------------------------------------------------


def test_a_client_gives_up_shares_of_its_neighbours_only() -> None:
    cohort = at(Stage.UNMASK, drops={5: Stage.MASK})
    sent = cohort.answers(Stage.UNMASK, cohort.pending)
    for u, data in sent.items():
        message = decode_from_client(data, u, len(data))
        assert len(message.shares) == DEGREE * SHARE_BYTES
        assert cohort.clients[u].phase is ClientPhase.FINISHED


def test_a_ring_with_too_large_a_corrupt_share_is_refused() -> None:
    """Honest clients that vanish before they advertise leave the corrupt ones a larger share."""
    context = kit.context(
        200,
        Mode.SEMI_HONEST,
        degree=32,
        threshold=19,
        tolerated_colluders=20,
        minimum_survivors=160,
        security_bits=40,
    )
    assert context.roster_is_safe(180)
    assert not context.roster_is_safe(160)
    cohort = kit.Cohort(context, drops=dict.fromkeys(range(40), Stage.ADVERTISE))
    with pytest.raises(TooFewSurvivorsError, match="advertise: 160 clients answered"):
        cohort.run()
    # A server that goes on all the same meets clients that refuse.
    entries = {u: cohort.wire[Stage.ADVERTISE, kit.Direction.UP, u] for u in range(40, 200)}
    advertisements = {u: decode_from_client(data, u, len(data)) for u, data in entries.items()}
    roster = RoundRoster.build(context, advertisements)
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.clients[50].receive(roster.to_message(context, 50))
    assert raised.value.reason is Reason.SET_TOO_SMALL
