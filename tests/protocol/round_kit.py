"""Six clients with everything that a round needs, the same in every run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from dp import BinomialMechanism, DiscreteGaussianMechanism, NoiseSeed, SkellamMechanism
from dp.mechanisms import MECHANISMS
from protocol.round.clauses import PairwiseClauses
from protocol.round.client import RoundClient
from protocol.round.field_size import bits_for
from protocol.round.history import ClientHistory
from protocol.round.losses import Stage
from protocol.round.parameters import RoundParameters
from protocol.round.policy import ClientPolicy
from protocol.round.setup import (
    ANNOUNCEMENT_VERSION,
    Announcement,
    RoundEncoding,
    RoundSetup,
    coin_schedule,
    removal_table,
)
from secagg import Identity, Mode, ServerSession, SessionContext, lowest_threshold
from sketch import PublicSeed, SketchSpec, spec_for_size

Setup = TypeVar("Setup", bound=RoundEncoding)

DIMENSION = 200
IDENTITIES = [
    Identity.from_private_bytes(hashlib.sha256(b"identity %d" % i).digest()) for i in range(6)
]
REGISTRY = frozenset(identity.public for identity in IDENTITIES)
MODEL = bytes(32)
OPENED = 1_750_000_000
HOUR = 3600
OPEN_POLICY = ClientPolicy(
    minimum_noise_multiplier=0.0,
    schemes=(PairwiseClauses(allow_semi_honest=True),),
    mechanisms=tuple(MECHANISMS),
)
_UPDATES = np.random.default_rng(7).normal(size=(len(IDENTITIES), DIMENSION)).astype(np.float32)
_UPDATES *= (np.arange(1, len(IDENTITIES) + 1) / 25)[:, None]


class Watch:
    """A clock that is set by hand, in seconds since `OPENED`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return OPENED + self.seconds


def make_setup(
    mode: Mode = Mode.ACTIVE,
    size: int | None = None,
    bits: int | None = None,
    minimum_survivors: int | None = None,
    round_number: int = 3,
    removable: bool = False,
    coins: int = 101,
    **overrides: Any,
) -> RoundSetup:
    """A round of theirs; any parameter may be overridden by name."""
    cohort = len(IDENTITIES)
    spec = SketchSpec.identity(DIMENSION) if size is None else spec_for_size(DIMENSION, size, 5)
    values: dict[str, Any] = {
        "model_digest": MODEL,
        "clip_l2": 2.0,
        "sketch": spec,
        "sketch_clip_l2": 2.5,
        "public_seed": PublicSeed(bytes(range(32))),
        "scale": 64.0,
        "linf_bound": 100,
        "mechanism": BinomialMechanism(coins),
        "tolerated_dropouts": 2,
        **overrides,
    }
    if isinstance(values["mechanism"], SkellamMechanism | DiscreteGaussianMechanism):
        values.setdefault("wrap_probability", 1e-9)
    parameters = RoundParameters(**values)
    threshold = lowest_threshold(cohort, 0, mode)
    least = minimum_survivors or max(threshold, cohort - 2)
    schedule = coin_schedule(parameters.mechanism, cohort, least, 0) if removable else None
    removal = removal_table(schedule)
    context = SessionContext(
        session_id=bytes(16),
        round_number=round_number,
        cohort=tuple(identity.public for identity in IDENTITIES),
        threshold=threshold,
        minimum_survivors=least,
        removal=removal,
        mode=mode,
        tolerated_colluders=0,
        bits=bits or bits_for(parameters, cohort, max(removal, default=0).bit_length()),
        length=parameters.length,
        application_digest=parameters.digest(),
    )
    return RoundSetup(context, parameters)


def expiring(setup: Setup) -> Setup:
    """The same round of either scheme, with an hour from its opening."""
    times = {"opened_at": OPENED, "lifetime_seconds": HOUR}
    return replace(setup, context=replace(setup.context, **times))


ANNOUNCED: dict[str, Any] = dict(
    zip(
        Announcement.__struct_fields__,
        msgspec.msgpack.decode(make_setup().announce()[1:]),
        strict=True,
    )
)


def announced(**changes: object) -> bytes:
    """That round as a server announces it, with other words in it."""
    values = {**ANNOUNCED, **changes}
    return bytes([ANNOUNCEMENT_VERSION]) + msgspec.msgpack.encode(list(values.values()))


def make_client(
    index: int = 0,
    history: ClientHistory | None = None,
    policy: ClientPolicy = OPEN_POLICY,
    **options: Any,
) -> RoundClient:
    """One of them."""
    return RoundClient(IDENTITIES[index], REGISTRY, policy, history, **options)


def updates(index: int) -> np.ndarray:
    """A different update for every party, some longer than the clip."""
    return _UPDATES[index].copy()


def noise(index: int) -> NoiseSeed:
    """Noise seeds that repeat, to compare two aggregators."""
    return NoiseSeed(hashlib.sha256(b"noise %d" % index).digest())


def messages_of(
    setup: RoundSetup, clients: Sequence[RoundClient]
) -> Iterator[tuple[Stage, bytes, ServerSession]]:
    """What the server of a whole round is about to send to client 0, stage by stage."""
    server = ServerSession(setup.context)
    down = [(index, setup.announce()) for index in range(len(clients))]
    for stage in Stage:
        yield stage, dict(down)[0], server
        for index, data in down:
            client = clients[index]
            answer = client.join(data, MODEL) if stage is Stage.ADVERTISE else client.receive(data)
            server.receive_bytes(index, client.submit(updates(index)) if answer is None else answer)
        if stage is Stage.UNMASK:
            return
        down = server.close_round_bytes()


def waiting(setup: RoundSetup, clients: Sequence[RoundClient]) -> tuple[bytes, ServerSession]:
    """The shares that are next for client 0, which waits for them, and the server."""
    return next(
        (data, server) for at, data, server in messages_of(setup, clients) if at is Stage.INPUT
    )
