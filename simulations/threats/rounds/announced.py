"""A small round to lie about: five clients, plain parameters, any of which may be edited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dp import BinomialMechanism
from protocol import PrivacyGoal, RoundParameters, RoundSetup
from secagg import Identity, Mode, SessionContext
from simulations.audits.base import derived_bytes, public_keys
from sketch import PublicSeed, SketchSpec

COHORT: Final = 5
DIMENSION: Final = 64
THRESHOLD: Final = 4
"""One more than the smallest for five clients, so that a client can be told a smaller one."""
SURVIVORS: Final = 4
BITS: Final = 40
"""Room for every lie about scales and bounds: a server may announce as many as it likes."""
TARGET: Final = 2
"""The client that is told something else than all others."""
SCALE: Final = 16.0
LINF_BOUND: Final = 16
CLIP: Final = 1.0
FULL_PRICE: Final = 4000
"""Coins of a client, where what a round costs is the point."""
DELTA: Final = 1e-6


def price(setup: RoundSetup, rounds: int) -> float:
    """Epsilon of so many rounds at `DELTA`."""
    return setup.released.epsilon_of_rounds(PrivacyGoal(1.0, DELTA, rounds))


def plain_parameters(
    public_seed: bytes,
    coins: int,
    *,
    length: int,
    scale: float,
    linf_bound: int,
    lost: int = 0,
    model: bytes = bytes(32),
) -> RoundParameters:
    """Of rounds without compression, whose clip is 1."""
    return RoundParameters(
        model_digest=model,
        clip_l2=CLIP,
        sketch=SketchSpec.identity(length),
        sketch_clip_l2=CLIP,
        public_seed=PublicSeed(public_seed),
        scale=scale,
        linf_bound=linf_bound,
        mechanism=BinomialMechanism(coins),
        tolerated_dropouts=lost,
    )


def announced_round(
    identities: Sequence[Identity], model_digest: bytes, coins: int, seed: int, number: int = 0
) -> RoundSetup:
    """The round as an honest server would announce it."""
    parameters = plain_parameters(
        derived_bytes(seed, "public", number),
        coins,
        length=DIMENSION,
        scale=SCALE,
        linf_bound=LINF_BOUND,
        lost=COHORT - SURVIVORS,
        model=model_digest,
    )
    context = SessionContext(
        session_id=derived_bytes(seed, "session")[:16],
        round_number=number,
        cohort=public_keys(identities),
        threshold=THRESHOLD,
        minimum_survivors=SURVIVORS,
        mode=Mode.ACTIVE,
        tolerated_colluders=0,
        bits=BITS,
        length=parameters.length,
        application_digest=parameters.digest(),
    )
    return RoundSetup(context, parameters)
