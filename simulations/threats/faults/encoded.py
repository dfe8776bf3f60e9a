"""Schedules on a hostile wire whose clients encode real updates, and whose sum is decoded.

What comes out must be, to the integer, the sum of the survivors' quantised sketches and of the
coins that are meant to stay. Both are computed here once more from the primitives of `dp` and
`sketch`, without the pipeline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp import BinomialMechanism, NoiseSeed, clip_l2, quantize
from dp.coin_schedule import SURPLUS_PERCENT, BatchVariant
from dp.coins import residual_offset, sample_binomial
from protocol import Pipeline, RoundParameters, RoundSetup
from protocol.round.field_size import bits_for
from protocol.round.setup import RoundEncoding, coin_schedule, removal_table
from secagg import ClientSession, FieldSum, FieldVector, Mode, SessionContext
from secagg.pairwise.context import lowest_threshold
from simulations.audits.base import Integers
from simulations.threats.faults.behaviours import Tally, Verdict, Wire
from simulations.threats.faults.rounds import HonestParty, Round
from simulations.threats.game.contexts import (
    LARGEST,
    MOST_LOST,
    cohort_keys,
    new_session,
    until_it_fits,
)
from sketch import PublicSeed, Rotation, SketchSpec, spec_for_size


def play_encoded(rng: np.random.Generator, number: int, rate: float, tally: Tally) -> Verdict:
    """Honest clients with real updates on a hostile wire."""
    setup = random_setup(rng, number)
    clients = [EncodingClient(setup, u, rng) for u in range(setup.context.size)]
    # On the wire nothing is hidden from the checks, so a vector is known once it is made.
    inputs: dict[int, NDArray[Any]] = {}

    def party(u: int) -> HonestParty:
        def encode(session: ClientSession) -> FieldVector:
            removable = [NoiseSeed(seed.expose()) for seed in session.removable_seeds]
            vector = clients[u].encode(lambda _: [clients[u].rounding, *removable])
            inputs[u] = vector.elements
            return vector

        return HonestParty(new_session(setup.context, u, b"encoded %d" % number), u, encode)

    honest = {u: party(u) for u in range(setup.context.size)}
    round_ = Round(setup.context, honest, inputs, {}, Wire(rng, rate, tally), tally)
    return decoded(round_.verdict(), round_.total, setup, clients)


def decoded(
    verdict: Verdict,
    total: FieldSum | None,
    setup: RoundEncoding,
    clients: Sequence[EncodingClient],
) -> Verdict:
    """The verdict on a round whose sum, if there is one, is decoded as well."""
    if total is None or verdict.problem is not None:
        return verdict
    problem = wrong_decoding(setup, clients, total)
    return Verdict("wrong result", problem) if problem else verdict


def random_setup(rng: np.random.Generator, number: int) -> RoundSetup:
    """A round with or without compression, removable noise and colluders."""
    return until_it_fits(_random_setup, rng, number)


def _random_setup(rng: np.random.Generator, number: int) -> RoundSetup:
    size = int(rng.integers(4, LARGEST + 1))
    mode = Mode.ACTIVE if rng.random() < 0.6 else Mode.SEMI_HONEST
    degree = int(rng.choice([0, 6])) if size > 7 else 0
    colluders = int(rng.random() < 0.3)
    threshold = lowest_threshold(size, colluders, mode, degree)
    lost = int(rng.integers(MOST_LOST + 1))
    lost = lost if degree else min(size - threshold, lost)
    parameters = random_parameters(rng, lost)
    schedule = coin_schedule(parameters.mechanism, size, size - lost, colluders)
    removal = removal_table(schedule) if rng.random() < 0.7 else ()
    context = SessionContext(
        session_id=number.to_bytes(16, "little"),
        round_number=number,
        cohort=cohort_keys(size),
        threshold=threshold,
        minimum_survivors=size - lost,
        mode=mode,
        tolerated_colluders=colluders,
        degree=degree,
        removal=removal,
        bits=bits_for(parameters, size, max(removal, default=0).bit_length()),
        length=parameters.length,
        application_digest=parameters.digest(),
    )
    return RoundSetup(context, parameters)


def random_parameters(rng: np.random.Generator, lost: int) -> RoundParameters:
    """Encodings, with and without a sketch and noise, for so many tolerated dropouts."""
    dimension = int(rng.integers(2, 60))
    compressed = dimension > 6 and rng.random() < 0.5
    spec = spec_for_size(dimension, 5, 2) if compressed else SketchSpec.identity(dimension)
    return RoundParameters(
        model_digest=rng.bytes(32),
        clip_l2=1.0,
        sketch=spec,
        sketch_clip_l2=1.5,
        public_seed=PublicSeed(rng.bytes(32)),
        scale=float(rng.choice([1.0, 37.5, 1000.0])),
        linf_bound=int(rng.integers(1, 2000)),
        mechanism=BinomialMechanism(int(rng.choice([0, 1, 7, 64, 65, 300]))),
        tolerated_dropouts=lost,
    )


class EncodingClient:
    """A client's update and noise seeds, and the integers that it must have contributed."""

    def __init__(self, setup: RoundEncoding, u: int, rng: np.random.Generator) -> None:
        self._setup = setup
        self._update = rng.normal(size=setup.parameters.sketch.dimension)
        self.rounding = NoiseSeed(hashlib.sha256(rng.bytes(16) + b"%d" % u).digest())
        self._seeds: Sequence[NoiseSeed] = []

    def encode(self, seeds_for: Callable[[bytes], Sequence[NoiseSeed]]) -> FieldVector:
        """The pipeline's half of a client."""
        pipeline = Pipeline(self._setup)
        rounded = pipeline.round(self._update, self.rounding)
        self._seeds = seeds_for(rounded.values.tobytes())
        return pipeline.add_noise(rounded, self._seeds[0], self._seeds[1:])

    def quantized(self) -> Integers:
        """The update in integer units, clipped, sketched and rotated on the way."""
        parameters = self._setup.parameters
        sketch = parameters.sketch.build(parameters.public_seed)
        clipped = clip_l2(self._update, parameters.clip_l2)
        sketched = clip_l2(sketch.encode(clipped.values), parameters.sketch_clip_l2)
        turned = sketched.map_isometry(_rotation(self._setup).forward)
        return quantize(turned, parameters.scale, parameters.linf_bound, self.rounding).values

    def noise(self, batches: Sequence[int], kept: Sequence[int]) -> Integers:
        """The coins of the batches that stay, each centred for itself."""
        seeds, length = self._seeds, self._setup.parameters.length
        total = np.zeros(length, np.int64)
        for i in kept:
            total += sample_binomial(seeds[i], batches[i], length) - batches[i] // 2
        return total


