"""docs/correlated-noise.md beside runs whose parts differ and come back in part, and its reserve.

`correlated_transcripts.py` plays all or nothing: one kind of part, and all of a_t comes back or
none of it. Here single parts differ in their parameters and each comes back or not. The law of a
record is the inverse discrete Fourier transform of a product of characteristic functions.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from correlated_transcripts import Game, Table, renyi_leaf
from test_correlated_transcripts import largest_group_gap, over_budgets, theta_rest

Part = tuple[float, tuple[int, ...]]
"""A parameter, and +1, -1 or 0 for every round."""


def covariance(parts: list[Part]) -> Table:
    return sum((v * np.outer(a, a) for v, a in parts), np.zeros((len(parts[0][1]),) * 2))


def law(parts: list[Part], size: int) -> Table:
    """Masses of (n_1 .. n_T) modulo `size`, n = 0 in the middle of every axis."""
    rounds = len(parts[0][1])
    grids = np.meshgrid(*[np.arange(size)] * rounds, indexing="ij")
    z = np.arange(-60, 61)
    phi = np.ones((size,) * rounds)
    for variance, signs in parts:
        mass = np.exp(-z * z / (2 * variance))
        mass /= mass.sum()
        table = np.cos(2 * math.pi / size * np.outer(np.arange(size), z)) @ mass
        phi = phi * table[sum(s * g for s, g in zip(signs, grids, strict=True)) % size]
    return np.fft.fftshift(np.fft.fftn(phi).real) / size**rounds


def random_parts(rng: np.random.Generator, rounds: int, smallest: float) -> list[Part]:
    """Up to six parts a round, of which up to three may come back."""
    parts = []
    for t in range(rounds):
        stays, may_leave = int(rng.integers(1, 4)), int(rng.integers(0, 4))
        for i in range(stays + may_leave):
            column = [0] * rounds
            column[t] = 1
            if i >= stays and t + 1 < rounds and rng.random() < 0.7:
                column[t + 1] = -1
            parts.append((smallest * (1 + rng.random() * rng.choice([0.0, 1.0])), tuple(column)))
    return parts


def gaps(parts: list[Part]) -> tuple[float, float, float]:
    """e_1, e_2 and Gamma as the page prints them."""
    rounds = len(parts[0][1])
    v = min(each for each, _ in parts)
    entering = [[(p, a) for p, a in parts if a[t] == 1] for t in range(rounds)]
    m = max(len(each) for each in entering)
    w = min(sum(p for p, a in each if -1 not in a) for each in entering)
    e1 = largest_group_gap(v, m)
    rest = theta_rest(2 * math.pi**2 / (1 / v + 4 / w))
    e2 = math.expm1((rounds - 1) * math.log1p(rest))
    gamma = math.inf
    if e1 < 1 and e2 < 1:
        gamma = 4 * rounds * math.atanh(e1) + 2 * math.atanh(e2)
    return e1, e2, gamma


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(i, marks=pytest.mark.slow) for i in range(12, 40))]
)
def test_the_lemma_holds_where_parts_differ_and_some_come_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rounds = 1 + seed % 3
    parts = random_parts(rng, rounds, float(rng.choice([0.5, 0.7])))
    e1, e2, gamma = gaps(parts)
    assert gamma < math.inf
    size = {1: 256, 2: 128, 3: 64}[rounds]
    sigma = covariance(parts)
    half = 6
    n = np.stack(np.meshgrid(*[np.arange(-half, half + 1)] * rounds, indexing="ij"), -1)
    square = np.einsum("...i,ij,...j->...", n, np.linalg.inv(sigma), n)
    kappa = math.prod(1 / (1 + theta_rest(2 * math.pi**2 * v)) for v, _ in parts)
    density = kappa * np.exp(-square / 2) / math.sqrt(np.linalg.det(2 * math.pi * sigma))
    window = (slice(size // 2 - half, size // 2 + half + 1),) * rounds
    seen = density > 1e-9 * density.max()  # Transforms are exact to 1e-16 of the largest mass.
    relative = law(parts, size)[window][seen] / density[seen]
    assert relative.max() <= (1 + e1) ** (2 * rounds) * (1 + e2) + 1e-6
    assert relative.min() >= (1 - e1) ** (2 * rounds) * (1 - e2) - 1e-6
    assert math.log(relative.max() / relative.min()) <= gamma + 1e-6


@pytest.mark.parametrize(
    "order", [2.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1.1, 3.0))]
)
@pytest.mark.slow
def test_the_theorem_where_its_gap_is_small(order: float) -> None:
    """Four adders of 2 a part: the gap is about 1e-6, so the Gaussian term is tested for itself."""
    game = Game(2, 2.0, 2.0, 4, 1.0, largest=3)
    parts = [(2.0, (1, -1))] * 4 + [(2.0, (1, 0))] * 4 + [(2.0, (0, 1))] * 8
    _, _, gamma = gaps(parts)
    q = math.exp(-2 * math.pi**2 * game.fresh)
    gap = (order * gamma + 2 * math.log1p(2 * q / (1 - q))) / (order - 1)
    assert gap < 2e-6
    for played in over_budgets(game):
        divergence = math.log(played.best(renyi_leaf(order))) / (order - 1)
        assert divergence <= order * played.budget / 2 + gap


@pytest.mark.parametrize("order", [1.1, 2.0, 3.0])
def test_records_that_look_at_all_coordinates(order: float) -> None:
    """Two coordinates share one record and one norm: after both y_1 the adversary chooses."""
    leaf = renyi_leaf(order)
    game = Game(2, 1.0, 3.0, 1, 1.0)
    shifts = list(itertools.product((-1, 0, 1), repeat=2))
    later = {
        (one, back, two): leaf(game._seen((back,), (one, two)), game._seen((back,), (0, 0))).sum(-1)
        for one in (0, 1)
        for back in (0, 1)
        for two in (-1, 0, 1)
    }

    def charge(first: tuple[int, ...], second: tuple[int, ...], back: int) -> float:
        norms = np.array([math.hypot(*first), math.hypot(*second)])
        return float(norms @ np.linalg.solve(game.covariance((back,)), norms))

    for first in ((0, 1), (1, 1)):
        for budget in {charge(first, second, back) for second in shifts for back in (0, 1)}:
            if charge(first, (0, 0), 1) > budget * (1 + 1e-12):
                continue
            options = [
                np.outer(later[first[0], back, second[0]], later[first[1], back, second[1]])
                for second in shifts
                for back in (0, 1)
                if charge(first, second, back) <= budget * (1 + 1e-12)
            ]
            divergence = math.log(np.max(options, axis=0).sum()) / (order - 1)
            assert divergence <= order * budget / 2 * (1 + 1e-4)


# -- the reserve ------------------------------------------------------------------------------


def tridiagonal(fresh: list[float], returned: list[float]) -> Table:
    sigma = np.diag(np.array(fresh, dtype=float))
    for t, back in enumerate(returned[: len(fresh) - 1]):
        sigma[t + 1, t + 1] += back
        sigma[t, t + 1] = sigma[t + 1, t] = -back
    return sigma


def reserved(
    fresh: list[float], returned: list[float], f: float, a: float, left: int, b: Table
) -> float:
    """The page's bound: `returned` holds A_1 .. A_t, every later round has F >= f and A <= a."""
    sigma = tridiagonal(fresh, returned)
    if left:
        ahead = f
        for _ in range(left - 1):
            ahead = f - a * a / (a + ahead)
        sigma[-1, -1] -= returned[-1] ** 2 / (returned[-1] + ahead)
    return float(b @ np.linalg.solve(sigma, b))


