"""The codec: honest messages round trip, anything else is a `RemoteProtocolError`."""

from __future__ import annotations

from pathlib import Path

import pairwise_rounds as kit
import pytest
from codec import SENDER, TAG, Codec, CodecTests, changed_bytes, fields_of, name, wire
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg import (
    SERVER,
    ClientSession,
    Mode,
    Reason,
    RemoteProtocolError,
    ServerSession,
    lowest_threshold,
)
from secagg.framing import WIRE_VERSION, decode_set, encode_set, split_items
from secagg.pairwise.messages import (
    ADVERTISEMENT_ENTRY_BYTES,
    COMMITMENT_BYTES,
    Advertisement,
    AnyMessage,
    Confirmation,
    ConfirmationSet,
    DeliveredShares,
    MaskedInput,
    Roster,
    SeedRequest,
    SeedShares,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    decode_from_client,
    decode_from_server,
    largest_message_bytes,
    sealed_share_bytes,
)
from secagg.pairwise.reference import Stage
from secagg.shamir import SHARE_BYTES

UP: list[AnyMessage] = [
    Advertisement(TAG, SENDER, b"s" * 32, b"m" * 32, b"n" * 16, b"x" * 64),
    ShareBundle(TAG, SENDER, b"commitments", b"sealed", b"x" * 64),
    MaskedInput(TAG, SENDER, b"vector", bytes(64)),
    Confirmation(TAG, SENDER, b"x" * 64),
    UnmaskShares(TAG, SENDER, b"shares", b"seeds", bytes(64)),
    SeedShares(TAG, SENDER, b"shares", bytes(64)),
]
DOWN: list[AnyMessage] = [
    Roster(TAG, b"\x0f", b"r" * 32, b"proof", b"entries"),
    DeliveredShares(TAG, b"\x0f", b"sealed"),
    SurvivorSet(TAG, b"\x0f"),
    ConfirmationSet(TAG, b"\x0f", b"signatures"),
    SeedRequest(TAG, b"\x0f"),
]
CODEC = Codec(
    decoders=[(UP, decode_from_client, "client"), (DOWN, decode_from_server, "client")],
    lengths={
        "context": 8,
        "sealing_key": 32,
        "masking_key": 32,
        "nonce": 16,
        "signature": 64,
        "root": 32,
    },
    numbers=[1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10],
)


class TestCodec(CodecTests):
    codec = CODEC


@settings(max_examples=200, deadline=None)
@given(body=CODEC.bodies(), version=st.sampled_from([WIRE_VERSION] * 9 + [0]))
def test_any_bytes_are_accepted_or_refused(body: bytes, version: int) -> None:
    CODEC.takes_or_refuses(bytes([version]) + body)


@pytest.mark.parametrize(
    ("mode", "stage"),
    [(m, s) for m in Mode for s in Stage if m is Mode.ACTIVE or s is not Stage.CONFIRM],
)
def test_any_bytes_at_any_stage_are_accepted_or_refused(mode: Mode, stage: Stage) -> None:
    context = kit.context(3, mode, removal=(0b1, 0b1))
    tag = context.hash[:8]
    drops = {2: Stage.UNMASK} if stage is Stage.RECOVER else {}
    honest = kit.Cohort(context, drops)
    honest.run()
    up = honest.wire[stage, kit.Direction.UP, 1]
    before = honest.stages[honest.stages.index(stage) - 1]
    down = honest.wire.get((before, kit.Direction.DOWN, 1), b"\1\x90")
    position = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)
    data = st.one_of(
        st.tuples(st.sampled_from([up, down]), position).map(lambda pair: changed_bytes(*pair)),
        st.tuples(st.integers(1, 11), st.integers(0, 3), st.lists(st.binary(max_size=8))).map(
            lambda t: wire([t[0], tag, *([t[1]] if t[0] % 2 else []), *t[2]])
        ),
        CODEC.bodies().map(lambda body: bytes([WIRE_VERSION]) + body),
    )
    cohort = kit.Cohort(context, drops)
    cohort.run(until=stage)

    @settings(max_examples=60, deadline=None)
    @given(data=data)
    def check(data: bytes) -> None:
        client = kit.Cohort(context, drops)
        client.run(until=stage)
        for receive in (
            lambda: client.clients[1].receive_bytes(data),
            lambda: cohort.server.receive_bytes(1, data),
        ):
            try:
                receive()
            except RemoteProtocolError:
                pass

    check()


