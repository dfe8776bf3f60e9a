"""A small round to lie about: five clients, plain parameters, any of which may be edited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dp import BinomialMechanism
from protocol import RoundParameters, RoundSetup
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


def announced_round(
    identities: Sequence[Identity], model_digest: bytes, coins: int, seed: int, number: int = 0
) -> RoundSetup:
    """The round as an honest server would announce it."""
    parameters = RoundParameters(
        model_digest=model_digest,
        clip_l2=CLIP,
        sketch=SketchSpec.identity(DIMENSION),
        sketch_clip_l2=CLIP,
        public_seed=PublicSeed(derived_bytes(seed, "public", number)),
        scale=SCALE,
        linf_bound=LINF_BOUND,
        mechanism=BinomialMechanism(coins),
        tolerated_dropouts=COHORT - SURVIVORS,
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