def charged(fresh: list[float], returned: list[float], b: Table) -> float:
    full = np.zeros(len(fresh))
    full[: b.size] = b
    return float(full @ np.linalg.solve(tridiagonal(fresh, returned), full))


def test_the_recursion_is_wrong_where_more_may_return_than_must_enter() -> None:
    """F >= 1 and A <= 8 do not give F >= A; f_1 = -6.1 and then f_3 = 3.6 look like a reserve."""
    b = np.ones(1)
    true = charged([8.5] * 4, [8.0] * 3, b)
    assert true > 0.34
    assert 0.0 < reserved([8.5], [8.0], 1.0, 8.0, 3, b) < 0.1


@pytest.mark.parametrize("seed", range(8))
def test_the_reserve_is_enough_once_returns_are_capped(seed: int) -> None:
    """With A capped at F - w, w what stays of every round, whatever F_s >= F and A_s <= A do.

    Known before the upload of round t: F_t >= F, and of A_{t-1} only that it is between two ends.
    """
    rng = np.random.default_rng(seed)
    tightest = 0.0
    for _ in range(500):
        own, left = int(rng.integers(1, 4)), int(rng.integers(0, 5))
        stays, most = rng.uniform(0.1, 1), rng.uniform(0.5, 9)
        least = stays + rng.uniform(0, 6)
        fresh = [float(least * (1 + rng.choice([0, 3]) * rng.random())) for _ in range(own + left)]
        ends = [min(most, each - stays) for each in fresh]
        returned = [float(end * rng.choice([1.0, rng.random()])) for end in ends]
        b = np.where(rng.random(own) < 0.7, rng.random(own) * 2, 0.0)
        b[-1] = 1.0
        true = charged(fresh, returned, b)
        capped = min(most, least - stays)
        after = reserved(fresh[:own], returned[:own], least, capped, left, b)
        assert true <= after * (1 + 1e-9)
        before = max(
            reserved(
                [*fresh[: own - 1], least],
                [*returned[: max(own - 2, 0)], *([end] if own > 1 else []), capped],
                least,
                capped,
                left,
                b,
            )
            for end in ((0.0, ends[own - 2]) if own > 1 else (0.0,))
        )
        assert true <= before * (1 + 1e-9)
        tightest = max(tightest, true / after)
    assert tightest > 0.999


