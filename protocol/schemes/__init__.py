"""The ways to an exact sum over survivors: the only place that maps their names to them."""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.schemes.one_shot import OneShot
from protocol.schemes.pairwise import Pairwise
from protocol.schemes.scheme import Scheme
from protocol.schemes.validated import Validated

SCHEMES: Mapping[str, type[Scheme]] = MappingProxyType(
    {each.KIND: each for each in (Pairwise, OneShot, Validated)}
)
"""By the name that configurations and the command line give them."""

__all__ = ["SCHEMES", "OneShot", "Pairwise", "Scheme", "Validated"]
