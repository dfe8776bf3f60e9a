"""Counts privacy again by other means and compares: no claim of `dp` may be below the truth.

    python tests/dp/recount.py

prints for every kind of claim the smallest and the largest ratio of claim to truth, over random
runs from a fixed seed, and how many claims of its twin were found out, which are for a little more
noise than there is. It exits with 1 if a claim is below the truth, or a twin is not found out.

A truth is that of one pair of neighbours, or of one strategy, and every rounding makes it smaller:
a claim below it is wrong whatever the worst pair may be. What computes truths is here, in
`correlated_transcripts.py`, `member_records.py` and `stopping.py`, and is none of `dp`'s code.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from correlated_transcripts import Game, hockey_stick_leaf
from member_records import accounted, honest_charge, random_records
from numpy.typing import NDArray
from scipy import special, stats
from stopping import worst_delta

import dp
from dp import accounting
from dp.correlated import Parts, Promises, correlated_epsilon
from dp.events import Allocated
from dp.odometer import Odometer
from dp.records import decode_event
from dp.report import under

Floats = NDArray[np.float64]
Draws = np.random.Generator
Run = Callable[[Draws, int, float], tuple[float, float]]
"""(draws, number of the case, how much the claim overrates the noise) to claim and truth."""

ROUNDING: Final = 1e-9
"""Relative: of truths, which are sums of doubles."""
POINTS: Final = 1 << 20
ROWS: Final = json.loads(Path(__file__).parents[1].joinpath("vectors/epsilons.json").read_text())
BLOCKS: Final = ((5.0, 3, 4), (5.0, 5, 12), (8.0, 10, 10), (5.0, 100, 10))
"""Goal, rounds of a block, blocks: the table of docs/accounting.md. The first is the demo's."""


# -- truths -----------------------------------------------------------------------------------


def largest(excess: Callable[[float], float], high: float) -> float:
    """The end of where a falling function is positive, by bisection from below."""
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low


def gaussian_truth(mu: float, delta: float) -> float:
    """Epsilon of two unit Gaussians at a distance: Balle, Wang 2018, Theorem 8."""

    def excess(epsilon: float) -> float:
        far = special.log_ndtr(-mu / 2 - epsilon / mu) + epsilon
        return float(special.ndtr(mu / 2 - epsilon / mu) - np.exp(far)) - delta

    return largest(excess, mu * (mu / 2 + 40)) if mu else 0.0


