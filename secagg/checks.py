"""Ranges and types of parameters: a bound is written once, in the check and in what it says."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

from secagg.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Range:
    """The finite numbers of an interval, or the ints alone. Bools are neither, nor is NaN.

    Args:
        ends: whether the limits belong to it, as in "[]", "(]", "[)" and "()".
    """

    low: float
    high: float = math.inf
    ends: str = "[]"
    whole: bool = False

    def require(self, name: str, value: Any, of: str = "") -> None:
        """Raise `ParameterError` unless it holds a value; `of` says what the limits are of."""
        if not self._holds(value):
            raise ParameterError(name, value, f"{self}{of}")

    def _holds(self, value: Any) -> bool:
        if self.whole:
            return type(value) is int and self.low <= value <= self.high
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        above = value >= self.low if self.ends[0] == "[" else value > self.low
        below = value <= self.high if self.ends[1] == "]" else value < self.high
        # An int that is too large for a float can be compared with one all the same.
        return above and below and abs(value) <= sys.float_info.max

    def __str__(self) -> str:
        if not self.whole:
            return f"a number in {self.ends[0]}{self.low:g}, {self.high:g}{self.ends[1]}"
        if self.high == math.inf:
            return f"an int of at least {self.low}"
        return f"an int in {self.low} .. {self.high}"

    @property
    def limits(self) -> dict[str, Any]:
        """The same as keywords of a pydantic field."""
        found: dict[str, Any] = {"ge" if self.ends[0] == "[" else "gt": self.low}
        if self.high < math.inf:
            found["le" if self.ends[1] == "]" else "lt"] = self.high
        return found if self.whole else {**found, "allow_inf_nan": False}


def whole(low: int, high: float = math.inf) -> Range:
    """The ints from `low` to `high`."""
    return Range(low, high, whole=True)


def require_int(name: str, value: object, low: int, high: float = math.inf, of: str = "") -> None:
    """Raise `ParameterError` unless a value is an int of `low` .. `high`."""
    whole(low, high).require(name, value, of)


def require_ints(terms: object, *names: str) -> None:
    """Raise `ParameterError` unless these attributes are ints, and neither bools nor NumPy's.

    What is hashed has one encoding, so nothing that only equals an int is taken for one.
    """
    for name in names:
        if type(getattr(terms, name)) is not int:
            raise ParameterError(name, getattr(terms, name), "an int")
