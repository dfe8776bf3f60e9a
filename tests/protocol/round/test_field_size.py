"""The field of a round: exact, or but for a stated probability."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from round_kit import make_setup
from scipy import stats

from dp import BinomialMechanism, DiscreteGaussianMechanism, SkellamMechanism
from dp.mechanisms import DistributedMechanism
from protocol.round.field_size import MAX_WRAP_PROBABILITY, bits_for, largest_sum
from secagg import PrimeField


@dataclass(frozen=True)
class Vector:
    """What a round says of one client's vector."""

    linf_bound: int
    coins: int
    length: int
    wrap_probability: float = 0.0
    returned: None = None

    @property
    def mechanism(self) -> BinomialMechanism:
        return BinomialMechanism(self.coins)


COARSE = Vector(linf_bound=3, coins=400, length=1000)


@pytest.mark.parametrize(("coins", "half"), [(400, 200), (401, 201)])
def test_an_exact_field_holds_the_largest_sum_and_no_smaller_one_does(
    coins: int, half: int
) -> None:
    vector, largest = replace(COARSE, coins=coins), 20 * (3 + half)
    assert largest_sum(vector, 20) == largest
    bits = bits_for(vector, 20)
    assert PrimeField(bits).largest_centred >= largest > PrimeField(bits - 1).largest_centred


def test_removable_batches_reach_further() -> None:
    assert largest_sum(COARSE, 20, 3) == largest_sum(COARSE, 20) + 20 * 2


@pytest.mark.parametrize("probability", [1e-6, 1e-9, 1e-30])
def test_a_likely_field_is_exceeded_less_often_than_stated(probability: float) -> None:
    """By the exact law of the coins, with all clients at the coordinate clip."""
    for coins in (50, 401, 30_000):
        vector = replace(COARSE, coins=coins, wrap_probability=probability)
        reach = largest_sum(vector, 20) - 20 * 3
        total = 20 * coins
        beyond = 2.0 * stats.binom.sf(total / 2 + reach - 20 / 2, total, 0.5)
        assert vector.length * beyond <= probability
        assert reach <= total


def test_a_likely_field_is_smaller_and_never_larger() -> None:
    likely = replace(COARSE, coins=1_000_000, wrap_probability=1e-9)
    exact = replace(likely, wrap_probability=0.0)
    assert bits_for(likely, 50) <= bits_for(exact, 50) - 8
    for coins in (0, 1, 2, 7):
        few = replace(likely, coins=coins)
        assert largest_sum(few, 50) <= largest_sum(replace(few, wrap_probability=0.0), 50)


@pytest.mark.parametrize("mechanism", [SkellamMechanism(100.0), DiscreteGaussianMechanism(100.0)])
def test_unbounded_noise_has_likely_fields_only(mechanism: DistributedMechanism) -> None:
    """The tail of a normal law of the same variance, which theirs is near here, is within it."""
    parameters = make_setup(mechanism=mechanism, wrap_probability=1e-9).parameters
    reach = largest_sum(parameters, 20) - 20 * parameters.linf_bound
    tail = 2 * parameters.length * stats.norm.sf(reach / np.sqrt(20 * 100.0))
    assert 1e-12 < tail <= 1e-9
    # Drawn in parts it is the same noise.
    assert largest_sum(parameters, 20, 3) == largest_sum(parameters, 20)


def test_sums_wrap_as_often_as_a_field_of_the_likely_size_lets_them() -> None:
    """The broken twin: without the logarithm of the length the field is too small."""
    probability, clients, coins, length = MAX_WRAP_PROBABILITY, 10, 1000, 200_000
    vector = Vector(0, coins, length, probability)
    reach = largest_sum(vector, clients)
    rng = np.random.default_rng(7)
    sums = rng.binomial(clients * coins, 0.5, length) - clients * coins // 2
    assert np.abs(sums).max() <= reach
    # Hoeffding for one coordinate at probability 1: about one standard deviation.
    assert np.abs(sums).max() > np.sqrt(clients * coins / 2.0 * np.log(2.0))


def test_rounds_accept_the_likely_field_only_if_they_say_so() -> None:
    likely = make_setup(coins=20_000, wrap_probability=1e-9)
    exact = make_setup(coins=20_000)
    assert likely.context.bits < exact.context.bits
    with pytest.raises(Exception, match="bits"):
        make_setup(coins=20_000, bits=likely.context.bits)
