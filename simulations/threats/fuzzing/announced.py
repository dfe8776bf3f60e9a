"""One-shot and validated rounds: announcements of every kind, and validated parties' messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from protocol.round.announcements import read_announcement
from protocol.round.one_shot_setup import OneShotAnnouncement
from protocol.schemes import OneShot, Validated
from secagg import RemoteProtocolError
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.server import OneShotServer
from simulations.threats.fuzzing.engine import Decoder
from simulations.threats.fuzzing.mutation import Rng, mutate_msgpack
from simulations.threats.one_shot.planned import CLIENTS, MODEL, planned_round


def committee_decoders() -> Iterator[Decoder]:
    """Announcements of one-shot and of validated rounds; a validated round's sessions."""
    yield announcement_decoder_of(OneShot, list(CommitteeKind))
    yield announcement_decoder_of(Validated, [CommitteeKind.NAMED])
    yield from validated_decoders()


def announcement_decoder_of(scheme: type[OneShot], kinds: Sequence[CommitteeKind]) -> Decoder:
    """Whatever is accepted is a setup, and has the same bytes but for the framing."""
    label = len(scheme.KIND)

    def decode(data: bytes) -> OneShotAnnouncement:
        read = read_announcement(data)
        read.setup(MODEL)
        return read

    def mutate_words(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
        """Change the fields behind the label; sometimes those of the last one."""
        others = [each[label:] for each in pool]
        version, packed = data[label:][:1], data[label + 1 :]
        *fields, last = msgspec.msgpack.decode(packed)
        if not isinstance(last, list) or rng.random() < 0.5:
            return data[:label] + mutate_msgpack(rng, version + packed, others)
        # A list of fields as well, but without a version of its own.
        written = mutate_msgpack(rng, b"\0" + msgspec.msgpack.encode(last), [b"\0\x90"])[1:]
        return data[:label] + version + msgspec.msgpack.encode([*fields, msgspec.Raw(written)])

    return Decoder(
        name=f"announcement {scheme.KIND}",
        seeds=[planned_round(kind, scheme).setup.announce(0) for kind in kinds],
        decode=decode,
        errors=(RemoteProtocolError,),
        encode=OneShotAnnouncement.encode,
        one_form=False,
        mutations=(mutate_words, mutate_words),
    )


def validated_decoders() -> Iterator[Decoder]:
    """A validated round's server with one message to come, and a member at its first."""
    played = planned_round(CommitteeKind.NAMED, Validated)
    uploads = {index: played.upload(index, 0.1) for index in range(CLIENTS)}

    def server_at(uploaded: int) -> OneShotServer:
        server = played.setup.server()
        for index in range(uploaded):
            server.receive_upload(index, uploads[index])
        return server

    asked = server_at(CLIENTS)
    deliveries = dict(asked.close_round_bytes())

    def answered(data: bytes) -> None:
        # The server is the same in the next case.
        asked._complaints.clear()
        asked.receive_from_member(0, data)

    cases: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
        "upload": (uploads[0], lambda data: server_at(0).receive_upload(0, data)),
        "delivery": (deliveries[0], lambda data: played.member(0).receive(data)),
        "verdicts": (played.member(0).receive(deliveries[0]), answered),
    }
    for name, (seed, decode) in cases.items():
        yield Decoder(
            name=f"validated {name}",
            seeds=[seed],
            decode=decode,
            errors=(RemoteProtocolError,),
            mutations=(mutate_msgpack,),
        )
