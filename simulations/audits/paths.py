"""Whole rounds as an auditor sees them: calibrated, encoded, summed, opened, decoded.

``WholePath`` runs rounds of the real parts with seeds that repeat, and gives back what was
released in integer units. An adversary with colluders subtracts their noise, which it knows.

The mistakes of the broken twins are made here, from outside: other parameters for the clients, a
noise source that repeats itself, a sum to which a batch was added again. The product has no switch
for any of them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp import BinomialMechanism, NoiseSeed, Quantized
from dp.coins import sample_binomial
from dp.dropouts import batch_noise, removed_noise
from dp.mechanisms import DistributedMechanism, MechanismName, mechanism_of
from protocol import (
    ClientPolicy,
    Dropouts,
    IdealAggregator,
    Pipeline,
    PrivacyGoal,
    RealAggregator,
    RoundParameters,
    RoundSetup,
    Stage,
    TrainingPlan,
)
from protocol.noise.calibration import calibrate
from protocol.noise.noise import Independent
from protocol.round.field_size import WRAP_PROBABILITY, bits_for
from protocol.schemes.pairwise import pairwise_setup
from secagg import FieldSum, FieldVector, Identity, ParameterError, lift
from secagg.field import add_into
from secagg.shamir import Rand
from simulations.audits.base import (
    Figures,
    Floats,
    derived_bytes,
    identities_of,
    noise_seed,
    public_keys,
)
from simulations.audits.distribution import ClaimedRelease
from sketch import PublicSeed, Rotation, SketchSpec

MODEL_DIGEST: Final = bytes(32)
FAR_BEYOND: Final = 50.0
"""How many times the clip the update of a client is that a missing clip would let through."""


class Mistake(enum.Enum):
    """What a twin does wrong."""

    NONE = "nothing"
    THIRD_MISSING = "a third of the variance is missing"
    HALF_NOISE = "every client adds half the variance"
    BATCH_STAYS = "one removable batch is not removed"
    NO_MARGIN = "the noise has no margin for colluders"
    SHARED_SEED = "two clients use the same noise seed"
    SEED_AGAIN = "every round uses the same noise seeds"
    NO_CLIP = "clients do not clip"
    TENTH = "every client adds a tenth of its noise"


@dataclass(frozen=True, slots=True)
class PathSettings:
    """A round to audit."""

    sketch: SketchSpec  # the compression; also says how long updates are
    goal: PrivacyGoal  # what the noise is calibrated for
    cohort: int = 8  # clients invited
    tolerated_dropouts: int = 2  # clients whose loss the noise is made for
    tolerated_colluders: int = 1  # clients whose noise the server may know
    # whether surplus batches are taken off; left out, those of coins are
    exact_noise: bool | None = None
    error_share: float = 0.5  # see ``protocol.calibrate``; large here, so that integers stay small
    clip_l2: float = 1.0  # C
    mechanism: MechanismName = "binomial"  # name of the noise
    # whether each coordinate is a round of its own, calibrated for a clip of C: the round is as
    # many of them side by side. Without compression only
    alone: bool = False

    @property
    def plan(self) -> TrainingPlan:
        """The plan that such rounds belong to."""
        return TrainingPlan(
            goal=self.goal,
            cohort=self.cohort,
            tolerated_dropouts=self.tolerated_dropouts,
            tolerated_colluders=self.tolerated_colluders,
            clip_l2=self.clip_l2,
            noise=Independent(mechanism=self.mechanism, exact=self.exact_noise),
            error_share=self.error_share,
        )

    def parameters(self, seed: int) -> RoundParameters:
        """Calibrated parameters; the public seed follows from ``seed``."""
        coins = self.mechanism == BinomialMechanism.name
        parameters = calibrate(
            self.goal,
            fewest_honest=self.plan.fewest_honest,
            sketch=SketchSpec.identity(1) if self.alone else self.sketch,
            clip_l2=self.clip_l2,
            tolerated_dropouts=self.tolerated_dropouts,
            model_digest=MODEL_DIGEST,
            public_seed=PublicSeed(derived_bytes(seed, "public")),
            error_share=self.error_share,
            # Nothing wraps here, if that can be had.
            wrap_probability=0.0 if coins else WRAP_PROBABILITY,
            mechanism=self.mechanism,
        )
        if not self.alone:
            return parameters
        clip = self.clip_l2 * math.sqrt(self.sketch.size)
        return replace(parameters, sketch=self.sketch, clip_l2=clip, sketch_clip_l2=clip)


def repeatable(seed: int, *labels: object) -> Rand:
    """Return a source of bytes for everything that is random in a client but its noise."""
    calls = 0

    def rand(size: int) -> bytes:
        nonlocal calls
        calls += 1
        blocks = (derived_bytes(seed, *labels, calls, i) for i in range(-(-size // 32)))
        return b"".join(blocks)[:size]

    return rand


@dataclass(frozen=True)
class WholePath:
    """Rounds of one setting, with or without a mistake."""

    settings: PathSettings  # of the rounds
    seed: int  # fixes everything: identities, public seed, masks, noise
    mistake: Mistake = Mistake.NONE  # of the clients or of the sum
    real: bool = False  # whether every round runs the whole protocol with its cryptography
    noise_seed_of: int | None = None  # fixes the noise alone; ``seed`` if left out
    _setups: dict[int, RoundSetup] = field(init=False, repr=False, default_factory=dict)

    @cached_property
    def identities(self) -> Sequence[Identity]:
        """The cohort's, which a real one keeps over all rounds."""
        return identities_of(self.seed, self.settings.cohort)

    def mutants(
        self, figures: Callable[[WholePath], Figures], *mistakes: Mistake
    ) -> dict[str, Callable[[], Figures]]:
        """The twins of an audit: figures of the same path with one mistake each."""
        return {each.value: partial(figures, replace(self, mistake=each)) for each in mistakes}

    @property
    def _noise_origin(self) -> int:
        """What noise seeds follow from."""
        return self.seed if self.noise_seed_of is None else self.noise_seed_of

    @cached_property
    def claimed(self) -> RoundSetup:
        """The round as announced and accounted, without any mistake, in a field with room."""
        return self._setup(self.settings, self.settings.parameters(self.seed), 0)

    def claimed_release(self, survivors: int, colluders: bool) -> ClaimedRelease:
        """What a sum is accounted as, for a server with colluders or for an outsider."""
        events = self.claimed.events(survivors)
        event = events.server if colluders else events.outsider
        if not isinstance(event, ClaimedRelease):
            raise ParameterError("settings", event, "a round with noise")
        return event

    def setup(self, number: int) -> RoundSetup:
        """The round that clients really take part in.

        Only real clients look at the number, so in the ideal functionality all rounds share one.
        """
        number = number if self.real else 0
        if number not in self._setups:
            self._setups[number] = self._announced(number)
        return self._setups[number]

    def _announced(self, number: int) -> RoundSetup:
        """Make the setup, with the mistake of the clients in it."""
        settings, parameters = self.settings, self.settings.parameters(self.seed)
        if self.mistake in _REDUCED:
            reduced = _reduced(parameters.mechanism, _REDUCED[self.mistake])
            parameters = replace(parameters, mechanism=reduced)
        elif self.mistake is Mistake.NO_CLIP:
            parameters = _unclipped(parameters)
        elif self.mistake is Mistake.NO_MARGIN:
            settings = replace(settings, tolerated_colluders=0)
            parameters = settings.parameters(self.seed)
        return self._setup(settings, parameters, number)

    def _setup(
        self, settings: PathSettings, parameters: RoundParameters, number: int
    ) -> RoundSetup:
        """Join parameters and context; the field also holds the sum of unclipped updates."""
        session = derived_bytes(self.seed, "session")[:16]
        setup = pairwise_setup(
            settings.plan, parameters, public_keys(self.identities), session, number
        )
        room = bits_for(
            _unclipped(self.settings.parameters(self.seed)), settings.cohort, setup.context.seeds
        )
        bits = max(room, setup.context.bits)
        return RoundSetup(replace(setup.context, bits=bits), parameters)

    def noise(self, number: int, index: int) -> NoiseSeed:
        """The noise seed of a client in a round."""
        if self.mistake is Mistake.SHARED_SEED and index == 1:
            index = 0
        if self.mistake is Mistake.SEED_AGAIN:
            number = 0
        return noise_seed(self._noise_origin, "noise", number, index)

    def removable(self, number: int, index: int, count: int) -> list[NoiseSeed]:
        """The seeds of a client's removable batches, in the ideal functionality."""
        if self.mistake is Mistake.SEED_AGAIN:
            number = 0
        return [noise_seed(self._noise_origin, "removable", number, index, i) for i in range(count)]

    def total(self, number: int, updates: NDArray[Any], dropouts: Dropouts) -> FieldSum:
        """Run one round up to its opened sum.

        Args:
            updates: float64[cohort, d] or float64[d], then the same for all.
        """
        setup = self.setup(number)
        table = np.broadcast_to(updates, (self.settings.cohort, self.settings.sketch.dimension))
        if self.real:
            outcome = RealAggregator(
                self.identities,
                ClientPolicy(minimum_noise_multiplier=0.0, mechanisms=(self.settings.mechanism,)),
                noise=lambda index: self.noise(number, index),
                rand_of=lambda index: repeatable(self.seed, "client", number, index),
            ).run(setup, table.__getitem__, dropouts)
        else:
            outcome = IdealAggregator(
                removable=lambda index, count: self.removable(number, index, count),
                noise=lambda index: self.noise(number, index),
            ).run(setup, table.__getitem__, dropouts)
        if self.mistake is Mistake.BATCH_STAYS:
            return _with_a_batch_again(setup, outcome.total)
        return outcome.total

    def released(
        self, number: int, updates: NDArray[Any], dropouts: Dropouts | None = None
    ) -> tuple[Floats, int]:
        """Run one round and return what it released, in integer units, and the survivors.

        The sum over the survivors as float64[L]: rotated, before division and scale, which is the
        unit that the accountant's event is in.
        """
        total = self.total(number, updates, dropouts or {})
        setup = self.setup(number)
        # Decoded by the parties' own setup: the server believes its own announcement.
        release = Pipeline(setup).decode(total)
        rotated = Rotation(setup.parameters.length, setup.parameters.public_seed).forward(
            release.mean_sketch
        )
        return rotated * (release.survivors * setup.parameters.scale), release.survivors

    def noise_of(
        self, number: int, dropouts: Dropouts | None = None, colluders: Sequence[int] = ()
    ) -> tuple[Floats, int]:
        """Run one round of zero updates; return its noise, less that of colluders, and survivors.

        Zero is an integer after any rotation and scale, so rounding adds nothing: what is
        released is the noise that stayed, less its mean.
        """
        dimension = self.settings.sketch.dimension
        released, survivors = self.released(number, np.zeros(dimension), dropouts)
        for index in colluders:
            released = released - self._known_noise(number, index, survivors)
        return released, survivors

    def _known_noise(self, number: int, index: int, survivors: int) -> Floats:
        """What a colluder's noise left in the sum, from its seeds."""
        setup = self.setup(number)
        length, mechanism = setup.parameters.length, setup.parameters.mechanism
        first = self.noise(number, index)
        if setup.schedule is None:
            nothing = Quantized(np.zeros(length, np.int64), 1, 1)
            drawn = mechanism.add_noise(nothing, first).values
            return np.asarray(drawn - mechanism.residual_offset, np.float64)
        schedule, lost = setup.schedule, setup.context.size - survivors
        seeds = [first, *self.removable(number, index, setup.context.seeds)]
        given = {batch: seeds[batch] for batch in schedule.removed(lost)}
        kept = batch_noise(seeds, schedule, length) - removed_noise(given, schedule, lost, length)
        return np.asarray(kept - schedule.residual_offset(lost), np.float64)


