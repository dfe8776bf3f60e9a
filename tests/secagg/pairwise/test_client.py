"""What a client refuses: one test for each of its checks, and after each it is aborted for good."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from single_use import Asked, SingleUseTests

from secagg import (
    ClientSession,
    FieldVector,
    Mode,
    ParameterError,
    PrimeField,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
)
from secagg.framing import encode_message, encode_set
from secagg.keys import AgreementKey
from secagg.pairwise import client as client_module
from secagg.pairwise.graph import CompleteGraph
from secagg.pairwise.messages import (
    ADVERTISEMENT_ENTRY_BYTES,
    Advertisement,
    AnyMessage,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    context_tag,
    decode_from_client,
)
from secagg.pairwise.reference import Stage
from secagg.pairwise.roster import RoundRoster, advertisement_parts
from secagg.pairwise.transitions import ClientPhase
from secagg.sealing import SEAL_OVERHEAD_BYTES, seal
from secagg.shamir import SHARE_BYTES
from secagg.tags import Usage

N = 5
ENTRY = ADVERTISEMENT_ENTRY_BYTES
SEALED = 88
"""Bytes of a sealed share without removable seeds; test_messages.py pins them."""


def swap(data: bytes, size: int, position: int, item: bytes) -> bytes:
    return data[: size * position] + item + data[size * (position + 1) :]


def item(data: bytes, size: int, position: int) -> bytes:
    return data[size * position : size * (position + 1)]


def place(v: int, u: int = 0) -> int:
    """Where client v's entry or share lies in what client u gets: u's own is left out."""
    return v - (v > u)


def signed_entry(kit: SimpleNamespace, cohort: Any, u: int, **keys: bytes) -> bytes:
    """A roster entry with chosen keys, rightly signed by client u (who works for the server)."""
    old = cohort.server._advertisements[u]
    sealing, masking = keys.get("sealing", old.sealing_key), keys.get("masking", old.masking_key)
    parts = advertisement_parts(cohort.context, u, sealing, masking, old.nonce)
    signature = kit.identity(u).sign(Usage.ADVERTISE, *parts)
    return sealing + masking + old.nonce + signature


# -- round 1: the roster ----------------------------------------------------------------------


def roster_over(cohort: Any, entries: dict[int, bytes], u: int = 0) -> AnyMessage:
    """The roster that a server which chose these entries would show to client u."""
    tag = context_tag(cohort.context)
    chosen = {v: Advertisement.from_entry(tag, v, entry) for v, entry in entries.items()}
    return RoundRoster.build(cohort.context, chosen).to_message(cohort.context, u)


def honest_entries(cohort: Any) -> dict[int, bytes]:
    return {v: a.entry() for v, a in cohort.server._advertisements.items()}


def members_only(cohort: Any, members: list[int]) -> AnyMessage:
    """A roster over some of the clients; if client 0 is not among them, with another's proof."""
    entries = honest_entries(cohort)
    return roster_over(cohort, {v: entries[v] for v in members}, 0 if 0 in members else members[0])


def test_roster_without_us(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.SHARE)
    cohort.client_refuses(members_only(cohort, [1, 2, 3, 4]), Reason.OWN_ENTRY_MISSING)


def test_roster_with_our_entry_of_an_earlier_session(secagg_kit: SimpleNamespace) -> None:
    """Rightly signed by us in this very context, but its private keys are another session's."""
    cohort = secagg_kit.before(Stage.SHARE)
    earlier = secagg_kit.before(Stage.SHARE, seed=b"earlier")
    changed = roster_over(cohort, {**honest_entries(cohort), 0: honest_entries(earlier)[0]})
    assert changed.entries == cohort.incoming().entries
    cohort.client_refuses(changed, Reason.NOT_IN_TREE)


@pytest.mark.parametrize("kind", ["sealing", "masking"])
@pytest.mark.parametrize("copied", [slice(0, 32), slice(32, 64)], ids=["sealing", "masking"])
@pytest.mark.parametrize("victim", [0, 1])
def test_roster_with_a_repeated_key(
    secagg_kit: SimpleNamespace, kind: str, copied: slice, victim: int
) -> None:
    cohort = secagg_kit.before(Stage.SHARE)
    key = honest_entries(cohort)[victim][copied]
    entry = signed_entry(secagg_kit, cohort, 2, **{kind: key})
    changed = roster_over(cohort, {**honest_entries(cohort), 2: entry})
    cohort.client_refuses(changed, Reason.DUPLICATE_KEY)


