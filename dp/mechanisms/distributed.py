"""The mechanisms of a round: every client adds its own share of the noise.

Each is made of one number, its ``amount``, in its ``unit`` per coordinate of one client, and known
by its ``name`` in configurations, on the wire and in ledgers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from dp.mechanisms.binomial import BinomialMechanism
from dp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
from dp.mechanisms.skellam import SkellamMechanism

MechanismName: TypeAlias = Literal["binomial", "skellam", "discrete-gaussian"]

DistributedMechanism: TypeAlias = BinomialMechanism | SkellamMechanism | DiscreteGaussianMechanism

MECHANISMS: Final[Mapping[str, type[DistributedMechanism]]] = MappingProxyType(
    {each.name: each for each in (BinomialMechanism, SkellamMechanism, DiscreteGaussianMechanism)}
)
"""The mechanisms of a round, by their names."""


def mechanism_of(name: str, amount: Any) -> DistributedMechanism:
    """Return the mechanism of a name with an amount."""
    if name not in MECHANISMS:
        raise ValueError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}")
    return MECHANISMS[name](amount)
