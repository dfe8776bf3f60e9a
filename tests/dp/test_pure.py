"""Pure releases: exact privacy by enumeration, what half the noise would give, and accounting."""

from __future__ import annotations

from dataclasses import replace

import pytest
from accounts import epsilon_of
from pure_losses import laplace_loss, stream_loss

from dp import DominationAccountant, GaussianRelease, UnsupportedEventError
from dp.accounting.exact import ExactAccountant
from dp.events import AboveThresholdRelease, LaplaceRelease
from dp.records import decode_event, encode_event

TOLERANCE = 1e-9


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_laplace_loses_epsilon_and_no_more(epsilon: float) -> None:
    event = LaplaceRelease(5 / epsilon, 5)
    assert laplace_loss(event) == pytest.approx(epsilon, rel=1e-9)
    assert event.epsilon == pytest.approx(epsilon)
    assert laplace_loss(replace(event, scale=event.scale / 2)) > 1.9 * epsilon


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


def test_pure_epsilons_add_to_the_rest() -> None:
    gaussian, laplace = GaussianRelease(4.0, 1.0), LaplaceRelease(10.0, 5)
    stream = AboveThresholdRelease(8.0, 16.0, 2)
    account = DominationAccountant()
    account.compose(laplace)
    assert account.epsilon(1e-6) == pytest.approx(0.5)
    account.compose(gaussian)
    account.compose(stream)
    alone = epsilon_of(DominationAccountant, gaussian, delta=1e-6)
    assert account.copy().epsilon(1e-6) == pytest.approx(alone + 0.5 + 0.5)
    assert account.releases == 1


def test_the_sum_is_a_bound_by_another_library() -> None:
    """dp-accounting's privacy loss distributions of the textbook mechanisms, composed."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    tight = losses.from_gaussian_mechanism(4.0).compose(
        losses.from_laplace_mechanism(2.0).self_compose(2)
    )
    theirs = tight.get_epsilon_for_delta(1e-6)

    def ours(scale: float) -> float:
        noise = GaussianRelease(4.0, 1.0), *[LaplaceRelease(scale, 5)] * 2
        return epsilon_of(DominationAccountant, *noise, delta=1e-6)

    assert theirs - 1e-3 <= ours(10.0) <= theirs + 1.0
    assert ours(20.0) < theirs


def test_accountants_without_the_theorem_refuse() -> None:
    with pytest.raises(UnsupportedEventError, match="LaplaceRelease"):
        ExactAccountant().compose(LaplaceRelease(1.0, 1))


@pytest.mark.parametrize("event", [LaplaceRelease(2.5, 3), AboveThresholdRelease(2.0, 4.0, 1)])
def test_records(event: LaplaceRelease | AboveThresholdRelease) -> None:
    assert decode_event(encode_event(event)) == event
