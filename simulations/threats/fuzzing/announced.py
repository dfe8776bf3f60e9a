"""One-shot and validated rounds: announcements of every kind, and validated parties' messages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from dp import NoiseSeed
from protocol import ClientHistory, PrivacyGoal, TrainingPlan, client_policy
from protocol.exchange.local_committee import LocalCommittee
from protocol.noise.noise import Independent
from protocol.round.announcements import read_announcement
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotAnnouncement, OneShotSetup
from protocol.schemes import OneShot, Validated
from protocol.schemes.committee import Drawn, Everyone, Named
from protocol.schemes.one_shot import local_committee, one_shot_setup
from secagg import Identity, RemoteProtocolError
from secagg.keys import AgreementKey
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.server import OneShotServer
from simulations.threats.fuzzing.engine import Decoder
from simulations.threats.fuzzing.mutation import Rng, mutate_msgpack
from simulations.threats.game.contexts import identity_of
from simulations.threats.one_shot.parties import member_identity
from sketch import PublicSeed, SketchSpec

_CLIENTS, _MEMBERS, _DIMENSION = 10, 8, 8
_MODEL = bytes(32)


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
        read.setup(_MODEL)
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
        seeds=[_example(kind, scheme).setup.announce(0) for kind in kinds],
        decode=decode,
        errors=(RemoteProtocolError,),
        encode=OneShotAnnouncement.encode,
        one_form=False,
        mutations=(mutate_words, mutate_words),
    )


def validated_decoders() -> Iterator[Decoder]:
    """A validated round's server with one message to come, and a member at its first."""
    example = _example(CommitteeKind.NAMED, Validated)
    setup, members = example.setup, example.setup.context.committee.members
    policy = client_policy(example.plan, None, [each.identity for each in members])
    uploads = {}
    for index, identity in enumerate(example.clients):
        registry = frozenset(setup.identities)
        history = ClientHistory(policy.goal)
        client = OneShotRoundClient(
            identity, registry, policy, history, np.random.default_rng(index).bytes
        )
        client.join(setup.announce(index), _MODEL)
        uploads[index] = client.submit(np.full(_DIMENSION, 0.1), NoiseSeed(bytes(32)))

    def server_at(uploaded: int) -> OneShotServer:
        server = setup.server()
        for index in range(uploaded):
            server.receive_upload(index, uploads[index])
        return server

    def upload(data: bytes) -> None:
        server_at(0).receive_upload(0, data)

    asked = server_at(_CLIENTS)
    deliveries = dict(asked.close_round_bytes())

    def delivered(data: bytes) -> bytes:
        member = example.committee.member(setup.context.session_id, members[0].identity)
        # The same round is joined in many cases.
        member._history = ClientHistory()
        member.join(setup.announce_to_member())
        return member.receive(data)

    verdicts = delivered(deliveries[0])

    def answered(data: bytes) -> None:
        asked._complaints.clear()
        asked.receive_from_member(0, data)

    for name, seed, decode in (
        ("upload", uploads[0], upload),
        ("delivery", deliveries[0], delivered),
        ("verdicts", verdicts, answered),
    ):
        yield Decoder(
            name=f"validated {name}",
            seeds=[seed],
            decode=decode,
            errors=(RemoteProtocolError,),
            mutations=(mutate_msgpack,),
        )


@dataclass(frozen=True, slots=True)
class _Example:
    """A round with a committee, and who is in it."""

    plan: TrainingPlan
    setup: OneShotSetup
    clients: Sequence[Identity]
    committee: LocalCommittee


def _example(kind: CommitteeKind, scheme: type[OneShot]) -> _Example:
    numbers = {"size": _MEMBERS, "corrupt": 1, "away": 1}
    committees = {
        CommitteeKind.NAMED: Named(**numbers),
        # All but certain that enough are drawn.
        CommitteeKind.DRAWN: Drawn(odds=1.0 - 2.0**-30, **numbers),
    }
    plan = TrainingPlan(
        goal=PrivacyGoal(8.0, 1e-5, 3),
        cohort=_CLIENTS,
        tolerated_dropouts=2,
        tolerated_colluders=1,
        clip_l2=1.0,
        noise=Independent(exact=None if scheme.REMOVES else False),
        scheme=scheme(committee=committees.get(kind, Everyone())),
    )
    parameters = plan.calibrate(SketchSpec.identity(_DIMENSION), _MODEL, PublicSeed(bytes(32)))
    clients = [identity_of(u) for u in range(_CLIENTS)]
    keys, session = [each.public for each in clients], bytes(16)
    named = [member_identity(j) for j in range(_MEMBERS)]
    committee = local_committee(
        plan, clients, named, lambda *parts: AgreementKey(hashlib.sha256(b"".join(parts)).digest())
    )
    members = committee.members(session, keys, 0)
    setup = one_shot_setup(plan, parameters, keys, members, session, 0)
    return _Example(plan, setup, clients, committee)
