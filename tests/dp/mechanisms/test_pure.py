"""Laplace and AboveThreshold: exact privacy by enumeration, and what half the noise would give."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from dp_statistics import ALPHA, mean_tolerance
from scipy import stats

from dp import DominationAccountant, GaussianRelease, PrivacyError, UnsupportedEventError
from dp.accounting.exact import ExactAccountant
from dp.events import AboveThresholdRelease, LaplaceRelease
from dp.keystream import NoiseSeed
from dp.mechanisms.above_threshold import AboveThreshold, HaltedError
from dp.mechanisms.laplace import LaplaceMechanism, grid_point, steps_for
from dp.records import decode_event, encode_event

# What is beyond weighs exp(-30): far below the tolerance of the ratios.
REACH = 30
TOLERANCE = 1e-9


def masses(scale: float, reach: int) -> np.ndarray:
    """P[z] for z = -reach .. reach, from the closed form."""
    q = math.exp(-1.0 / scale)
    return (1.0 - q) / (1.0 + q) * q ** np.abs(np.arange(-reach, reach + 1))


def survival(scale: float, x: np.ndarray) -> np.ndarray:
    """The exact probability P[Z > x]."""
    q = math.exp(-1.0 / scale)
    above = q ** (np.maximum(x, 0) + 1.0) / (1 + q)
    return np.where(x >= 0, above, 1.0 - q ** np.maximum(-x, 0).astype(float) / (1 + q))


def laplace_loss(event: LaplaceRelease) -> float:
    """The largest privacy loss over all outcomes and all changes within the sensitivity."""
    reach = 2 * event.sensitivity + 50
    worst = 0.0
    for shift in range(1, event.sensitivity + 1):
        p = masses(event.scale, reach)
        worst = max(worst, float(np.max(np.abs(np.log(p[shift:] / p[:-shift])))))
    return worst


def halting(event: AboveThresholdRelease, gaps: tuple[int, ...]) -> np.ndarray:
    """P[first "yes" at j] for each question and P[never], gaps being numbers less threshold."""
    reach = math.ceil(event.threshold_scale * REACH)
    z = np.arange(-reach, reach + 1)
    going = masses(event.threshold_scale, reach)
    found = []
    for gap in gaps:
        no = survival(event.query_scale, z - gap)
        found.append(float(np.sum(going * (1.0 - no))))
        going = going * no
    return np.array([*found, float(np.sum(going))])


def stream_loss(event: AboveThresholdRelease, questions: int = 4) -> float:
    """The largest privacy loss over a small domain of streams and all their neighbours."""
    s = event.sensitivity
    worst = 0.0
    for gaps in itertools.product((-4 * s, 0, 4 * s, 12 * s), repeat=questions):
        here = halting(event, gaps)
        for moves in itertools.product((-s, s), repeat=questions):
            there = halting(event, tuple(g + m for g, m in zip(gaps, moves, strict=True)))
            # Outcomes rarer than this lose digits to what was cut off the threshold's tail.
            seen = (here > 1e-9) & (there > 1e-9)
            worst = max(worst, float(np.max(np.abs(np.log(here[seen] / there[seen])))))
    return worst


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_laplace_loses_epsilon_and_no_more(epsilon: float) -> None:
    event = LaplaceMechanism(1.0, epsilon).event()
    small = LaplaceRelease(event.scale / event.sensitivity * 5, 5)
    for one in (event, small):
        assert laplace_loss(one) == pytest.approx(epsilon, rel=1e-9)
        assert one.epsilon == pytest.approx(epsilon)
    assert laplace_loss(replace(small, scale=small.scale / 2)) > 1.9 * epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_a_stream_loses_at_most_epsilon(epsilon: float) -> None:
    event = AboveThresholdRelease(2.0 * 2 / epsilon, 4.0 * 2 / epsilon, 2)
    assert event.epsilon == pytest.approx(epsilon)
    assert stream_loss(event) <= epsilon + TOLERANCE


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_half_the_noise_loses_more(epsilon: float) -> None:
    twin = AboveThresholdRelease(2.0 / epsilon, 4.0 / epsilon, 2)
    assert stream_loss(twin) > 1.1 * epsilon


def test_noise_that_is_drawn_once_for_all_questions_loses_more() -> None:
    """A classical mistake: no noise on the questions at all."""
    promised = AboveThresholdRelease(4.0, 8.0, 2)
    assert stream_loss(promised) <= promised.epsilon + TOLERANCE
    assert stream_loss(replace(promised, query_scale=0.1)) > 2.0 * promised.epsilon


@pytest.mark.statistical
def test_the_mechanism_follows_its_own_event() -> None:
    """Halting times of the code against the enumerated law of its event."""
    mechanism = AboveThreshold(1.0, 1.0, NoiseSeed(bytes(32)))
    event = mechanism.event()
    unit = 1.0 / (event.sensitivity - 1)
    values = (4.0, 1.0, -2.0)
    law = halting(event, tuple(math.floor(v / unit) for v in values))
    counts, runs = np.zeros(4), 3000
    for i in range(runs):
        stream = AboveThreshold(1.0, 1.0, NoiseSeed(i.to_bytes(32, "big")))
        answers = [stream.halted or stream.below(v, 0.0) for v in values]
        counts[answers.index(True) if True in answers else 3] += 1
    assert stats.chisquare(counts, law / law.sum() * runs).pvalue > ALPHA
    weaker = halting(
        AboveThresholdRelease(event.threshold_scale / 2, event.query_scale / 2, 1),
        tuple(math.floor(v / unit) for v in values),
    )
    assert stats.chisquare(counts, weaker / weaker.sum() * runs).pvalue < ALPHA


def test_a_stream_ends_with_its_first_yes() -> None:
    stream = AboveThreshold(1e-3, 1.0)
    assert not stream.below(1.0, 0.0)
    assert not stream.halted
    assert stream.below(-1.0, 0.0)
    assert stream.halted
    with pytest.raises(HaltedError, match="paid"):
        stream.below(1.0, 0.0)
    assert issubclass(HaltedError, PrivacyError)


@pytest.mark.statistical
def test_slack_holds() -> None:
    """Numbers alpha above the threshold go on, those alpha below stop, but for the failure."""
    failure, questions, runs = 0.2, 5, 400

    def p_value(share: float) -> float:
        wrong = 0
        for i in range(runs):
            stream = AboveThreshold(1.0, 1.0, NoiseSeed((7000 + i).to_bytes(32, "big")))
            slack = share * stream.slack(questions, failure)
            early = any(stream.below(slack, 0.0) for _ in range(questions - 1))
            wrong += early or not stream.below(-slack, 0.0)
        return float(stats.binom.sf(wrong - 1, runs, failure))

    assert p_value(1.0) > ALPHA
    assert p_value(0.1) < ALPHA


@pytest.mark.statistical
def test_the_noise_of_a_number() -> None:
    mechanism, runs = LaplaceMechanism(0.5, 2.0), 4000
    draws = [mechanism.release(3.0, NoiseSeed(i.to_bytes(32, "big"))) - 3.0 for i in range(runs)]
    # A Laplace law has deviation sqrt(2) scale; rounding down takes less than a grid step.
    tolerance = mean_tolerance(math.sqrt(2.0) * mechanism.scale, runs) + mechanism.grid
    assert abs(float(np.mean(draws))) < tolerance
    # |noise| has mean and deviation equal to the scale.
    magnitude = float(np.mean(np.abs(draws)))
    assert abs(magnitude - mechanism.scale) < mean_tolerance(mechanism.scale, runs)
    assert abs(magnitude - mechanism.scale / 2) > mean_tolerance(mechanism.scale, runs)
    assert mechanism.scale == pytest.approx(0.25, rel=2e-3)


def test_neighbours_stay_within_the_integer_sensitivity() -> None:
    mechanism = LaplaceMechanism(0.3, 0.7)
    generator = np.random.default_rng(5)
    for value in generator.uniform(-10, 10, 2000):
        gap = grid_point(value + 0.3, mechanism.grid) - grid_point(value, mechanism.grid)
        assert abs(gap) <= mechanism.event().sensitivity


def test_fresh_noise_differs() -> None:
    streams = {AboveThreshold(1.0, 0.5)._threshold for _ in range(20)}
    assert len(streams) > 1


def test_pure_epsilons_add_to_the_rest() -> None:
    gaussian, laplace = GaussianRelease(4.0, 1.0), LaplaceRelease(10.0, 5)
    stream = AboveThresholdRelease(8.0, 16.0, 2)
    account = DominationAccountant()
    account.compose(laplace)
    assert account.epsilon(1e-6) == pytest.approx(0.5)
    account.compose(gaussian)
    alone = DominationAccountant()
    alone.compose(gaussian)
    account.compose(stream)
    assert account.copy().epsilon(1e-6) == pytest.approx(alone.epsilon(1e-6) + 0.5 + 0.5)
    assert account.releases == 1


def test_the_sum_is_a_bound_by_another_library() -> None:
    """dp-accounting's privacy loss distributions of the textbook mechanisms, composed."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    account = DominationAccountant()
    account.compose(GaussianRelease(4.0, 1.0))
    account.compose(LaplaceRelease(10.0, 5), 2)
    tight = losses.from_gaussian_mechanism(4.0).compose(
        losses.from_laplace_mechanism(2.0).self_compose(2)
    )
    ours, theirs = account.epsilon(1e-6), tight.get_epsilon_for_delta(1e-6)
    assert theirs - 1e-3 <= ours <= theirs + 1.0
    twin = DominationAccountant()
    twin.compose(GaussianRelease(4.0, 1.0))
    twin.compose(LaplaceRelease(20.0, 5), 2)
    assert twin.epsilon(1e-6) < theirs


