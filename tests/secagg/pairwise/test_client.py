"""What a client keeps, gives up and forgets, and what a server that lies to it gains.

What it refuses is in the corpus: test_refusals.py.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pairwise_rounds as kit
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
    SurvivorSet,
    context_tag,
    decode_from_client,
)
from secagg.pairwise.reference import Stage
from secagg.pairwise.roster import RoundRoster
from secagg.pairwise.transitions import ClientPhase
from secagg.shamir import SHARE_BYTES

N = 5


# -- round 2: the input -----------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "length"), [(16, 4), (16, 6), (15, 5), (17, 5)])
def test_input_of_another_shape(bits: int, length: int) -> None:
    cohort = kit.before(Stage.MASK)
    cohort.clients[0].receive_bytes(cohort.pending[0])
    field = PrimeField(bits)
    with pytest.raises(ParameterError, match="vector"):
        cohort.clients[0].submit(FieldVector(field, field.zeros(length)))
    cohort.assert_over(0)


def test_low_order_masking_key() -> None:
    """A mask that the server could compute must not be used; found when masks are made."""
    cohort = kit.before(Stage.MASK)
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


def test_a_client_agrees_with_each_neighbour_once_on_a_seal_and_once_on_a_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agree, pairs = AgreementKey.agree, []

    def counted(own: AgreementKey, peer: bytes) -> bytes:
        pairs.append((own.public, peer))
        return agree(own, peer)

    monkeypatch.setattr(AgreementKey, "agree", counted)
    kit.Cohort(kit.context(N)).run()
    assert len(pairs) == len(set(pairs)) == 2 * N * (N - 1)


def test_input_is_not_changed_and_not_sent() -> None:
    cohort = kit.before(Stage.MASK)
    cohort.clients[0].receive_bytes(cohort.pending[0])
    vector = cohort.vector(0)
    masked = cohort.clients[0].submit(vector)
    assert np.array_equal(vector.elements, cohort.inputs[0])
    assert vector.elements.tobytes() not in masked.vector


def test_secrets_are_forgotten_once_the_input_is_masked() -> None:
    cohort = kit.before(Stage.CONFIRM)
    state = cohort.clients[0]._state
    held = [getattr(state, name) for name in type(state).__slots__]
    assert not any(isinstance(value, AgreementKey) for value in held)
    assert {"seed", "masking", "sealing"}.isdisjoint(type(state).__slots__)


# -- rounds 3 and 4: one survivor set, one answer ---------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
def test_exactly_one_share_is_released_for_each_participant(mode: Mode) -> None:
    cohort = kit.before(Stage.UNMASK, mode, drops={1: Stage.MASK, 4: Stage.SHARE})
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


def test_one_client_with_another_model_takes_no_part() -> None:
    """The honest server drops it; the others' sum is exact."""
    context = kit.context(N, threshold=3)
    other = dataclasses.replace(context, application_digest=b"another model".ljust(32))
    cohort = kit.Cohort(context, contexts={2: other})
    total = cohort.run()
    assert total.survivors == (0, 1, 3, 4)
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)
    assert [(e.party, e.reason) for e in cohort.refused] == [(2, Reason.WRONG_CONTEXT)]


def test_a_server_that_sends_another_model_to_one_client_gets_nothing_from_it() -> None:
    """The server rewrites the context tags and skips its own checks: signatures still bind."""
    context = kit.context(N, threshold=3)
    other = dataclasses.replace(context, application_digest=b"another model".ljust(32))
    sessions = [ClientSession(other if u == 2 else context, u, kit.identity(u)) for u in range(N)]
    advertised = {u: session.begin() for u, session in enumerate(sessions)}
    for u, told in ((0, context), (2, other)):
        message = RoundRoster.build(told, advertised).to_message(told, u)
        with pytest.raises(RemoteProtocolError) as raised:
            sessions[u].receive(message)
        assert raised.value.reason is Reason.BAD_SIGNATURE
        assert raised.value.party == (2 if u == 0 else 0)
        assert sessions[u].phase is ClientPhase.ABORTED


def test_too_few_holders_for_our_own_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete graph has enough; a sparse one must not make a secret that t cannot rebuild."""
    cohort = kit.before(Stage.SHARE)
    monkeypatch.setattr(CompleteGraph, "holders", lambda graph, index: graph.members[:2])
    cohort.client_refuses(cohort.incoming(), Reason.SET_TOO_SMALL)


def test_abort_forgets_everything() -> None:
    cohort = kit.before(Stage.MASK)
    cohort.clients[0].abort()
    assert "Aborted()" in repr(cohort.clients[0]._state)
    cohort.assert_over(0)


class TestSharing(SingleUseTests):
    """One state is answered once: whoever calls at once, and whatever copies there are."""

    @pytest.fixture
    def asked(self) -> Asked:
        """Client 0, asked for its survivor set: two of them give away both secrets of client 4."""
        cohort = kit.Cohort(kit.context(N, minimum_survivors=4))
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

    def test_a_source_of_secrets_that_aborts_ends_the_session(self) -> None:
        cohort = kit.Cohort(kit.context(N, minimum_survivors=4))
        party = cohort.clients[0]._party

        def rand(size: int) -> bytes:
            session.abort()
            return bytes([1]) * size

        session = ClientSession(party.context, 0, party.identity, rand)
        with pytest.raises(SessionAbortedError):
            session.begin_bytes()
        assert session.phase is ClientPhase.ABORTED
