"""Errors that arise where the parts are joined."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

from secagg import LocalProtocolError

UNKNOWN: Final = "unknown key"
"""The problem of a key that no table has."""


class Remedy(Enum):
    """What mends a configuration, other than a value."""

    LEFT_OUT = "left out"


class ConfigurationError(ValueError):
    """A configuration key is unknown or its value infeasible: names the key and what is valid.

    Args:
        key: its place in the file, with dots.
        remedy: a value with which the problem is gone, `Remedy.LEFT_OUT`, or None if unknown.
        others: problems that were found together with this one; the message has them all.
    """

    def __init__(
        self,
        key: str,
        problem: str,
        valid: str,
        remedy: Any = None,
        others: tuple[ConfigurationError, ...] = (),
    ) -> None:
        super().__init__("\n".join([f"{key}: {problem}; valid: {valid}", *map(str, others)]))
        self.key = key
        self.problem = problem
        self.valid = valid
        self.remedy = remedy
        self.others = others

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling between processes."""
        return type(self), (self.key, self.problem, self.valid, self.remedy, self.others)

    @classmethod
    def together(cls, problems: Iterable[ConfigurationError]) -> ConfigurationError | None:
        """One error that tells of all; unknown keys first, as what is missing is often there."""
        found = sorted(problems, key=lambda each: each.problem != UNKNOWN)
        if not found:
            return None
        first, *others = found
        return cls(first.key, first.problem, first.valid, first.remedy, tuple(others))


class PolicyError(Exception):
    """A server announced parameters that this client's own policy does not accept."""

    def __init__(self, parameter: str, announced: object, acceptable: str) -> None:
        super().__init__(
            f"refused to join: the server announced {parameter} = {announced}, "
            f"this client accepts {acceptable}"
        )
        self.parameter = parameter
        self.announced = announced
        self.acceptable = acceptable

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling between processes."""
        return type(self), (self.parameter, self.announced, self.acceptable)


class RankFailedError(Exception):
    """Another of the processes that share a round ended it, by an error of its own."""

    def __init__(self, rank: int, size: int, problem: str) -> None:
        super().__init__(f"rank {rank} of {size} ended the round: {problem}")
        self.rank = rank
        self.size = size
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling between processes."""
        return type(self), (self.rank, self.size, self.problem)


class TrainingFailedError(LocalProtocolError):
    """The app's function raised, or answered training with something that is no model.

    Its own words may depend on the data. They are told to the client's operator and to nobody else.
    """