@pytest.mark.parametrize("position", [0, 31, 32, 63, 64, 79, 80, 143])
def test_roster_with_a_changed_entry(secagg_kit: SimpleNamespace, position: int) -> None:
    cohort = secagg_kit.before(Stage.SHARE)
    roster = cohort.incoming()
    entry = bytearray(item(roster.entries, ENTRY, place(3)))
    entry[position] ^= 1
    changed = replace(roster, entries=swap(roster.entries, ENTRY, place(3), bytes(entry)))
    cohort.client_refuses(changed, Reason.BAD_SIGNATURE, party=3)


@pytest.mark.parametrize("change", ["round_number", "application_digest"])
def test_roster_with_an_entry_of_another_context(secagg_kit: SimpleNamespace, change: str) -> None:
    cohort = secagg_kit.before(Stage.SHARE)
    values = {"round_number": 9, "application_digest": bytes(32)}
    other = dataclasses.replace(cohort.context, **{change: values[change]})
    elsewhere = ClientSession(other, 3, secagg_kit.identity(3)).begin()
    changed = roster_over(cohort, {**honest_entries(cohort), 3: elsewhere.entry()})
    cohort.client_refuses(changed, Reason.BAD_SIGNATURE, party=3)


def test_roster_with_one_client_in_the_place_of_another(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.SHARE, drops={4: Stage.ADVERTISE})
    roster = cohort.incoming()
    cohort.client_refuses(
        replace(roster, members=encode_set([0, 1, 2, 4], N)),
        Reason.BAD_SIGNATURE,
        party=4,
    )


def test_roster_that_is_too_small(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.SHARE)
    cohort.client_refuses(members_only(cohort, [0, 1]), Reason.SET_TOO_SMALL)


@pytest.mark.parametrize(
    "changes",
    [
        {"members": b""},
        {"members": b"\x1f\0"},
        {"members": b"\x3f"},
        {"entries": b""},
        {"entries": bytes(ENTRY * (N - 1) - 1)},
        {"entries": bytes(ENTRY * (N - 1) + 1)},
        {"entries": bytes(ENTRY * (N - 2))},
        {"entries": bytes(ENTRY * N)},
    ],
)
def test_roster_of_another_length(secagg_kit: SimpleNamespace, changes: dict[str, bytes]) -> None:
    cohort = secagg_kit.before(Stage.SHARE)
    cohort.client_refuses(replace(cohort.incoming(), **changes), Reason.BAD_LENGTH)


def test_roster_with_a_low_order_sealing_key(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.SHARE)
    roster = cohort.incoming()
    entry = signed_entry(secagg_kit, cohort, 2, sealing=bytes(32))
    changed = replace(roster, entries=swap(roster.entries, ENTRY, place(2), entry))
    cohort.client_refuses(changed, Reason.BAD_KEY, party=2)


# -- end of round 1: delivered shares ---------------------------------------------------------


@pytest.mark.parametrize("bad", ["changed", "swapped", "other recipient", "reflected", "other run"])
def test_shares_that_do_not_open(secagg_kit: SimpleNamespace, bad: str) -> None:
    cohort = secagg_kit.before(Stage.MASK)
    delivered = cohort.incoming()
    share = item(delivered.sealed, SEALED, place(1))
    if bad == "changed":
        share = bytes([share[0] ^ 1]) + share[1:]
    elif bad == "swapped":
        share = item(delivered.sealed, SEALED, place(2))
    elif bad == "other recipient":
        share = item(cohort.incoming(2).sealed, SEALED, 1)
    elif bad == "reflected":
        share = item(cohort.incoming(1).sealed, SEALED, 0)
    else:
        other = secagg_kit.before(Stage.MASK, seed=b"other run")
        share = item(other.incoming().sealed, SEALED, place(1))
    sealed = swap(delivered.sealed, SEALED, place(1), share)
    cohort.client_refuses(replace(delivered, sealed=sealed), Reason.BAD_SEAL, party=1)