def wrong_decoding(
    setup: RoundEncoding, clients: Sequence[EncodingClient], total: FieldSum
) -> str | None:
    """Whether the released mean is that of the integers that should be there, bit for bit."""
    survivors, parameters = total.survivors, setup.parameters
    lost = setup.context.invited - len(survivors)
    schedule = setup.schedule
    batches = (_coins(setup),) if schedule is None else schedule.batches
    kept = _kept(batches, setup, lost)
    meant = _coins_meant(setup, lost)
    surplus = sum(batches[i] for i in kept) - meant
    coarse = schedule is not None and schedule.variant is BatchVariant.BINARY
    allowed = SURPLUS_PERCENT * meant if coarse else 0
    if setup.context.removal and not 0 <= 100 * surplus <= allowed:
        return f"another number of coins stays than {lost} lost clients need"
    integers = np.zeros(parameters.length, np.int64)
    for u in survivors:
        integers += clients[u].quantized() + clients[u].noise(batches, kept)
    mean_of_noise = len(survivors) * sum(residual_offset(batches[i]) for i in kept)
    scaled = np.asarray((integers - mean_of_noise) / parameters.scale, np.float64)
    expected = _rotation(setup).inverse(scaled)
    release = Pipeline(setup).decode(total)
    if not np.array_equal(release.mean_sketch, expected / len(survivors)):
        return f"wrong integers decoded from the sum over {survivors}"
    return None


def _kept(batches: Sequence[int], setup: RoundEncoding, lost: int) -> tuple[int, ...]:
    """The batches that stay, from the context's table alone."""
    removal = setup.context.removal
    surplus = removal[lost] if removal else 0
    return tuple(i for i in range(len(batches)) if i == 0 or not surplus >> (i - 1) & 1)


def _coins_meant(setup: RoundEncoding, lost: int) -> int:
    """The share of one survivor in what the fewest honest survivors would hold together."""
    context = setup.context
    target = _coins(setup) * (context.minimum_survivors - context.tolerated_colluders)
    return -(-target // (context.invited - lost - context.tolerated_colluders))


def _coins(setup: RoundEncoding) -> int:
    """Of one client; the rounds here have no other noise."""
    return int(setup.parameters.mechanism.amount)


def _rotation(setup: RoundEncoding) -> Rotation:
    return Rotation(setup.parameters.length, setup.parameters.public_seed)
