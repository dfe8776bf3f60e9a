"""The table `[local_dp]` of a run whose clients make their own reports private."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dp.local.two_stage import KEPT_SHARE, SELECTION_SHARE
from protocol.planning.configuration import Section

SAMPLE_SHARE = 0.005
"""Share of coordinates (r) that sqSGD sends where nothing else is said: the paper's."""

LEVELS = 16
"""Number of levels (K) of sqSGD where nothing else is said: the paper's."""

COORDINATES = {"bound", "epsilon_report"}

KEYS: Mapping[str, set[str]] = {
    "piecewise": COORDINATES,
    "hybrid": COORDINATES,
    "cross_polytope": {"epsilon_report", "repeats"},
    "sqsgd": {*COORDINATES, "levels", "sample_share", "through"},
    "fedsel": {*COORDINATES, "selector", "selection_share", "kept_share", "momentum"},
}
"""The keys of each algorithm; the others belong to other algorithms."""


class LocalDp(Section):
    """The local randomiser and its figures.

    What is left out has the algorithm's own default. A key that the algorithm does not have is
    refused rather than ignored, because whoever wrote it expects an effect.
    """

    algorithm: Literal["piecewise", "hybrid", "cross_polytope", "sqsgd", "fedsel"] = Field(
        description="how a client makes its report private"
    )
    epsilon_report: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="epsilon of one report; if left out, as much as privacy.epsilon allows",
    )
    bound: float | None = Field(
        default=None,
        gt=0,
        description="clip of a coordinate, in units of an update; privacy.clip_l2 if left out",
    )
    repeats: int | None = Field(
        default=None, ge=1, description="number of points that a report averages; 1 if left out"
    )
    levels: int | None = Field(
        default=None,
        ge=2,
        le=256,
        description=f"number of levels (K) of a coordinate; {LEVELS} if left out",
    )
    sample_share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description=f"share of the coordinates that are sent; {SAMPLE_SHARE:g} if left out",
    )
    through: Literal["server", "secure_sum"] | None = Field(
        default=None,
        description="who adds up the integers: the server, or the secure sum; the server if left "
        "out",
    )
    selector: Literal["exponential", "encoding", "sampling"] | None = Field(
        default=None,
        description="how a coordinate is chosen: EXP, PE or PS of the paper; PS, sampling, if "
        "left out",
    )
    selection_share: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="share of a report's epsilon for choosing a coordinate; "
        f"{SELECTION_SHARE:g} if left out",
    )
    kept_share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description=f"share of the coordinates that count as large; {KEPT_SHARE:g} if left out",
    )
    momentum: float | None = Field(
        default=None, ge=0, lt=1, description="momentum on the client; 0 if left out"
    )

    @field_validator("*")
    @classmethod
    def _belongs(cls, value: object, info: ValidationInfo) -> object:
        algorithm = info.data.get("algorithm")
        if algorithm is None or value is None or info.field_name in KEYS[algorithm]:
            return value
        raise PydanticCustomError(
            "foreign_parameter",
            "left out: {algorithm} has only {known}",
            {"algorithm": algorithm, "known": ", ".join(sorted(KEYS[algorithm]))},
        )
