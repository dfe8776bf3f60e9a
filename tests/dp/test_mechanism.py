"""The whole mechanism as an attacker meets it: sums of clients, and a membership test.

The attack is the strongest there is for one known coordinate: a threshold on the released sum.
What it achieves is measured, not computed, and held against the accountant's promise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from accounts import epsilon_of
from dp_statistics import ALPHA, binomial_p_value
from scipy import stats

from dp import BinomialRelease, DominationAccountant, NoiseSeed, Quantized, add_coins
from dp.coins import residual_offset

RUNS = 200_000
DELTA = 1e-5


def _seed(number: int) -> NoiseSeed:
    return NoiseSeed(number.to_bytes(32, "big"))


def _released(shift: int, coins_each: list[int], first_seed: int) -> np.ndarray:
    """RUNS independent releases of one coordinate: one client adds ``shift``, all add coins."""
    total = np.zeros(RUNS, dtype=np.int64)
    for number, coins in enumerate(coins_each):
        signal = np.full(RUNS, shift if number == 0 else 0, dtype=np.int64)
        client = Quantized(signal, RUNS * max(shift, 1) ** 2, max(shift, 1))
        total += add_coins(client, coins, _seed(first_seed + number)).values
    return total


def _epsilon_lower_bound(with_client: np.ndarray, without: np.ndarray, delta: float) -> float:
    """Return the largest epsilon that the data refute at level ALPHA, over all thresholds."""
    thresholds = np.arange(without.min(), with_client.max() + 1)
    level = ALPHA / (2 * thresholds.size)
    best = 0.0
    for threshold in thresholds:
        hits = int(np.count_nonzero(with_client >= threshold))
        false_alarms = int(np.count_nonzero(without >= threshold))
        if hits == 0:
            continue
        # Clopper-Pearson, one-sided, with a union bound over thresholds and both rates.
        hit_rate = float(stats.beta.ppf(level, hits, RUNS - hits + 1))
        alarm_rate = float(stats.beta.isf(level, false_alarms + 1, RUNS - false_alarms))
        if hit_rate > delta:
            best = max(best, math.log((hit_rate - delta) / alarm_rate))
    return best


@pytest.mark.statistical
@pytest.mark.parametrize("coins_each", [[64], [7, 13, 20], [1] * 30, [33, 0, 65]])
def test_coins_of_all_clients_add_up_to_one_binomial(coins_each: list[int]) -> None:
    """Unequal and odd coin counts: the sum is Bin(total) once the halves are put back."""
    coins = sum(coins_each)
    total = _released(0, coins_each, first_seed=100)
    offset = sum(residual_offset(count) for count in coins_each)
    samples = total - offset + coins / 2
    assert np.all(samples == np.rint(samples))
    assert binomial_p_value(samples.astype(np.int64), coins) > ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize(("coins", "shift"), [(64, 1), (64, 4), (256, 8)])
def test_a_threshold_attack_stays_within_the_promise(coins: int, shift: int) -> None:
    event = BinomialRelease(coins, float(shift), shift, 1)
    promised = epsilon_of(DominationAccountant, event, delta=DELTA)
    measured = _epsilon_lower_bound(
        _released(shift, [coins // 2, coins // 2], first_seed=200),
        _released(0, [coins // 2, coins // 2], first_seed=300),
        DELTA,
    )
    assert 0.2 * promised < measured <= promised


@pytest.mark.statistical
def test_the_attack_exposes_a_client_that_forgets_most_of_its_coins() -> None:
    """Broken twin: noise for a quarter of the claimed coins breaks the promise measurably."""
    promised = epsilon_of(DominationAccountant, BinomialRelease(256, 8.0, 8, 1), delta=DELTA)
    measured = _epsilon_lower_bound(
        _released(8, [32, 32], first_seed=400), _released(0, [32, 32], first_seed=500), DELTA
    )
    assert measured > promised


def test_a_reused_seed_cancels_which_is_why_it_is_forbidden() -> None:
    """Two vectors noised from one seed differ by exactly their signals."""
    first = Quantized(np.array([1, 2, 3]), 14, 3)
    second = Quantized(np.array([0, 0, 0]), 14, 3)
    leaked = add_coins(first, 64, _seed(1)).values - add_coins(second, 64, _seed(1)).values
    assert leaked.tolist() == [1, 2, 3]
