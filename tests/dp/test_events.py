"""Events are immutable, self-validating, and printed with their adjacency."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from dp import epsilons
from dp.accounting.base import law_of
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event, IntegerRelease, NoisyRelease, PureRelease
from dp.events import (
    Adjacency,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    FixedSizeSampled,
    GaussianRelease,
    NonPrivateRelease,
    SkellamRelease,
    leaves,
    replace_one,
)
from dp.protection import own_noise

RELEASE = BinomialRelease(1024, 16.0, 16, 10)


def test_adjacency_prints_as_a_sentence() -> None:
    assert str(Adjacency.ZERO_OUT).startswith("zero-out: ")


def test_events_are_frozen_and_hashable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RELEASE.coins = 2**20  # type: ignore[misc]
    assert len({RELEASE, BinomialRelease(1024, 16.0, 16, 10), NonPrivateRelease()}) == 2


def test_compositions_flatten_in_order() -> None:
    inner = Composition((RELEASE, NonPrivateRelease()))
    assert list(leaves(Composition((inner, RELEASE)))) == [RELEASE, NonPrivateRelease(), RELEASE]


def test_a_sampled_event_is_one_leaf() -> None:
    sampled = FixedSizeSampled(10, 40, RELEASE)
    assert list(leaves(Composition((sampled, RELEASE)))) == [sampled, RELEASE]
    assert sampled.rate == 0.25


def test_what_every_noise_can_answer() -> None:
    assert BinomialRelease(7, 1.0, 1, 1).noise_variance == 1.75
    assert BinomialRelease(1 << 2000, 1.0, 1, 1).noise_variance == math.inf
    assert DiscreteGaussianRelease(2.5, 4, 1.0, 1, 1).noise_variance == 10.0
    assert SkellamRelease(2.5, 1.0, 1, 1).noise_variance == 2.5
    assert GaussianRelease(3.0, 1.0).noise_variance == 9.0
    assert SkellamRelease(2.5, 0.9, 1, 1).is_silent
    assert not GaussianRelease(3.0, 0.9).is_silent


def test_noise_without_a_table_is_refused_by_name() -> None:
    class Other(IntegerRelease):
        l2_sensitivity = 1.0
        noise_variance = 1.0

    with pytest.raises(UnsupportedEventError, match="no table is known"):
        law_of(Other())


@pytest.mark.parametrize("thing", [None, 5, "binomial"])
def test_what_is_no_event_is_refused_as_such(thing: Any) -> None:
    with pytest.raises(UnsupportedEventError, match="no event"):
        replace_one(thing)
    with pytest.raises(UnsupportedEventError, match="no event"):
        own_noise(thing, 2)
    with pytest.raises(UnsupportedEventError):
        epsilons([thing], 1e-6, Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("kind", [NoisyRelease, PureRelease])
def test_kinds_of_events_are_no_events(kind: type[Event]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()
