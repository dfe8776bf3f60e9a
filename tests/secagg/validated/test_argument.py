"""The small cases of docs/validated.md: what its lemmas say, computed exactly where it can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from math import comb, exp, pi, sin
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import ncx2

from secagg import ParameterError
from secagg.validated.bounds import announced_bound, least_bound, length_bound
from secagg.validated.messages import (
    HEADER_BYTES,
    delivered_bytes,
    functional_words,
    packed_bytes,
    part_bytes,
)
from secagg.validated.parameters import ROWS, SLACK, Parameters, ring_for
from secagg.validated.ring import PrimeRing


class TestSilence:
    @pytest.mark.parametrize(
        ("coordinates", "length"), [(1000, 1.707), (10_000, 3.565), (100_000, 10.287)]
    )
    def test_the_bound_of_a_vector_with_noise(self, coordinates: int, length: float) -> None:
        # Noise of a thousand clients, as large together as a vector in every coordinate.
        spread = 1000**-0.5
        found = length_bound(1.0, [(coordinates // 4, spread), (3 * coordinates // 4, spread)])
        assert found == pytest.approx(length, abs=1e-3)
        tail = ncx2.sf((found / spread) ** 2, coordinates, spread**-2)
        assert 2.0**-87 < tail <= 2.0**-80

    def test_quieter_coordinates_count_for_less(self) -> None:
        # Noise in some coordinates, errors alone in others: their sum of squares, simulated.
        parts = [(200, 3.0), (1848, 0.5)]
        found = length_bound(100.0, parts, bits=10.0)
        random = np.random.default_rng(1)
        squares = sum(
            (random.normal(mean, spread, (count, 20_000)) ** 2).sum(axis=0)
            for count, spread, mean in ((200, 3.0, 100.0 / 200**0.5), (1848, 0.5, 0.0))
        )
        # Of 20,000 with probability 2^-10 at most: 20 are expected, 46 seen with 1e-6.
        over = int((squares > found**2).sum())
        assert over <= 46 and length_bound(100.0, [(2048, 3.0)], bits=10.0) > 1.2 * found
        assert length_bound(7.0, []) == 7.0
        loud = [(2048, 300.0)]
        least, announced = least_bound(1e4, loud), announced_bound(1e4, loud)
        assert least < announced < 1.00001 * least

    def test_a_row_of_an_honest_vector(self) -> None:
        assert 2 * ROWS * exp(-((SLACK[0] / SLACK[1]) ** 2)) < 2.0**-101


def passing(vector: Sequence[int], q: int, tau: int, entries: Sequence[int]) -> float:
    """The exact probability that a random row has the vector within tau of zero modulo q."""
    law = np.zeros(q)
    law[0] = 1.0
    for value in vector:
        law = np.mean([np.roll(law, entry * value) for entry in entries], axis=0)
    return float(law[: tau + 1].sum() + law[q - tau :].sum())


ENTRIES = (-1, 0, 0, 1)


def wrapped_vectors(q: int) -> Iterator[list[int]]:
    """Vectors whose squared norm is just (1 - 2^-8) q or more.

    Of equal entries, of one large entry and equal others, and drawn ones.
    """
    least = (1.0 - 2.0**-8) * q
    for value in range(1, q // 2 + 1):
        yield [value] * int(-(-least // value**2))
    for large in range(1, int(least**0.5) + 1, 3):
        for value in (1, 2, 3, 5, 9):
            yield [large] + [value] * int(max(0, -(-(least - large**2) // value**2)))
    random = np.random.default_rng(1)
    for _ in range(200):
        drawn: list[int] = []
        top = int(random.integers(1, q // 2 + 1))
        while sum(x * x for x in drawn) < least:
            drawn.append(int(random.integers(1, top + 1)))
        yield drawn


class TestRows:
    def test_the_closed_form(self) -> None:
        kappa = 5.5 * (1.0 - 2.0**-8) ** 0.5
        part, _ = quad(lambda v: (1.0 - 2.0 * v / pi) * exp(-((kappa * v) ** 2) / 4.0), 0.0, pi / 2)
        assert pi / 2 * part < 0.4409
        assert [0.4409 + pi**2 / 2 / (30.25 * tau) < 0.5 for tau in (2, 4, 8)] == [
            False,
            True,
            True,
        ]
        x = np.linspace(1e-9, pi / 4, 1000)
        assert pi**2 / 8 * (np.sin(x) / x).min() ** 2 == pytest.approx(1.0)
        assert pi**2 / 8 * (sin(pi / 4) / (pi / 4)) ** 2 == pytest.approx(1.0)

    @pytest.mark.parametrize("tau", [4, 8])
    def test_no_wrapped_vector_passes_more_than_every_other_row(self, tau: int) -> None:
        q = -(-121 * tau**2 // 4) | 1
        found = [(passing(v, q, tau, ENTRIES), max(v)) for v in wrapped_vectors(q)]
        assert max(share for share, _ in found) == pytest.approx(0.5)
        small = [share for share, top in found if top <= 2 * tau]
        assert 0.25 < max(small) < 0.4817

    def test_rows_of_signs_would_not_do(self) -> None:
        vector = [242, 242]
        assert passing(vector, 485, 4, (-1, 1)) == 1.0
        assert passing(vector, 485, 4, ENTRIES) == pytest.approx(0.5)


P = 5
SLOT, MEMBERS = P - 1, (1, 2, 3)


Numbers = NDArray[np.int64]


def values(polynomial: Iterable[Numbers], x: int) -> Numbers:
    """What a polynomial is at a point, modulo 5."""
    return np.asarray(sum(c * x**i for i, c in enumerate(polynomial)) % P)


def views(f: int, other: int, bit: int, *, mask_degree: int = 2, challenges: int = 1) -> Numbers:
    """How often member 1 and the server see what, over all randomness of a dealer.

    N = 2, l = T = 1 over GF(5): f, f', one bit and the three masks; the functional is 3 f + f', and
    its public constant makes the statement true.
    """
    free = np.array(list(product(range(P), repeat=5 + mask_degree + 2)), np.int64).T
    sharing, m1, m2, m3 = (
        free[:3],
        free[3 : 3 + mask_degree],
        free[3 + mask_degree :][:2],
        free[-2:],
    )
    # Degree 1 with the secret at the slot: s + r (x + 1).
    secrets = [((s + r) % P, r) for s, r in zip((f, other, bit), sharing, strict=True)]
    # A mask that is zero at the slot: (x + 1) (...).
    factor: list[Numbers] = [m1[0], *(m1[i] + m1[i - 1] for i in range(1, mask_degree)), m1[-1]]
    zero: list[Numbers] = [m2[0], m2[0] + m2[1], m2[1]]
    seen = []
    for j in MEMBERS:
        y, z, b = (values(each, j) for each in secrets)
        masks = values(factor, j), values(zero, j), values(m3, j)
        if j == 1:
            seen += [y, z, b, *masks]
        for eta, zeta, lam in ((2, 3, (1, 4, 2)), (1, 2, (3, 3, 1)))[:challenges]:
            constant = -(3 * f + other + eta * f * other + 2 * eta * bit)
            v1 = masks[0] + 3 * y + z + eta * y * z + 2 * eta * b + constant
            v2 = masks[1] + zeta * b * (b - 1)
            seen += [v1, v2, masks[2] + lam[0] * y + lam[1] * z + lam[2] * b]
    code = np.zeros(free.shape[1], np.int64)
    for each in seen:
        code = code * P + each % P
    return np.sort(code)


class TestAnswersRevealNothing:
    # With the same public constant, under both challenges.
    SECRETS = ((0, 0, 1), (1, 2, 0), (4, 3, 0))

    def test_what_is_seen_does_not_depend_on_the_secrets(self) -> None:
        one, *others = (views(*secrets) for secrets in self.SECRETS)
        assert all(np.array_equal(one, other) for other in others)

    @pytest.mark.parametrize("twin", [{"mask_degree": 1}, {"challenges": 2}])
    def test_a_mask_of_too_low_a_degree_or_used_twice_does(self, twin: dict[str, int]) -> None:
        one, other = (views(*secrets, **twin) for secrets in self.SECRETS[:2])
        assert not np.array_equal(one, other)


def at_slot(points: Sequence[int], given: Sequence[int], p: int) -> int:
    """The value at -1 of the polynomial through these values."""
    total = 0
    for i, x in enumerate(points):
        top = bottom = 1
        for j, other in enumerate(points):
            if j != i:
                top, bottom = top * (-1 - other) % p, bottom * (x - other) % p
        total += given[i] * top * pow(bottom, -1, p)
    return total % p


def test_one_set_of_members_for_all_repetitions() -> None:
    """Which two challenges let a false statement through, with shares that lie on no polynomial.

    Of seven honest members any three fix a polynomial.
    """
    p, degree, points = 101, 2, range(1, 8)
    random = np.random.default_rng(1)
    false, *masks = random.integers(0, p, (3, len(points))).tolist()
    sets = list(combinations(points, degree + 1))

    def refuted(values: Sequence[int], chosen: Sequence[int]) -> int:
        return at_slot(chosen, [values[x - 1] for x in chosen], p)

    passed = [
        [-refuted(mask, each) * pow(refuted(false, each), -1, p) % p for mask in masks]
        for each in sets
    ]
    together = {tuple(pair) for pair in passed}
    alone = {one for one, _ in passed}, {other for _, other in passed}
    assert len(together) <= len(sets) == comb(7, 3) == 35
    # Each repetition decoded with a set of its own: 20 times as many.
    assert len(alone[0]) * len(alone[1]) > 20 * len(together)


@pytest.mark.parametrize(
    ("members", "corrupt", "away", "most", "repetitions"),
    [
        (7, 1, 0, 2, (4, 3, 3)),
        (16, 2, 2, 3, (4, 4, 3)),
        (50, 5, 5, 13, (4, 4, 4)),
        (248, 25, 25, 62, (8, 7, 6)),
    ],
)
def test_secrets_and_repetitions_of_committees(
    members: int, corrupt: int, away: int, most: int, repetitions: tuple[int, ...]
) -> None:
    def of(bits: int, per_polynomial: int) -> Parameters:
        return Parameters(
            ring=PrimeRing(2048, bits),
            blocks=1,
            members=members,
            corrupt=corrupt,
            away=away,
            randomness=corrupt,
            per_polynomial=per_polynomial,
            bound=10**6,
        )

    assert tuple(of(bits, most).repetitions for bits in (42, 46, 50)) == repetitions
    with pytest.raises(ParameterError, match="members"):
        of(46, most + 1)


PAGE = Path(__file__).parents[3] / "docs" / "validated.md"
SENT = [
    [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.count("|") == 11 and line[2].isdigit()
]


def test_the_page_has_rows() -> None:
    assert len(SENT) == 7


@pytest.mark.parametrize("row", SENT)
def test_what_a_round_sends_is_what_the_page_says(row: list[str]) -> None:
    clients, dim = int(row[0]), int(row[1])
    members, corrupt, away = map(int, row[2].split())
    clip, rest = 4096, -dim % 2048
    noise = [(dim, (clip**2 / clients + 6.4**2) ** 0.5), (rest, 6.4)]
    bound = announced_bound(clip, noise)
    p = Parameters(
        ring=ring_for(2048, bound),
        blocks=(dim + rest) // 2048,
        members=members,
        corrupt=corrupt,
        away=away,
        randomness=corrupt,
        per_polynomial=(members - 1 - 2 * corrupt - away) // 2 + 1 - corrupt,
        bound=bound,
    )
    seals, words = members * sum(part_bytes(p)), p.blocks * 2048
    assert row[3:] == [
        *(str(p.ring.bits), str(p.repetitions), f"{bound**0.5 / clip:.2f}"),
        *(str(packed_bytes(p.ring, words)), str(seals)),
        *(
            str(packed_bytes(p.ring, functional_words(p))),
            str(delivered_bytes(p, 0) + HEADER_BYTES),
        ),
    ]
