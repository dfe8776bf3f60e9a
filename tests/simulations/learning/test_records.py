"""Rates of several rounds together, over a run and over its second half."""

from __future__ import annotations

from typing import Any

import pytest

from simulations.learning.records import average_rate, second_half


def records_of(*sizes: int) -> list[dict[str, Any]]:
    return [{"dimension": 100, "sketch_size": size} for size in sizes]


def test_rates_are_averaged_by_what_is_sent() -> None:
    # The mean of the rates would be 2.5.
    assert average_rate(records_of(100, 25)) == pytest.approx(1.6)
    assert average_rate(records_of(20)) == 5.0


@pytest.mark.parametrize(("sizes", "rate"), [((10,), 10.0), ((100, 10), 10.0), ((100, 20, 5), 8.0)])
def test_of_an_odd_number_the_round_in_the_middle_counts_too(
    sizes: tuple[int, ...], rate: float
) -> None:
    assert average_rate(second_half(records_of(*sizes))) == rate