def test_share_that_is_no_vector_of_field_elements(secagg_kit: SimpleNamespace) -> None:
    """Sealed by the right client, so the client itself is to blame."""
    cohort = secagg_kit.before(Stage.MASK)
    delivered = cohort.incoming()
    cheat = cohort.clients[1]._state
    shared = cheat.sealing.agree(cheat.roster.advertisements[0].sealing_key)
    share = seal(shared, cheat.roster.hash, 1, 0, b"\xff" * (SEALED - SEAL_OVERHEAD_BYTES))
    sealed = swap(delivered.sealed, SEALED, place(1), share)
    cohort.client_refuses(replace(delivered, sealed=sealed), Reason.BAD_SHARE, party=1)


# -- announced sets, in all rounds ------------------------------------------------------------

SETS = [(Stage.MASK, "participants"), (Stage.CONFIRM, "survivors")]


@pytest.mark.parametrize(("stage", "name"), SETS)
@pytest.mark.parametrize(
    ("announced", "reason"),
    [
        ([0, 1, 2, 3, 4], Reason.SET_NOT_NESTED),
        ([0, 1, 2, 4], Reason.SET_NOT_NESTED),
        ([1, 2, 3], Reason.OWN_ENTRY_MISSING),
        ([0, 1], Reason.SET_TOO_SMALL),
        ([0], Reason.SET_TOO_SMALL),
        ([], Reason.OWN_ENTRY_MISSING),
    ],
)
def test_announced_set(
    secagg_kit: SimpleNamespace, stage: Stage, name: str, announced: list[int], reason: Reason
) -> None:
    """Client 4 left before the stage; an honest set is {0, 1, 2, 3}."""
    before = Stage.ADVERTISE if stage is Stage.MASK else Stage.SHARE
    cohort = secagg_kit.before(stage, drops={4: before})
    message = replace(cohort.incoming(), **{name: encode_set(announced, N)})
    cohort.client_refuses(message, reason)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("survivors", [[1, 2, 3, 4], [0, 1]])
def test_survivor_set_is_checked_in_both_modes(
    secagg_kit: SimpleNamespace, mode: Mode, survivors: list[int]
) -> None:
    following = Stage.CONFIRM if mode is Mode.ACTIVE else Stage.UNMASK
    cohort = secagg_kit.before(following, mode)
    reason = Reason.SET_TOO_SMALL if 0 in survivors else Reason.OWN_ENTRY_MISSING
    cohort.client_refuses(replace(cohort.incoming(), survivors=encode_set(survivors, N)), reason)


@pytest.mark.parametrize(("stage", "name"), [*SETS, (Stage.UNMASK, "confirmers")])
@pytest.mark.parametrize("bitmap", [b"", b"\x1f\0", b"\x3f", b"\x80"])
def test_bitmaps_of_another_form(
    secagg_kit: SimpleNamespace, stage: Stage, name: str, bitmap: bytes
) -> None:
    cohort = secagg_kit.before(stage)
    cohort.client_refuses(replace(cohort.incoming(), **{name: bitmap}), Reason.BAD_LENGTH)


@pytest.mark.parametrize(("stage", "name"), [(Stage.MASK, "sealed"), (Stage.UNMASK, "signatures")])
@pytest.mark.parametrize("change", [lambda d: b"", lambda d: d[:-1], lambda d: d + b"\0"])
def test_lists_of_another_length(
    secagg_kit: SimpleNamespace, stage: Stage, name: str, change: Callable[[bytes], bytes]
) -> None:
    cohort = secagg_kit.before(stage)
    message = cohort.incoming()
    changed = replace(message, **{name: change(getattr(message, name))})
    cohort.client_refuses(changed, Reason.BAD_LENGTH)


@pytest.mark.parametrize("stage", list(Stage)[1:])
def test_message_of_another_context(secagg_kit: SimpleNamespace, stage: Stage) -> None:
    cohort = secagg_kit.before(stage)
    cohort.client_refuses(replace(cohort.incoming(), context=bytes(8)), Reason.WRONG_CONTEXT)


@pytest.mark.parametrize("stage", list(Stage)[1:])
def test_malformed_bytes_abort(secagg_kit: SimpleNamespace, stage: Stage) -> None:
    cohort = secagg_kit.before(stage)
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.clients[0].receive_bytes(b"\1\0")
    assert raised.value.reason is Reason.MALFORMED
    cohort.assert_over(0)


