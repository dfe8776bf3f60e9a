"""cpSGD's private mean on k levels: the same bits and the same epsilon under two accountants.

n clients, vectors of norm D = 1, one release at a given delta in all. Neighbours replace one
client's vector by another, as in the paper: this doubles what zero-out adjacency would count, for
everybody alike. Four ways to choose the coins of one client:

* ``paper``: Theorem 4 with the sensitivities of Equation (10), a third of delta for each part;
* ``domination``: only the accountant is changed; sensitivities and parts of delta are the paper's;
* ``coupled``: the same mechanism, our sensitivities and parts of delta, see ``coupled_l2``;
* ``conditional``: this project's binomial mechanism, with sure sensitivities, the scale such that
  a message takes no more values than the paper's.

Why a probable sensitivity is as good as a sure one but for its share of delta. Rounding both
neighbours' vectors makes the output a mixture over the roundings; the hockey-stick divergence is
jointly convex; so it is at most its mean over any coupling of the roundings, hence at most that of
the noise at the sensitivity, plus the probability that the sensitivity is exceeded. Clipping
coordinates brings two vectors no further apart, so that no share of delta pays for the rotation.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Theorem 4 and Equation (10).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dp import BinomialRelease, noise_multiplier_for_epsilon, quantized_l2_bound
from dp.accounting.cpsgd import level_parameters, level_shares
from dp.accounting.laws import MAX_TOTAL_COINS
from dp.clipping import NORM_SLACK
from dp.coins import MAX_COINS
from dp.mechanisms.levels import LevelMechanism, level_mse_bound, rotated_clip
from dp.rounding import rounded_l2_bound
from dp.search import bracketed, smallest
from simulations.reproduce.cpsgd.scales import domination_of, theorem1_of
from sketch import flat_bound

NORM: Final = 1.0
ROUNDING_SHARE: Final = 1.0 / 8.0  # the part of delta that ``coupled`` pays for its sensitivity
# Chance that a client's rotated vector meets the coordinate clip, as in calibration
CLIP_PROBABILITY: Final = 1e-3

_STEP: Final = 1.005
_MOST_STEPS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Who takes part, and the delta of the whole release.

    The default follows Section 5: 10,000 clients a step, delta = 1e-9, p = 1/2, s = 1. Its network,
    784-60-60-10 by our reading, has 51,370 weights, which a Walsh-Hadamard rotation pads to 2^16.
    """

    clients: int = 10_000
    dimension: int = 65_536
    delta: float = 1e-9

    @property
    def most_coins(self) -> int:
        """Most coins of a client for which domination has tables."""
        return min(MAX_COINS, MAX_TOTAL_COINS // self.clients)

    def levels(self, levels: int, coins: int) -> LevelMechanism:
        """Return the paper's mechanism, with the X that belongs to Theorem 4's constants."""
        clip = rotated_clip(NORM, self.dimension, self.clients, self.delta / 3.0)
        return LevelMechanism(NORM, clip, levels, coins, rotated=True)

    def gaussian_error(self, epsilon: float) -> float:
        """Return the error of a Gaussian mean by the exact condition: d (2 D sigma / n)^2."""
        multiplier = noise_multiplier_for_epsilon(epsilon, self.delta)
        return self.dimension * (2.0 * NORM * multiplier / self.clients) ** 2

    def theorem2_error(self, epsilon: float) -> float:
        """Return the error of a Gaussian mean by the paper's Theorem 2."""
        squares = 2.0 * math.log(1.25 / self.delta) / epsilon**2
        return self.dimension * (2.0 * NORM / self.clients) ** 2 * squares


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one replaced client changes, in levels, and the delta left for the noise."""

    l2: float
    linf: int
    delta: float

    def epsilon(self, coins: int, dimension: int) -> float:
        """Account for so many coins in all by domination."""
        return domination_of(BinomialRelease(coins, self.l2, self.linf, dimension), self.delta)

    def sigma(self, epsilon: float) -> float:
        """Return the Gaussian noise that would do."""
        return self.l2 * noise_multiplier_for_epsilon(epsilon, self.delta)


def equation10(setting: Setting, levels: int) -> Bounds:
    """The paper's sensitivities, and a third of delta."""
    event = setting.levels(levels, 0).event(setting.clients, setting.dimension)
    part = setting.delta / level_shares(event)
    parameters = level_parameters(event, part)
    return Bounds(parameters.l2, math.ceil(parameters.linf), part)


def coupled_l2(length: float, dimension: int, linf: int, failure: float) -> float:
    """Bound the difference of two vectors that one and the same dice round, but for ``failure``.

    Let w be the difference of two scaled vectors in levels, |w|_2 <= ``length``, |w_j| <= ``linf``.
    If the same uniform number rounds coordinate j of both, v_j = floor(a_j + u) - floor(b_j + u)
    takes the two integers around w_j, with mean w_j, independently over j. So v is a random
    rounding of w itself, and with f the fractions of |w|, S = min(d/4, sqrt(d) |w|) >= sum f (1 -
    f) and L = ln(1/failure),

        E |v|^2 <= |w|^2 + S,       |v_j|^2 has standard deviation (2 floor|w_j| + 1) sqrt(f (1-f)),

    whose squares add up to at most V = |w|^2 + sqrt(d) |w| + S. Bernstein's inequality gives |v|^2
    <= |w|^2 + S + sqrt(2 V L) + (2 linf + 1) L / 3. ``rounded_l2_bound`` is another bound of the
    same thing; the smaller is returned.
    """
    total = math.sqrt(dimension) * length
    spread = min(dimension / 4.0, total)
    log_failure = -math.log(failure)
    variance = length**2 + total + spread
    deviation = math.sqrt(2.0 * variance * log_failure) + (2 * linf + 1) * log_failure / 3.0
    bernstein = math.sqrt(length**2 + spread + deviation)
    return min(bernstein, rounded_l2_bound(length, dimension, failure))


def coupled(setting: Setting, levels: int) -> Bounds:
    """Our sensitivities of the paper's mechanism, and the delta that they leave."""
    failure = ROUNDING_SHARE * setting.delta
    length = 2.0 * NORM / setting.levels(levels, 0).width * (1.0 + NORM_SLACK)
    linf = levels - 1
    l2 = coupled_l2(length, setting.dimension, linf, failure)
    return Bounds(l2, linf, setting.delta - failure)


@dataclass(frozen=True, slots=True)
class Conditional:
    """This project's binomial mechanism at one scale."""

    setting: Setting  # who takes part
    scale: float  # integer units for a vector of norm D

    @property
    def linf(self) -> int:
        """The coordinate clip, as the planner chooses it."""
        flat = flat_bound(NORM, self.setting.dimension, CLIP_PROBABILITY)
        return math.ceil(self.scale * flat)

    @property
    def bounds(self) -> Bounds:
        """Twice what one vector is surely within, and all of delta."""
        l2 = quantized_l2_bound(NORM, self.scale, self.setting.dimension)
        return Bounds(2.0 * l2, 2 * self.linf, self.setting.delta)

    def alphabet(self, coins: int) -> int:
        """Return how many values a coordinate of a message takes."""
        return 2 * self.linf + 1 + coins

    def error(self, coins: int) -> float:
        """Bound the error: rounding at most a quarter, coins, and what the clip cuts off.

        The last is at most P / (d ln(2 d / P)) D^2 for a client whose vector is clipped with
        probability P: the tail of a sub-Gaussian coordinate, integrated beyond the clip.
        """
        d = self.setting.dimension
        cut = CLIP_PROBABILITY / (d * math.log(2.0 * d / CLIP_PROBABILITY))
        return d / self.setting.clients * (1.0 + coins) / (4.0 * self.scale**2) + cut


def client_coins(
    setting: Setting, epsilon_of: Callable[[int], float], epsilon: float, sigma: float
) -> int | None:
    """Return the fewest coins of one client, all together meeting epsilon; None if out of range."""
    guess = math.ceil(4.0 * sigma**2 / setting.clients)
    if guess > setting.most_coins:
        return None
    return smallest(lambda m: epsilon_of(m * setting.clients) <= epsilon, guess, setting.most_coins)


def paper_epsilon(setting: Setting, levels: int, coins: int) -> float:
    """Return Theorem 4's epsilon for so many coins in all."""
    mechanism = setting.levels(levels, coins // setting.clients)
    return theorem1_of(mechanism.event(setting.clients, setting.dimension), setting.delta)


def by_domination(setting: Setting, bounds: Bounds, epsilon: float) -> int | None:
    """Return the fewest coins of one client by our accountant."""
    epsilon_of = partial(bounds.epsilon, dimension=setting.dimension)
    return client_coins(setting, epsilon_of, epsilon, bounds.sigma(epsilon))


def conditional_at(
    setting: Setting, epsilon: float, fits: Callable[[Conditional, int], bool], *, finest: bool
) -> dict[str, Any] | None:
    """Return figures of our mechanism at the finest (or coarsest) scale that fits.

    The scale is predicted from the Gaussian of equal variance, and moved by 1/2 % until the coins
    that the accountant asks for fit too. What fits changes once as the scale grows.
    """

    def beyond(scale: float) -> bool:
        """Say whether a scale is on the far side of where fitting changes."""
        ours = Conditional(setting, scale)
        predicted = math.ceil(4.0 * ours.bounds.sigma(epsilon) ** 2 / setting.clients)
        return fits(ours, max(1, predicted)) is not finest

    low, high = bracketed(beyond, 1.0, 2.0**20, geometric=True)
    scale = low if finest else high
    for _ in range(_MOST_STEPS):
        ours = Conditional(setting, scale)
        coins = by_domination(setting, ours.bounds, epsilon)
        if coins is None:
            return None
        if fits(ours, coins):
            figures = _figures(coins, ours.alphabet(coins), ours.error(coins))
            return {**figures, "scale": ours.scale, "linf": ours.linf}
        scale *= 1.0 / _STEP if finest else _STEP
    return None


def point(setting: Setting, levels: int, epsilon: float) -> dict[str, Any]:
    """Return coins, bits and errors of every way at one k and epsilon; None where out of range."""
    theirs = equation10(setting, levels)
    coins = {
        "paper": client_coins(
            setting, partial(paper_epsilon, setting, levels), epsilon, theirs.sigma(epsilon)
        ),
        "domination": by_domination(setting, theirs, epsilon),
        "coupled": by_domination(setting, coupled(setting, levels), epsilon),
    }
    ways = {way: _level_figures(setting, levels, m) for way, m in coins.items()}
    paper = ways["paper"]
    equal_error: dict[str, Any] = {"coupled": None, "conditional": None}
    if paper is not None:
        alphabet, error = paper["alphabet"], paper["error"]
        ways["conditional"] = conditional_at(
            setting, epsilon, lambda ours, m: ours.alphabet(m) <= alphabet, finest=True
        )
        equal_error["coupled"] = fewest_levels(setting, epsilon, error, levels)
        equal_error["conditional"] = conditional_at(
            setting, epsilon, lambda ours, m: ours.error(m) <= error, finest=False
        )
    return {
        "levels": levels,
        "epsilon": epsilon,
        "ways": ways,
        "at_equal_error": equal_error,
        "gaussian_error": setting.gaussian_error(epsilon),
        "theorem2_error": setting.theorem2_error(epsilon),
        "error_ratio": {
            way: paper["error"] / found["error"] for way, found in ways.items() if paper and found
        },
        "bits_saved": {
            way: paper["bits"] - found["bits"]
            for way, found in equal_error.items()
            if paper and found
        },
    }


def fewest_levels(
    setting: Setting, epsilon: float, error: float, most: int
) -> dict[str, Any] | None:
    """Return the paper's mechanism with the fewest levels whose error, by our count, is enough."""

    def figures(above: int) -> dict[str, Any] | None:
        levels = above + 1
        coins = by_domination(setting, coupled(setting, levels), epsilon)
        return _level_figures(setting, levels, coins)

    def enough(above: int) -> bool:
        found = figures(above)
        return found is not None and bool(found["error"] <= error)

    above = smallest(enough, max(1, most // 8), most - 1)
    return None if above is None else figures(above)


def _level_figures(setting: Setting, levels: int, coins: int | None) -> dict[str, Any] | None:
    """Figures of the paper's mechanism, none of whose coordinates is clipped; None for no coins."""
    if coins is None:
        return None
    error = level_mse_bound(setting.levels(levels, coins), setting.dimension, setting.clients)
    return {**_figures(coins, levels + coins, error), "levels": levels}


def _figures(coins: int, alphabet: int, error: float) -> dict[str, Any]:
    """Coins of a client, values and bits of a coordinate, and the error."""
    return {"coins": coins, "alphabet": alphabet, "bits": math.log2(alphabet), "error": error}
