"""How the parameters of a round's encoding are written into announcements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec

from dp import BinomialMechanism
from dp.mechanisms import DistributedMechanism, mechanism_of
from protocol.round.parameters import RoundParameters
from sketch import PublicSeed, SketchSpec

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class WrittenParameters(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`RoundParameters` without the model's digest: each client hashes the model that it has.

    `scale` is None where clients have integers, which they send as they are.
    `noise` is the coins of a client, or the name of another mechanism and its amount.
    """

    clip_l2: float
    sketch: bytes
    sketch_clip_l2: float
    public_seed: bytes
    scale: float | None
    linf_bound: int
    noise: int | tuple[str, float]
    tolerated_dropouts: int
    wrap_probability: float

    @classmethod
    def of(cls, parameters: RoundParameters) -> WrittenParameters:
        """The written form of some parameters."""
        return cls(
            clip_l2=parameters.clip_l2,
            sketch=parameters.sketch.encode_bytes(),
            sketch_clip_l2=parameters.sketch_clip_l2,
            public_seed=parameters.public_seed.value,
            scale=None if parameters.integers else parameters.scale,
            linf_bound=parameters.linf_bound,
            noise=written_mechanism(parameters.mechanism),
            tolerated_dropouts=parameters.tolerated_dropouts,
            wrap_probability=parameters.wrap_probability,
        )

    def read(self, model_digest: bytes) -> RoundParameters:
        """The parameters, for a client with this model; TypeError or ValueError if none."""
        return RoundParameters(
            model_digest=model_digest,
            clip_l2=self.clip_l2,
            sketch=SketchSpec.decode_bytes(self.sketch),
            sketch_clip_l2=self.sketch_clip_l2,
            public_seed=PublicSeed(self.public_seed),
            scale=1.0 if self.scale is None else self.scale,
            linf_bound=self.linf_bound,
            mechanism=read_mechanism(self.noise),
            tolerated_dropouts=self.tolerated_dropouts,
            wrap_probability=self.wrap_probability,
            integers=self.scale is None,
        )


def written_mechanism(mechanism: DistributedMechanism) -> int | tuple[str, float]:
    """A mechanism as it is announced."""
    if isinstance(mechanism, BinomialMechanism):
        return mechanism.coins
    return mechanism.name, mechanism.amount


def read_mechanism(written: int | tuple[str, float]) -> DistributedMechanism:
    """The mechanism that is announced; TypeError or ValueError if there is none."""
    if isinstance(written, int):
        return BinomialMechanism(written)
    return mechanism_of(*written)


def same_in(struct: type[msgspec.Struct], kind: type[DataclassInstance]) -> tuple[str, ...]:
    """The names that an announcement and what it announces have in common."""
    known = {each.name for each in fields(kind)}
    return tuple(name for name in struct.__struct_fields__ if name in known)


def taken(source: object, names: Iterable[str]) -> dict[str, Any]:
    """The values of these names, as keywords."""
    return {name: getattr(source, name) for name in names}