# -- round 2: the input -----------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "length"), [(16, 4), (16, 6), (15, 5), (17, 5)])
def test_input_of_another_shape(secagg_kit: SimpleNamespace, bits: int, length: int) -> None:
    cohort = secagg_kit.before(Stage.MASK)
    cohort.clients[0].receive_bytes(cohort.pending[0])
    field = PrimeField(bits)
    with pytest.raises(ParameterError, match="vector"):
        cohort.clients[0].submit(FieldVector(field, field.zeros(length)))
    cohort.assert_over(0)


def test_low_order_masking_key(secagg_kit: SimpleNamespace) -> None:
    """A mask that the server could compute must not be used; found when masks are made."""
    cohort = secagg_kit.before(Stage.MASK)
    cohort.clients[0].receive_bytes(cohort.pending[0])
    ready = cohort.clients[0]._state
    low = replace(ready.roster.advertisements[2], masking_key=bytes(32))
    roster = dataclasses.replace(
        ready.roster, advertisements={**ready.roster.advertisements, 2: low}
    )
    cohort.clients[0]._state = dataclasses.replace(ready, roster=roster)
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.clients[0].submit(cohort.vector(0))
    assert (raised.value.reason, raised.value.party) == (Reason.BAD_KEY, 2)
    cohort.assert_over(0)


def test_input_is_not_changed_and_not_sent(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.MASK)
    cohort.clients[0].receive_bytes(cohort.pending[0])
    vector = cohort.vector(0)
    masked = cohort.clients[0].submit(vector)
    assert np.array_equal(vector.elements, cohort.inputs[0])
    assert vector.elements.tobytes() not in masked.vector


def test_secrets_are_forgotten_once_the_input_is_masked(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.CONFIRM)
    state = cohort.clients[0]._state
    held = [getattr(state, name) for name in type(state).__slots__]
    assert not any(isinstance(value, AgreementKey) for value in held)
    assert {"seed", "masking", "sealing"}.isdisjoint(type(state).__slots__)


# -- rounds 3 and 4: one survivor set, one answer ---------------------------------------------


def test_enough_signatures_release(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.UNMASK)
    message = cohort.confirmed_by([1, 2, 4])
    assert isinstance(cohort.clients[0].receive(message), UnmaskShares)
    assert cohort.clients[0].phase is ClientPhase.FINISHED


@pytest.mark.parametrize("survivors", [[0, 1, 2, 3], [0, 1, 2], [1, 2, 3, 4]])
def test_signatures_on_another_survivor_set(
    secagg_kit: SimpleNamespace, survivors: list[int]
) -> None:
    cohort = secagg_kit.before(Stage.UNMASK)
    message = cohort.confirmed_by([0, 1, 2], survivors)
    cohort.client_refuses(message, Reason.BAD_SIGNATURE, party=0)


def test_one_bad_signature_among_enough_good_ones(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.UNMASK)
    message = cohort.confirmed_by([0, 1, 2, 3])
    changed = replace(message, signatures=message.signatures[:-1] + b"\0")
    cohort.client_refuses(changed, Reason.BAD_SIGNATURE, party=3)


def test_signatures_of_another_round(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.UNMASK)
    other = secagg_kit.before(Stage.UNMASK, seed=b"other run")
    cohort.client_refuses(other.incoming(), Reason.BAD_SIGNATURE, party=0)


@pytest.mark.parametrize("signers", [[], [0], [3, 4]])
def test_too_few_signatures(secagg_kit: SimpleNamespace, signers: list[int]) -> None:
    cohort = secagg_kit.before(Stage.UNMASK)
    message = cohort.confirmed_by(signers)
    cohort.client_refuses(message, Reason.MISSING_SIGNATURES)


def test_signature_of_somebody_who_did_not_survive(secagg_kit: SimpleNamespace) -> None:
    """A participant whose input is not in the sum has no say about the sum."""
    cohort = secagg_kit.before(Stage.UNMASK, drops={4: Stage.MASK})
    message = cohort.confirmed_by([0, 1, 4], [0, 1, 2, 3])
    cohort.client_refuses(message, Reason.SET_NOT_NESTED)


