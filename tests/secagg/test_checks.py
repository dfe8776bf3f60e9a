"""Ranges: what they hold, what they say, and what a file is told."""

from __future__ import annotations

import math

import pytest

from secagg import ParameterError
from secagg.checks import Range, whole

SHARE = Range(0, 1, "(]")


@pytest.mark.parametrize(
    ("known", "held", "refused", "words"),
    [
        (whole(2, 5), [2, 5], [1, 6, 2.0, True, "2", None], "an int in 2 .. 5"),
        (whole(1), [1, 10**400], [0, math.inf], "an int of at least 1"),
        (SHARE, [1, 1e-300, 0.5], [0, 1.1, math.nan, True, "1"], r"a number in (0, 1]"),
        (Range(0), [0.0, 1e308], [-1e-9, math.inf, 10**400], r"a number in [0, inf]"),
        (Range(0, 1, "[)"), [0], [1], r"a number in [0, 1)"),
    ],
)
def test_a_range_holds_its_numbers_only(
    known: Range, held: list[object], refused: list[object], words: str
) -> None:
    for value in held:
        known.require("figure", value)
    for value in refused:
        with pytest.raises(ParameterError) as caught:
            known.require("figure", value, ", as planned")
        assert str(caught.value) == f"figure = {value!r}: must be {words}, as planned"


def test_a_file_has_the_same_limits() -> None:
    assert whole(2, 5).limits == {"ge": 2, "le": 5}
    assert whole(2).limits == {"ge": 2}
    assert SHARE.limits == {"gt": 0, "le": 1, "allow_inf_nan": False}
    assert Range(0, 1, "[)").limits == {"ge": 0, "lt": 1, "allow_inf_nan": False}
