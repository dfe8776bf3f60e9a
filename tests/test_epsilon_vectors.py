"""Frozen epsilons: ours are what the file says, and none is below what is independently known."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from vector_files import load

from dp import Adjacency, GaussianReference
from dp.accounting.base import EventCounter
from dp.records import decode_event
from dp.report import under

vectors = load("epsilons")
ROWS = json.loads(vectors.FILE.read_text())
ADJACENCIES = {each.value.partition(":")[0]: each for each in Adjacency}


def replayed(row: dict[str, Any], kind: type[EventCounter]) -> float:
    """Epsilon of a row by an accountant."""
    adjacency = ADJACENCIES[row["adjacency"]]
    if adjacency is kind.adjacency:
        adjacency = Adjacency.ZERO_OUT  # the event as it is
    accountant = kind()
    for event, count in under(adjacency, [(decode_event(row["event"]), row["count"])]):
        accountant.compose(event, count)
    return accountant.epsilon(row["delta"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['accountant']}-{row['event']['tag']}")
def test_our_epsilon_is_the_stored_one_and_not_below_what_is_known(row: dict[str, Any]) -> None:
    epsilon = replayed(row, vectors.ACCOUNTANTS[row["accountant"]])
    assert epsilon == pytest.approx(float(row["epsilon"]), rel=1e-9)
    if row["lower"] is not None:
        assert epsilon >= float(row["lower"])


def test_a_figure_that_is_no_bound_is_found_out() -> None:
    """Gaussian noise of equal variance is below what coins, and rough Gaussians, really cost."""
    asked = [row for row in ROWS if row["event"]["tag"] in ("binomial", "discrete-gaussian")]
    below = [row for row in asked if replayed(row, GaussianReference) < float(row["lower"])]
    assert {row["event"]["tag"] for row in below} == {"binomial", "discrete-gaussian"}


def test_the_file_has_every_accountant_and_little_without_a_lower_value() -> None:
    assert {row["accountant"] for row in ROWS} == set(vectors.ACCOUNTANTS)
    assert {row["event"]["tag"] for row in ROWS if row["lower"] is None} == {"above-threshold"}
    assert len(ROWS) >= 40


@pytest.mark.slow
def test_the_file_is_what_its_script_writes() -> None:
    made = vectors.rows()
    assert len(made) == len(ROWS)
    for new, old in zip(made, ROWS, strict=True):
        for name in ("epsilon", "lower"):
            one, other = new.pop(name), old[name]
            assert one == other or math.isclose(one, other, rel_tol=1e-9), old
        assert new.items() <= old.items()