@pytest.mark.parametrize("mode", list(Mode))
def test_second_survivor_set_is_not_answered(secagg_kit: SimpleNamespace, mode: Mode) -> None:
    """Two sets answered would give both secrets of client 4 to the server."""
    following = Stage.CONFIRM if mode is Mode.ACTIVE else Stage.UNMASK
    cohort = secagg_kit.before(following, mode)
    first = cohort.incoming()
    second = replace(first, survivors=encode_set([0, 1, 2, 3], N))
    answer = cohort.clients[0].receive(first)
    assert isinstance(answer, UnmaskShares) == (mode is Mode.SEMI_HONEST)
    if mode is Mode.ACTIVE:
        cohort.client_refuses(second, Reason.UNEXPECTED_MESSAGE)
    else:
        with pytest.raises(SessionAbortedError):
            cohort.clients[0].receive(second)


def test_finished_client_answers_nothing(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.UNMASK)
    cohort.clients[0].receive_bytes(cohort.pending[0])
    for data in (cohort.pending[0], b"garbage", b""):
        with pytest.raises(SessionAbortedError):
            cohort.clients[0].receive_bytes(data)
        assert cohort.clients[0].phase is ClientPhase.FINISHED


@pytest.mark.parametrize("mode", list(Mode))
def test_exactly_one_share_is_released_for_each_participant(
    secagg_kit: SimpleNamespace, mode: Mode
) -> None:
    cohort = secagg_kit.before(Stage.UNMASK, mode, drops={1: Stage.MASK, 4: Stage.SHARE})
    held = {}
    for u in (0, 2, 3):
        state = cohort.clients[u]._state
        held[u] = dict(getattr(state, "masked", state).held)
        assert set(held[u]) == {0, 1, 2, 3}
    for u in (0, 2, 3):
        answer = cohort.clients[u].receive_bytes(cohort.pending[u])
        shares = decode_from_client(answer, u, len(answer)).shares
        wanted = [held[u][v][SHARE_BYTES * (v == 1) :][:SHARE_BYTES] for v in (0, 1, 2, 3)]
        assert shares == b"".join(wanted)


# -- a server that tells different things to different clients --------------------------------


def test_two_rosters_cannot_complete(secagg_kit: SimpleNamespace) -> None:
    """Client 4 works for the server and has two entries, both rightly signed.

    Clients 0 and 1 get one roster, 2 and 3 the other. No share opens across the two groups.
    """
    cohort = secagg_kit.before(Stage.SHARE)
    entry = signed_entry(secagg_kit, cohort, 4, masking=AgreementKey(b"\5" * 32).public)
    other = {**honest_entries(cohort), 4: entry}
    shown = {u: cohort.incoming(u) if u < 2 else roster_over(cohort, other, u) for u in range(4)}
    bundles = {u: cohort.clients[u].receive(roster) for u, roster in shown.items()}
    assert all(isinstance(bundle, ShareBundle) for bundle in bundles.values())
    delivered = secagg_kit.before(Stage.MASK)
    for u in range(4):
        message = delivered.incoming(u)
        # Every bundle's item for u; sender v leaves itself out.
        sealed = b"".join(item(bundles[v].sealed, SEALED, place(u, v)) for v in range(4) if v != u)
        changed = replace(message, participants=encode_set(range(4), N), sealed=sealed)
        stranger = next(v for v in range(4) if (v < 2) != (u < 2))
        cohort.client_refuses(changed, Reason.BAD_SEAL, party=stranger, u=u)


def test_two_rosters_are_refused_by_an_honest_server(secagg_kit: SimpleNamespace) -> None:
    shown = []

    def show_another(u: int, data: bytes) -> list[bytes]:
        if u:
            return [data]
        entry = signed_entry(secagg_kit, cohort, 4, masking=AgreementKey(b"\5" * 32).public)
        shown.append(u)
        return [encode_message(roster_over(cohort, {**honest_entries(cohort), 4: entry}))]

    down = (Stage.ADVERTISE, secagg_kit.Direction.DOWN)
    cohort = secagg_kit.Cohort(secagg_kit.context(N, threshold=3), tampers={down: show_another})
    cohort.run(until=Stage.SHARE)
    pending = cohort.pending
    for u, data in cohort.answers(Stage.SHARE, pending).items():
        cohort.send_up(Stage.SHARE, u, data)
    assert shown == [0]
    assert [(e.party, e.reason) for e in cohort.refused] == [(0, Reason.BAD_SIGNATURE)]