def test_accountants_without_the_theorem_refuse() -> None:
    with pytest.raises(UnsupportedEventError, match="LaplaceRelease"):
        ExactAccountant().compose(LaplaceRelease(1.0, 1))


@pytest.mark.parametrize("event", [LaplaceRelease(2.5, 3), AboveThresholdRelease(2.0, 4.0, 1)])
def test_records(event: LaplaceRelease | AboveThresholdRelease) -> None:
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize(
    ("event", "field", "value", "error"),
    [
        (LaplaceRelease(1.0, 1), "scale", 0.0, ValueError),
        (LaplaceRelease(1.0, 1), "scale", math.nan, ValueError),
        (LaplaceRelease(1.0, 1), "scale", 1, TypeError),
        (LaplaceRelease(1.0, 1), "sensitivity", 0, ValueError),
        (AboveThresholdRelease(1.0, 1.0, 1), "threshold_scale", 0.0, ValueError),
        (AboveThresholdRelease(1.0, 1.0, 1), "query_scale", math.inf, ValueError),
        (AboveThresholdRelease(1.0, 1.0, 1), "sensitivity", 1.0, TypeError),
    ],
)
def test_illegal_events(event: object, field: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=field):
        replace(event, **{field: value})  # type: ignore[type-var]


def test_bad_arguments() -> None:
    for sensitivity in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="sensitivity"):
            LaplaceMechanism(sensitivity, 1.0)
        with pytest.raises(ValueError, match="sensitivity"):
            AboveThreshold(sensitivity, 1.0)
    for epsilon in (0.0, -1.0, math.nan, math.inf, 1e-9):
        with pytest.raises(ValueError, match="epsilon"):
            LaplaceMechanism(1.0, epsilon)
        with pytest.raises(ValueError, match="epsilon"):
            AboveThreshold(1.0, epsilon)
    for value in (math.nan, math.inf, 1e300):
        with pytest.raises(ValueError, match="value"):
            grid_point(value, 1.0)
    with pytest.raises(ValueError, match="questions"):
        AboveThreshold(1.0, 1.0).slack(0, 0.1)
    with pytest.raises(ValueError, match="failure"):
        AboveThreshold(1.0, 1.0).slack(1, 1.0)
    assert steps_for(1e6) == steps_for(1.0) == 1024
