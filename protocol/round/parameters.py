"""How every client of a round turns its update into integers, and what their noisy sum releases.

The digest of the parameters is the application digest of the secure-aggregation context, so a
client that was told other parameters contributes noise only.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace

from dp import (
    BinomialMechanism,
    DiscreteGaussianMechanism,
    Event,
    NonPrivateRelease,
    Sensitivities,
    quantized_l2_bound,
)
from dp.mechanisms import MECHANISMS, DistributedMechanism
from dp.rounding import ROUNDING_VARIANCE, require_linf_bound
from protocol.checks import RANGES, require
from protocol.round.field_size import MAX_WRAP_PROBABILITY, MIN_WRAP_PROBABILITY
from protocol.round.returned_noise import ReturnedNoise
from secagg import ParameterError
from sketch import PublicSeed, SketchSpec

DIGEST_BYTES = 32
_COINS_LABEL = b"veilsum/round/1"
_NOISE_LABEL = b"veilsum/round/2/"
_RETURNED_LABEL = b"veilsum/round/3/"
_INTEGERS_LABEL = b"veilsum/round/4/"
_BOUNDS = struct.Struct("<dddQ")
_LOSSES = struct.Struct("<Qd")

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
        mechanism: the noise that each client adds; no coins at all mean no privacy.
        tolerated_dropouts: clients that may vanish without the noise falling below its target.
        wrap_probability: accepted chance that any coordinate of the sum does not fit the field; 0
            for a field that holds every sum, which coins alone have. It costs accuracy only, never
            privacy.
        returned: what members add, and take back in the next round; None if noise stays. Clients
            then add discrete Gaussian noise.
        integers: whether clients have integers, which are neither rotated nor rounded. Then both
            clips are their sensitivity, the sketch is none, and the scale is 1.

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
    mechanism: DistributedMechanism
    tolerated_dropouts: int
    wrap_probability: float = 0.0
    returned: ReturnedNoise | None = None
    integers: bool = False

    def __post_init__(self) -> None:
        if len(self.model_digest) != DIGEST_BYTES:
            raise ParameterError("model_digest", f"{len(self.model_digest)} bytes", "32 bytes")
        for name in ("clip_l2", "sketch_clip_l2", "scale"):
            value = getattr(self, name)
            RANGES["clip_l2"].require(name, value)
            if type(value) not in (int, float):
                raise ParameterError(name, value, "a float of Python's; NumPy's has no encoding")
        try:
            require_linf_bound(self.linf_bound)
        except (TypeError, ValueError) as error:
            raise ParameterError("linf_bound", self.linf_bound, str(error)) from None
        if type(self.mechanism) not in MECHANISMS.values():
            raise ParameterError("mechanism", self.mechanism, f"one of {', '.join(MECHANISMS)}")
        require(self, "tolerated_dropouts")
        wrap = self.wrap_probability
        likely = type(wrap) is float and MIN_WRAP_PROBABILITY <= wrap <= MAX_WRAP_PROBABILITY
        if not likely and wrap != 0.0:
            valid = f"0, or a float in {MIN_WRAP_PROBABILITY:g} .. {MAX_WRAP_PROBABILITY:g}"
            raise ParameterError("wrap_probability", wrap, valid)
        require_room(self.mechanism.name, wrap)
        probe = self.sketch.probe.size if self.sketch.probe else 0
        if max(self.sketch.main_size, probe) > self.sketch.dimension:
            raise ParameterError("sketch", self.sketch, "no larger than the update it compresses")
        if self.sketch.total_rows > MAX_SKETCH_ROWS:
            raise ParameterError("sketch", self.sketch, f"of at most {MAX_SKETCH_ROWS} rows")
        if self.integers:
            self._check_integers()
        self._check_sensitivity()
        if not isinstance(self.returned, ReturnedNoise | None):
            raise ParameterError("returned", type(self.returned).__name__, "a ReturnedNoise")
        if self.returned and not isinstance(self.mechanism, DiscreteGaussianMechanism):
            valid = f"{DiscreteGaussianMechanism.name} where a part of the noise comes back"
            raise ParameterError("mechanism", self.mechanism.name, valid)

    def _check_integers(self) -> None:
        if self.returned is not None:
            raise ParameterError("returned", "given", "left out: integers are summed once")
        plain = SketchSpec.identity(self.sketch.dimension)
        if (self.scale, self.sketch, self.sketch_clip_l2) != (1.0, plain, self.clip_l2):
            given = (self.scale, self.sketch_clip_l2)
            valid = "1, one clip and no sketch where clients have integers"
            raise ParameterError("scale, sketch_clip_l2, sketch", given, valid)

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
    def member_variance(self) -> float:
        """Of what each member adds to a coordinate, and takes back; 0 if noise stays."""
        return self.returned.mechanism.variance if self.returned else 0.0

    @property
    def l2_bound(self) -> float:
        """Euclidean sensitivity in integer units, rounding included."""
        if self.integers:
            return self.sketch_clip_l2
        return quantized_l2_bound(self.sketch_clip_l2, self.scale, self.length)

    @property
    def rounding_variance(self) -> float:
        """What rounding adds to the variance of a client's coordinate; see `ROUNDING_VARIANCE`."""
        return 0.0 if self.integers else ROUNDING_VARIANCE

    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding of every parameter."""
        mechanism = self.mechanism
        returned = _RETURNED_LABEL + self.returned.encode() if self.returned else b""
        # Coins are written as they were when there was nothing else.
        if isinstance(mechanism, BinomialMechanism):
            label, amount = _COINS_LABEL, struct.pack("<Q", mechanism.coins)
        else:
            label = _NOISE_LABEL + mechanism.name.encode() + b"\0"
            amount = struct.pack("<d", mechanism.amount)
        # No label is the beginning of another, and every part behind it has a fixed length, so
        # plain concatenation is injective.
        parts = (
            _INTEGERS_LABEL if self.integers else b"",
            returned,
            label,
            self.model_digest,
            self.sketch.encode_bytes(),
            self.public_seed.value,
            _BOUNDS.pack(self.clip_l2, self.sketch_clip_l2, self.scale, self.linf_bound),
            amount,
            _LOSSES.pack(self.tolerated_dropouts, self.wrap_probability),
        )
        return hashlib.sha256(b"".join(parts)).digest()

    def block_digest(self) -> bytes:
        """The same without the model: what has to stay as it is while noise comes back."""
        return replace(self, model_digest=bytes(DIGEST_BYTES)).digest()


def require_room(mechanism: str, wrap_probability: float) -> None:
    """Raise `ParameterError` for a field that is to hold every sum, where there is none."""
    if mechanism != BinomialMechanism.name and wrap_probability == 0.0:
        valid = f"above 0 with {mechanism} noise: it has no largest value, so no field is sure"
        raise ParameterError("wrap_probability", wrap_probability, valid)


def release_event(
    parameters: RoundParameters, mechanism: DistributedMechanism, contributors: int
) -> Event:
    """What a sum releases to somebody who does not know the noise of so many contributors."""
    if contributors == 0 or mechanism.amount == 0:
        return NonPrivateRelease()
    sensitivities = Sensitivities(parameters.l2_bound, parameters.linf_bound)
    return mechanism.event(sensitivities, contributors, parameters.length)
