"""What a server that made up all other clients sees of a round with exact noise, by enumeration.

Its clients hold the shares of every seed that may be given up, so it knows the noise of all batches
but the first, whether they stay in the sum or not. What it sees of the victim is a pair: the sum,
and that noise. The law of the pair is written down here, outcome by outcome.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from round_kit import make_setup
from scipy import stats

from dp import BinomialMechanism, DominationAccountant, ExactAccountant
from dp.accounting.base import EventCounter
from dp.events import Event
from protocol.round.setup import RoundSetup, coin_schedule
from sketch import SketchSpec

DELTA = 1e-5
LOST, SHIFT = 2, 4


def heads(coins: int) -> np.ndarray:
    """P[Bin(coins, 1/2) = z] for z = 0 .. coins; the known mean is left in."""
    return stats.binom.pmf(np.arange(coins + 1), coins, 0.5)


def pair(own: int, shared: int, shift: int) -> np.ndarray:
    """float64[y, w]: P[shift + Z + W = y, W = w], Z of the own batch and W of the shared ones."""
    alone, known = heads(own), heads(shared)
    table = np.zeros((own + shared + SHIFT + 1, shared + 1))
    for w, chance in enumerate(known):
        table[shift + w : shift + w + own + 1, w] = alone * chance
    return table


def epsilon_of(one: np.ndarray, other: np.ndarray, delta: float = DELTA) -> float:
    """The least epsilon at which neither law exceeds e^epsilon of the other by more than delta."""

    def excess(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
        return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())

    low, high = 0.0, 200.0
    while high - low > 1e-9:
        middle = (low + high) / 2.0
        worst = max(excess(one, other, middle), excess(other, one, middle))
        low, high = (middle, high) if worst > delta else (low, middle)
    return high


def printed(event: Event, accountant: type[EventCounter] = DominationAccountant) -> float:
    account = accountant()
    account.compose(event)
    return account.epsilon(DELTA)


@pytest.fixture
def setup() -> RoundSetup:
    """Six clients, two of whom may vanish; one coordinate, in units of the grid."""
    return make_setup(
        sketch=SketchSpec.identity(1),
        clip_l2=4.0,
        sketch_clip_l2=4.0,
        scale=1.0,
        linf_bound=4,
        coins=400,
        removable=True,
    )


def test_the_epsilon_against_made_up_peers_is_that_of_the_whole_view(setup: RoundSetup) -> None:
    own, kept = setup.own_noise.coins, setup.noise_left(6 - LOST).coins
    assert (own, kept) == (267, 400)
    event = setup.events(6 - LOST).sybil
    assert event.linf_sensitivity == SHIFT == int(event.l2_sensitivity)
    true = epsilon_of(pair(own, kept - own, SHIFT), pair(own, kept - own, 0))
    # What stays in the sum hides nothing from them: the pair tells as much as batch 0 alone.
    assert true == pytest.approx(epsilon_of(pair(own, 0, SHIFT), pair(own, 0, 0)), abs=1e-6)
    assert true <= printed(event, ExactAccountant) < 1.25 * true
    assert true <= printed(event) < 1.25 * true
    # The twin: all coins that stay, as if nobody had a share of their seeds.
    every = replace(event, coins=kept)
    assert printed(every, ExactAccountant) <= printed(every) < 0.95 * true


def test_without_shares_of_seeds_all_coins_are_a_clients_own() -> None:
    """Who holds no shares sees the first entry of the pair only: noise of all kept coins."""
    kept, own = 400, 267
    sums = [pair(own, kept - own, shift).sum(axis=1) for shift in (SHIFT, 0)]
    whole = [pair(kept, 0, shift)[:, 0] for shift in (SHIFT, 0)]
    assert np.allclose(sums, whole, rtol=0.0, atol=1e-14)
    assert epsilon_of(*sums) == pytest.approx(epsilon_of(*whole), abs=1e-6)
    assert make_setup(coins=kept).own_noise.coins == kept


@pytest.mark.parametrize(("cohort", "lost", "colluders"), [(6, 2, 0), (24, 4, 2), (64, 7, 2)])
def test_batch_0_is_the_least_that_any_round_leaves(cohort: int, lost: int, colluders: int) -> None:
    """However few vanish: the seed that was never shared is the same."""
    schedule = coin_schedule(BinomialMechanism(400), cohort, cohort - lost, colluders)
    assert [schedule.kept_coins(d) >= schedule.batches[0] for d in range(lost + 1)]
    assert schedule.kept(0) == (0,)
    assert schedule.kept_coins(lost) == 400 > schedule.batches[0]
