"""What can be wrong with a file of a data set."""

from __future__ import annotations

import enum
from typing import Any

from protocol.errors import ConfigurationError


class DataProblem(enum.Enum):
    """Why a data set was refused: one member for each kind of cause."""

    NO_FOLDER = "nobody said where the data sets are"
    MISSING = "a file is not there"
    CHECKSUM = "a file is not the version that is expected"
    TRUNCATED = "a file ends early"
    FORMAT = "a file is not in its format"
    COUNT = "parts that belong together differ in length"


class DataError(ConfigurationError):
    """A data set cannot be read: names the file, what is wrong with it and what would be right.

    Args:
        subject: the file, or the setting, that is at fault.
        problem: the kind of cause.
        detail: what was found.
        valid: what would be accepted, and where to get it.
    """

    def __init__(self, subject: str, problem: DataProblem, detail: str, valid: str) -> None:
        super().__init__(subject, detail, valid)
        self.reason = problem

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling between processes."""
        return DataError, (self.key, self.reason, self.problem, self.valid)
