"""What a client accepts as a roster when it sees its neighbours only."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

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
    Roster,
    context_tag,
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


def at(kit: SimpleNamespace, stage: Stage, **options: Any) -> Any:
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


def changed_by(kit: SimpleNamespace, cohort: Any, v: int, **fields: bytes) -> Advertisement:
    """Client v's advertisement with other keys or nonce, rightly signed by client v."""
    new = replace(advertised(cohort)[v], **fields)
    parts = advertisement_parts(cohort.context, v, new.sealing_key, new.masking_key, new.nonce)
    signature = kit.identity(v).sign(Usage.ADVERTISE, *parts)
    return replace(new, signature=signature)


def neighbours(cohort: Any, u: int = 0) -> tuple[int, ...]:
    return cohort.server._checked_roster().graph.neighbours(u)


def test_a_client_sees_its_neighbours_and_nobody_else(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
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


# -- the proof of our own entry ---------------------------------------------------------------


@pytest.mark.parametrize("at_byte", [0, 31, 32, -1])
def test_changed_proof(secagg_kit: SimpleNamespace, at_byte: int) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    proof = bytearray(cohort.incoming().proof)
    proof[at_byte] ^= 1
    cohort.client_refuses(replace(cohort.incoming(), proof=bytes(proof)), Reason.NOT_IN_TREE)


@pytest.mark.parametrize(
    "change",
    [
        lambda proof: b"",
        lambda proof: proof[:-1],
        lambda proof: proof[:-HASH_BYTES],
        lambda proof: proof + bytes(HASH_BYTES),
        lambda proof: proof + b"\0",
    ],
)
def test_proof_of_another_length(secagg_kit: SimpleNamespace, change: Any) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    roster = cohort.incoming()
    cohort.client_refuses(replace(roster, proof=change(roster.proof)), Reason.NOT_IN_TREE)


def test_proof_of_another_client(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    cohort.client_refuses(
        replace(cohort.incoming(), proof=cohort.incoming(7).proof), Reason.NOT_IN_TREE
    )


def test_changed_root(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    cohort.client_refuses(replace(cohort.incoming(), root=bytes(HASH_BYTES)), Reason.NOT_IN_TREE)


@pytest.mark.parametrize("field", ["sealing_key", "masking_key", "nonce"])
def test_tree_with_another_entry_of_ours(secagg_kit: SimpleNamespace, field: str) -> None:
    """Not even one that carries our signature is accepted.

    Its keys would not be those of this session, and its nonce would let the server choose the
    order of the ring.
    """
    cohort = at(secagg_kit, Stage.SHARE)
    value = {"nonce": bytes(16)}.get(field, AgreementKey(b"\7" * 32).public)
    forged = changed_by(secagg_kit, cohort, 0, **{field: value})
    cohort.client_refuses(shown(cohort, {**advertised(cohort), 0: forged}), Reason.NOT_IN_TREE)


def test_our_entry_at_the_place_of_another(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    entries = advertised(cohort)
    exchanged = {**entries, 0: entries[1], 1: entries[0]}
    message = shown(cohort, exchanged, 1)
    cohort.client_refuses(message, Reason.NOT_IN_TREE)


# -- the members ------------------------------------------------------------------------------


def test_members_without_us(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    roster = replace(cohort.incoming(), members=encode_set(range(1, N), N))
    cohort.client_refuses(roster, Reason.OWN_ENTRY_MISSING)


def test_too_few_members(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    some = {u: a for u, a in advertised(cohort).items() if u < 14}
    cohort.client_refuses(shown(cohort, some), Reason.SET_TOO_SMALL)


@pytest.mark.parametrize("bitmap", [b"", b"\xff\xff", b"\xff\xff\x0f\0", b"\xff\xff\x1f"])
def test_members_of_another_form(secagg_kit: SimpleNamespace, bitmap: bytes) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    cohort.client_refuses(replace(cohort.incoming(), members=bitmap), Reason.BAD_LENGTH)


@pytest.mark.parametrize("away", [[1], [19], [7, 8], [3, 9, 15]])
def test_other_members_than_those_of_the_tree(secagg_kit: SimpleNamespace, away: list[int]) -> None:
    """They are in the hash that orders the ring: the entries are then those of other clients.

    Where the path to the root has the same form, the proof says nothing about it.
    """
    cohort = at(secagg_kit, Stage.SHARE)
    members = encode_set(set(range(N)) - set(away), N)
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.clients[0].receive(replace(cohort.incoming(), members=members))
    assert raised.value.reason in (Reason.NOT_IN_TREE, Reason.BAD_SIGNATURE)
    cohort.assert_over(0)


# -- the neighbours' entries ------------------------------------------------------------------


@pytest.mark.parametrize("pair", [(0, 1), (0, 5), (2, 3)])
def test_swapped_entries(secagg_kit: SimpleNamespace, pair: tuple[int, int]) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    entries = items(cohort.incoming().entries, ENTRY)
    a, b = pair
    entries[a], entries[b] = entries[b], entries[a]
    message = replace(cohort.incoming(), entries=b"".join(entries))
    cohort.client_refuses(message, Reason.BAD_SIGNATURE, party=neighbours(cohort)[a])


def test_entry_of_somebody_who_is_no_neighbour(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    stranger = next(v for v in range(1, N) if v not in neighbours(cohort))
    entries = items(cohort.incoming().entries, ENTRY)
    entries[2] = advertised(cohort)[stranger].entry()
    message = replace(cohort.incoming(), entries=b"".join(entries))
    cohort.client_refuses(message, Reason.BAD_SIGNATURE, party=neighbours(cohort)[2])


@pytest.mark.parametrize("count", [0, DEGREE - 1, DEGREE + 1])
def test_missing_or_surplus_entries(secagg_kit: SimpleNamespace, count: int) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    entries = (cohort.incoming().entries * 2)[: count * ENTRY]
    cohort.client_refuses(replace(cohort.incoming(), entries=entries), Reason.BAD_LENGTH)


@pytest.mark.parametrize("victim", ["ourselves", "another neighbour", "itself"])
@pytest.mark.parametrize("kind", ["sealing_key", "masking_key"])
@pytest.mark.parametrize("copied", ["sealing_key", "masking_key"])
def test_keys_that_two_neighbours_have_in_common(
    secagg_kit: SimpleNamespace, victim: str, kind: str, copied: str
) -> None:
    """A client that works for the server signs a key of somebody else's as its own.

    The server cannot hide it in the tree: client 0 sees it under the same root as before.
    """
    cohort = at(secagg_kit, Stage.SHARE)
    near = neighbours(cohort)
    owner = {"ourselves": 0, "another neighbour": near[4], "itself": near[1]}[victim]
    if victim == "itself":
        # Both of its own keys are the same one.
        copied = "masking_key" if kind == "sealing_key" else "sealing_key"
    key = getattr(advertised(cohort)[owner], copied)
    entries = items(cohort.incoming().entries, ENTRY)
    entries[1] = changed_by(secagg_kit, cohort, near[1], **{kind: key}).entry()
    message = replace(cohort.incoming(), entries=b"".join(entries))
    cohort.client_refuses(message, Reason.DUPLICATE_KEY)


@pytest.mark.parametrize("field", ["round_number", "degree", "removal", "threshold"])
def test_entry_of_another_context(secagg_kit: SimpleNamespace, field: str) -> None:
    values = {"round_number": 4, "degree": 8, "removal": (1,) * 6, "threshold": 5}
    cohort = at(secagg_kit, Stage.SHARE)
    threshold = 5 if field == "degree" else 4
    changes = {"threshold": threshold, field: values[field]}
    other = dataclasses.replace(cohort.context, **changes)
    elsewhere = secagg_kit.Cohort(other)
    v = neighbours(cohort)[3]
    entries = items(cohort.incoming().entries, ENTRY)
    entries[3] = elsewhere.clients[v].begin().entry()
    message = replace(cohort.incoming(), entries=b"".join(entries))
    cohort.client_refuses(message, Reason.BAD_SIGNATURE, party=v)


# -- a server that shows different rosters to different clients -------------------------------


def test_two_rings_cannot_complete(secagg_kit: SimpleNamespace) -> None:
    """Half of the clients see a tree in which a corrupt client has another nonce.

    That is another ring and another round hash: between the halves no share opens, even where two
    clients are neighbours on both rings.
    """
    cohort = at(secagg_kit, Stage.SHARE)
    forged = changed_by(secagg_kit, cohort, 19, nonce=b"another nonce...")
    trees = [advertised(cohort), {**advertised(cohort), 19: forged}]
    graphs = [RoundRoster.build(cohort.context, tree).graph for tree in trees]
    assert all(isinstance(graph, HararyGraph) for graph in graphs)
    side = {u: u % 2 for u in range(N)}
    bundles = {u: cohort.clients[u].receive(shown(cohort, trees[side[u]], u)) for u in range(19)}
    size = sealed_share_bytes(cohort.context)
    delivered = at(secagg_kit, Stage.MASK)
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


def test_a_client_that_was_shown_another_root_is_not_heard(secagg_kit: SimpleNamespace) -> None:
    """An honest server would not take its shares; here something between them changed the tree."""

    def other_tree(u: int, data: bytes) -> list[bytes]:
        if u != 3:
            return [data]
        forged = changed_by(secagg_kit, cohort, 19, nonce=b"another nonce...")
        return [encode_message(shown(cohort, {**advertised(cohort), 19: forged}, 3))]

    down = (Stage.ADVERTISE, secagg_kit.Direction.DOWN)
    context = secagg_kit.context(N, degree=DEGREE, threshold=4, minimum_survivors=15)
    cohort = secagg_kit.Cohort(context, tampers={down: other_tree})
    total = cohort.run()
    assert [(e.party, e.reason) for e in cohort.refused] == [(3, Reason.BAD_SIGNATURE)]
    assert total.survivors == tuple(u for u in range(N) if u != 3)
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)


def test_two_entries_of_a_corrupt_client_gain_nothing(secagg_kit: SimpleNamespace) -> None:
    """Neighbours do not check each other's entries against the root.

    Under one root, a client that works for the server may show two of them different masking keys.
    Its own mask with one of them then does not cancel, so the server gets noise; it learns no
    honest client's secret by it.
    """
    cohort = at(secagg_kit, Stage.SHARE)
    corrupt = neighbours(cohort)[2]
    entries = items(cohort.incoming().entries, ENTRY)
    forged = changed_by(secagg_kit, cohort, corrupt, masking_key=AgreementKey(b"\5" * 32).public)
    entries[2] = forged.entry()
    message = encode_message(replace(cohort.incoming(), entries=b"".join(entries)))

    def show(u: int, data: bytes) -> list[bytes]:
        return [message if u == 0 else data]

    down = (Stage.ADVERTISE, secagg_kit.Direction.DOWN)
    again = secagg_kit.Cohort(cohort.context, tampers={down: show})
    total = again.run()
    assert total.survivors == tuple(range(N))
    assert total.vector.elements.tolist() != again.expected(range(N))


def test_roster_of_another_context(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    other = dataclasses.replace(cohort.context, round_number=9)
    message = replace(cohort.incoming(), context=context_tag(other))
    assert isinstance(message, Roster)
    cohort.client_refuses(message, Reason.WRONG_CONTEXT)
    assert cohort.clients[0].phase is ClientPhase.ABORTED


# -- signatures of neighbours only ------------------------------------------------------------


def test_a_quorum_and_no_less_convinces_a_client(secagg_kit: SimpleNamespace) -> None:
    """Whoever signs counts the same: any two quorums share an honest client."""
    quorum = at(secagg_kit, Stage.UNMASK).context.committee(N).quorum
    near = neighbours(at(secagg_kit, Stage.UNMASK))
    for signers in (range(quorum), range(N - quorum, N)):
        cohort = at(secagg_kit, Stage.UNMASK)
        assert cohort.clients[0].receive(cohort.confirmed_by(signers)) is not None
    for signers in (range(quorum - 1), near[: quorum - 1]):
        cohort = at(secagg_kit, Stage.UNMASK)
        cohort.client_refuses(cohort.confirmed_by(signers), Reason.MISSING_SIGNATURES)
    gone = at(secagg_kit, Stage.UNMASK, drops={5: Stage.MASK})
    gone.client_refuses(gone.confirmed_by(range(quorum)), Reason.SET_NOT_NESTED)


def test_a_client_gives_up_shares_of_its_neighbours_only(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.UNMASK, drops={5: Stage.MASK})
    sent = cohort.answers(Stage.UNMASK, cohort.pending)
    for u, data in sent.items():
        message = decode_from_client(data, u, len(data))
        assert len(message.shares) == DEGREE * SHARE_BYTES
        assert cohort.clients[u].phase is ClientPhase.FINISHED


def test_a_ring_with_too_large_a_corrupt_share_is_refused(secagg_kit: SimpleNamespace) -> None:
    """Honest clients that vanish before they advertise leave the corrupt ones a larger share."""
    context = secagg_kit.context(
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
    cohort = secagg_kit.Cohort(context, drops=dict.fromkeys(range(40), Stage.ADVERTISE))
    with pytest.raises(TooFewSurvivorsError, match="advertise: 160 clients answered"):
        cohort.run()
    # A server that goes on all the same meets clients that refuse.
    entries = {u: cohort.wire[Stage.ADVERTISE, secagg_kit.Direction.UP, u] for u in range(40, 200)}
    advertisements = {u: decode_from_client(data, u, len(data)) for u, data in entries.items()}
    roster = RoundRoster.build(context, advertisements)
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.clients[50].receive(roster.to_message(context, 50))
    assert raised.value.reason is Reason.SET_TOO_SMALL
