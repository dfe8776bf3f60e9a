"""kappa and p for an epsilon: as printed, and the best by trying all."""

from __future__ import annotations

import math

import pytest

from dp.local import InfeasibleEpsilonError, PrivQuant, best_priv_quant
from dp.local.agreement import AgreementSums
from dp.local.calibration import MAX_PROBABILITY, printed_priv_quant, share_of_kappa

EPSILONS = [0.3, 1.0, 7.0, 60.0]


@pytest.mark.parametrize(("dimension", "levels"), [(30, 2), (31, 8), (599, 16), (10**6, 16)])
@pytest.mark.parametrize("epsilon", [1.0, 10.0, 400.0, 3000.0])
def test_the_printed_rule_takes_the_largest_kappa(
    dimension: int, levels: int, epsilon: float
) -> None:
    try:
        randomizer = printed_priv_quant(dimension, levels, 1.0, epsilon)
    except InfeasibleEpsilonError:
        assert (dimension, levels, epsilon) == (31, 8, 1.0)
        return
    assert 0.0 < randomizer.epsilon <= epsilon
    assert randomizer.sums.log_ratio <= 0.9 * epsilon
    threshold = randomizer.threshold
    if threshold < dimension:
        assert AgreementSums(dimension, levels, threshold + 1).log_ratio > 0.9 * epsilon
    # The next kappa has the next threshold.
    assert (dimension + randomizer.kappa + 1) / 2 == threshold
    odds = math.log(randomizer.probability / (1.0 - randomizer.probability))
    assert odds == pytest.approx(min(0.1 * epsilon, 36.7368), abs=1e-4)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("dimension", "levels"), [(1, 2), (1, 16), (5, 3), (12, 2), (40, 8)])
def test_the_best_split_is_the_best_of_all(dimension: int, levels: int, epsilon: float) -> None:
    best = best_priv_quant(dimension, levels, 1.0, epsilon)
    assert best.epsilon <= epsilon
    assert best.epsilon == pytest.approx(epsilon, rel=1e-9) or best.probability == MAX_PROBABILITY
    tried = []
    for threshold in range(1, dimension + 1):
        sums = AgreementSums(dimension, levels, threshold)
        probability = min(sums.probability_for(epsilon), MAX_PROBABILITY)
        probability = math.floor(probability * 2.0**64) / 2.0**64
        if 0.0 < probability and sums.log_density_ratio(probability) > 0.0:
            kappa = 2 * threshold - dimension - 1
            tried.append(PrivQuant(dimension, levels, 1.0, kappa, probability).factor)
    assert best.factor == pytest.approx(max(tried), rel=1e-12)
    # It is a rise and a fall, which is what the search relies on.
    top = tried.index(max(tried))
    assert tried[: top + 1] == sorted(tried[: top + 1])
    assert tried[top:] == sorted(tried[top:], reverse=True)


def test_the_best_split_beats_the_printed_one() -> None:
    for levels in (2, 8, 16, 32):
        best = best_priv_quant(599, levels, 1.0, 400.0)
        printed = printed_priv_quant(599, levels, 1.0, 400.0)
        assert best.factor > printed.factor
        assert best.worst_variance < printed.worst_variance
        assert share_of_kappa(best) > 0.98
        # Another share of kappa comes close to it.
        tuned = printed_priv_quant(599, levels, 1.0, 400.0, share=0.98)
        assert tuned.factor == pytest.approx(best.factor, rel=0.01)


def test_the_papers_range_of_kappa_excludes_the_papers_figures() -> None:
    # kappa >= 0 at d~ = 599 or, by Algorithm 2, 1024, and the largest epsilon for LeNet-5, 400.
    kappas = {
        (d, levels): printed_priv_quant(d, levels, 1.0, 400.0).kappa
        for d in (599, 1024)
        for levels in (2, 8, 16, 32)
    }
    possible = {key for key, kappa in kappas.items() if kappa >= 0}
    assert possible == {(599, 2), (599, 8), (1024, 2)}


def test_one_coordinate_is_randomised_response() -> None:
    best = best_priv_quant(1, 16, 1.0, 2.0)
    assert best.probability == pytest.approx(math.exp(2.0) / (math.exp(2.0) + 15.0), rel=1e-12)


def test_what_cannot_be_had_is_said() -> None:
    with pytest.raises(InfeasibleEpsilonError, match=r"epsilon = 1 is .* d = 1 .*K = 8"):
        printed_priv_quant(1, 8, 1.0, 1.0)
    # Two agreements of four are likelier by chance than a tenth of epsilon makes up for.
    with pytest.raises(InfeasibleEpsilonError, match=r"epsilon = 0\.1 is not enough"):
        printed_priv_quant(4, 2, 1.0, 0.1)
    with pytest.raises(InfeasibleEpsilonError, match="with a share of 1 for kappa"):
        printed_priv_quant(1, 2, 1.0, 1e-6, math.nextafter(1.0, 0.0))
