"""FedSel's report: the promise of both stages together, its values, and the rule for mu."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_statistics import ALPHA, mean_tolerance

from dp import NonFiniteUpdateError
from dp.events import LocalRelease
from dp.keystream import NoiseSeed
from dp.local import LocalRandomizer
from dp.local.audit import audit_laws
from dp.local.base import exponential_below
from dp.local.scalars import Duchi, Hybrid, Piecewise
from dp.local.selection import NOTHING, perturbed_encoding, printed_perturbed_encoding
from dp.local.two_stage import TwoStage, TwoStageReports, selection_share_for, two_stage


def law(randomizer: TwoStage, vector: np.ndarray) -> np.ndarray:
    """Every pair of index and message, and nothing: the joint probabilities."""
    chosen = randomizer.selector.probabilities(np.abs(vector))
    clipped = np.clip(vector / randomizer.bound, -1.0, 1.0)
    pairs = [
        chosen[j] * randomizer.scalar.probabilities(float(value)) for j, value in enumerate(clipped)
    ]
    return np.concatenate([*pairs, chosen[len(vector) :]])


def vectors(dimension: int) -> list[np.ndarray]:
    """Values at and beyond both bounds, in every order."""
    return [
        np.array(signs) * np.array(sizes)
        for sizes in itertools.permutations([4.0, 3.0, 2.5, 0.1][:dimension])
        for signs in itertools.product((-1.0, 1.0), repeat=dimension)
    ]


class TestPromise:
    @pytest.mark.parametrize("selector", ["exponential", "encoding", "sampling"])
    def test_both_stages_together(self, selector: str) -> None:
        made = two_stage(3, 2.0, selector=selector, selection_share=0.3, kept_share=0.4, bound=2.0)
        small = TwoStage(made.selector, Piecewise(made.scalar.epsilon, bits=5), bound=2.0)
        audit = audit_laws([law(small, v) for v in vectors(3)], small.epsilon)
        assert small.epsilon == pytest.approx(2.0) and small.event() == LocalRelease(small.epsilon)
        # The worst case of both stages is reached at once: the sum cannot be improved on.
        assert audit.epsilon_found == pytest.approx(2.0, abs=1e-9)

    @pytest.mark.parametrize("selector", ["exponential", "encoding", "sampling"])
    def test_no_rounding_of_the_sum_breaks_it(self, selector: str) -> None:
        """In fractions: of 9.5 a tenth and nine tenths, as doubles, are more than 9.5."""
        for hundredths in range(50, 2000, 29):
            asked = hundredths / 100.0
            made = two_stage(20, asked, selector=selector)
            parts = Fraction(made.selector.epsilon) + Fraction(made.scalar.epsilon)
            assert parts <= Fraction(made.epsilon) <= Fraction(asked)
            # Nothing is given away, either.
            assert made.epsilon == pytest.approx(asked, rel=1e-15)
            scalar = made.scalar.law
            ratio = made.selector.worst_ratio * Fraction(scalar.inside, scalar.outside)
            assert ratio <= exponential_below(asked)

    def test_parts_that_round_down_are_rounded_up(self) -> None:
        made = TwoStage(perturbed_encoding(3, 1, 0.9500000000000001), Piecewise(8.55), 2.0)
        assert 0.9500000000000001 + 8.55 == 9.5
        assert made.epsilon == math.nextafter(9.5, 10.0)

    def test_the_printed_encoding_is_found_out(self) -> None:
        broken = TwoStage(printed_perturbed_encoding(3, 1, 1.0), Piecewise(1.0, bits=5), 2.0)
        claimed = 2.0
        audit = audit_laws([law(broken, v) for v in vectors(3)], claimed)
        assert not audit.holds and audit.margin < -0.1
        # It does not pass for what it claims here either.
        assert broken.epsilon == pytest.approx(audit.epsilon_found)

    def test_shares(self) -> None:
        made = two_stage(50, 2.0)
        assert made.selector.epsilon == pytest.approx(0.2)
        assert made.scalar.epsilon == pytest.approx(1.8)
        assert two_stage(50, 2.0, selection_share=0.0).selector.epsilon == 0.0


class TestReports:
    @pytest.mark.statistical
    @pytest.mark.parametrize("scalar", [Piecewise(1.5), Duchi(1.5), Hybrid(1.5)])
    def test_values_are_unbiased_where_they_were_chosen(
        self, scalar: Duchi | Hybrid | Piecewise, seed: NoiseSeed
    ) -> None:
        vector = np.array([0.3, -3.0, 0.7, 1.9])
        made = TwoStage(perturbed_encoding(4, 2, 0.8), scalar, bound=2.0)
        draws = 100_000
        reports = made.randomize(np.tile(vector, (draws, 1)), seed)
        for j, value in enumerate(np.clip(vector, -2.0, 2.0)):
            sent = reports.values()[reports.indices == j]
            deviation = 2.0 * math.sqrt(scalar.worst_variance)
            tolerance = mean_tolerance(deviation, sent.size)
            assert abs(sent.mean() - value) < tolerance
            # Forgetting the bound would be noticed.
            assert abs(sent.mean() / 2.0 - value) > tolerance or abs(value) < 0.5
        chances = made.selector.probabilities(np.abs(vector))[:4]
        expected = draws * chances * np.clip(vector, -2.0, 2.0)
        spread = draws * 4.0 * (scalar.worst_variance + 1.0)
        limit = mean_tolerance(math.sqrt(spread), 1)
        assert np.abs(reports.total() - expected).max() < limit
        assert ALPHA < 0.5 * np.abs(expected).max() / limit

    def test_total_is_the_sum_of_estimates(
        self, seed: NoiseSeed, generator: np.random.Generator
    ) -> None:
        made = two_stage(7, 3.0, bound=0.5)
        reports = made.randomize(generator.standard_normal((40, 7)), seed)
        estimates = np.array([reports.estimate(i) for i in range(len(reports))])
        assert len(reports) == 40 and (np.count_nonzero(estimates, axis=1) <= 1).all()
        np.testing.assert_allclose(reports.total(), estimates.sum(axis=0), atol=1e-12)

    def test_nothing_is_a_zero_vector(self) -> None:
        made = TwoStage(perturbed_encoding(3, 1, 0.5), Piecewise(1.0))
        reports = TwoStageReports(np.array([NOTHING, 1]), np.array([0, 5]), made)
        assert not reports.estimate(0).any() and reports.estimate(1)[1] != 0.0
        np.testing.assert_array_equal(reports.total(), reports.estimate(1))

    def test_nothing_has_no_message_of_its_own(self, seed: NoiseSeed) -> None:
        made = TwoStage(perturbed_encoding(2, 1, 0.5), Piecewise(1.0))
        reports = made.randomize(np.tile([0.9, 0.1], (100, 1)), seed)
        nothing = reports.indices == NOTHING
        assert 0 < nothing.sum() < 100 and not reports.messages[nothing].any()

    def test_one_vector_is_weighed_and_another_sent(self, seed: NoiseSeed) -> None:
        made = two_stage(3, 80.0, selection_share=0.5, kept_share=0.3)
        weighed, sent = np.array([[0.0, 9.0, 0.0]]), np.array([[0.0, -0.5, 1.0]])
        reports = made.report(weighed, sent, seed)
        assert reports.indices.tolist() == [1]
        assert reports.values()[0] == pytest.approx(-0.5, abs=1e-3)

    def test_bits(self) -> None:
        assert two_stage(100, 2.0).report_bits == 7 + 20
        # 128 indices and nothing need an eighth bit.
        assert two_stage(128, 2.0).report_bits == 7 + 20
        assert two_stage(128, 2.0, selector="encoding", kept_share=0.01).report_bits in (27, 28)

    def test_it_is_a_local_randomizer(self) -> None:
        randomizer: LocalRandomizer = two_stage(5, 1.0)
        assert (randomizer.dimension, randomizer.epsilon) == (5, 1.0)


class TestRule:
    def test_values_come_first(self) -> None:
        for_values = math.sqrt(100 * math.log(100) / 600)
        assert selection_share_for(100, 600, 1.0) == pytest.approx(1.0 - for_values)
        assert selection_share_for(100, 600, for_values) == 0.0
        assert selection_share_for(100, 600, 0.01) == 0.0

    def test_the_choice_never_gets_more_than_the_threshold(self) -> None:
        assert selection_share_for(100, 600, 10.0) == 0.2
        assert selection_share_for(100, 10**9, 1.0, largest=0.5) == 0.5


def test_bad_vectors(seed: NoiseSeed) -> None:
    made = two_stage(3, 1.0)
    with pytest.raises(ValueError, match=r"shape \(clients, 3\)"):
        made.randomize(np.zeros((1, 2)), seed)
    with pytest.raises(ValueError, match="sent must have shape"):
        made.report(np.zeros((2, 3)), np.zeros((1, 3)), seed)
    with pytest.raises(NonFiniteUpdateError):
        made.randomize(np.array([[0.0, math.nan, 1.0]]), seed)
