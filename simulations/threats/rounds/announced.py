"""A small round to lie about, and what a server may tell one client, or all of them, in its place.

Five clients, plain parameters, any of which may be edited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dp import BinomialMechanism, SkellamMechanism
from protocol import ClientPolicy, PrivacyGoal, RoundParameters, RoundSetup
from protocol.round.field_size import MAX_WRAP_PROBABILITY
from secagg import Identity, Mode, SessionContext
from simulations.audits.base import (
    Floats,
    Integers,
    derived_bytes,
    derived_seed,
    noise_seed,
    public_keys,
)
from simulations.threats.rounds.parties import Participant, edited, real_client
from sketch import PublicSeed, SketchSpec, spec_for_size

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


COINS: Final = 60
OTHER_MECHANISM: Final = {
    "noise": (SkellamMechanism.name, COINS / 4.0),
    "wrap_probability": MAX_WRAP_PROBABILITY,
}
"""Noise of the same variance; a field with room for all of it there is not."""

DIGITS: Final = 20
"""The target's scale is larger by this power of two: its update stands above all others' digits."""


def lies(seed: int) -> dict[str, dict[str, object]]:
    """What one client may be told otherwise: by parameter, the fields that change."""
    return {
        "clip_l2": {"clip_l2": 4.0 * CLIP},
        "sketch_clip_l2": {"sketch_clip_l2": 4.0 * CLIP},
        "scale": {"scale": SCALE * 2**DIGITS, "linf_bound": LINF_BOUND * 2**DIGITS},
        "linf_bound": {"linf_bound": 4 * LINF_BOUND},
        "sketch": {"sketch": spec_for_size(DIMENSION, DIMENSION - 4, 5).encode_bytes()},
        "public_seed": {"public_seed": derived_bytes(seed, "another public seed")},
        "coins": {"noise": 0},
        "mechanism": OTHER_MECHANISM,
        "removable": {"removable": True},
        "tolerated_dropouts": {"tolerated_dropouts": COHORT - SURVIVORS + 1},
        "wrap_probability": {"wrap_probability": 1e-9},
        "threshold": {"threshold": 3},
        "degree": {"degree": 2},
        "minimum_survivors": {"minimum_survivors": SURVIVORS + 1},
        "tolerated_colluders": {"tolerated_colluders": 1},
        "mode": {"mode": Mode.SEMI_HONEST.value},
        "bits": {"bits": BITS + 1},
    }


OTHER_SHAPE: Final = frozenset({"sketch", "removable", "degree", "mode", "bits"})
"""Lies that need no hash to be found: vectors, shares or messages have another shape."""


def deceived(
    identities: Sequence[Identity], setup: RoundSetup, lie: Mapping[str, object], seed: int
) -> dict[int, Participant]:
    """Clients of one round, of which the target is told something else; they trust everything."""
    registry = public_keys(identities)
    told, number = setup.announce(), setup.context.round_number
    rng = np.random.default_rng(derived_seed(seed, "updates", number))
    return {
        index: Participant(
            real_client(identity, registry),
            edited(told, **lie) if index == TARGET else told,
            setup.parameters.model_digest,
            rng.normal(size=DIMENSION) * CLIP / 8.0,
            noise_seed(seed, "told", number, index),
        )
        for index, identity in enumerate(identities)
    }


def high_digits(values: Integers) -> Floats:
    """float64[L]: what is left of integers without the digits of all but the target."""
    return np.rint(values / 2.0**DIGITS)


def strict_policy(setup: RoundSetup) -> ClientPolicy:
    """The policy of a client that wants this round and nothing worse."""
    return ClientPolicy(
        minimum_noise_multiplier=setup.released.noise_multiplier,
        minimum_survivors=setup.context.minimum_survivors,
        smallest_cohort=setup.context.size,
        largest_cohort=setup.context.size,
        registry_colluders=setup.context.tolerated_colluders,
        largest_clip_l2=CLIP,
        dimension=DIMENSION,
        largest_bits=BITS,
        largest_coins=COINS,
        largest_linf_bound=LINF_BOUND,
        largest_length=DIMENSION,
    )


def worse_rounds(seed: int) -> dict[str, dict[str, object]]:
    """What all clients alike may be told: worse than what they want, and a round nevertheless."""
    fewer: dict[str, object] = {"minimum_survivors": 3, "threshold": 3, "tolerated_dropouts": 2}
    told_to_one = lies(seed)
    return {
        "clip_l2": told_to_one["clip_l2"],
        "scale": {"scale": 2.0 * SCALE},
        "linf_bound": told_to_one["linf_bound"],
        "coins": told_to_one["coins"],
        "fewer coins": {"noise": COINS // 2},
        "mechanism": OTHER_MECHANISM,
        "minimum_survivors": fewer,
        "mode": told_to_one["mode"],
        "bits": told_to_one["bits"],
    }
