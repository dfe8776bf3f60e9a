"""Random allocation: every client comes to one round of each block, by a secret coin of its own.

Somebody who sees the models and nothing else then learns less of a client than its rounds cost
against a server, as long as nobody tells who came, or how many. What must not follow a cohort: the
noise, what a sum is divided by, and whether a round takes place (docs/accounting.md, "Hidden
cohorts").
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dp import GaussianRelease, NoiseSeed, OutsiderAccountant
from dp.accounting import gaussian_mu
from dp.accounting.accountant import AGGREGATION_SHARE
from dp.coin_schedule import SURPLUS_PERCENT
from dp.coins import sample_binomial
from dp.events import Allocated
from protocol.goal import PrivacyGoal
from secagg import ParameterError
from secagg.checks import require_int

SHARE: Final = AGGREGATION_SHARE
"""The most of delta that goes for rounds which are called off."""

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Who comes when, and what a run's models then tell of one client.

    A round takes place with `fewest` to `most` clients, and is called off else.

    Args:
        population: n, clients of whom each draws one round of every block.
        block: t, rounds of a block.
        rounds: of the run, fixed beforehand; the last block may be shorter.
        fewest: clients with whom a round takes place.
        most: likewise.
        lost: chance that a client that came is lost, which nobody's coin may change.
        tolerated: how many may be lost; more end the round.
        away: how many may be away when they are asked, whatever their coins say; with more there is
            no round.

    Raises:
        ParameterError: a figure is out of range.
    """

    population: int
    block: int
    rounds: int
    fewest: int = 1
    most: int = 1 << 62
    lost: float = 0.0
    tolerated: int = 0
    away: int = 0

    def __post_init__(self) -> None:
        require_int("population", self.population, 2)
        require_int("block", self.block, 2)
        require_int("rounds", self.rounds, 1)
        require_int("fewest", self.fewest, 0)
        require_int("most", self.most, self.fewest)
        require_int("away", self.away, 0, self.population - 1)
        if self.population % self.block:
            valid = f"a multiple of the block, {self.block}: sums are divided by a whole number"
            raise ParameterError("population", self.population, valid)

    @classmethod
    def within(
        cls,
        delta: float,
        population: int,
        block: int,
        rounds: int,
        lost: float,
        tolerated: int,
        away: int = 0,
    ) -> Allocation:
        """The narrowest bounds of a cohort that are left with at most `SHARE` of delta.

        Raises:
            ParameterError: more may be lost than are tolerated.
        """
        others, odds = population - 1, 1.0 / block
        each = SHARE * delta * (1.0 - _ROUNDING) / (3 * rounds)

        def few(count: int) -> bool:
            return bool(_at_most(count - 1, others - away, odds) > each)

        def many(count: int) -> bool:
            return bool(_at_least(count, others, odds) <= each)

        def losses(count: int) -> bool:
            return bool(_at_least(count, most, lost) <= each)

        fewest = max(bisect_left(range(population + 1), True, key=few) - 1, 0)
        most = bisect_left(range(population), True, key=many)
        if lost and not losses(tolerated):
            least = bisect_left(range(most + 1), True, key=losses)
            raise ParameterError("tolerated_dropouts", tolerated, f"at least {least}")
        return cls(
            population=population,
            block=block,
            rounds=rounds,
            fewest=fewest,
            most=most,
            lost=lost,
            tolerated=tolerated,
            away=away,
        )

    @property
    def divisor(self) -> int:
        """Clients that are expected in a round, by whom every sum is divided."""
        return self.population // self.block

    @property
    def present(self) -> int:
        """Clients that have to be there to be asked, before a round is announced."""
        return self.population - self.away

    @property
    def failure(self) -> float:
        """Chance that one client, by coming or not, decides whether some round takes place."""
        others, odds = self.population - 1, 1.0 / self.block
        # Who is away follows no coin. The fewer there are, the more often a round is called off for
        # want of clients; the more, the more often for too many.
        once = _at_most(self.fewest - 1, others - self.away, odds)
        once += _at_least(self.most, others, odds)
        if self.lost:
            once += _at_least(self.tolerated, min(self.most, self.population), self.lost)
        return min(self.rounds * once * (1.0 + _ROUNDING), 1.0)

    def epsilon(self, goal: PrivacyGoal, done: int, *, integers: bool) -> float:
        """Of one client, for who sees the models of so many rounds and nothing else.

        It never holds against the server, which sees who comes. That the goal holds too is used.

        Args:
            goal: of a client's rounds, one for each block.
            integers: whether rounds are calibrated with noise in integers, which may fail; else
                the noise is Gaussian, and that of the goal.
        """
        return _epsilon(self, goal, -(-done // self.block), integers)


@lru_cache(maxsize=256)
def _epsilon(allocation: Allocation, goal: PrivacyGoal, blocks: int, integers: bool) -> float:
    delta, multiplier = goal.delta - allocation.failure, 0.0
    if not integers:
        multiplier = goal.noise_multiplier
    elif goal.moment_order is None:
        # Every round fits into the goal with its failure probability; all rounds may fail.
        delta -= allocation.rounds * goal.reserve.delta0
        mu = gaussian_mu(goal.epsilon, goal.delta - goal.reserve.total) * (1.0 + _ROUNDING)
        multiplier = math.sqrt(goal.rounds) / mu
    if not (multiplier and delta > 0.0):
        return goal.epsilon
    accountant = OutsiderAccountant()
    if blocks:
        accountant.compose(Allocated(allocation.block, GaussianRelease(multiplier, 1.0)), blocks)
    return min(accountant.epsilon(delta), goal.epsilon)


def _at_most(count: int, trials: int, odds: float) -> float:
    if count >= trials:
        return 1.0
    return float(scipy.special.bdtr(count, trials, odds)) if count >= 0 else 0.0


def _at_least(count: int, trials: int, odds: float) -> float:
    if count > trials:
        return 0.0
    return float(scipy.special.bdtrc(count - 1, trials, odds)) if count > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Hiding:
    """What the server does to a sum so that nothing but its mean follows the cohort.

    Survivors keep nearly equal noise together, but not equal. The server adds as many coins as
    there are too few: it hides cohorts from others, and none from itself.

    Args:
        divisor: of the sum.
        coins: of every sum, in a coordinate.
        seed: of the coins that the server adds; secret.
    """

    divisor: int
    coins: int
    seed: NoiseSeed

    def added(self, coins: int, length: int) -> NDArray[np.int64]:
        """What is missing in a sum that has so many coins, int64[length]."""
        return sample_binomial(self.seed, self.coins - coins, length)


def most_coins(each: int, fewest: int, most: int, colluders: int) -> int:
    """The most coins that survivors of a round keep together, whoever comes.

    Args:
        each: coins that a client adds.
        fewest: survivors, who keep all of them.
        most: clients of the largest cohort.
        colluders: that removal leaves out of the count.
    """
    target = each * (fewest - colluders)
    survivors = np.arange(fewest, most + 1)
    need = -(-target // (survivors - colluders))
    kept = np.minimum(each, need * (100 + SURPLUS_PERCENT) // 100)
    return int(np.max(survivors * kept))
