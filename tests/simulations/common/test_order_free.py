"""Sums that do not depend on the order: exact pieces, and what has no sum."""

from __future__ import annotations

from fractions import Fraction
from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations.common._kernels import LARGEST
from simulations.common.order_free import OrderFreeSum

numbers = st.floats(-1e6, 1e6, allow_subnormal=True)
tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1)
)


def summed(rows: np.ndarray, width: int) -> OrderFreeSum:
    total = OrderFreeSum(width)
    for row in rows:
        total.add(row)
    return total


@given(table=tables, seed=st.integers(0, 1000), parts=st.integers(1, 4))
def test_every_order_and_every_division_give_the_same_bits(
    table: list[list[float]], seed: int, parts: int
) -> None:
    rows = np.array(table)
    width = rows.shape[1]
    whole = summed(rows, width)
    shuffled = np.random.default_rng(seed).permutation(rows)
    merged = OrderFreeSum(width)
    for part in range(parts):
        merged.merge(summed(shuffled[part::parts], width))
    assert merged.pieces.tobytes() == whole.pieces.tobytes()
    for column, found in zip(rows.T, whole.total, strict=True):
        exact = sum(map(Fraction, column.tolist()), Fraction(0))
        # Half a unit of the last piece for each number, and the rounding of the whole.
        room = len(column) * 2.0**-65 + abs(exact) * 2.0**-52
        assert abs(Fraction(float(found)) - exact) <= room


def test_a_plain_sum_depends_on_the_order() -> None:
    """The control: additions that round have an order."""
    rows = np.array([[1e8], [1e-8], [-1e8], [3e-9]])
    plain = {float(np.sum(rows[order])) for order in ([0, 1, 2, 3], [0, 2, 1, 3], [1, 3, 0, 2])}
    ours = {float(summed(rows[order], 1).total[0]) for order in ([0, 1, 2, 3], [0, 2, 1, 3])}
    assert len(plain) > 1 and len(ours) == 1
    assert ours.pop() == pytest.approx(fsum(rows[:, 0]), abs=1e-18)


def test_updates_of_single_precision_are_added_exactly() -> None:
    rows = np.random.default_rng(4).normal(size=(1000, 7)).astype(np.float32)
    found = summed(rows, 7).total
    assert found.tolist() == [fsum(column) for column in rows.T.astype(float)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights(dtype: type[np.floating]) -> None:
    total = OrderFreeSum(2)
    total.add(np.array([0.5, -3.0], dtype), 0.25)
    assert total.total.tolist() == [0.125, -0.75]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, LARGEST, -LARGEST, 1e300])
def test_what_has_no_sum_makes_its_coordinate_nan(bad: float) -> None:
    total = OrderFreeSum(3)
    total.add(np.array([1.0, bad, 2.0]))
    total.add(np.ones(3))
    assert np.isnan(total.total).tolist() == [False, True, False]


def test_the_largest_numbers_that_have_one_are_exact() -> None:
    largest = np.nextafter(LARGEST, 0.0)
    total = OrderFreeSum(1)
    for _ in range(1000):
        total.add(np.array([largest]))
        total.add(np.array([-largest]))
    assert total.total[0] == 0.0
