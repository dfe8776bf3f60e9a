"""Charges and reserves of correlated noise, against dense algebra and random futures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from correlated_transcripts import Game
from hypothesis import given, settings
from hypothesis import strategies as st

from dp.correlated import Charge, RoundNoise
from dp.correlated.charge import fresh_ahead


def covariance(fresh: list[float], returned: list[float]) -> np.ndarray:
    """Sigma of the rounds, written down from its definition."""
    size = len(fresh)
    sigma = np.diag(np.array(fresh) + np.array(returned))
    for t in range(1, size):
        sigma[t - 1, t] = sigma[t, t - 1] = -returned[t]
    return sigma


def charged(fresh: list[float], returned: list[float], bounds: list[float]) -> Charge:
    charge = Charge()
    for f, a, b in zip(fresh, returned, bounds, strict=True):
        charge = charge.after(RoundNoise(f, a), b)
    return charge


@st.composite
def records(draw: st.DrawFn, longest: int = 8) -> tuple[list[float], list[float], list[float]]:
    size = draw(st.integers(1, longest))
    fresh = draw(st.lists(st.floats(0.5, 8.0), min_size=size, max_size=size))
    shares = draw(st.lists(st.floats(0.0, 0.99), min_size=size, max_size=size))
    returned = [0.0, *(s * f for s, f in zip(shares[1:], fresh[:-1], strict=True))]
    bounds = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=size, max_size=size))
    return fresh, returned, bounds


@given(records())
def test_the_charge_is_the_quadratic_form(
    record: tuple[list[float], list[float], list[float]],
) -> None:
    fresh, returned, bounds = record
    charge = charged(*record)
    b = np.array(bounds)
    expected = float(b @ np.linalg.solve(covariance(fresh, returned), b))
    assert charge.mu_squared == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert charge.rounds == len(fresh)


@given(records(4), st.integers(0, 6), st.floats(0.0, 1.0), st.data())
@settings(max_examples=300)
def test_no_future_passes_the_reserve(
    record: tuple[list[float], list[float], list[float]],
    left: int,
    share: float,
    data: st.DataObject,
) -> None:
    """Whatever comes back later, and however much more noise is added."""
    least, most = 0.5, 0.49 * share
    charge = charged(*record)
    now = data.draw(st.floats(0.0, record[0][-1] * 0.99))
    reserve = charge.reserve(left, least, most, now)
    returnable = now
    for _ in range(left):
        fresh = data.draw(st.floats(least, 3.0))
        charge = charge.after(RoundNoise(fresh, data.draw(st.floats(0.0, returnable))), 0.0)
        returnable = most
        assert charge.mu_squared <= reserve * (1 + 1e-9) + 1e-12


def test_the_reserve_is_met_when_everything_comes_back() -> None:
    record = ([2.0, 2.0, 2.0], [0.0, 1.6, 1.6], [1.0, 0.0, 1.0])
    charge = charged(*record)
    reserve = charge.reserve(4, 2.0, 1.6)
    for _ in range(4):
        charge = charge.after(RoundNoise(2.0, 1.6), 0.0)
    assert charge.mu_squared == pytest.approx(reserve, rel=1e-12)


def test_the_reserve_is_that_of_the_small_games() -> None:
    game = Game(3, 0.5, 1.5, 2, 1.0)
    for size in (1, 2, 3):
        for shifts in itertools.product((0, 1), repeat=size):
            for returns in itertools.product((0, 1), repeat=size - 1):
                charge = charged(
                    [game.fresh] * size,
                    [0.0, *(back * game.share for back in returns)],
                    [float(shift) for shift in shifts],
                )
                assert charge.reserve(3 - size, game.fresh, game.share) == pytest.approx(
                    game.charge(shifts, returns), rel=1e-12, abs=1e-15
                )


@pytest.mark.parametrize(
    ("share", "opening", "middle", "first"),
    [
        (0.73, 0.75, 1.08, 1.67),
        (0.85, 0.78, 1.37, 2.27),
        (0.88, 0.79, 1.51, 2.56),
        (0.95, 0.84, 2.28, 4.09),
        (0.998, 0.96, 11.2, 21.9),
    ],
)
def test_what_one_participation_costs(
    share: float, opening: float, middle: float, first: float
) -> None:
    """Figures that were computed apart from this code, for an endless run of unit variance."""
    h = math.sqrt((1 - share) * (1 + 3 * share))
    charge = Charge().after(RoundNoise(1.0), 0.0)
    for _ in range(8000):
        charge = charge.after(RoundNoise(1.0, share), 0.0)
    charge = charge.after(RoundNoise(1.0, share), 1.0)
    assert charge.mu_squared == pytest.approx(opening, abs=0.006)
    assert charge.reserve(100_000, 1.0, share) == pytest.approx(1 / h, rel=1e-9)
    assert 1 / h == pytest.approx(middle, rel=0.006)
    begun = Charge().after(RoundNoise(1.0), 1.0).reserve(100_000, 1.0, share)
    assert begun == pytest.approx(2 / (1 - share + h), rel=1e-9)
    assert begun == pytest.approx(first, rel=0.006)


def test_what_is_left_ahead_falls_to_its_limit() -> None:
    values = [fresh_ahead(left, 1.0, 0.9) for left in range(60)]
    assert values == sorted(values, reverse=True)
    limit = 0.5 * (0.1 + math.sqrt(0.1 * 3.7))
    assert values[-1] == pytest.approx(limit, rel=1e-9)
    assert values[0] == 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RoundNoise(0.0), "fresh must be positive"),
        (lambda: RoundNoise(math.nan), "fresh must be positive"),
        (lambda: RoundNoise(1.0, -0.5), "returned must be finite"),
        (lambda: Charge().after(RoundNoise(1.0, 0.5), 1.0), "returned must be at most"),
        (
            lambda: Charge().after(RoundNoise(1.0), 1.0).after(RoundNoise(1.0, 1.5), 1.0),
            "returned must be at most what the round before added, 1.0, got 1.5",
        ),
        (lambda: Charge().after(RoundNoise(1.0), math.inf), "l2_bound must be finite"),
        (lambda: Charge().reserve(-1, 1.0, 0.5), "left must be at least 0"),
        (lambda: Charge().reserve(1, 0.0, 0.0), "fresh must be positive"),
        (lambda: Charge().reserve(1, 1.0, 1.5), "returnable must be below"),
        (lambda: Charge().after(RoundNoise(1.0), 1.0).reserve(1, 1.0, 0.5, 2.0), "now must lie"),
    ],
)
def test_bad_input(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]
