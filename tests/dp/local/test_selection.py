"""Selectors: exact laws and promises by enumeration, and the published PE, which must fail."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_statistics import ALPHA, chi_square_p_value
from scipy import stats

from dp import NoiseSeed, NonFiniteUpdateError
from dp.keystream import Keystream
from dp.local.audit import AuditedRatio, worst_exact_ratio
from dp.local.selection import (
    NOTHING,
    RankLaw,
    RankSelector,
    calibrated_law,
    encoding_law,
    exponential,
    indices_at,
    perturbed_encoding,
    perturbed_sampling,
    printed_perturbed_encoding,
)
from dp.local.selection.base import _below
from dp.local.selection.law import MAX_WORDS, ratio_below

PAGE = (Path(__file__).parents[3] / "docs" / "local-dp-fedsel.md").read_text()

Make = Callable[[int, int, float], RankSelector]


def exp(dimension: int, top: int, epsilon: float) -> RankSelector:
    return exponential(dimension, epsilon)


HONEST: list[Make] = [exp, perturbed_sampling, perturbed_encoding]
EVERY: list[Make] = [*HONEST, printed_perturbed_encoding]
SMALL = [(2, 1), (3, 1), (3, 2), (5, 2), (5, 4)]


def inputs(dimension: int) -> list[np.ndarray]:
    """Every order of different magnitudes, and some with equal ones."""
    orders = [np.array(p, dtype=float) for p in itertools.permutations(range(dimension))]
    return [*orders, np.zeros(dimension), np.ones(dimension), np.arange(dimension) // 2 * 1.0]


def enumerated_ratio(selector: RankSelector) -> Fraction | None:
    laws = [[int(w) for w in selector.words(x)] for x in inputs(selector.dimension)]
    return worst_exact_ratio(laws)


class TestPromise:
    @pytest.mark.parametrize("make", HONEST)
    @pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.2, 1.0, 5.0, 30.0])
    def test_the_promise_is_exactly_true(self, make: Callable[..., Any], epsilon: float) -> None:
        for dimension, top in SMALL:
            selector = make(dimension, top, epsilon)
            ratio = enumerated_ratio(selector)
            assert ratio == selector.worst_ratio and ratio <= ratio_below(epsilon)
            assert selector.holds and selector.epsilon == epsilon
            # And it is not kept by being needlessly strict.
            assert math.log(ratio) == pytest.approx(epsilon, abs=1e-5)

    @pytest.mark.parametrize(("dimension", "top"), SMALL)
    @pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
    def test_the_printed_encoding_breaks_its_promise(
        self, dimension: int, top: int, epsilon: float
    ) -> None:
        selector = printed_perturbed_encoding(dimension, top, epsilon)
        ratio = enumerated_ratio(selector)
        audit = AuditedRatio(selector.claimed, math.log(ratio))
        assert not audit.holds and not selector.holds
        assert audit.margin < -1e-3
        assert selector.epsilon == pytest.approx(math.log(ratio)) and selector.claimed == epsilon

    def test_two_coordinates_by_hand(self) -> None:
        kept = math.e / (1.0 + math.e)
        ratio = kept / (1.0 - kept) * (1.0 + kept) / (2.0 - kept)
        assert encoding_law(2, 1, 1.0).epsilon == pytest.approx(math.log(ratio), abs=1e-14)
        assert printed_perturbed_encoding(2, 1, 1.0).epsilon == pytest.approx(1.31055, abs=1e-5)

    @pytest.mark.parametrize("epsilon", [40.0, 43.0, 1e3, 1e6])
    def test_more_than_words_can_tell_is_not_spent(self, epsilon: float) -> None:
        for make in HONEST:
            selector = make(1000, 100, epsilon)
            assert selector.holds and selector.law.epsilon <= min(epsilon, 43.0)

    @pytest.mark.parametrize("make", HONEST)
    def test_a_million_coordinates(self, make: Callable[..., Any]) -> None:
        selector = make(10**6, 10**5, 0.2)
        assert selector.holds
        assert selector.law.epsilon == pytest.approx(0.2, abs=1e-9)


class TestLaws:
    def test_exponential(self) -> None:
        magnitudes = np.array([0.3, 0.1, 0.2, 0.5])
        shares = np.exp(0.7 * np.array([3, 1, 2, 4]) / 3)
        found = exponential(4, 0.7).probabilities(magnitudes)
        np.testing.assert_allclose(found, shares / shares.sum(), rtol=1e-12)

    def test_sampling(self) -> None:
        magnitudes = np.array([0.3, 0.1, 0.2, 0.5, 0.4])
        top = 2 * math.exp(0.7) / (3 + 2 * math.exp(0.7))
        found = perturbed_sampling(5, 2, 0.7).probabilities(magnitudes)
        rest = (1 - top) / 3
        np.testing.assert_allclose(found, [rest, rest, rest, top / 2, top / 2], rtol=1e-12)

    @pytest.mark.parametrize(("dimension", "top"), [(2, 1), (4, 1), (5, 2), (6, 5)])
    @pytest.mark.parametrize("log_odds", [0.0, 0.1, 1.0, 6.0])
    def test_encoding_by_every_pattern_of_flips(
        self, dimension: int, top: int, log_odds: float
    ) -> None:
        kept = Fraction(1.0 / (1.0 + math.exp(-log_odds)))
        chances = [kept if j < top else 1 - kept for j in range(dimension)]
        law = [Fraction(0)] * (dimension + 1)
        for bits in itertools.product((0, 1), repeat=dimension):
            chance = math.prod(c if bit else 1 - c for bit, c in zip(bits, chances, strict=True))
            chosen = [j for j in range(dimension) if bits[j]] or [dimension]
            for j in chosen:
                law[j] += chance / len(chosen)
        found = encoding_law(dimension, top, log_odds)
        assert found.large == pytest.approx(float(law[0]), rel=1e-13)
        assert found.small == pytest.approx(float(law[-2]), rel=1e-13)
        assert found.nothing == pytest.approx(float(law[-1]), rel=1e-12)
        assert found.epsilon == pytest.approx(math.log(law[0] / law[-2]), abs=1e-13)
        words = printed_perturbed_encoding(dimension, top, log_odds)
        falling = np.arange(dimension, 0, -1.0)
        exact = np.array([float(p) for p in law])
        np.testing.assert_allclose(words.probabilities(falling), exact, rtol=1e-8, atol=1e-18)

    @pytest.mark.parametrize(("dimension", "top"), [(200, 20), (3000, 1), (2000, 1999)])
    @pytest.mark.parametrize("log_odds", [0.05, 1.0, 12.0])
    def test_encoding_by_the_law_of_the_number_of_ones(
        self, dimension: int, top: int, log_odds: float
    ) -> None:
        kept = 1.0 / (1.0 + math.exp(-log_odds))
        ones = np.convolve(
            stats.binom.pmf(np.arange(top), top - 1, kept),
            stats.binom.pmf(np.arange(dimension - top), dimension - top - 1, 1.0 - kept),
        )
        n = np.arange(ones.size)
        inverse, next_inverse = ones @ (1.0 / (1.0 + n)), ones @ (1.0 / (2.0 + n))
        large = kept * ((1.0 - kept) * next_inverse + kept * inverse)
        small = (1.0 - kept) * ((1.0 - kept) * inverse + kept * next_inverse)
        found = encoding_law(dimension, top, log_odds)
        assert found.large == pytest.approx(large, rel=1e-9)
        assert found.small == pytest.approx(small, rel=1e-9)

    def test_encoding_of_a_million_in_closed_form(self) -> None:
        # With k = 1 the other ones are Bin(d - 1, q), and E[1/(1 + B)] = (1 - (1 - q)^d)/(d q).
        d, log_odds = 10**6, 3.0
        kept, flipped = 1.0 / (1.0 + math.exp(-log_odds)), 1.0 / (1.0 + math.exp(log_odds))
        inverse = -math.expm1(d * math.log1p(-flipped)) / (d * flipped)
        assert encoding_law(d, 1, log_odds).large == pytest.approx(kept * inverse, rel=1e-11)

    @pytest.mark.parametrize(("dimension", "top"), [(2, 1), (32, 3), (123, 12), (10**6, 10**5)])
    def test_calibration(self, dimension: int, top: int) -> None:
        for epsilon in (0.0, 0.05, 0.2, 1.0, 4.0):
            law = calibrated_law(dimension, top, epsilon)
            assert law.epsilon == pytest.approx(epsilon, abs=1e-12)
            assert epsilon / 2 <= law.log_odds <= epsilon

    def test_calibrated_encoding_is_sampling_that_sometimes_says_nothing(self) -> None:
        for dimension, top in SMALL:
            ours, theirs = (
                perturbed_encoding(dimension, top, 0.8),
                perturbed_sampling(dimension, top, 0.8),
            )
            magnitudes = np.arange(dimension) * 1.0
            given = ours.probabilities(magnitudes)[:-1]
            np.testing.assert_allclose(
                given / given.sum(), theirs.probabilities(magnitudes), rtol=1e-9
            )


class TestDraws:
    @pytest.mark.statistical
    @pytest.mark.parametrize("make", EVERY)
    def test_indices_have_the_law(self, make: Callable[..., Any], seed: NoiseSeed) -> None:
        magnitudes = np.array([0.2, 0.9, 0.0, 0.9, 0.4, 0.1])
        selector, draws = make(6, 2, 0.9), 200_000
        chosen = selector.select(np.tile(magnitudes, (draws, 1)), seed)
        outputs = 6 if selector.outputs == 6 else 7
        counts = np.bincount(np.where(chosen == NOTHING, 6, chosen), minlength=outputs)
        assert chi_square_p_value(counts, selector.probabilities(magnitudes)) > ALPHA
        broken = make(6, 2, 0.95).probabilities(magnitudes)
        assert chi_square_p_value(counts, broken) < ALPHA

    @pytest.mark.statistical
    def test_one_word_does_what_all_flips_do(self, generator: np.random.Generator) -> None:
        # The published algorithm, step by step, against the reduced law.
        d, top, draws = 6, 2, 200_000
        law = calibrated_law(d, top, 1.5)
        kept = 1.0 / (1.0 + math.exp(-law.log_odds))
        ones = generator.random((draws, d)) < np.where(np.arange(d) < top, kept, 1.0 - kept)
        weights = generator.random((draws, d)) * ones
        chosen = np.where(ones.any(axis=1), weights.argmax(axis=1), d)
        counts = np.bincount(chosen, minlength=d + 1)
        falling = np.arange(d, 0, -1.0)
        assert chi_square_p_value(
            counts, perturbed_encoding(d, top, 1.5).probabilities(falling)
        ) > (ALPHA)
        printed = printed_perturbed_encoding(d, top, 1.5).probabilities(falling)
        assert chi_square_p_value(counts, printed) < ALPHA

    def test_a_seed_fixes_the_choice_and_another_changes_it(
        self, seed: NoiseSeed, generator: np.random.Generator
    ) -> None:
        magnitudes = generator.random((50, 40))
        selector = exponential(40, 1.0)
        first = selector.select(magnitudes, seed)
        np.testing.assert_array_equal(selector.select(magnitudes, seed), first)
        other = selector.select(magnitudes, NoiseSeed(bytes(32)))
        assert (other != first).any()

    @pytest.mark.statistical
    def test_words_below_a_total_are_uniform(self, seed: NoiseSeed) -> None:
        # A sixteenth of all words is refused; taking them all the same would favour small ones.
        total, draws = 3 << 60, 100_000
        drawn = _below(total, draws, Keystream(seed))
        assert int(drawn.max()) < total
        thirds = np.bincount((drawn >> np.uint64(60)).astype(np.int64), minlength=3)
        assert chi_square_p_value(thirds, np.full(3, 1 / 3)) > ALPHA
        words = np.empty(draws, dtype="<u8")
        Keystream(seed).fill(words)
        biased = np.bincount(((words % total) >> np.uint64(60)).astype(np.int64), minlength=3)
        assert chi_square_p_value(biased, np.full(3, 1 / 3)) < ALPHA

    @pytest.mark.parametrize("dimension", [2, 3, 50, 1000])
    def test_places_are_found_as_by_sorting(
        self, dimension: int, generator: np.random.Generator
    ) -> None:
        rows = 60
        kinds = [
            generator.standard_normal((rows, dimension)),
            generator.integers(0, 3, (rows, dimension)) * 0.5,
            generator.standard_normal((rows, dimension)) * 10.0 ** generator.integers(-300, 300),
            np.zeros((rows, dimension)),
            1.0 + generator.integers(0, 4, (rows, dimension)) * 2.0**-52,
        ]
        for numbers in kinds:
            magnitudes = np.abs(numbers)
            places = generator.integers(-1, dimension, rows)
            order = np.argsort(-magnitudes, axis=1, kind="stable")
            wanted = np.where(places < 0, places, order[np.arange(rows), np.maximum(places, 0)])
            np.testing.assert_array_equal(indices_at(magnitudes, places), wanted)

    def test_ties_go_to_the_lower_index_whatever_the_sign_of_zero(self) -> None:
        magnitudes = np.array([[0.0, -0.0, 0.0, 1.0, 1.0]])
        found = [int(indices_at(magnitudes, np.array([p]))[0]) for p in range(5)]
        assert found == [3, 4, 0, 1, 2]

    def test_a_million_coordinates(self, seed: NoiseSeed, generator: np.random.Generator) -> None:
        magnitudes = np.abs(generator.standard_normal((1, 10**6)))
        index = int(perturbed_sampling(10**6, 10**5, 40.0).select(magnitudes, seed)[0])
        above = np.count_nonzero(magnitudes > magnitudes[0, index])
        assert above < 10**5


class TestRefusals:
    def test_magnitudes_that_are_none(self, seed: NoiseSeed) -> None:
        selector = exponential(3, 1.0)
        with pytest.raises(ValueError, match="must not be negative"):
            selector.select(np.array([[0.1, -0.1, 0.2]]), seed)
        with pytest.raises(ValueError, match=r"shape \(clients, 3\)"):
            selector.select(np.zeros((1, 4)), seed)
        with pytest.raises(TypeError, match="float64"):
            selector.select(np.zeros((1, 3), np.float32), seed)
        for bad in (math.nan, math.inf):
            with pytest.raises(NonFiniteUpdateError):
                selector.select(np.array([[0.1, bad, 0.2]]), seed)

    def test_laws_that_are_none(self) -> None:
        one = np.ones(1, np.int64)
        for sizes, words, nothing in (
            (one, np.ones(2, np.uint64), 0),
            (one * 0, np.ones(1, np.uint64), 0),
            (one, np.zeros(1, np.uint64), 0),
            (one, np.ones(1, np.uint64), -1),
        ):
            with pytest.raises(ValueError, match="sizes and words must be"):
                RankLaw(sizes, words, nothing)
        for words in (MAX_WORDS + 1, (1 << 64) - 1):
            with pytest.raises(ValueError, match="a law has at most"):
                RankLaw(one * 2, np.array([words], np.uint64))


class TestPage:
    def test_table(self) -> None:
        lines = PAGE[PAGE.index("| d | k | claimed") :].split("\n\n")[0].splitlines()[2:]
        assert len(lines) == 8
        for line in lines:
            cells = [float(cell.replace(",", "")) for cell in line.strip("|").split("|")]
            (d, k), (claimed, *shown) = map(int, cells[:2]), cells[2:]
            printed = encoding_law(d, k, claimed)
            honest = calibrated_law(d, k, claimed)
            found = [printed.epsilon, honest.log_odds, k * printed.large, k * honest.large]
            np.testing.assert_allclose(found, shown, rtol=0, atol=6e-5)
            # The bounds of the page.
            most = math.log((1 + 1 / (1 + math.exp(-claimed))) / (2 - 1 / (1 + math.exp(-claimed))))
            assert claimed < printed.epsilon <= claimed + most + 1e-12
