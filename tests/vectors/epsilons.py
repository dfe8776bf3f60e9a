"""Writes epsilons.json: events, what our accountants say, and what no bound may be below.

Run from the root of the repository: python -m tests.vectors.epsilons

``epsilon`` is ours. ``lower`` comes from this file alone, which shares nothing with dp.accounting:
every value is that of one pair of neighbours, or of a function of what such a pair releases.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import mpmath
import numpy as np
from numpy.typing import NDArray

import dp
from dp.accounting import ContractionAccountant
from dp.accounting.base import EventCounter
from dp.events import AboveThresholdRelease, LaplaceRelease
from dp.records import encode_event

FILE: Final = Path(__file__).with_name("epsilons.json")
ACCOUNTANTS: Final[dict[str, type[EventCounter]]] = {
    "domination": dp.DominationAccountant,
    "contraction": ContractionAccountant,
    "moments": dp.MomentsAccountant,
    "exact": dp.ExactAccountant,
    "published": dp.PublishedAccountant,
    "outsider": dp.OutsiderAccountant,
    "local": dp.LocalAccountant,
}
ROUNDED: Final = 1.0 - 1e-9
"""What a lower value is multiplied by, against errors of the last places."""

ANALYTIC = "Gaussian mechanism: Balle, Wang 2018, Theorem 8, 40 digits"
SUMMED = "hockey-stick divergence of one pair, summed over its probabilities"
RESPONSES = "composed randomised responses: Kairouz, Oh, Viswanath 2015, 40 digits"
OPTIMISTIC = "dp-accounting: privacy losses rounded down, Poisson-subsampled Gaussian"
BLOCK = "Gaussian of the sum of all rounds"
INFINITE = "nothing is hidden"

Profile = Callable[[Any], Any]
"""Delta at an epsilon."""


def smallest(profile: Profile, delta: float) -> float:
    """An epsilon that the profile is still above delta at, as large as bisection finds."""
    low, high = mpmath.mpf(0), mpmath.mpf(1)
    if profile(low) <= delta:
        return 0.0
    while profile(high) > delta:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return float(low) * ROUNDED


def normal(mu: float) -> Profile:
    """Two unit Gaussians at a distance."""
    return lambda e: mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


def sampled(profile: Profile, rate: float) -> Profile:
    """A mixture with its own second half: all others contribute nothing."""
    return lambda e: rate * profile(mpmath.log1p(mpmath.expm1(e) / rate))


def masses(event: Any, copies: int) -> NDArray[np.float64]:
    """Probabilities of the sum of so many coordinates' noise, symmetric about the middle."""
    if isinstance(event, dp.BinomialRelease):
        n = event.coins * copies
        ways = [1]
        for i in range(n):
            ways.append(ways[-1] * (n - i) // (i + 1))
        return np.array([way / 2**n for way in ways])
    if isinstance(event, dp.SkellamRelease):
        variance = mpmath.mpf(event.variance) * copies
        reach = int(12 * math.sqrt(variance)) + 12
        half = [mpmath.exp(-variance) * mpmath.besseli(j, variance) for j in range(reach + 1)]
        return np.array([float(p) for p in half[:0:-1] + half])
    spread = event.scale if isinstance(event, LaplaceRelease) else event.local_variance
    reach = int(12 * math.sqrt(spread) if hasattr(event, "contributors") else 40 * spread) + 12
    z = np.arange(-reach, reach + 1)
    one = np.exp(-z * z / (2 * spread) if hasattr(event, "contributors") else -np.abs(z) / spread)
    found = one / one.sum()
    for _ in range(getattr(event, "contributors", 1) * copies - 1):
        found = np.convolve(found, one / one.sum())
    return found


def shifted(event: Any, count: int, height: int) -> Profile:
    """The sum of a flat vector's coordinates, over all rounds: one integer with its noise."""
    copies, shift = 1, height
    if not isinstance(event, LaplaceRelease):
        copies = count * min(event.dimension, math.floor(event.l2_sensitivity**2) // height**2)
        shift = copies * height
    first = np.pad(masses(event, copies), (0, shift))
    second = np.roll(first, shift)
    return lambda e: float(np.maximum(first - math.exp(float(e)) * second, 0.0).sum())


def heights(event: Any) -> set[int]:
    """Coordinates of the flat vectors that are tried: the lowest and the highest."""
    if isinstance(event, LaplaceRelease):
        return {event.sensitivity}
    highest = min(event.linf_sensitivity, math.floor(event.l2_sensitivity))
    # The sum of many coins has a long law.
    lowest = 1 if min(event.dimension, event.l2_sensitivity**2) <= 32 else highest
    return {lowest, highest}


def responses(events: Sequence[tuple[float, int]]) -> Profile:
    """All reports are randomised responses."""
    terms = []
    for flips in product(*(range(count + 1) for _, count in events)):
        loss = sum((n - 2 * i) * mpmath.mpf(e) for (e, n), i in zip(events, flips, strict=True))
        mass = mpmath.mpf(1)
        for (e, n), i in zip(events, flips, strict=True):
            mass *= math.comb(n, i) * mpmath.exp((n - i) * e) / (1 + mpmath.exp(e)) ** n
        terms.append((loss, mass))
    return lambda e: sum(mass * (1 - mpmath.exp(e - loss)) for loss, mass in terms if loss > e)


def optimistic(multiplier: float, rate: float, count: int, delta: float) -> float:
    """Poisson-subsampled Gaussians by dp-accounting, from below."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    found = losses.from_gaussian_mechanism(
        multiplier,
        pessimistic_estimate=False,
        value_discretization_interval=2e-5,
        use_connect_dots=False,
        sampling_prob=rate,
    )
    return float(found.self_compose(count).get_epsilon_for_delta(delta)) * ROUNDED


def lower_of(event: Any, count: int, delta: float) -> tuple[float | None, str]:
    """What no bound of the event may be below, and where that is from; None if unknown."""
    match event:
        case dp.NonPrivateRelease() | dp.BinomialRelease(coins=0):
            return math.inf, INFINITE
        case dp.GaussianRelease():
            mu = math.sqrt(count) * event.l2_sensitivity / event.sigma
            return smallest(normal(mu), delta), ANALYTIC
        case dp.LocalRelease():
            return smallest(responses([(event.epsilon, count)]), delta), RESPONSES
        case dp.Composition(parts=parts) if all(isinstance(p, dp.LocalRelease) for p in parts):
            pairs = [(part.epsilon, count) for part in parts if isinstance(part, dp.LocalRelease)]
            return smallest(responses(pairs), delta), RESPONSES
        case dp.Composition(parts=parts):
            known = [lower_of(part, count, delta) for part in parts]
            return max(known, key=lambda each: each[0] or 0.0)
        case dp.Allocated(rounds=rounds, event=dp.GaussianRelease() as inner):
            mu = math.sqrt(count / rounds) * inner.l2_sensitivity / inner.sigma
            whole = smallest(normal(mu), delta)
            one = smallest(sampled(normal(inner.l2_sensitivity / inner.sigma), 1 / rounds), delta)
            return max((whole, BLOCK), (one, f"one round of a block; {ANALYTIC}"))
        case dp.PoissonSampled(rate=rate) | dp.FixedSizeSampled(rate=rate):
            inner = event.event
            plain = isinstance(inner, dp.GaussianRelease)
            if plain and count > 1:
                return optimistic(
                    inner.sigma / inner.l2_sensitivity, rate, count, delta
                ), OPTIMISTIC
            if plain:
                one = sampled(normal(inner.l2_sensitivity / inner.sigma), rate)
                return smallest(one, delta), ANALYTIC
            one = sampled(shifted(inner, 1, inner.linf_sensitivity), rate)
            return smallest(one, delta), SUMMED
        case AboveThresholdRelease():
            return None, ""
        case _:
            found = (smallest(shifted(event, count, each), delta) for each in heights(event))
            return max(found), SUMMED


Question = tuple[str, dp.Event, int, float]
"""Accountant, event, how often, delta."""


def questions() -> Iterator[Question]:
    """What is asked, under zero-out."""
    wide, narrow = dp.BinomialRelease(1024, 16.0, 16, 10**6), dp.BinomialRelease(400, 5.0, 2, 12)
    flat, odd = dp.BinomialRelease(400, 4.0, 1, 100), dp.BinomialRelease(1025, 15.6, 9, 4)
    weak = dp.BinomialRelease(64, 4.0, 4, 10)
    skellam, small = dp.SkellamRelease(256.0, 16.0, 16, 1000), dp.SkellamRelease(9.5, 2.0, 2, 4)
    discrete = dp.DiscreteGaussianRelease(25.0, 10, 16.0, 16, 1000)
    rough = dp.DiscreteGaussianRelease(0.5, 8, 2.0, 2, 4)
    single = dp.DiscreteGaussianRelease(64.0, 1, 5.0, 5, 1)
    gaussian, sharp = dp.GaussianRelease(2.0, 1.0), dp.GaussianRelease(0.5, 1.0)
    for event, count, delta in (
        (gaussian, 1, 1e-5), (gaussian, 1, 1e-12), (gaussian, 100, 1e-6),
        (sharp, 1, 1e-5), (dp.GaussianRelease(50.0, 1.0), 1, 1e-3),
        (wide, 1, 1e-5), (wide, 1, 1e-9), (wide, 10, 1e-5), (narrow, 1, 1e-5), (flat, 1, 1e-6),
        (odd, 1, 1e-5), (skellam, 1, 1e-5), (skellam, 4, 1e-8), (small, 1, 1e-5),
        (discrete, 1, 1e-5), (rough, 1, 1e-5), (single, 3, 1e-6),
        (LaplaceRelease(2.5, 3), 1, 1e-5), (AboveThresholdRelease(20.0, 40.0, 1), 2, 1e-5),
        (dp.Composition((gaussian, wide)), 1, 1e-5),
        (dp.BinomialRelease(0, 1.0, 1, 1), 1, 1e-5), (dp.NonPrivateRelease(), 1, 1e-5),
    ):  # fmt: skip
        yield "domination", event, count, delta
    for event, count in ((discrete, 1), (rough, 1), (single, 3), (skellam, 4), (small, 1)):
        yield "contraction", event, count, 1e-5
    for event, count in ((weak, 8), (wide, 1), (skellam, 1), (discrete, 2)):
        yield "moments", event, count, 1e-5
    for event, count in ((narrow, 1), (flat, 1), (small, 1), (rough, 1), (single, 2)):
        yield "exact", event, count, 1e-5
    yield "published", discrete, 1, 1e-5
    yield "published", skellam, 1, 1e-5
    one, faint = dp.GaussianRelease(1.0, 1.0), dp.GaussianRelease(4.0, 1.0)
    binomial = dp.BinomialRelease(1024, 16.0, 16, 1)
    for event, count in (
        (dp.PoissonSampled(0.01, one), 1), (dp.PoissonSampled(0.01, one), 1000),
        (dp.PoissonSampled(0.1, binomial), 1), (dp.FixedSizeSampled(10, 1000, faint), 1),
        (dp.FixedSizeSampled(1000, 1000, one), 1), (dp.Allocated(1, one), 1),
        (dp.Allocated(10, one), 1), (dp.Allocated(4, one), 12),
    ):  # fmt: skip
        yield "outsider", event, count, 1e-5
    report, other = dp.LocalRelease(1.0), dp.LocalRelease(0.25)
    for event, count in ((report, 1), (report, 20), (dp.Composition((report, other)), 10)):
        yield "local", event, count, 1e-6


def row(accountant: str, event: dp.Event, count: int, delta: float, replaced: bool) -> Any:
    """One line of the file."""
    asked = dp.replace_one(event) if replaced else event
    counter = ACCOUNTANTS[accountant]()
    counter.compose(asked, count)
    lower, source = lower_of(asked, count, delta)
    return {
        "event": encode_event(event),
        "count": count,
        "adjacency": str(dp.Adjacency.REPLACE_ONE if replaced else counter.adjacency).split(":")[0],
        "delta": delta,
        "accountant": accountant,
        "epsilon": written(counter.epsilon(delta)),
        "lower": written(lower),
        "lower_from": source,
    }


def written(value: float | None) -> float | str | None:
    """A number that JSON has: infinity becomes "inf"."""
    return "inf" if value == math.inf else value


def rows() -> list[dict[str, Any]]:
    """All lines: zero-out, and some of the same under replace-one."""
    asked = list(questions())
    again = [asked[i] for i in (0, 5, 11, 14)]
    with mpmath.workdps(40):
        found = [row(*question, False) for question in asked]
        return found + [row(*question, True) for question in again]


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(line) for line in rows())
    FILE.write_text(f"[\n{lines}\n]\n")
    sys.stdout.write(f"{FILE}\n")
