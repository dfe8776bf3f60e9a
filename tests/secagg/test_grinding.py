"""How often a server may try another ring, and what a round's failure comes to."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pairwise_rounds as kit
import pytest

from secagg import Mode, ParameterError
from secagg.grinding import (
    CLOCK_SKEW_SECONDS,
    LARGEST_LIFETIME_SECONDS,
    MOST_TRIES,
    TRIES_PER_SECOND,
    most_tries,
    ring_failure,
)
from secagg.pairwise.graph_parameters import Adversary, GraphParameters, choose_graph

OPENED = 1_750_000_000


def test_the_longer_a_round_lives_the_more_rings_are_tried() -> None:
    tries = [most_tries(seconds) for seconds in (1, 60, 3600, 86_400, LARGEST_LIFETIME_SECONDS)]
    assert tries == sorted(tries)
    assert tries[0] == TRIES_PER_SECOND * (1 + CLOCK_SKEW_SECONDS)
    # No expiry is worse than the longest one.
    assert tries[-1] < most_tries(0) == MOST_TRIES


@pytest.mark.parametrize("clients", [10, 1000, 1 << 20])
@pytest.mark.parametrize("bits", [40, 80, 160])
def test_the_failure_is_the_sum_of_its_terms(clients: int, bits: int) -> None:
    """Corrupt neighbours, connectivity, two stretches, committee; each for every ring tried."""
    one = Fraction(2, 2 ** (bits + 1)) + Fraction(clients, 2 ** (bits + 2)) + Fraction(1, 2**bits)
    for lifetime in (0, 3600):
        found = ring_failure(clients, bits, lifetime, active=True)
        assert found == pytest.approx(min(1.0, float(one * Fraction(most_tries(lifetime)))))
    assert ring_failure(clients, bits, 0, active=False) == 2.0**-bits


def test_forty_bits_are_nothing_to_a_server_that_tries() -> None:
    assert ring_failure(1000, 40, 3600, active=True) == 1.0
    assert 1e-7 < ring_failure(1000, 80, 3600, active=True) < 1e-6
    assert ring_failure(1000, 104, 3600, active=True) < 1e-13


@pytest.mark.parametrize(
    ("corrupt", "dropout", "degrees"), [(0.05, 0.1, (78, 94)), (0.1, 0.1, (96, 120))]
)
def test_what_eighty_bits_cost(corrupt: float, dropout: float, degrees: tuple[int, int]) -> None:
    shares = (1000, corrupt, dropout, Adversary.SEMI_MALICIOUS)
    assert tuple(choose_graph(*shares, security_bits=b).degree for b in (40, 80)) == degrees
    assert choose_graph(*shares).degree == degrees[1]


@pytest.mark.parametrize("bits", [0, -1, 161, 80.0, True])
def test_bits_that_no_graph_has(bits: Any) -> None:
    with pytest.raises(ParameterError, match=r"security_bits.*1 \.\. 160"):
        choose_graph(1000, 0.1, 0.1, Adversary.SEMI_HONEST, security_bits=bits)
    with pytest.raises(ParameterError, match=r"^security_bits = "):
        kit.context(6, security_bits=bits)


@pytest.fixture
def ring() -> Callable[..., Any]:
    """A ring of 400 clients of which 40 are corrupt, with the degree that its bits need."""

    def make(bits: int, **changes: Any) -> Any:
        chosen = choose_graph(400, 0.1, 0.05, Adversary.SEMI_MALICIOUS, security_bits=bits)
        fixed = {"degree": chosen.degree, "threshold": chosen.threshold, "security_bits": bits}
        fixed |= {"tolerated_colluders": 40, "minimum_survivors": 380}
        return kit.context(400, **{**fixed, **changes})

    return make


def test_a_context_says_what_its_ring_may_fail_with(ring: Callable[..., Any]) -> None:
    forever, hour = ring(80), ring(80, opened_at=OPENED, lifetime_seconds=3600)
    assert forever.ring_failure() == ring_failure(400, 80, 0, active=True)
    assert hour.ring_failure() == ring_failure(400, 80, 3600, active=True) < 1e-6
    # A client without a clock does not know when an hour is over.
    assert hour.ring_failure(keeps_time=False) == forever.ring_failure()


def test_the_complete_graph_has_no_ring_to_fail() -> None:
    assert kit.context(6, security_bits=1).ring_failure() == 0.0


def test_a_curious_server_takes_the_first_ring() -> None:
    context = kit.context(300, Mode.SEMI_HONEST, degree=40, threshold=30, minimum_survivors=280)
    assert context.ring_failure() == 2.0**-80


def test_a_graph_of_forty_bits_is_refused_where_eighty_are_said(ring: Callable[..., Any]) -> None:
    weak = ring(40)
    assert math.isclose(weak.ring_failure(), 1.0)
    with pytest.raises(ParameterError, match="80 bits of security"):
        ring(80, degree=weak.degree, threshold=weak.threshold)
    assert GraphParameters(weak.degree, weak.threshold) != choose_graph(
        400, 0.1, 0.05, Adversary.SEMI_MALICIOUS
    )


def test_fewer_bits_make_a_smaller_committee(ring: Callable[..., Any]) -> None:
    assert ring(40).committee(400).quorum < ring(80).committee(400).quorum
