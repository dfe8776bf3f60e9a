"""Errors that arise where the parts are joined."""

from __future__ import annotations

from typing import Any

from secagg import LocalProtocolError


class ConfigurationError(ValueError):
    """A configuration key is unknown or its value infeasible: names the key and what is valid."""

    def __init__(self, key: str, problem: str, valid: str) -> None:
        super().__init__(f"{key}: {problem}; valid: {valid}")
        self.key = key
        self.problem = problem
        self.valid = valid

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling between processes."""
        return type(self), (self.key, self.problem, self.valid)


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