@given(st.data(), st.integers(1, 70))
def test_sets_round_trip(data: st.DataObject, size: int) -> None:
    members = data.draw(st.sets(st.integers(0, size - 1)))
    bitmap = encode_set(members, size)
    assert len(bitmap) == (size + 7) // 8
    assert decode_set(bitmap, size) == tuple(sorted(members))


@given(st.binary(max_size=4), st.integers(1, 30))
def test_bitmaps_have_one_form(bitmap: bytes, size: int) -> None:
    try:
        members = decode_set(bitmap, size)
    except ValueError:
        padding = int.from_bytes(bitmap, "little") >> size
        assert len(bitmap) != (size + 7) // 8 or padding
    else:
        assert encode_set(members, size) == bitmap


def test_items() -> None:
    assert split_items(b"aabbcc", 2, 3) == [b"aa", b"bb", b"cc"]
    assert split_items(b"", 2, 0) == []
    for data in (b"aabbc", b"aabbccd", b""):
        with pytest.raises(ValueError, match="expected"):
            split_items(data, 2, 3)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("seeds", [0, pytest.param(1, marks=pytest.mark.slow), 5, 63])
@pytest.mark.parametrize(
    ("n", "length", "bits", "degree"),
    [
        (3, 400, 62, 0),
        (9, 1, 8, 0),
        pytest.param(40, 9, 8, 0, marks=pytest.mark.slow),
        (12, 1, 8, 6),
        (40, 1, 8, 6),
        (12, 1, 8, 10),
    ],
)
def test_no_honest_message_is_oversized(
    mode: Mode, n: int, length: int, bits: int, degree: int, seeds: int
) -> None:
    """A survivor is missing, so every kind of message is sent where there are seeds."""
    context = kit.context(
        n,
        mode,
        length=length,
        bits=bits,
        degree=degree,
        threshold=lowest_threshold(n, 0, mode, degree),
        minimum_survivors=n - 1,
        removal=((1 << seeds) - 1,) * 2,
    )
    cohort = kit.Cohort(context, drops={0: Stage.UNMASK})
    cohort.run()
    assert any(stage is Stage.RECOVER for stage, _, _ in cohort.wire) == (seeds > 0)
    limit = largest_message_bytes(context)
    largest = max(map(len, cohort.wire.values()))
    # Room for two holders more than there are, and for one's own entry.
    item = max(ADVERTISEMENT_ENTRY_BYTES, sealed_share_bytes(context))
    assert largest <= limit <= largest + 3 * item + 300 + 32 * seeds


def test_a_roster_so_small_that_the_graph_is_complete_is_not_oversized() -> None:
    """Then a client has as many neighbours as its degree and not one more."""
    context = kit.context(12, degree=10, threshold=6, minimum_survivors=11)
    cohort = kit.Cohort(context, drops={3: Stage.ADVERTISE})
    cohort.run()
    assert len(cohort.server._checked_roster().graph.neighbours(0)) == 10
    assert max(map(len, cohort.wire.values())) <= largest_message_bytes(context)


def test_sessions_refuse_oversized_bytes() -> None:
    context = kit.context(3)
    data = bytes(largest_message_bytes(context) + 1)
    server, client = ServerSession(context), ClientSession(context, 0, kit.identity(0))
    with pytest.raises(RemoteProtocolError) as at_server:
        server.receive_bytes(2, data)
    with pytest.raises(RemoteProtocolError) as at_client:
        client.receive_bytes(data)
    assert at_server.value.reason is at_client.value.reason is Reason.OVERSIZED
    assert (at_server.value.party, at_client.value.party) == (2, SERVER)


def test_masked_vector_takes_its_bits_and_little_more() -> None:
    cohort = kit.Cohort(kit.context(3, bits=24, length=10_000))
    cohort.run()
    sizes = [
        len(d) for (s, way, _), d in cohort.wire.items() if s is Stage.MASK and "UP" in way.name
    ]
    assert max(sizes) < 30_000 + 64 + 32


@pytest.mark.parametrize("seeds", [0, 1, 7, 63])
def test_sizes_are_those_of_the_document(seeds: int) -> None:
    """docs/wire.md states them; a change is a change of the wire version."""
    context = kit.context(3, removal=((1 << seeds) - 1,) * 2)
    assert sealed_share_bytes(context) == 88 + 36 * seeds
    assert (ADVERTISEMENT_ENTRY_BYTES, SHARE_BYTES, COMMITMENT_BYTES) == (144, 36, 32)
    text = (Path(__file__).parents[3] / "docs" / "wire.md").read_text("utf-8")
    assert f"Version {WIRE_VERSION}." in text
    for message in UP + DOWN:
        assert f"| {fields_of(message)[0]} | {name(message)} |" in text
