"""Who is lost in a round, and how many must be left at each of its stages."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from secagg import Mode, ParameterError, TooFewSurvivorsError


class Stage(enum.IntEnum):
    """The message that a lost client never sends; it sent all before."""

    ADVERTISE = 0
    SHARE = 1
    INPUT = 2
    CONFIRM = 3
    UNMASK = 4
    RECOVER = 5

    def __str__(self) -> str:
        return self.name.lower()


def stages_of(mode: Mode) -> tuple[Stage, ...]:
    """The stages of a round, in order."""
    return tuple(stage for stage in Stage if mode is Mode.ACTIVE or stage is not Stage.CONFIRM)


Dropouts = Mapping[int, Stage]
"""For each lost party, the first message that it does not send."""

NOBODY: Dropouts = MappingProxyType({})
"""The dropouts of a round that loses nobody."""


def check_dropouts(dropouts: Dropouts, size: int) -> None:
    """See that a schedule of losses is one, before anybody is asked for anything."""
    if not isinstance(dropouts, Mapping):
        valid = "a mapping from indices in the cohort to stages"
        raise ParameterError("dropouts", f"of type {type(dropouts).__name__}", valid)
    for index, stage in dropouts.items():
        if not isinstance(stage, Stage):
            valid = ", ".join(f"Stage.{each.name}" for each in Stage)
            raise ParameterError(f"dropouts[{index!r}]", stage, valid)
        if index not in range(size):
            raise ParameterError("dropouts", index, f"indices in the cohort, 0 .. {size - 1}")


def left_after(size: int, dropouts: Dropouts, stage: Stage) -> tuple[int, ...]:
    """Parties that still send the message of a stage."""
    gone = {index for index, lost in dropouts.items() if lost <= stage}
    return tuple(index for index in range(size) if index not in gone)


def require_left(stage: Stage, left: int, needed: int) -> None:
    """See that enough parties are left; `TooFewSurvivorsError` if not."""
    if left < needed:
        raise TooFewSurvivorsError(str(stage), left, needed)
