"""The table `[local_dp]` of a run whose clients make their own reports private."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from protocol.planning.configuration import Section

COORDINATES = {"bound", "epsilon_report"}

KEYS: Mapping[str, set[str]] = {
    "piecewise": COORDINATES,
    "hybrid": COORDINATES,
    "cross_polytope": {"epsilon_report", "repeats"},
    "sqsgd": {*COORDINATES, "levels", "sample_share", "through"},
    "fedsel": {
        *COORDINATES,
        "selector",
        "selection_share",
        "kept_share",
        "momentum",
    },
}
"""What each algorithm can be told; the rest belongs to others."""


class LocalDp(Section):
    """The local randomiser and its figures.

    What is left out has the algorithm's own default. A key that the algorithm does not have is
    refused: it would be ignored, and somebody meant something by it.
    """

    algorithm: Literal["piecewise", "hybrid", "cross_polytope", "sqsgd", "fedsel"]
    epsilon_report: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="of one report; if left out, what privacy.epsilon allows for all of a client's",
    )
    bound: float | None = Field(
        default=None,
        gt=0,
        description="clip of a coordinate, in units of an update; privacy.clip_l2 if left out",
    )
    repeats: int | None = Field(default=None, ge=1, description="reports of cross_polytope")
    levels: int | None = Field(default=None, ge=2, le=256, description="K of sqsgd")
    sample_share: float | None = Field(
        default=None, gt=0, le=1, description="coordinates that sqsgd sends, of all"
    )
    through: Literal["server", "secure_sum"] | None = Field(
        default=None, description="who adds up the integers of sqsgd"
    )
    selector: Literal["exponential", "encoding", "sampling"] | None = Field(
        default=None, description="EXP, PE or PS"
    )
    selection_share: float | None = Field(
        default=None, gt=0, lt=1, description="of a report's epsilon, for choosing a coordinate"
    )
    kept_share: float | None = Field(
        default=None, gt=0, le=1, description="coordinates that count as large, of all"
    )
    momentum: float | None = Field(default=None, ge=0, lt=1, description="on the client")

    @field_validator("*")
    @classmethod
    def _belongs(cls, value: object, info: ValidationInfo) -> object:
        algorithm = info.data.get("algorithm")
        if algorithm is None or value is None or info.field_name in KEYS[algorithm]:
            return value
        raise PydanticCustomError(
            "foreign_parameter",
            "left out, as {algorithm} has {known} only",
            {"algorithm": algorithm, "known": ", ".join(sorted(KEYS[algorithm]))},
        )