def test_one_client_with_another_model_takes_no_part(secagg_kit: SimpleNamespace) -> None:
    """The honest server drops it; the others' sum is exact."""
    context = secagg_kit.context(N, threshold=3)
    other = dataclasses.replace(context, application_digest=b"another model".ljust(32))
    cohort = secagg_kit.Cohort(context, contexts={2: other})
    total = cohort.run()
    assert total.survivors == (0, 1, 3, 4)
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)
    assert [(e.party, e.reason) for e in cohort.refused] == [(2, Reason.WRONG_CONTEXT)]


def test_a_server_that_sends_another_model_to_one_client_gets_nothing_from_it(
    secagg_kit: SimpleNamespace,
) -> None:
    """The server rewrites the context tags and skips its own checks: signatures still bind."""
    context = secagg_kit.context(N, threshold=3)
    other = dataclasses.replace(context, application_digest=b"another model".ljust(32))
    sessions = [
        ClientSession(other if u == 2 else context, u, secagg_kit.identity(u)) for u in range(N)
    ]
    advertised = {u: session.begin() for u, session in enumerate(sessions)}
    for u, told in ((0, context), (2, other)):
        message = RoundRoster.build(told, advertised).to_message(told, u)
        with pytest.raises(RemoteProtocolError) as raised:
            sessions[u].receive(message)
        assert raised.value.reason is Reason.BAD_SIGNATURE
        assert raised.value.party == (2 if u == 0 else 0)
        assert sessions[u].phase is ClientPhase.ABORTED


def test_too_few_holders_for_our_own_shares(
    secagg_kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A complete graph has enough; a sparse one must not make a secret that t cannot rebuild."""
    cohort = secagg_kit.before(Stage.SHARE)
    monkeypatch.setattr(CompleteGraph, "holders", lambda graph, index: graph.members[:2])
    cohort.client_refuses(cohort.incoming(), Reason.SET_TOO_SMALL)


def test_abort_forgets_everything(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.before(Stage.MASK)
    cohort.clients[0].abort()
    assert "Aborted()" in repr(cohort.clients[0]._state)
    cohort.assert_over(0)


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.CONFIRM])
def test_sets_of_the_threshold_may_still_be_below_the_minimum(
    secagg_kit: SimpleNamespace, stage: Stage
) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(N, threshold=3, minimum_survivors=4))
    cohort.run(until=stage)
    message = cohort.incoming()
    three = encode_set([0, 1, 2], N)
    if stage is Stage.SHARE:
        message = members_only(cohort, [0, 1, 2])
    elif stage is Stage.MASK:
        sealed = message.sealed[: 2 * SEALED]
        message = replace(message, participants=three, sealed=sealed)
    else:
        message = replace(message, survivors=three)
    cohort.client_refuses(message, Reason.SET_TOO_SMALL)


class TestSharing(SingleUseTests):
    """One state is answered once: whoever calls at once, and whatever copies there are."""

    @pytest.fixture
    def asked(self, secagg_kit: SimpleNamespace) -> Asked:
        """Client 0, asked for its survivor set: two of them give away both secrets of client 4."""
        cohort = secagg_kit.Cohort(secagg_kit.context(N, minimum_survivors=4))
        cohort.run(until=Stage.CONFIRM)
        client = cohort.clients[0]
        assert client.phase is ClientPhase.MASKED
        tag = context_tag(cohort.context)
        stories = [SurvivorSet(tag, encode_set(range(count), N)) for count in (N, N - 1)]
        return Asked(
            session=client,
            module=client_module,
            event=(ClientPhase.MASKED, SurvivorSet),
            ask=lambda session, story: session.receive(stories[story]),
            ask_bytes=lambda session, story: session.receive_bytes(encode_message(stories[story])),
            decoder="decode_from_server",
            aborted=ClientPhase.ABORTED,
        )

    def test_a_source_of_secrets_that_aborts_ends_the_session(
        self, secagg_kit: SimpleNamespace
    ) -> None:
        cohort = secagg_kit.Cohort(secagg_kit.context(N, minimum_survivors=4))
        party = cohort.clients[0]._party

        def rand(size: int) -> bytes:
            session.abort()
            return bytes([1]) * size

        session = ClientSession(party.context, 0, party.identity, rand)
        with pytest.raises(SessionAbortedError):
            session.begin_bytes()
        assert session.phase is ClientPhase.ABORTED
