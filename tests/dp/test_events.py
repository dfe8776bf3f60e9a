"""Events are immutable, self-validating, and printed with their adjacency."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dp.events import Adjacency, BinomialRelease, Composition, NonPrivateRelease, leaves

RELEASE = BinomialRelease(1024, 16.0, 16, 10)


def test_adjacency_prints_as_a_sentence() -> None:
    assert str(Adjacency.ZERO_OUT).startswith("zero-out: ")


def test_events_are_frozen_and_hashable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RELEASE.coins = 2**20  # type: ignore[misc]
    assert len({RELEASE, BinomialRelease(1024, 16.0, 16, 10), NonPrivateRelease()}) == 2


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("coins", -1, ValueError),
        ("coins", 1.5, TypeError),
        ("coins", True, TypeError),
        ("l2_sensitivity", -1.0, ValueError),
        ("l2_sensitivity", math.nan, ValueError),
        ("l2_sensitivity", math.inf, ValueError),
        ("l2_sensitivity", 3, TypeError),
        ("linf_sensitivity", 0, ValueError),
        ("linf_sensitivity", 1.0, TypeError),
        ("dimension", 0, ValueError),
    ],
)
def test_an_illegal_release_cannot_exist(field: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=field):
        dataclasses.replace(RELEASE, **{field: value})


def test_compositions_flatten_in_order() -> None:
    inner = Composition((RELEASE, NonPrivateRelease()))
    assert list(leaves(Composition((inner, RELEASE)))) == [RELEASE, NonPrivateRelease(), RELEASE]


@pytest.mark.parametrize(("parts", "error"), [((), ValueError), ([RELEASE], TypeError)])
def test_bad_compositions(parts: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="part"):
        Composition(parts)  # type: ignore[arg-type]