_REDUCED: Final = {Mistake.THIRD_MISSING: 1.5, Mistake.HALF_NOISE: 2.0, Mistake.TENTH: 100.0}
"""By how much the variance of a client's noise is too small."""


def _reduced(mechanism: DistributedMechanism, factor: float) -> DistributedMechanism:
    """Return a mechanism with so many times less variance."""
    if isinstance(mechanism, BinomialMechanism):
        return BinomialMechanism(max(1, int(mechanism.coins / factor)))
    return mechanism_of(mechanism.name, mechanism.amount / factor)


def _unclipped(parameters: RoundParameters) -> RoundParameters:
    """Return the parameters of clients that let everything through."""
    return replace(
        parameters,
        clip_l2=FAR_BEYOND * parameters.clip_l2,
        sketch_clip_l2=FAR_BEYOND * parameters.sketch_clip_l2,
        linf_bound=int(FAR_BEYOND) * parameters.linf_bound,
    )


def _with_a_batch_again(setup: RoundSetup, total: FieldSum) -> FieldSum:
    """Return the sum with the largest batch that was to be removed still in it."""
    schedule, survivors = setup.schedule, total.survivors
    if schedule is None or not total.removed:
        return total
    removed = schedule.removed(setup.context.size - len(survivors))
    which = max(range(len(removed)), key=lambda i: schedule.batches[removed[i]])
    coins = schedule.batches[removed[which]]
    length = setup.parameters.length
    again = np.zeros(length, np.int64)
    for survivor in survivors:
        seed = NoiseSeed(total.removed[survivor][which])
        again += sample_binomial(seed, coins, length) - coins // 2
    elements = total.vector.elements.copy()
    add_into(elements, lift(again, setup.context.field))
    return replace(total, vector=FieldVector(setup.context.field, elements))


LOST_EARLY_AND_LATE: Final[Dropouts] = {2: Stage.INPUT, 5: Stage.UNMASK}
"""One client never sends its update, another sends it and vanishes before the sum is opened."""
