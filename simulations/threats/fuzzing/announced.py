"""Announcements of one-shot rounds: a committee of every kind, read as a client reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from protocol import PrivacyGoal, TrainingPlan
from protocol.round.one_shot_setup import OneShotAnnouncement, OneShotSetup
from protocol.schemes import OneShot
from protocol.schemes.committee import Drawn, Everyone, Named
from protocol.schemes.one_shot import local_committee, one_shot_setup
from secagg import RemoteProtocolError
from secagg.keys import AgreementKey
from secagg.oneshot.committee import CommitteeKind
from simulations.threats.fuzzing.engine import Decoder
from simulations.threats.fuzzing.mutation import Rng, mutate_msgpack
from simulations.threats.game.contexts import identity_of
from simulations.threats.one_shot.parties import member_identity
from sketch import PublicSeed, SketchSpec

_CLIENTS, _MEMBERS = 10, 8
_MODEL = bytes(32)
_LABEL_BYTES = len(b"one-shot")


def one_shot_announcement_decoder() -> Decoder:
    """Whatever is accepted is a setup, and has the same bytes but for the framing."""

    def decode(data: bytes) -> OneShotAnnouncement:
        read = OneShotAnnouncement.read(data)
        read.setup(_MODEL)
        return read

    return Decoder(
        name="announcement one-shot",
        seeds=[_example(kind).announce(0) for kind in CommitteeKind],
        decode=decode,
        errors=(RemoteProtocolError,),
        encode=OneShotAnnouncement.encode,
        one_form=False,
        mutations=(_mutate_words, _mutate_words),
    )


def _mutate_words(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Change the fields behind the label; sometimes those of the draw, the last of them."""
    others = [each[_LABEL_BYTES:] for each in pool]
    label, version, packed = data[:_LABEL_BYTES], data[_LABEL_BYTES:][:1], data[_LABEL_BYTES + 1 :]
    *fields, draw = msgspec.msgpack.decode(packed)
    if draw is None or rng.random() < 0.5:
        return label + mutate_msgpack(rng, version + packed, others)
    # A list of fields as well, but without a version of its own.
    written = mutate_msgpack(rng, b"\0" + msgspec.msgpack.encode(draw), [b"\0\x90"])[1:]
    return label + version + msgspec.msgpack.encode([*fields, msgspec.Raw(written)])


def _example(kind: CommitteeKind) -> OneShotSetup:
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
        scheme=OneShot(committee=committees.get(kind, Everyone())),
    )
    parameters = plan.calibrate(SketchSpec.identity(8), _MODEL, PublicSeed(bytes(32)))
    clients = [identity_of(u) for u in range(_CLIENTS)]
    keys, session = [each.public for each in clients], bytes(16)
    named = [member_identity(j) for j in range(_MEMBERS)]
    committee = local_committee(
        plan, clients, named, lambda *parts: AgreementKey(hashlib.sha256(b"".join(parts)).digest())
    )
    members = committee.members(session, keys, 0)
    return one_shot_setup(plan, parameters, keys, members, session, 0)
