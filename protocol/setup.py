"""Everything public about one round: what is encoded how, by whom, and who may learn what.

`RoundParameters` says how an update becomes integers; its digest is the application digest of the
secure-aggregation context, so a client that was told other parameters contributes noise only.
`RoundSetup` joins both, proves the capacity of the field, and travels as one announcement.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import msgspec

from dp import BinomialRelease, CoinSchedule, Event, NonPrivateRelease, quantized_l2_bound
from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND
from dp.coins import noise_limit, require_coins
from dp.rounding import require_linf_bound
from protocol.capacity import MAX_WRAP_PROBABILITY, MIN_WRAP_PROBABILITY, bits_for
from secagg import (
    SERVER,
    CapacityError,
    Mode,
    ParameterError,
    Reason,
    RemoteProtocolError,
    SessionContext,
)
from secagg.context import MAX_COHORT
from sketch import PublicSeed, SketchSpec

DIGEST_BYTES = 32
ANNOUNCEMENT_VERSION = 2
_DIGEST_LABEL = b"veilsum/round/1"
_NUMBERS = struct.Struct("<dddQQQd")

MAX_SKETCH_ROWS = 1 << 12
"""Most rows of a round's sketch: each costs every client a pass over its update, about 2 ms for a
million coordinates, and more than some dozens gain nothing."""

MAX_L2_UNITS = 2.0**53
"""Largest sensitivity in integer units: beyond it doubles do not tell neighbouring integers apart.
No vector within the largest coordinate bound and length comes near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundParameters:
    """How every client of a round turns its update into integers.

    Args:
        model_digest: 32-byte hash of the model that clients received.
        clip_l2: C, Euclidean bound on an update, in the units of the update.
        sketch: the compression; its seed is derived from `public_seed`.
        sketch_clip_l2: B, Euclidean bound on the sketch of an update.
        public_seed: fresh for the round, drawn after the size of the sketch was fixed.
        scale: s, integer units per unit of the update.
        linf_bound: largest integer magnitude of one coordinate before noise.
        coins: fair coins that each client adds to each coordinate; 0 means no privacy.
        tolerated_dropouts: clients that may vanish without the noise falling below its target.
        wrap_probability: accepted chance that any coordinate of the sum does not fit the field; 0
            for a field that holds every sum. It costs accuracy only, never privacy.

    Raises:
        ParameterError: names the parameter, its value and what would be valid.
    """

    model_digest: bytes
    clip_l2: float
    sketch: SketchSpec
    sketch_clip_l2: float
    public_seed: PublicSeed
    scale: float
    linf_bound: int
    coins: int
    tolerated_dropouts: int
    wrap_probability: float = 0.0

    def __post_init__(self) -> None:
        if len(self.model_digest) != DIGEST_BYTES:
            raise ParameterError("model_digest", f"{len(self.model_digest)} bytes", "32 bytes")
        for name in ("clip_l2", "sketch_clip_l2", "scale"):
            value = getattr(self, name)
            # Written so that NaN fails the test.
            if type(value) not in (int, float) or not MIN_L2_BOUND <= value <= MAX_L2_BOUND:
                valid = f"a number in {MIN_L2_BOUND:g} .. {MAX_L2_BOUND:g}"
                raise ParameterError(name, value, valid)
        try:
            require_linf_bound(self.linf_bound)
            require_coins(self.coins)
        except (TypeError, ValueError) as error:
            raise ParameterError(
                "linf_bound, coins", (self.linf_bound, self.coins), str(error)
            ) from None
        dropouts = self.tolerated_dropouts
        if type(dropouts) is not int or not 0 <= dropouts <= MAX_COHORT:
            raise ParameterError("tolerated_dropouts", dropouts, f"an int in 0 .. {MAX_COHORT}")
        wrap = self.wrap_probability
        likely = type(wrap) is float and MIN_WRAP_PROBABILITY <= wrap <= MAX_WRAP_PROBABILITY
        if not likely and wrap != 0.0:
            valid = f"0, or a float in {MIN_WRAP_PROBABILITY:g} .. {MAX_WRAP_PROBABILITY:g}"
            raise ParameterError("wrap_probability", wrap, valid)
        probe = self.sketch.probe.size if self.sketch.probe else 0
        if max(self.sketch.main_size, probe) > self.sketch.dimension:
            raise ParameterError("sketch", self.sketch, "no larger than the update it compresses")
        if self.sketch.total_rows > MAX_SKETCH_ROWS:
            raise ParameterError("sketch", self.sketch, f"of at most {MAX_SKETCH_ROWS} rows")
        self._check_sensitivity()

    def _check_sensitivity(self) -> None:
        try:
            l2_bound = self.l2_bound
        except ValueError as error:
            raise ParameterError("scale", self.scale, str(error)) from None
        if not l2_bound <= MAX_L2_UNITS:
            raise ParameterError(
                "scale", self.scale, f"smaller: the sensitivity is {l2_bound:g} integer units"
            )

    @property
    def length(self) -> int:
        """Integers per client on the wire: the sizes of its sketches, without padding."""
        return self.sketch.size

    @property
    def l2_bound(self) -> float:
        """Euclidean sensitivity in integer units, rounding included."""
        return quantized_l2_bound(self.sketch_clip_l2, self.scale, self.length)

    @property
    def largest_coordinate(self) -> int:
        """Largest magnitude of one coordinate of one client, noise included."""
        return self.linf_bound + noise_limit(self.coins)

    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding of every parameter."""
        numbers = _NUMBERS.pack(
            self.clip_l2,
            self.sketch_clip_l2,
            self.scale,
            self.linf_bound,
            self.coins,
            self.tolerated_dropouts,
            self.wrap_probability,
        )
        # Every part has a fixed length, so plain concatenation is injective.
        parts = (self.model_digest, self.sketch.encode_bytes(), self.public_seed.value, numbers)
        return hashlib.sha256(_DIGEST_LABEL + b"".join(parts)).digest()


def release_event(parameters: RoundParameters, coins: int) -> BinomialRelease | NonPrivateRelease:
    """What a sum releases to somebody who does not know so many coins of each coordinate."""
    if coins == 0:
        return NonPrivateRelease()
    return BinomialRelease(coins, parameters.l2_bound, parameters.linf_bound, parameters.length)


def coin_schedule(
    coins: int, cohort: int, minimum_survivors: int, colluders: int
) -> CoinSchedule | None:
    """The batches in which a client's coins are drawn so that surplus ones can be taken off.

    With the fewest survivors every one of the client's coins stays; the target is what the fewest
    honest survivors then hold together. None if there is nothing to take off.

    Raises:
        ParameterError: the numbers make no schedule.
    """
    lost = cohort - minimum_survivors
    if coins == 0 or lost == 0:
        return None
    target = coins * (minimum_survivors - colluders)
    try:
        schedule = CoinSchedule.best(target, cohort, lost, colluders)
    except ValueError as error:
        raise ParameterError("coins", coins, str(error)) from None
    return schedule if len(schedule.batches) > 1 else None


def removal_table(schedule: CoinSchedule | None) -> tuple[int, ...]:
    """Which removable seeds survivors give up, as `SessionContext.removal` wants it."""
    if schedule is None:
        return ()
    # Batch 0 always stays and has no shared seed, so batch i is seed i - 1.
    return tuple(
        sum(1 << (batch - 1) for batch in schedule.removed(lost))
        for lost in range(schedule.tolerated_dropouts + 1)
    )


@dataclass(frozen=True, slots=True)
class RoundEvents:
    """What one sum releases, as each adversary meets it; none of them gains from sampling.

    Attributes:
        server: the coins of the tolerated colluders do not count, because the server knows them.
        outsider: who sees only the result knows no coins.
        sybil: of a server that made up all other clients, one client's own coins are left.

    Source: docs/accounting.md.
    """

    server: Event
    outsider: Event
    sybil: Event


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RoundSetup:
    """A round as announced: the secure-aggregation context and what it carries.

    Raises:
        ParameterError: context and parameters do not belong together.
        CapacityError: the sum does not fit the field; raised before any message is sent.
    """

    context: SessionContext
    parameters: RoundParameters
    schedule: CoinSchedule | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        context, parameters = self.context, self.parameters
        self._check_survivors()
        schedule = self._schedule() if context.removal else None
        object.__setattr__(self, "schedule", schedule)
        if context.removal != removal_table(schedule):
            raise ParameterError("removal", context.removal, "empty, or that of the coin schedule")
        if context.application_digest != parameters.digest():
            raise ParameterError("application_digest", "another digest", "that of the parameters")
        if context.length != parameters.length:
            raise ParameterError("length", context.length, f"the sketch size {parameters.length}")
        needed = bits_for(parameters, context.size, context.seeds)
        if context.bits < needed:
            raise CapacityError(needed, context.bits)

    def _schedule(self) -> CoinSchedule | None:
        context = self.context
        return coin_schedule(
            self.parameters.coins,
            context.size,
            context.minimum_survivors,
            context.tolerated_colluders,
        )

    def coins_left(self, survivors: int) -> int:
        """Coins of each of so many survivors that stay in the sum.

        Raises:
            PrivacyError: fewer survivors than the noise was made for.
        """
        if self.schedule is None:
            return self.parameters.coins
        return self.schedule.kept_coins(self.context.size - survivors)

    def _check_survivors(self) -> None:
        """The noise must be enough for the smallest sum that may be released."""
        context, dropouts = self.context, self.parameters.tolerated_dropouts
        if dropouts + context.tolerated_colluders >= context.size or self.fewest_honest < 1:
            raise ParameterError(
                "tolerated_dropouts, minimum_survivors",
                (dropouts, context.minimum_survivors),
                f"such that somebody is left beside {context.tolerated_colluders} colluders",
            )
        if context.minimum_survivors < context.size - dropouts:
            raise ParameterError(
                "minimum_survivors",
                context.minimum_survivors,
                f"at least {context.size - dropouts}: the noise is made for {dropouts} dropouts",
            )

    @property
    def fewest_honest(self) -> int:
        """Honest clients that are surely among the survivors of any sum that is released."""
        return self.context.minimum_survivors - self.context.tolerated_colluders

    def events(self, survivors: int) -> RoundEvents:
        """What a sum over `survivors` clients releases."""
        coins = self.coins_left(survivors)
        honest = max(survivors - self.context.tolerated_colluders, 0)
        return RoundEvents(
            server=release_event(self.parameters, honest * coins),
            outsider=release_event(self.parameters, survivors * coins),
            sybil=release_event(self.parameters, coins),
        )

    def announce(self) -> bytes:
        """The setup as bytes for every client of the cohort."""
        context, parameters = self.context, self.parameters
        return bytes([ANNOUNCEMENT_VERSION]) + msgspec.msgpack.encode(
            Announcement(
                session_id=context.session_id,
                round_number=context.round_number,
                cohort=b"".join(context.cohort),
                threshold=context.threshold,
                minimum_survivors=context.minimum_survivors,
                mode=context.mode.value,
                tolerated_colluders=context.tolerated_colluders,
                degree=context.degree,
                bits=context.bits,
                clip_l2=parameters.clip_l2,
                sketch=parameters.sketch.encode_bytes(),
                sketch_clip_l2=parameters.sketch_clip_l2,
                public_seed=parameters.public_seed.value,
                scale=parameters.scale,
                linf_bound=parameters.linf_bound,
                coins=parameters.coins,
                tolerated_dropouts=parameters.tolerated_dropouts,
                wrap_probability=parameters.wrap_probability,
                removable=bool(context.removal),
            )
        )

    @classmethod
    def from_announcement(cls, data: bytes, model_digest: bytes) -> RoundSetup:
        """Read an announcement, with the digest of the model that *this* client received.

        Raises:
            RemoteProtocolError: malformed bytes, or parameters that are no setup.

        Post: nothing was allocated that is larger than the announcement.
        """
        if not data or data[0] != ANNOUNCEMENT_VERSION or len(data) > MAX_ANNOUNCEMENT_BYTES:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, "announcement version or size")
        key = (bytes(data), model_digest)
        setup = _SETUPS.get(key)
        if setup is not None:
            return setup
        try:
            announced = msgspec.msgpack.decode(memoryview(data)[1:], type=Announcement)
            setup = announced.setup(model_digest)
        except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, str(error)) from None
        _SETUPS[key] = setup
        return setup


_SETUPS: WeakValueDictionary[tuple[bytes, bytes], RoundSetup] = WeakValueDictionary()
"""Announcements that some client of this process is working on. A setup never changes, so they
share it: ten thousand clients that each keep ten thousand keys would fill the memory. One that
everybody refused is gone at once."""


MAX_REMOVAL_DROPOUTS = 10_000
"""Dropouts that removable noise may tolerate: bounds the table a client computes for a server."""

MAX_ANNOUNCEMENT_BYTES = 1 << 26
"""A cohort of a million 32-byte identities and some."""


class Announcement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The wire form of a setup. The model digest is not in it: each client hashes its own model."""

    session_id: bytes
    round_number: int
    cohort: bytes
    threshold: int
    minimum_survivors: int
    mode: str
    tolerated_colluders: int
    degree: int
    bits: int
    clip_l2: float
    sketch: bytes
    sketch_clip_l2: float
    public_seed: bytes
    scale: float
    linf_bound: int
    coins: int
    tolerated_dropouts: int
    wrap_probability: float
    removable: bool

    def setup(self, model_digest: bytes) -> RoundSetup:
        """The setup that a client with this model takes part in; ValueError if there is none."""
        parameters = RoundParameters(
            model_digest=model_digest,
            clip_l2=self.clip_l2,
            sketch=SketchSpec.decode_bytes(self.sketch),
            sketch_clip_l2=self.sketch_clip_l2,
            public_seed=PublicSeed(self.public_seed),
            scale=self.scale,
            linf_bound=self.linf_bound,
            coins=self.coins,
            tolerated_dropouts=self.tolerated_dropouts,
            wrap_probability=self.wrap_probability,
        )
        if len(self.cohort) % DIGEST_BYTES:
            raise ValueError("the cohort is not a list of 32-byte identities")
        context = SessionContext(
            session_id=self.session_id,
            round_number=self.round_number,
            cohort=tuple(
                self.cohort[i : i + DIGEST_BYTES] for i in range(0, len(self.cohort), DIGEST_BYTES)
            ),
            threshold=self.threshold,
            minimum_survivors=self.minimum_survivors,
            mode=Mode(self.mode),
            tolerated_colluders=self.tolerated_colluders,
            degree=self.degree,
            removal=self._removal(),
            bits=self.bits,
            length=parameters.length,
            application_digest=parameters.digest(),
        )
        return RoundSetup(context, parameters)

    def _removal(self) -> tuple[int, ...]:
        """The removal table that the announced numbers stand for."""
        if not self.removable:
            return ()
        size, least = len(self.cohort) // DIGEST_BYTES, self.minimum_survivors
        colluders = self.tolerated_colluders
        # The cost of a schedule grows with the dropouts that it tolerates.
        if not (0 <= colluders < least <= size and size - least <= MAX_REMOVAL_DROPOUTS):
            raise ValueError("too many dropouts, or too few survivors, for removable noise")
        return removal_table(coin_schedule(self.coins, size, least, colluders))
