"""Published Renyi bounds: figures computed by hand, and ours below them."""

from __future__ import annotations

import math

import pytest
from accounts import epsilon_of

from dp.accounting import DominationAccountant, PublishedAccountant
from dp.accounting.published import ORDERS, discrete_gaussian_renyi, skellam_renyi
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event
from dp.events import (
    BinomialRelease,
    DiscreteGaussianRelease,
    GaussianRelease,
    SkellamRelease,
)

DELTA = 1e-5


def test_discrete_gaussian_by_hand() -> None:
    """Two clients of variance 1: tau = 10 e^(-pi^2) = 5.172e-4, the sum has one term."""
    event = DiscreteGaussianRelease(1.0, 2, 3.0, 3, 4)
    tau = 10 * math.exp(-(math.pi**2))
    assert tau == pytest.approx(5.17e-4, rel=1e-3)
    l2, l1, d, a = 3 / math.sqrt(2), 6 / math.sqrt(2), 4, 5.0
    assert l1 < 9 / math.sqrt(2)  # sqrt(d) D2 is the smaller of the two bounds of D1
    hand = min(
        a / 2 * l2**2 + tau * d,
        a / 2 * (l2**2 + 2 * l1 * tau + tau**2 * d),
        a / 2 * (l2 + math.sqrt(d) * tau) ** 2,
    )
    assert discrete_gaussian_renyi(event, a) == pytest.approx(hand, rel=1e-9)
    assert hand == pytest.approx(11.252, abs=1e-3)


def test_skellam_by_hand() -> None:
    """With V = 10, D2 = 2, D1 = 4 and order 3: 0.6 + min(44/400, 12/20) = 0.71."""
    event = SkellamRelease(10.0, 2.0, 2, 100)
    assert skellam_renyi(event, 3.0) == pytest.approx(0.71, rel=1e-12)
    # A large order makes the second term the smaller.
    assert skellam_renyi(event, 100.0) == pytest.approx(100 * 4 / 20 + 12 / 20, rel=1e-12)


@pytest.mark.parametrize("rounds", [1, 20])
@pytest.mark.parametrize(
    "event",
    [
        DiscreteGaussianRelease(2.56, 100, 16.0, 16, 10**6),
        DiscreteGaussianRelease(1.0, 50, 4.0, 4, 10**4),
        DiscreteGaussianRelease(256.0, 1, 16.0, 16, 10**6),
        SkellamRelease(256.0, 16.0, 16, 10**6),
        SkellamRelease(64.0, 4.0, 4, 10**6),
    ],
)
def test_domination_is_tighter(event: Event, rounds: int) -> None:
    published = epsilon_of(PublishedAccountant, event, rounds=rounds)
    assert epsilon_of(DominationAccountant, event, rounds=rounds) < published < math.inf


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_gaussian_agrees_with_dp_accounting(noise: float) -> None:
    import dp_accounting
    from dp_accounting import rdp

    library = rdp.RdpAccountant(ORDERS).compose(dp_accounting.GaussianDpEvent(noise), 3)
    ours = epsilon_of(PublishedAccountant, GaussianRelease(noise, 1.0), rounds=3)
    assert ours == pytest.approx(library.get_epsilon(DELTA), rel=1e-9)


def test_extremes() -> None:
    assert epsilon_of(PublishedAccountant, SkellamRelease(0.0, 1.0, 1, 1)) == math.inf
    assert epsilon_of(PublishedAccountant, SkellamRelease(1e-300, 1.0, 1, 1)) == math.inf
    assert epsilon_of(PublishedAccountant, DiscreteGaussianRelease(1.0, 0, 1.0, 1, 1)) == math.inf
    assert epsilon_of(PublishedAccountant, DiscreteGaussianRelease(0.2, 9, 1.0, 1, 1)) == math.inf
    assert epsilon_of(PublishedAccountant, GaussianRelease(0.0, 1.0)) == math.inf
    with pytest.raises(UnsupportedEventError, match="BinomialRelease"):
        PublishedAccountant().compose(BinomialRelease(10, 1.0, 1, 1))
