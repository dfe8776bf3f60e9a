"""Events to JSON and back, and nothing else from JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp.errors import LedgerError, UnsupportedEventError
from dp.event_kinds import Event
from dp.events import (
    Allocated,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    FixedSizeSampled,
    GaussianRelease,
    LevelRelease,
    LocalRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
)
from dp.records import _FIELDS, canonical_json, decode_event, encode_event

RELEASE = {
    "tag": "binomial",
    "coins": 10,
    "l2_sensitivity": 2.0,
    "linf_sensitivity": 2,
    "dimension": 3,
}

releases = st.builds(
    BinomialRelease,
    coins=st.integers(0, 2**40),
    l2_sensitivity=st.floats(0.0, 1e12),
    linf_sensitivity=st.integers(1, 2**24),
    dimension=st.integers(1, 2**40),
)
sizes, integers = st.floats(0.0, 1e12), st.integers(1, 2**40)
rates = st.floats(1e-9, 0.5)
noisy = (
    releases
    | st.builds(DiscreteGaussianRelease, sizes, st.integers(0, 2**40), sizes, integers, integers)
    | st.builds(SkellamRelease, sizes, sizes, integers, integers)
    | st.builds(GaussianRelease, sizes, sizes)
)
simple = (
    noisy
    | st.just(NonPrivateRelease())
    | st.builds(LocalRelease, st.floats(1e-9, 1e9))
    | st.builds(
        LevelRelease,
        integers,
        rates,
        st.integers(2, 99),
        st.floats(0.1, 9.0),
        integers,
        st.booleans(),
    )
    | st.builds(PoissonSampled, rates, noisy)
    | st.builds(Allocated, integers, noisy)
    | st.builds(FixedSizeSampled, st.integers(1, 50), st.integers(50, 99), noisy)
)
events = st.recursive(
    simple,
    lambda parts: st.builds(Composition, st.lists(parts, min_size=1, max_size=3).map(tuple)),
    max_leaves=6,
)


WRITTEN = {
    "binomial": "coins l2_sensitivity linf_sensitivity dimension",
    "discrete-gaussian": "local_variance contributors l2_sensitivity linf_sensitivity dimension",
    "skellam": "variance l2_sensitivity linf_sensitivity dimension",
    "gaussian": "sigma l2_sensitivity",
    "laplace": "scale sensitivity",
    "above-threshold": "threshold_scale query_scale sensitivity",
    "local": "epsilon",
    "levels": "coins probability levels norm dimension rotated",
    "non-private": "",
    "correlated-gaussian": "index fresh_variance returned_variance l2_sensitivity dimension rounds "
    "least_fresh largest_return smallest_part most_parts least_kept",
    "poisson-sampled": "rate event",
    "fixed-size-sampled": "size population event",
    "allocated": "rounds event",
    "composition": "parts",
}


def test_ledgers_of_old_can_be_read() -> None:
    # A renamed or added field of an event would change the format of the ledger.
    assert {tag: " ".join(fields) for tag, fields in _FIELDS.items()} == WRITTEN


@given(events)
def test_round_trip_through_text(event: Event) -> None:
    record = json.loads(canonical_json(encode_event(event)))
    try:
        assert decode_event(record) == event
    except LedgerError as error:
        assert "nested deeper" in str(error)


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        "binomial",
        {},
        {"tag": 3},
        {"tag": "os.system"},
        {**RELEASE, "tag": "dp.events.BinomialRelease"},
        {**RELEASE, "extra": 1},
        {key: value for key, value in RELEASE.items() if key != "coins"},
        {**RELEASE, "coins": -1},
        {**RELEASE, "coins": 1.0},
        {**RELEASE, "coins": "10"},
        {**RELEASE, "l2_sensitivity": math.inf},
        {**RELEASE, "l2_sensitivity": None},
        {"tag": "composition", "parts": []},
        {"tag": "composition", "parts": {}},
        {"tag": "composition", "parts": [{"tag": "unknown"}]},
        {"tag": "non-private", "parts": []},
        {"tag": "local", "epsilon": 0.0},
        {"tag": "local", "epsilon": 1},
        {"tag": "poisson-sampled", "rate": 0.5, "event": {"tag": "non-private"}},
        {"tag": "poisson-sampled", "rate": 0.5, "event": {"tag": "local", "epsilon": 1.0}},
        {"tag": "poisson-sampled", "rate": 1.5, "event": RELEASE},
        {"tag": "fixed-size-sampled", "size": 9, "population": 3, "event": RELEASE},
        {"tag": "fixed-size-sampled", "size": 1, "population": 3, "event": 7},
        {"tag": "allocated", "rounds": 0, "event": RELEASE},
        {"tag": "allocated", "rounds": 3, "event": {"tag": "non-private"}},
    ],
)
def test_everything_else_is_refused(record: Any) -> None:
    with pytest.raises(LedgerError):
        decode_event(record)


def test_deep_nesting_is_refused() -> None:
    record: dict[str, Any] = {"tag": "non-private"}
    for _ in range(20):
        record = {"tag": "composition", "parts": [record]}
    with pytest.raises(LedgerError, match="deeper"):
        decode_event(record)


def test_unregistered_events_have_no_record() -> None:
    with pytest.raises(UnsupportedEventError, match=r"Adjacency|int"):
        encode_event(3)  # type: ignore[arg-type]


def test_a_subclass_is_not_its_parent() -> None:
    class Sneaky(NonPrivateRelease):
        pass

    with pytest.raises(UnsupportedEventError, match="Sneaky"):
        encode_event(Sneaky())


def test_canonical_form() -> None:
    assert canonical_json({"b": 1, "a": [1.5, "é"]}) == b'{"a":[1.5,"\\u00e9"],"b":1}'
    with pytest.raises(ValueError, match=r"NaN|JSON"):
        canonical_json(math.nan)
