"""From a float update to a field vector on the client, and back from the sum on the server.

Each stage has a client half and a server half. The client runs the list forward, the server
backward. The types carry the sensitivity: `Bounded` knows its Euclidean bound, `Quantized` its
integer bounds, `Noised` its noise; a stage in the wrong place does not type-check, and raises if
forced.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp import (
    Bounded,
    Coins,
    CoinSchedule,
    Noised,
    NoiseSeed,
    PrivacyError,
    Quantized,
    SensitivityExceededError,
    clip_l2,
    quantize,
)
from dp.dropouts import accumulate_removed, add_batches
from dp.mechanisms import DistributedMechanism
from dp.noised import Noise
from dp.rounding import ROUNDING_VARIANCE, largest_square
from protocol.allocation import Hiding
from protocol.checks import of_kind
from protocol.round.setup import RoundEncoding
from secagg import FieldSum, FieldVector, ParameterError, PrimeField, ProtocolError, centre, lift
from secagg.oneshot.records import RoundRecord
from sketch import LinearSketch, NoSketch, Rotation

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Seeds = Mapping[int, Sequence[NoiseSeed]]
S = TypeVar("S")
T = TypeVar("T")

WORTH_THREADS = 1 << 22
"""Numbers of surplus noise, of all survivors, from which on several threads draw them again."""

MOST_THREADS = 8
"""Each holds three vectors: its sum, the noise of a survivor, and that of one batch."""


@dataclass(frozen=True, slots=True)
class Clip:
    """Finite check and Euclidean clip. Stability: any -> l2_bound."""

    dimension: int
    l2_bound: float

    def client(self, update: NDArray[Any]) -> Bounded:
        """float32|float64[d] to a vector of norm at most `l2_bound`."""
        valid = f"a NumPy array of float32 or float64, shape ({self.dimension},)"
        if not isinstance(update, np.ndarray):
            raise ParameterError("update", f"of type {type(update).__name__}", valid)
        if update.dtype not in (np.float32, np.float64):
            raise ParameterError("update", f"an array of {update.dtype}", valid)
        if update.shape != (self.dimension,):
            raise ParameterError("update", f"shape {update.shape}", valid)
        return clip_l2(update, self.l2_bound)


@dataclass(frozen=True, slots=True)
class TakeIntegers:
    """Checks integers in place of a clip: none is ever shortened. Stability: any -> l2_bound."""

    dimension: int
    l2_bound: float
    linf_bound: int

    def client(self, update: NDArray[Any]) -> Bounded:
        """int64[d] within both bounds, as it is."""
        valid = f"a NumPy array of int64, shape ({self.dimension},): the round takes integers"
        if not isinstance(update, np.ndarray):
            raise ParameterError("update", f"of type {type(update).__name__}", valid)
        if update.dtype != np.int64 or update.shape != (self.dimension,):
            raise ParameterError("update", f"{update.dtype} of shape {update.shape}", valid)
        checked = Quantized(update.copy(), largest_square(self.l2_bound), self.linf_bound)
        return Bounded(checked.values.astype(np.float64), self.l2_bound)


@dataclass(frozen=True, slots=True)
class Compress:
    """A linear sketch, clipped again: exact whatever the hash luck. Stability: l2 -> l2_bound."""

    sketch: LinearSketch
    l2_bound: float

    def client(self, bounded: Bounded) -> Bounded:
        """Encode an update: float64[d] to float64[L]."""
        if isinstance(self.sketch, NoSketch) and self.l2_bound == bounded.l2_bound:
            return bounded
        return clip_l2(self.sketch.encode(bounded.values), self.l2_bound, take=True)

    def server(self, mean_sketch: Floats) -> Floats:
        """Decode the mean sketch, unbiased: float64[L] to float64[d]."""
        return self.sketch.decode(mean_sketch)


@dataclass(frozen=True, slots=True)
class Rotate:
    """A random rotation, so that no coordinate stands out. Stability: l2 -> l2."""

    rotation: Rotation

    def client(self, bounded: Bounded) -> Bounded:
        """Rotate: float64[L] to float64[L]."""
        return bounded.map_isometry(self.rotation.forward)

    def server(self, rotated: Floats) -> Floats:
        """Undo the rotation."""
        return self.rotation.inverse(rotated)


class StandStill:
    """No rotation: of integers, which would be none afterwards."""

    def client(self, bounded: Bounded) -> Bounded:
        """Leave a vector as it is."""
        return bounded

    def server(self, rotated: Floats) -> Floats:
        """Leave a sum as it is."""
        return rotated


@dataclass(frozen=True, slots=True)
class Quantize:
    """Scale and conditional stochastic rounding. Stability: l2 -> quantized_l2_bound."""

    scale: float
    linf_bound: int

    def client(self, bounded: Bounded, seed: NoiseSeed) -> Quantized:
        """Round float64[L] to bounded integers."""
        return quantize(bounded, self.scale, self.linf_bound, seed)

    def server(self, total: Floats) -> Floats:
        """Integer units back to units of the update."""
        return np.asarray(total / self.scale, np.float64)


@dataclass(frozen=True, slots=True)
class KeepIntegers:
    """No rounding. Stability: l2 -> l2."""

    linf_bound: int

    def client(self, bounded: Bounded, seed: NoiseSeed) -> Quantized:
        """Read float64[L] as the integers that they are; any other raises."""
        del seed
        values = bounded.values.astype(np.int64)
        if not np.array_equal(values, bounded.values):
            raise SensitivityExceededError("the round takes integers, and some are none")
        return Quantized(values, largest_square(bounded.l2_bound), self.linf_bound)

    def server(self, total: Floats) -> Floats:
        """Leave a sum as it is."""
        return total


@dataclass(frozen=True, slots=True)
class AddNoise:
    """The client's own noise. Needs, and keeps, the integer bounds.

    With a schedule, which coins alone can have, they come in batches, and those that turn out to be
    surplus are taken off the sum again: what stays is exact (docs/dropouts.md).
    """

    mechanism: DistributedMechanism
    schedule: CoinSchedule | None

    def client(self, quantized: Quantized, seeds: Sequence[NoiseSeed]) -> Noised:
        """Bounded integers to noised integers; one seed for each batch."""
        if self.schedule is None:
            return self.mechanism.add_noise(quantized, seeds[0])
        return add_batches(quantized, self.schedule, seeds)

    def server(
        self, total: Integers, surplus: Integers | None, survivors: int, lost: int
    ) -> Floats:
        """Take off surplus batches, and the known mean of the noise that stays.

        Args:
            surplus: of all survivors, added up; None where there is no schedule.
        """
        if self.schedule is None or surplus is None:
            offset = self.mechanism.residual_offset
        else:
            total, offset = total - surplus, self.schedule.residual_offset(lost)
        return np.asarray(total - survivors * offset, np.float64)

    def surplus(
        self, removed: Sequence[Sequence[bytes]], lost: int, length: int
    ) -> Integers | None:
        """The noise of surplus batches, added up over some survivors; None without a schedule."""
        if self.schedule is None:
            return None
        schedule, batches = self.schedule, self.schedule.removed(lost)

        def noise_of(share: Sequence[Sequence[bytes]]) -> Integers:
            """The surplus noise of some survivors, added up."""
            noise = np.zeros(length, np.int64)
            for seeds in share:
                given = dict(zip(batches, map(NoiseSeed, seeds), strict=True))
                accumulate_removed(given, schedule, lost, noise)
            return noise

        count = min(_threads(), len(removed))
        if count < 2 or length * len(removed) < WORTH_THREADS:
            return noise_of(removed)
        # The samplers let go of the interpreter; sums of integers have no order.
        total = np.zeros(length, np.int64)
        with ThreadPoolExecutor(count) as pool:
            for noise in pool.map(noise_of, [removed[first::count] for first in range(count)]):
                total += noise
        return total


@dataclass(frozen=True, slots=True)
class Lift:
    """Signed integers to GF(p) and back.

    The setup proved that the sum does not wrap around, but for the accepted probability.
    """

    field: PrimeField

    def client(self, noised: Noised) -> FieldVector:
        """Lift integers, int64[L], to elements of GF(p).

        One client's noise may reach further than the sum of all is likely to. It then wraps around,
        as the sum would: an error in its place would depend on the private update.
        """
        limit = noised.noise.noise_limit
        # Bounds that a type has checked need no second look at the values.
        if limit is None or noised.linf_bound + limit > self.field.largest_centred:
            return self.reduced(noised.values)
        return lift(noised.values, self.field)

    def clients(self, block: Sequence[Noised], length: int) -> FieldVector:
        """The sum of what `client` gives for each: integers are added faster than elements."""
        if len(block) == 1:
            return self.client(block[0])
        total = np.zeros(length, np.int64)
        for noised in block:
            total += noised.values
        return self.reduced(total)

    def reduced(self, values: Integers) -> FieldVector:
        """Any integers, int64[L], as elements of GF(p)."""
        half = self.field.largest_centred
        if _reach(values) > half:
            values = (values + half) % self.field.modulus - half
        return lift(values, self.field)

    def server(self, total: FieldVector) -> Integers:
        """Read elements of GF(p) as integers, int64[L]."""
        return centre(total)


@dataclass(frozen=True, slots=True, eq=False)
class MeanRelease:
    """What a round releases; everything here is already private.

    Attributes:
        update: float64[d], the mean update over the survivors: an estimate without bias, but for
            what the clips of updates, sketches and coordinates cut off, and conditional rounding.
        mean_sketch: float64[size], the noisy mean of what clients sent, from which it was decoded;
            `SketchSpec.split` takes two sketches apart.
        noise_variance: variance per coordinate of `mean_sketch` from noise and rounding, as
            `Pipeline.noise_variance` states it.
        survivors: number of clients in the mean.
    """

    update: Floats
    mean_sketch: Floats
    noise_variance: float
    survivors: int


class Pipeline:
    """All stages of a round, built from its public setup; the same on both sides."""

    def __init__(self, setup: RoundEncoding) -> None:
        parameters = setup.parameters
        self._setup = setup
        self._clip: Clip | TakeIntegers
        self._rotate: Rotate | StandStill
        self._quantize: Quantize | KeepIntegers
        if parameters.integers:
            linf_bound = parameters.linf_bound
            self._clip = TakeIntegers(parameters.length, parameters.clip_l2, linf_bound)
            self._rotate, self._quantize = StandStill(), KeepIntegers(linf_bound)
        else:
            self._clip = Clip(parameters.sketch.dimension, parameters.clip_l2)
            self._rotate = Rotate(Rotation(parameters.length, parameters.public_seed))
            self._quantize = Quantize(parameters.scale, parameters.linf_bound)
        self._compress = Compress(
            parameters.sketch.build(parameters.public_seed), parameters.sketch_clip_l2
        )
        self._noise = AddNoise(parameters.mechanism, setup.schedule)
        self._lift = Lift(setup.context.field)
        # Not the stages' own word for it: a stage may be the one that is wrong.
        noise: Noise = parameters.mechanism.noise
        if setup.schedule is not None and isinstance(noise, Coins):
            noise = Coins(noise.count, len(setup.schedule.batches))
        self._charged = (parameters.linf_bound, noise)
        self._square_bound = largest_square(parameters.l2_bound)

    def encode(
        self, update: NDArray[Any], seed: NoiseSeed, removable: Sequence[NoiseSeed] = ()
    ) -> FieldVector:
        """The client's half: clip, sketch, rotate, quantise, noise, lift.

        Args:
            update: float32|float64[d]; int64[d] in rounds of integers.
            seed: fresh and secret; drives rounding and the noise that stays, never used twice.
            removable: a seed for each removable batch, `setup.context.seeds` of them.

        Raises:
            ParameterError: the update has another shape.
            NonFiniteUpdateError: it has a NaN or an infinity.
            SensitivityExceededError: some stage lost the bound that the round is accounted with.
        """
        return self.add_noise(self.round(update, seed), seed, removable)

    def round(self, update: NDArray[Any], seed: NoiseSeed) -> Quantized:
        """The client's half up to the noise: clip, sketch, rotate, quantise.

        A one-shot client derives the seeds of its noise from what this returns. Arguments and
        errors are those of `encode`.

        Args:
            seed: fresh and secret; drives rounding.
        """
        # What NumPy does about tiny and huge numbers must not depend on what training has set: a
        # client that then raised would show by it what its update is like.
        with np.errstate(all="ignore"):
            return self._quantize.client(self._rotated(self._clip.client(update)), seed)

    def clip(self, update: NDArray[Any]) -> Bounded:
        """The first stage alone; the result shares no memory with the update."""
        return self._clip.client(update)

    def encode_block(
        self, clipped: dict[int, Bounded], seeds: Seeds, refused: dict[int, str]
    ) -> FieldVector:
        """The sum of what `encode` gives for several clients, from `clip` on.

        All go through a stage before the next one, which is faster where vectors are short: a
        processor has the code of one stage at hand, but not that of all.

        Args:
            clipped: by client, whatever their numbers mean; is emptied on the way.
            seeds: of each client the one for rounding and the noise that stays, then `removable`.
            refused: gets the reason for each client whom a stage refuses, and who is left out.
        """
        return self.add_noise_block(self.round_block(clipped, seeds, refused), seeds, refused)

    def round_block(
        self, clipped: dict[int, Bounded], seeds: Seeds, refused: dict[int, str]
    ) -> dict[int, Quantized]:
        """`round` for several clients, see `encode_block`; the first seed of each drives it."""
        with np.errstate(all="ignore"):
            rotated = _each(lambda _, bounded: self._rotated(bounded), clipped, refused)
            return _each(
                lambda client, bounded: self._quantize.client(bounded, seeds[client][0]),
                rotated,
                refused,
            )

    def add_noise_block(
        self, quantized: dict[int, Quantized], seeds: Seeds, refused: dict[int, str]
    ) -> FieldVector:
        """The sum of what `add_noise` gives for several clients; see `encode_block`."""
        with np.errstate(all="ignore"):
            noised = _each(
                lambda client, rounded: self._noised(rounded, seeds[client]), quantized, refused
            )
            return self._lift.clients([*noised.values()], self._setup.parameters.length)

    def add_noise(
        self, quantized: Quantized, seed: NoiseSeed, removable: Sequence[NoiseSeed] = ()
    ) -> FieldVector:
        """The rest of the client's half: noise and lift; see `encode`.

        Args:
            quantized: from `round`.
            seed: fresh and secret; drives the noise that stays.
        """
        with np.errstate(all="ignore"):
            return self._lift.client(self._noised(quantized, [seed, *removable]))

    def _rotated(self, clipped: Bounded) -> Bounded:
        return self._rotate.client(self._compress.client(clipped))

    def _noised(self, quantized: Quantized, seeds: Sequence[NoiseSeed]) -> Noised:
        """Add noise; what the types then carry must be what accounting charges for.

        A stage may have been left out, or built with other figures, without any single type
        noticing.
        """
        noised = self._noise.client(quantized, seeds)
        carried = (noised.linf_bound, noised.noise)
        if noised.square_bound > self._square_bound or carried != self._charged:
            raise SensitivityExceededError(
                f"encoded with square_bound {noised.square_bound}, linf_bound and noise {carried}, "
                f"but the round is accounted with {self._setup.parameters.l2_bound:g} squared, "
                f"{self._charged}"
            )
        return noised

    def surplus(self, removed: Sequence[Sequence[bytes]], lost: int) -> Integers | None:
        """Surplus noise of some survivors, int64[L], from the seeds that each of them gave up.

        None if nothing is ever taken off.

        Args:
            removed: for each of them, the seeds of the round's surplus batches, in order.
            lost: clients of the cohort that are not survivors.
        """
        return self._noise.surplus(removed, lost, self._setup.parameters.length)

    def decode(
        self,
        total: FieldSum,
        surplus: Integers | None = None,
        record: RoundRecord | None = None,
        hiding: Hiding | None = None,
    ) -> MeanRelease:
        """The server's half: the same stages backward, then the mean over the survivors.

        Where noise comes back, the sum is divided by the same number in all rounds.

        Args:
            surplus: noise to take off, of all survivors; drawn from their seeds if left out.
            record: of the round, where members upload as well.
            hiding: of the cohort; then nothing but the sum follows who came.
        """
        survivors = len(total.survivors)
        integers = self._lift.server(total.vector)
        lost = self._setup.context.invited - survivors
        if surplus is None:
            counted = [each for each in total.survivors if each not in set(total.noisy)]
            removed = [total.removed.get(survivor, ()) for survivor in counted]
            surplus = self.surplus(removed, lost)
        noisy = self._noise.server(integers, surplus, survivors, lost)
        noisy = noisy if hiding is None else self._hidden(noisy, survivors, hiding)
        rotated = self._quantize.server(noisy)
        divisor = self._divisor(survivors) if hiding is None else hiding.divisor
        mean_sketch = self._rotate.server(rotated) / divisor
        return MeanRelease(
            update=self._compress.server(mean_sketch),
            mean_sketch=mean_sketch,
            noise_variance=self.noise_variance(survivors, record)
            if hiding is None
            else self._hidden_variance(hiding),
            survivors=survivors,
        )

    def _hidden(self, total: Floats, survivors: int, hiding: Hiding) -> Floats:
        """A sum with the coins that are missing, reduced again: the same noise for all cohorts."""
        own = survivors * of_kind("noise", self._setup.noise_left(survivors).noise, Coins).count
        # Coins around their mean are whole numbers, or all of them halves.
        coins = np.rint(total + own / 2.0).astype(np.int64) + hiding.added(own, total.size)
        reduced = self._lift.server(self._lift.reduced(coins - hiding.coins // 2))
        return np.asarray(reduced - (hiding.coins % 2) / 2.0, np.float64)

    def _hidden_variance(self, hiding: Hiding) -> float:
        """`noise_variance` as it is expected: it must not follow a cohort either."""
        parameters, setup = self._setup.parameters, self._setup
        others = hiding.divisor * (parameters.rounding_variance + setup.error_variance)
        return (hiding.coins / 4.0 + others) / (hiding.divisor * parameters.scale) ** 2

    def _divisor(self, survivors: int) -> int:
        """What a sum over so many clients is divided by."""
        returned = self._setup.parameters.returned
        return survivors if returned is None else returned.divisor

    def noise_variance(self, survivors: int, record: RoundRecord | None = None) -> float:
        """Variance per coordinate of the mean sketch that is not signal.

        That of a client's noise that stays is exact; of m coins it is m/4. Rounding a fraction f
        has variance f (1 - f): between 0 and 1/4, depending on private data, and 1/6 on average
        over uniform fractions, which is what is stated. So the statement is off by at most 1/6 for
        each client, which calibrated rounds keep below their error share of the noise. It is no use
        where a round has only a few coins: for updates much smaller than one integer unit, say,
        rounding is nearly free. Where noise comes back, this is that of one round, and a part of it
        is in others.

        Args:
            record: of the round, where members upload as well.
        """
        parameters = self._setup.parameters
        setup = self._setup
        each = setup.noise_left(survivors).variance + parameters.rounding_variance
        each += setup.error_variance
        total = survivors * each
        if record is not None and parameters.returned is not None:
            members = len(record.entered) + len(record.returned)
            total += members * parameters.returned.mechanism.variance
        return total / (self._divisor(survivors) * parameters.scale) ** 2


def _each(
    stage: Callable[[int, S], T], values: dict[int, S], refused: dict[int, str]
) -> dict[int, T]:
    """What a stage makes of each client's value, which is dropped, so that its memory is reused."""
    done = {}
    for client in list(values):
        try:
            done[client] = stage(client, values.pop(client))
        except (PrivacyError, ProtocolError) as error:
            refused[client] = str(error)
    return done


def noise_of_sums(setup: RoundEncoding, records: Sequence[RoundRecord]) -> float:
    """Variance per coordinate of the noise in the sum of all rounds' mean sketches so far.

    What members have taken back is in none of it. `Pipeline.noise_variance` is that of one round.
    """
    parameters = setup.parameters
    if parameters.returned is None:
        return math.nan
    each = setup.noise_left(setup.context.minimum_survivors).variance + ROUNDING_VARIANCE
    total = each * sum(record.clients for record in records)
    entered = sum(len(record.entered) for record in records)
    back = sum(len(record.returned) for record in records)
    total += (entered - back) * parameters.returned.mechanism.variance
    return total / (parameters.returned.divisor * parameters.scale) ** 2


def _reach(values: Integers) -> int:
    """The largest magnitude: of Python's integers, as abs(-2**63) is negative in int64."""
    return max(-int(values.min(initial=0)), int(values.max(initial=0)))


def _threads() -> int:
    """The cores that this process may use, up to a limit."""
    allowed = getattr(os, "sched_getaffinity", None)
    return min(len(allowed(0)) if allowed else os.cpu_count() or 1, MOST_THREADS)