def composed(parts: Sequence[tuple[Floats, Floats, int]], delta: float, half: float) -> float:
    """Epsilon of independent pairs of laws, each so many times.

    H grows with every likelihood ratio, so all are rounded down, and those far out are left out.

    Args:
        parts: logarithms of ratios, their masses under the second law, how often.
        half: the grid reaches so many nats on either side.
    """
    step, product = 2 * half / POINTS, np.ones(POINTS // 2 + 1, dtype=complex)
    for losses, masses, count in parts:
        index = np.floor(losses / step).astype(np.int64)
        kept = np.abs(index) < POINTS // 2
        weights = masses[kept] * np.exp(step * index[kept])
        product *= np.fft.rfft(np.bincount(index[kept] % POINTS, weights, POINTS)) ** count
    one = np.maximum(np.fft.irfft(product, POINTS)[: POINTS // 2], 0.0)
    grid = step * np.arange(one.size)
    here, there = (np.cumsum(each[::-1])[::-1] for each in (one, one * np.exp(-grid)))
    above = np.flatnonzero(here - np.exp(grid) * there > delta)
    return float(grid[above[-1]]) if above.size else 0.0


def law(event: Any) -> Floats:
    """Masses of one coordinate's noise, symmetric about the middle."""
    if isinstance(event, dp.BinomialRelease):
        return np.asarray(stats.binom.pmf(np.arange(event.coins + 1), event.coins, 0.5))
    reach = math.ceil(12 * math.sqrt(event.noise_variance)) + 12
    z = np.arange(-reach, reach + 1)
    if isinstance(event, dp.SkellamRelease):
        return np.asarray(special.ive(z, event.variance))
    total = one = np.exp(-z * z / (2 * event.local_variance))
    for _ in range(event.contributors - 1):
        total = np.convolve(total, one, mode="same")
    return total / total.sum()


def allocated(mu: float, rounds: int, blocks: int, delta: float) -> float:
    """Epsilon of one round of each block by a secret coin: means of lognormals on even steps."""
    step, size = 2e-4, 1 << 20
    edges = np.log(step * np.maximum(np.arange(size + 1), 1e-300))
    one = np.diff(special.ndtr(edges / mu + mu / 2))
    under_q = np.maximum(np.fft.irfft(np.fft.rfft(one) ** rounds), 0.0)[1:]
    return composed([(np.log(step * np.arange(1, size) / rounds), under_q, blocks)], delta, 40.0)


def drawn(rng: Draws, mu: float, rounds: int, blocks: int, delta: float) -> float:
    """The same by drawing models, rare ones more often and weighted; 4.8 deviations below."""
    count, tilt = 400_000, 4.0
    coin = rng.integers(0, rounds, (count, blocks, 1)) == np.arange(rounds)
    models = rng.standard_normal((count, blocks, rounds)) + tilt * mu * coin
    losses, drawn_by = (
        np.log(np.exp(each * models - each**2 / 2).mean(axis=2)).sum(axis=1)
        for each in (mu, tilt * mu)
    )

    def excess(epsilon: float) -> float:
        gains = np.maximum(0.0, -np.expm1(epsilon - losses)) * np.exp(losses - drawn_by)
        return float(gains.mean() - 4.8 * gains.std() / math.sqrt(count)) - delta

    return largest(excess, 30.0)


# -- claims, beside truths --------------------------------------------------------------------


def random_parts(rng: Draws) -> Parts:
    """Up to a dozen rounds of up to a dozen clients and eight members."""
    rounds, clients, members = (int(each) for each in rng.integers(1, (13, 13, 9)))
    bad, corrupt = int(rng.integers(clients)), int(rng.integers((members + 1) // 2))
    client, member = (float(each) for each in 10 ** rng.uniform(1.2, 3, 2))
    return Parts(
        client_variance=client,
        member_variance=member,
        clients=clients,
        members=members,
        corrupt_clients=bad,
        corrupt_members=corrupt,
        fewest_clients=int(rng.integers(bad + 1, clients + 1)),
        fewest_members=int(rng.integers(2 * corrupt + 1, members + 1)),
        rounds=rounds,
        dimension=10 ** int(rng.integers(7)),
    )


def returned(rng: Draws, case: int, overrated: float) -> tuple[float, float]:
    """At the end, or with all that may still come back; the client is in no later round."""
    parts, delta = random_parts(rng), float(10 ** rng.uniform(-9, -2))
    rounds = parts.rounds
    records = random_records(rng, parts, rounds)
    stop = rounds if case % 2 else int(rng.integers(1, rounds + 1))
    bounds = rng.uniform(0.5, 1, rounds) * (rng.uniform(size=rounds) < rng.uniform(0.2, 1))
    bounds *= rng.uniform(0.05, 3) * math.sqrt(parts.least_fresh / rounds)
    bounds[stop:] = 0.0
    corrupt = itertools.combinations(range(parts.members), parts.corrupt_members)
    square = max(honest_charge(parts, records, each, bounds) for each in corrupt)
    claim = accounted(parts, records[:stop], bounds[:stop] / overrated).epsilon(delta)
    return claim, gaussian_truth(math.sqrt(square), delta)


def adaptive(rng: Draws, case: int, overrated: float) -> tuple[float, float]:
    """Integers that come back, against who chooses by all it has seen what does, and when to."""
    kept, share = (float(each) for each in rng.uniform((6, 4), (8, 6)))
    game = Game(2, kept, share, 1, 0.0)
    game = replace(game, budget=game.charge((1, case % 2), (1,)))
    epsilon = math.sqrt(game.budget) * float(rng.uniform(0.5, 4))
    delta = game.best(hockey_stick_leaf(epsilon))
    promises = Promises(
        rounds=2, dimension=1, smallest_part=share, most_parts=2, kept=kept, fresh=game.fresh
    )
    return correlated_epsilon(game.budget / overrated**2, promises, delta), epsilon


def integers(kind: type[dp.Event], contracted: bool = False) -> Run:
    """Noise of one kind on a random vector, in random rounds; by the best bound, or this one."""

    def noisy(variance: float, shares: int, vector: Sequence[int]) -> Any:
        noise: tuple[float, ...] = (variance / shares, shares)
        if kind is not dp.DiscreteGaussianRelease:
            noise = (2 * round(2 * variance) if kind is dp.BinomialRelease else variance,)
        return kind(*noise, math.hypot(*vector), max(map(abs, vector)), len(vector))

    def run(rng: Draws, case: int, overrated: float) -> tuple[float, float]:
        variance = float(10 ** rng.uniform(1.4 if kind is dp.BinomialRelease else 0.6, 2.6))
        shares, rounds = (int(each) for each in rng.integers(1, 9, 2))
        vector = [*rng.integers(-3, 4, rng.integers(6)).tolist(), int(rng.integers(1, 5))]
        delta = float(10 ** rng.uniform(-8, -2))
        claimed = noisy(variance * overrated**2, shares, vector)
        found = dp.epsilons([(claimed, rounds)], delta)
        claim = found.by_accountant["contraction"] if contracted else found.epsilon
        one, parts = law(noisy(variance, shares, vector)), []
        for shift in filter(None, map(abs, vector)):
            p, q = np.pad(one, (0, shift)), np.pad(one, (shift, 0))
            both = (p > 0) & (q > 0)
            parts.append((np.log(p[both] / q[both]), q[both], rounds))
        mu = math.hypot(*vector) * math.sqrt(rounds / variance)
        return claim, composed(parts, delta, mu * mu / 2 + 13 * mu + 1)

    return run


def in_blocks(truth: Callable[..., float]) -> Run:
    """One round of each block by a secret coin."""

    def run(rng: Draws, case: int, overrated: float) -> tuple[float, float]:
        delta, (goal, rounds, blocks) = 1e-5, BLOCKS[case % 4]
        if case >= len(BLOCKS):
            goal, delta = float(rng.uniform(0.5, 8)), float(10 ** rng.uniform(-7, -3))
            rounds, blocks = (int(each) for each in rng.integers(1, (20, 15)))
        mu = accounting.gaussian_mu(goal, delta) / math.sqrt(blocks)
        account = accounting.OutsiderAccountant()
        account.compose(Allocated(rounds, dp.GaussianRelease(overrated, mu)), blocks)
        return account.epsilon(delta), truth(rng, mu, rounds, blocks, delta)

    return run


def at_any_stop(rng: Draws, case: int, overrated: float) -> tuple[float, float]:
    """The odometer's delta, and what its epsilons are worth at the worst stop; any sizes."""
    delta, releases = float(10 ** rng.uniform(-7, -3)), int(rng.integers(1, 13))
    mus = rng.uniform(0.1, 1, releases)
    mus *= accounting.gaussian_mu(float(rng.uniform(0.2, 6)), delta) / math.hypot(*mus)
    odometer = Odometer(float(mus @ mus) * float(rng.uniform(0.5, 2)), delta)
    printed = [odometer.epsilon(float(each)) for each in np.cumsum(mus**2) / overrated**2]
    return delta, worst_delta(mus.tolist(), printed, float(mus.min()) / 20)


def stored(rng: Draws, case: int, overrated: float) -> tuple[float, float]:
    """A row of tests/vectors/epsilons.json, claimed anew; its truth is from the file's script."""
    row = ROWS[case % len(ROWS)]
    kind = getattr(accounting, row["accountant"].capitalize() + "Accountant")
    asked = next(each for each in dp.Adjacency if each.value.startswith(row["adjacency"]))
    account, event = kind(), (decode_event(row["event"]), row["count"])
    for each, count in [event] if asked is kind.adjacency else under(asked, [event]):
        account.compose(each, count)
    return account.epsilon(row["delta"]) / overrated, float(row["lower"] or 0.0)


@dataclass(frozen=True)
class Family:
    """Claims of one kind: cases of a whole recount, of a quick one, and by how much twins err."""

    run: Run
    cases: int
    few: int
    twin: float = 1.01

    def ratios(self, quick: bool = False, twin: bool = False) -> list[float]:
        """Claim over truth, where there is anything to hide."""
        rng = np.random.default_rng(1)
        runs = range(self.few if quick else self.cases)
        pairs = [self.run(rng, case, self.twin if twin else 1.0) for case in runs]
        return [1.0 if claim == truth else claim / truth for claim, truth in pairs if truth > 0.0]


FAMILIES: Final = {
    "returned noise, party by party": Family(returned, 3000, 100),
    "returned integers, adaptive games": Family(adaptive, 12, 1),
    "binomial": Family(integers(dp.BinomialRelease), 24, 2),
    "Skellam": Family(integers(dp.SkellamRelease), 24, 2),
    "discrete Gaussian": Family(integers(dp.DiscreteGaussianRelease), 24, 2),
    "Skellam, contraction": Family(integers(dp.SkellamRelease, True), 12, 2),
    "discrete Gaussian, contraction": Family(integers(dp.DiscreteGaussianRelease, True), 12, 2),
    "one round of a block, Fourier": Family(in_blocks(lambda _, *asked: allocated(*asked)), 24, 2),
    "one round of a block, drawn": Family(in_blocks(drawn), 1, 1),
    "odometer, delta at the worst stop": Family(at_any_stop, 60, 2, twin=1.2),
    "rows of epsilons.json": Family(stored, len(ROWS), 5),
}


def main() -> int:
    """Print the table; return 1 if a claim is below, or a twin is not."""
    wrong = False
    for name, family in FAMILIES.items():
        honest, broken = family.ratios(), family.ratios(twin=True)
        found = sum(each < 1.0 - ROUNDING for each in broken)
        wrong |= min(honest) < 1.0 - ROUNDING or not found
        ends = f"{min(honest):10.7f} {max(honest):10.4f}"
        print(f"{name:35} {len(honest):5} {ends} {found:6}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    print(f"{'claim':35} {'cases':>5} {'smallest':>10} {'largest':>10} {'twins':>6}")
    sys.exit(main())
