"""What the server refuses. A refused message changes nothing, and the round still completes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from secagg import (
    LocalProtocolError,
    Mode,
    Reason,
    RemoteProtocolError,
    ServerSession,
    TooFewSurvivorsError,
)
from secagg.field import pack
from secagg.framing import encode_message, encode_set
from secagg.pairwise.messages import AnyMessage, decode_from_client
from secagg.pairwise.reference import Stage
from secagg.pairwise.roster import advertisement_parts
from secagg.pairwise.transitions import ServerPhase
from secagg.shamir import SHARE_BYTES
from secagg.tags import Usage

N = 5


def at(kit: SimpleNamespace, stage: Stage, mode: Mode = Mode.ACTIVE, **options: Any) -> Any:
    """A cohort of five before a stage, and what its clients are about to send; t = 3."""
    cohort = kit.before(stage, mode, **options)
    cohort.outgoing = cohort.answers(stage, cohort.pending)
    return cohort


def outgoing(cohort: Any, u: int = 1) -> AnyMessage:
    return decode_from_client(cohort.outgoing[u], u, len(cohort.outgoing[u]))


def finish(cohort: Any, stage: Stage) -> Any:
    """Deliver what is outstanding and run the round to its end."""
    for u, data in cohort.outgoing.items():
        if u not in cohort.server.answered:
            cohort.server.receive_bytes(u, data)
    for following in [s for s in cohort.stages if s > stage]:
        down = dict(cohort.server.close_round_bytes())
        for u, data in cohort.answers(following, down).items():
            cohort.server.receive_bytes(u, data)
    return cohort.server.unmask()


def refuses(cohort: Any, stage: Stage, message: AnyMessage, reason: Reason, party: int = 1) -> None:
    """The message is refused, nothing changes, and the honest messages still make the sum."""
    before = (cohort.server.phase, cohort.server.answered)
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.server.receive_bytes(party, encode_message(message))
    assert (raised.value.reason, raised.value.party) == (reason, party)
    assert (cohort.server.phase, cohort.server.answered) == before
    total = finish(cohort, stage)
    assert total.survivors == tuple(range(N))
    assert total.vector.elements.tolist() == cohort.expected(range(N))


@pytest.mark.parametrize("stage", list(Stage))
def test_message_of_another_context(secagg_kit: SimpleNamespace, stage: Stage) -> None:
    cohort = at(secagg_kit, stage)
    refuses(cohort, stage, replace(outgoing(cohort), context=bytes(8)), Reason.WRONG_CONTEXT)


@pytest.mark.parametrize("stage", list(Stage))
def test_message_in_the_name_of_another(secagg_kit: SimpleNamespace, stage: Stage) -> None:
    cohort = at(secagg_kit, stage)
    refuses(cohort, stage, outgoing(cohort, 2), Reason.UNKNOWN_SENDER)


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("sender", [N, N + 1, 1 << 40, -1, -2])
def test_stranger(secagg_kit: SimpleNamespace, stage: Stage, sender: int) -> None:
    cohort = at(secagg_kit, stage)
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.server.receive_bytes(sender, cohort.outgoing[1])
    assert raised.value.reason is Reason.UNKNOWN_SENDER
    if sender >= 0:
        with pytest.raises(RemoteProtocolError) as raised:
            cohort.server.receive(replace(outgoing(cohort), sender=sender))
        assert raised.value.reason is Reason.UNKNOWN_SENDER
    finish(cohort, stage)


@pytest.mark.parametrize("stage", list(Stage))
def test_duplicate(secagg_kit: SimpleNamespace, stage: Stage) -> None:
    """In the round of masked inputs a second copy must not be added to the sum."""
    cohort = at(secagg_kit, stage)
    cohort.server.receive_bytes(1, cohort.outgoing[1])
    refuses(cohort, stage, outgoing(cohort), Reason.DUPLICATE_MESSAGE)


@pytest.mark.parametrize("stage", list(Stage)[:-1])
def test_late_message(secagg_kit: SimpleNamespace, stage: Stage) -> None:
    cohort = at(secagg_kit, stage)
    late = cohort.outgoing.pop(1)
    for u, data in cohort.outgoing.items():
        cohort.server.receive_bytes(u, data)
    down = dict(cohort.server.close_round_bytes())
    assert 1 not in down
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.server.receive_bytes(1, late)
    assert raised.value.reason is Reason.UNEXPECTED_MESSAGE
    following = cohort.stages[cohort.stages.index(stage) + 1]
    cohort.outgoing = cohort.answers(following, down)
    total = finish(cohort, following)
    assert (1 in total.survivors) == (stage >= Stage.CONFIRM)
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)


@pytest.mark.parametrize("stage", list(Stage)[1:])
def test_client_that_missed_the_stage_before(secagg_kit: SimpleNamespace, stage: Stage) -> None:
    """Client 4 was silent once; its messages of the next stage come from another run."""
    before = {Stage.SHARE: Stage.ADVERTISE, Stage.MASK: Stage.SHARE}.get(stage, Stage.MASK)
    recovering = stage is Stage.RECOVER
    if recovering:
        before = Stage.UNMASK
    cohort = at(secagg_kit, stage, drops={4: before})
    # Somebody has to be missing for a last stage to take place at all.
    honest = at(secagg_kit, stage, drops={3: before} if recovering else {})
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.server.receive_bytes(4, honest.outgoing[4])
    assert (raised.value.reason, raised.value.party) == (Reason.UNKNOWN_SENDER, 4)
    total = finish(cohort, stage)
    assert total.survivors == ((0, 1, 2, 3, 4) if recovering else (0, 1, 2, 3))
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)


# -- advertisements ---------------------------------------------------------------------------


def signed(kit: SimpleNamespace, cohort: Any, message: AnyMessage, u: int) -> AnyMessage:
    """The advertisement, rightly signed by client u."""
    parts = advertisement_parts(
        cohort.context, u, message.sealing_key, message.masking_key, message.nonce
    )
    return replace(message, sender=u, signature=kit.identity(u).sign(Usage.ADVERTISE, *parts))


@pytest.mark.parametrize("name", ["sealing_key", "masking_key", "nonce", "signature"])
def test_changed_advertisement(secagg_kit: SimpleNamespace, name: str) -> None:
    cohort = at(secagg_kit, Stage.ADVERTISE)
    message = outgoing(cohort)
    value = getattr(message, name)
    changed = replace(message, **{name: value[:-1] + bytes([value[-1] ^ 1])})
    refuses(cohort, Stage.ADVERTISE, changed, Reason.BAD_SIGNATURE)


@pytest.mark.parametrize(
    ("name", "copied", "owner"),
    [
        ("sealing_key", "sealing_key", 0),
        ("sealing_key", "masking_key", 0),
        ("masking_key", "sealing_key", 0),
        ("masking_key", "masking_key", 0),
        ("sealing_key", "masking_key", 1),
        ("masking_key", "sealing_key", 1),
    ],
)
def test_repeated_key(secagg_kit: SimpleNamespace, name: str, copied: str, owner: int) -> None:
    cohort = at(secagg_kit, Stage.ADVERTISE)
    cohort.server.receive_bytes(0, cohort.outgoing[0])
    stolen = getattr(outgoing(cohort, owner), copied)
    message = signed(secagg_kit, cohort, replace(outgoing(cohort), **{name: stolen}), 1)
    refuses(cohort, Stage.ADVERTISE, message, Reason.DUPLICATE_KEY)


@pytest.mark.parametrize("name", ["sealing_key", "masking_key"])
def test_low_order_key(secagg_kit: SimpleNamespace, name: str) -> None:
    cohort = at(secagg_kit, Stage.ADVERTISE)
    message = signed(secagg_kit, cohort, replace(outgoing(cohort), **{name: bytes(32)}), 1)
    refuses(cohort, Stage.ADVERTISE, message, Reason.BAD_KEY)


# -- share bundles ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["commitments", "sealed", "signature"])
@pytest.mark.parametrize("position", [0, -1])
def test_changed_bundle(secagg_kit: SimpleNamespace, name: str, position: int) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    message = outgoing(cohort)
    value = bytearray(getattr(message, name))
    value[position] ^= 1
    changed = replace(message, **{name: bytes(value)})
    refuses(cohort, Stage.SHARE, changed, Reason.BAD_SIGNATURE)


def test_bundle_of_another_run(secagg_kit: SimpleNamespace) -> None:
    """Same context, other ephemeral keys: the roster hash in the signature differs."""
    cohort = at(secagg_kit, Stage.SHARE)
    other = at(secagg_kit, Stage.SHARE, seed=b"other run")
    refuses(cohort, Stage.SHARE, outgoing(other), Reason.BAD_SIGNATURE)


@pytest.mark.parametrize("name", ["commitments", "sealed"])
@pytest.mark.parametrize(
    "change",
    [
        lambda d: b"",
        lambda d: d[:-1],
        lambda d: d + bytes(9),
        lambda d: d + bytes(32),
        lambda d: d[:-88],
        lambda d: d + bytes(88),
    ],
)
def test_bundle_of_another_length(
    secagg_kit: SimpleNamespace, name: str, change: Callable[[bytes], bytes]
) -> None:
    cohort = at(secagg_kit, Stage.SHARE)
    message = outgoing(cohort)
    changed = cohort.resigned(replace(message, **{name: change(getattr(message, name))}))
    refuses(cohort, Stage.SHARE, changed, Reason.BAD_LENGTH)


# -- masked inputs ----------------------------------------------------------------------------


@pytest.mark.parametrize("change", [lambda d: b"", lambda d: d[:-1], lambda d: d + b"\0"])
def test_vector_of_another_length(
    secagg_kit: SimpleNamespace, change: Callable[[bytes], bytes]
) -> None:
    cohort = at(secagg_kit, Stage.MASK)
    message = outgoing(cohort)
    changed = replace(message, vector=change(message.vector))
    refuses(cohort, Stage.MASK, changed, Reason.BAD_LENGTH)


@pytest.mark.parametrize("position", range(5))
def test_vector_element_not_below_the_prime(secagg_kit: SimpleNamespace, position: int) -> None:
    """16 bits: the largest prime is 2^16 - 15, so an element of ones is too large."""
    cohort = at(secagg_kit, Stage.MASK)
    message = outgoing(cohort)
    vector = message.vector[: 2 * position] + b"\xf1\xff" + message.vector[2 * position + 2 :]
    changed = cohort.resigned(replace(message, vector=vector))
    refuses(cohort, Stage.MASK, changed, Reason.NOT_IN_FIELD)


def test_vector_changed_on_the_way(secagg_kit: SimpleNamespace) -> None:
    """Without the signature this would be a wrong sum that nobody notices."""
    cohort = at(secagg_kit, Stage.MASK)
    message = outgoing(cohort)
    changed = replace(message, vector=bytes([message.vector[0] ^ 1]) + message.vector[1:])
    refuses(cohort, Stage.MASK, changed, Reason.BAD_SIGNATURE)


def test_unmask_shares_changed_on_the_way(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.UNMASK)
    message = outgoing(cohort)
    changed = replace(message, shares=bytes([message.shares[0] ^ 1]) + message.shares[1:])
    refuses(cohort, Stage.UNMASK, changed, Reason.BAD_SIGNATURE)


def test_vector_with_padding_bits(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(3, bits=13))
    cohort.run(until=Stage.MASK)
    cohort.outgoing = cohort.answers(Stage.MASK, cohort.pending)
    message = outgoing(cohort)
    vector = message.vector[:-1] + bytes([message.vector[-1] | 0x80])
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.server.receive(cohort.resigned(replace(message, vector=vector)))
    assert raised.value.reason is Reason.NOT_IN_FIELD
    finish(cohort, Stage.MASK)


def test_vectors_at_the_top_of_the_field(secagg_kit: SimpleNamespace) -> None:
    for bits in (16, 31, 32, 62):
        cohort = secagg_kit.Cohort(secagg_kit.context(N, bits=bits))
        cohort.inputs[:] = cohort.context.field.modulus - 1
        total = cohort.run()
        assert total.vector.elements.tolist() == cohort.expected(range(N))


# -- confirmations and unmask shares ----------------------------------------------------------


@pytest.mark.parametrize("survivors", [[0, 1, 2], [0, 1, 2, 3]])
def test_confirmation_of_another_survivor_set(
    secagg_kit: SimpleNamespace, survivors: list[int]
) -> None:
    cohort = at(secagg_kit, Stage.CONFIRM)
    round_hash = cohort.clients[1]._state.masked.roster.hash
    signature = secagg_kit.identity(1).sign(Usage.CONFIRM, round_hash, encode_set(survivors, N))
    changed = replace(outgoing(cohort), signature=signature)
    refuses(cohort, Stage.CONFIRM, changed, Reason.BAD_SIGNATURE)


def test_confirmation_of_another_run(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.CONFIRM)
    other = at(secagg_kit, Stage.CONFIRM, seed=b"other run")
    refuses(cohort, Stage.CONFIRM, outgoing(other), Reason.BAD_SIGNATURE)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: b"",
        lambda d: d[:-SHARE_BYTES],
        lambda d: d + bytes(SHARE_BYTES),
        lambda d: d[:-1],
        lambda d: d[:-4] + b"\xff\xff\xff\x7f",
        lambda d: b"\xff\xff\xff\xff" + d[4:],
    ],
)
def test_unmask_shares_of_another_form(
    secagg_kit: SimpleNamespace, change: Callable[[bytes], bytes]
) -> None:
    cohort = at(secagg_kit, Stage.UNMASK)
    message = outgoing(cohort)
    changed = cohort.resigned(replace(message, shares=change(message.shares)))
    refuses(cohort, Stage.UNMASK, changed, Reason.BAD_SHARE)


# -- deadlines --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "name", "needed"),
    [
        (Stage.ADVERTISE, "advertise", 4),
        (Stage.SHARE, "share", 4),
        (Stage.MASK, "masked input", 4),
        (Stage.CONFIRM, "confirm", 3),
        (Stage.UNMASK, "unmask", 3),
    ],
)
def test_too_few_clients_end_the_round(
    secagg_kit: SimpleNamespace, stage: Stage, name: str, needed: int
) -> None:
    context = secagg_kit.context(N, threshold=3, minimum_survivors=4)
    enough = secagg_kit.Cohort(context, drops=dict.fromkeys(range(N - needed), stage))
    assert enough.run() is not None
    cohort = secagg_kit.Cohort(context, drops=dict.fromkeys(range(N - needed + 1), stage))
    with pytest.raises(TooFewSurvivorsError) as raised:
        cohort.run()
    error = raised.value
    assert (error.stage, error.survivors, error.needed) == (name, needed - 1, needed)
    assert cohort.server.phase is ServerPhase.ABORTED


def test_deadline_after_the_last_stage(secagg_kit: SimpleNamespace) -> None:
    cohort = at(secagg_kit, Stage.RECOVER)
    with pytest.raises(LocalProtocolError, match="ends with unmask"):
        cohort.server.close_round()
    finish(cohort, Stage.RECOVER)


@pytest.mark.parametrize("stage", list(Stage)[: Stage.UNMASK])
def test_unmask_before_its_time(secagg_kit: SimpleNamespace, stage: Stage) -> None:
    cohort = at(secagg_kit, stage)
    with pytest.raises(LocalProtocolError, match="cannot unmask"):
        cohort.server.unmask()
    finish(cohort, stage)


def test_sets_are_public_as_they_are_decided(secagg_kit: SimpleNamespace) -> None:
    server = ServerSession(secagg_kit.context(N, threshold=3))
    assert (server.participants, server.survivors, server.answered) == ((), (), ())
    cohort = at(secagg_kit, Stage.UNMASK, drops={0: Stage.SHARE, 2: Stage.MASK})
    assert cohort.server.participants == (1, 2, 3, 4)
    assert cohort.server.survivors == (1, 3, 4)


# -- everything at once -----------------------------------------------------------------------


@st.composite
def disturbances(draw: st.DrawFn) -> tuple[Mode, Stage, bool, int, str, int]:
    return (
        draw(st.sampled_from(Mode)),
        draw(st.sampled_from(Stage)),
        draw(st.booleans()),
        draw(st.integers(0, N - 1)),
        draw(st.sampled_from(["lost", "twice", "corrupt", "cut", "longer"])),
        draw(st.integers(0, 400)),
    )


@settings(max_examples=150, deadline=None)
@given(
    faults=st.lists(disturbances(), min_size=1, max_size=3),
    mode=st.sampled_from(Mode),
    n=st.sampled_from([N, 9]),
    seeds=st.booleans(),
)
def test_any_disturbance_gives_the_exact_sum_or_a_typed_abort(
    secagg_kit: SimpleNamespace, faults: list[Any], mode: Mode, n: int, seeds: bool
) -> None:
    """Lost, repeated and corrupted messages in both directions; nine clients are a sparse graph."""
    tampers = {}
    for _, stage, up, victim, kind, at_byte in faults:
        direction = secagg_kit.Direction.UP if up else secagg_kit.Direction.DOWN
        tampers[stage, direction] = disturb(victim, kind, at_byte)
    context = secagg_kit.context(
        n,
        mode,
        threshold=3 if n == N else 4,
        minimum_survivors=3 if n == N else 6,
        degree=0 if n == N else 6,
        removal=(0b11, 0b01, 0b10, 0b01) if seeds else (),
    )
    drops = {4: Stage.UNMASK} if seeds else {}
    cohort = secagg_kit.Cohort(context, drops, tampers=tampers)
    try:
        total = cohort.run()
    except (TooFewSurvivorsError, RemoteProtocolError):
        assert cohort.server.phase is ServerPhase.ABORTED
    else:
        assert len(total.survivors) >= context.minimum_survivors
        assert total.vector.elements.tolist() == cohort.expected(total.survivors)
        removed = context.removed_seeds(len(total.survivors))
        assert total.removed == {
            u: tuple(cohort.removable_seeds(u)[which] for which in removed)
            for u in total.survivors
            if removed
        }


def disturb(victim: int, kind: str, at_byte: int) -> Callable[[int, bytes], list[bytes]]:
    def hook(u: int, data: bytes) -> list[bytes]:
        if u != victim:
            return [data]
        i = at_byte % len(data)
        return {
            "lost": [],
            "twice": [data, data],
            "corrupt": [data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :]],
            "cut": [data[:i]],
            "longer": [data + b"\0"],
        }[kind]

    return hook


def test_any_order_of_arrival_gives_the_same_sum(secagg_kit: SimpleNamespace) -> None:
    sums = []
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        cohort = secagg_kit.Cohort(secagg_kit.context(N))
        down: dict[int, bytes | None] = dict.fromkeys(range(N))
        for stage in cohort.stages:
            sent = cohort.answers(stage, down)
            for u in order if sent else []:
                cohort.server.receive_bytes(u, sent[u])
            if stage is not Stage.RECOVER:
                down = dict(cohort.server.close_round_bytes())
        sums.append(pack(cohort.server.unmask().vector))
    assert len(set(sums)) == 1


def test_uploads_are_streamed(secagg_kit: SimpleNamespace) -> None:
    """Memory does not grow with the number of masked vectors."""
    length = 200_000
    cohort = secagg_kit.Cohort(secagg_kit.context(6, bits=24, length=length))
    cohort.run(until=Stage.MASK)
    sent = cohort.answers(Stage.MASK, cohort.pending)
    cohort.server.receive_bytes(0, sent.pop(0))
    tracemalloc.start()
    for u, data in sent.items():
        cohort.server.receive_bytes(u, data)
    grown, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    vector_bytes = 4 * length
    assert grown < vector_bytes / 10
    assert peak < 3 * vector_bytes