# -- numbers on the page ----------------------------------------------------------------------


def gap(v: float, w: float, order: float) -> float:
    """Of a million coordinates and 60 rounds, in nats."""
    rounds, dimension = 60, 10**6
    x = theta_rest(math.pi**2 * v)
    e1 = 2 * x + x * x
    e2 = math.expm1((rounds - 1) * math.log1p(theta_rest(2 * math.pi**2 / (1 / v + 4 / w))))
    q = math.exp(-2 * math.pi**2 * (v + w))
    gamma = 4 * rounds * math.atanh(e1) + 2 * math.atanh(e2)
    return dimension * (order * gamma + rounds * math.log1p(2 * q / (1 - q))) / (order - 1)


def test_what_a_gap_of_a_million_coordinates_needs() -> None:
    assert gap(5.4, 8 * 5.4, 1.01) < 1e-12  # at every order in use
    assert gap(4.9, 8 * 4.9, 1.01) > 9e-11  # 4.9 is for large orders only
    assert gap(4.9, 8 * 4.9, 100.0) < 1e-12
    assert gap(4.9, 4.9, 2.0) > 1  # and what stays must be four times a single part
    assert gap(13.1, 13.1, 1.01) < 1e-12


def test_one_participation_is_charged_what_the_page_says() -> None:
    share = 0.88
    sigma = tridiagonal([1.0] * 201, [share] * 200)
    inverse = np.linalg.inv(sigma)
    assert inverse[100, 100] == pytest.approx(1.513, abs=1e-3)
    assert inverse[0, 0] == pytest.approx(2.561, abs=1e-3)
    assert inverse[200, 200] == pytest.approx(0.787, abs=1e-3)
