"""Coins: exactly binomial, bit for bit reproducible, and centred as documented."""

from __future__ import annotations

import numpy as np
import pytest
from dp_statistics import ALPHA, binomial_p_value, mean_tolerance, variance_tolerance
from hypothesis import given, settings
from hypothesis import strategies as st

from dp.clipping import Bounded
from dp.coins import (
    POPCOUNT_COINS,
    Coins,
    add_coins,
    noise_limit,
    residual_offset,
    sample_binomial,
)
from dp.errors import SensitivityExceededError
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.noised import Noised
from dp.rounding import Quantized, quantize
from dp.sampling import BinomialLaw, sample_law

SAMPLES = 200_000


def _plain_python(seed: NoiseSeed, coins: int, length: int) -> list[int]:
    """The documented layout, one Python integer at a time."""
    if coins == 0:
        return [0] * length
    bits = next((b for b in (8, 16, 32, 64) if coins <= b), 64 * -(-coins // 64))
    raw = np.empty(length * bits // 8, dtype=np.uint8)
    Keystream(seed.derive(Usage.COINS)).fill(raw)
    data = raw.tobytes()
    size = bits // 8
    words = [int.from_bytes(data[i * size : (i + 1) * size], "little") for i in range(length)]
    return [(word & ((1 << coins) - 1)).bit_count() for word in words]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, POPCOUNT_COINS), st.integers(0, 50), st.binary(min_size=32, max_size=32))
def test_samples_follow_the_documented_layout(coins: int, length: int, material: bytes) -> None:
    seed = NoiseSeed(material)
    assert sample_binomial(seed, coins, length).tolist() == _plain_python(seed, coins, length)


@pytest.mark.parametrize("coins", [1, 8, 9, 16, 17, 32, 33, 63, 64, 65, 127, 128, 129])
def test_layout_at_word_edges_and_across_chunks(seed: NoiseSeed, coins: int) -> None:
    # More than one chunk of keystream, ending in the middle of one.
    length = 20_011
    assert sample_binomial(seed, coins, length).tolist() == _plain_python(seed, coins, length)


def test_coordinates_longer_than_a_chunk(seed: NoiseSeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dp.keystream.CHUNK_BYTES", 16)
    assert sample_binomial(seed, 250, 30).tolist() == _plain_python(seed, 250, 30)


def test_layout_changes_where_popcount_ends(seed: NoiseSeed) -> None:
    """The last number of coins that is counted, and the first that is drawn by inversion."""
    counted = sample_binomial(seed, POPCOUNT_COINS, 40)
    assert counted.tolist() == _plain_python(seed, POPCOUNT_COINS, 40)
    drawn = sample_binomial(seed, POPCOUNT_COINS + 1, 40)
    law = BinomialLaw(POPCOUNT_COINS + 1, 0.5)
    assert drawn.tolist() == sample_law(law, seed.derive(Usage.COINS), 40).tolist()


def test_vector_for_a_fixed_seed(seed: NoiseSeed) -> None:
    """Pinned: a change here breaks every client that must rebuild its noise."""
    assert sample_binomial(seed, 64, 12).tolist() == EXPECTED_64
    assert sample_binomial(seed, 1000, 8).tolist() == EXPECTED_1000
    assert sample_binomial(seed, 5, 12).tolist() == EXPECTED_5


@pytest.mark.statistical
@pytest.mark.parametrize("coins", [1, 7, 8, 14, 31, 64, 65, 100, 256])
def test_distribution_is_binomial(seed: NoiseSeed, coins: int) -> None:
    p_value = binomial_p_value(sample_binomial(seed, coins, SAMPLES), coins)
    assert p_value > ALPHA, f"p = {p_value:.3g}; a correct sampler fails with probability {ALPHA}"


@pytest.mark.statistical
@pytest.mark.parametrize("coins", [4000, 5000, 1 << 17])
def test_many_coins_have_the_right_mean_and_variance(seed: NoiseSeed, coins: int) -> None:
    count = (1 << 26) // coins
    samples = sample_binomial(seed, coins, count) - coins / 2
    assert abs(samples.mean()) <= mean_tolerance(np.sqrt(coins / 4), count)
    assert abs(samples.var() - coins / 4) <= variance_tolerance(coins / 4, count)


@pytest.mark.statistical
def test_neighbouring_coordinates_are_uncorrelated(seed: NoiseSeed) -> None:
    centred = sample_binomial(seed, 64, SAMPLES) - 32
    for lag in (1, 2, 3):
        product = centred[lag:] * centred[:-lag]
        assert abs(product.mean()) <= mean_tolerance(16.0, product.size)


@pytest.mark.statistical
@pytest.mark.parametrize("coins", [2, 64, 100])
def test_half_the_coins_would_be_rejected(seed: NoiseSeed, coins: int) -> None:
    assert binomial_p_value(sample_binomial(seed, coins // 2, SAMPLES), coins) < ALPHA


@pytest.mark.statistical
def test_one_stuck_bit_would_be_rejected(seed: NoiseSeed) -> None:
    stuck = sample_binomial(seed, 63, SAMPLES) + 1
    assert binomial_p_value(stuck, 64) < ALPHA


@pytest.mark.statistical
def test_one_missing_coin_would_be_rejected(seed: NoiseSeed) -> None:
    assert binomial_p_value(sample_binomial(seed, 63, SAMPLES), 64) < ALPHA


@pytest.mark.parametrize("coins", [0, 1, 2, 3, 64, 65])
def test_limits_and_offset(coins: int) -> None:
    assert noise_limit(coins) == max(coins - coins // 2, coins // 2)
    assert residual_offset(coins) == (0.5 if coins % 2 else 0.0)


@pytest.mark.parametrize("coins", [0, 1, 33, 64, 101])
def test_adding_coins_is_signal_plus_centred_noise(seed: NoiseSeed, coins: int) -> None:
    signal = Quantized(np.arange(-50, 50), 90_000, 50)
    noised = add_coins(signal, coins, seed)
    noise = noised.values - signal.values
    np.testing.assert_array_equal(noise, sample_binomial(seed, coins, 100) - coins // 2)
    assert np.abs(noise).max() <= noise_limit(coins)
    assert (noised.noise, noised.square_bound, noised.linf_bound) == (Coins(coins), 90_000, 50)
    assert not noised.values.flags.writeable


@pytest.mark.statistical
@pytest.mark.parametrize("coins", [1, 2, 63, 64])
def test_mean_of_the_noise_is_the_residual_offset(seed: NoiseSeed, coins: int) -> None:
    signal = Quantized(np.zeros(SAMPLES, dtype=np.int64), 1, 1)
    noise = add_coins(signal, coins, seed).values
    tolerance = mean_tolerance(np.sqrt(coins) / 2, SAMPLES)
    assert abs(noise.mean() - residual_offset(coins)) <= tolerance


def test_the_whole_client_path_in_one_line_each(seed: NoiseSeed) -> None:
    bounded = Bounded(np.linspace(-0.2, 0.2, 30), 1.0)
    noised = add_coins(quantize(bounded, 100.0, 30, seed), 64, seed)
    assert np.abs(noised.values - 100 * bounded.values).max() <= 33


def test_an_impossible_noised_vector_cannot_be_built() -> None:
    with pytest.raises(SensitivityExceededError):
        Noised(np.array([6]), Coins(4), 9, 3)
    with pytest.raises(SensitivityExceededError):
        Noised(np.array([-(2**63)]), Coins(4), 9, 3)
    assert Noised(np.array([5, -5]), Coins(4), 9, 3).noise == Coins(4)


def test_every_two_odd_batches_reach_one_further() -> None:
    assert [Coins(7, batches).noise_limit for batches in (1, 2, 3, 4)] == [4, 5, 5, 6]
    assert Coins(7).variance == 1.75


EXPECTED_64 = [27, 36, 34, 38, 26, 31, 34, 36, 38, 42, 30, 30]
EXPECTED_1000 = [524, 527, 497, 507, 519, 526, 526, 516]
EXPECTED_5 = [2, 0, 3, 2, 3, 2, 4, 3, 4, 1, 5, 4]
