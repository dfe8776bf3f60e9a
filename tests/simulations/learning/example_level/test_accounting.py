"""Epsilon by sampling: closed forms, published figures, and batches that are drawn as accounted."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import comb, logsumexp

from dp.accounting import gaussian_epsilon
from simulations.learning.example_level.accounting import Account, Sampling, batches, renyi

ALPHA = 1e-6


def account(**changes: object) -> Account:
    """A small run, changed."""
    usual: dict[str, object] = {
        "examples": 2000,
        "batch": 100,
        "steps": 200,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
    }
    return Account(**(usual | changes))  # type: ignore[arg-type]


def test_one_whole_batch_is_one_gaussian_release() -> None:
    exact = gaussian_epsilon(1.0 / 2.0, 1e-5)
    whole = account(batch=2000, steps=1, noise_multiplier=2.0)
    assert exact <= whole.epsilon() == pytest.approx(exact, rel=1e-3)
    assert exact < whole.published_epsilon() < 1.3 * exact


def test_shuffled_epochs_are_gaussian_releases_without_amplification() -> None:
    # 2000 / 300 leaves six batches to an order, so 13 steps begin a third one.
    run = account(batch=300, steps=13, noise_multiplier=2.0, sampling=Sampling.SHUFFLED)
    assert run.epochs == 3
    exact = gaussian_epsilon(math.sqrt(3) / 2.0, 1e-5)
    assert exact <= run.epsilon() == pytest.approx(exact, rel=1e-3)
    assert run.epsilon() > account(batch=300, steps=13, noise_multiplier=2.0).epsilon()


def test_no_noise_is_no_privacy() -> None:
    assert account(noise_multiplier=0.0).epsilon() == math.inf
    assert account(noise_multiplier=0.0).published_epsilon() == math.inf


@pytest.mark.parametrize(
    ("examples", "batch", "steps", "delta", "noise", "published"),
    [
        (16_040, 32, 50_200, 8e-5, 0.4, 50.92),
        (50_000, 128, 39_100, 1e-5, 0.4, 62.09),
        (50_000, 128, 39_100, 1e-5, 0.8, 4.86),
    ],
)
def test_the_published_way_gives_the_published_figures(
    examples: int, batch: int, steps: int, delta: float, noise: float, published: float
) -> None:
    run = Account(examples=examples, batch=batch, steps=steps, noise_multiplier=noise, delta=delta)
    assert run.published_epsilon() == pytest.approx(published, rel=2e-3)


@pytest.mark.slow
def test_loss_distributions_are_sharper_than_the_published_way() -> None:
    run = Account(examples=16_040, batch=32, steps=50_200, noise_multiplier=0.4, delta=8e-5)
    assert 40.0 < run.epsilon() < run.published_epsilon()


@pytest.mark.parametrize("order", [1.1, 2.0, 7.5, 63.0])
@pytest.mark.parametrize("deviation", [0.4, 3.0])
def test_the_divergence_of_a_whole_batch_is_that_of_two_normal_laws(
    order: float, deviation: float
) -> None:
    assert renyi(order, 1.0, deviation) == pytest.approx(order / (2.0 * deviation**2), rel=1e-9)


@pytest.mark.parametrize("order", [2, 5, 40])
def test_the_divergence_at_whole_orders_is_a_binomial_sum(order: int) -> None:
    rate, deviation, k = 0.01, 0.8, np.arange(order + 1)
    terms = np.log(comb(order, k)) + (order - k) * np.log1p(-rate) + k * math.log(rate)
    exact = logsumexp(terms + (k * k - k) / (2.0 * deviation**2)) / (order - 1)
    assert renyi(order, rate, deviation) == pytest.approx(exact, rel=1e-9)


def sizes_are_binomial(drawn: Iterable[NDArray[np.int64]], run: Account) -> bool:
    """Whether mean and spread of the sizes are those of a coin for every example."""
    sizes = np.array([len(batch) for batch in drawn])
    variance = run.examples * run.rate * (1.0 - run.rate)
    mean_off = (sizes.mean() - run.batch) / math.sqrt(variance / len(sizes))
    spread = float(np.sum((sizes - run.batch) ** 2) / variance)
    low, high = stats.chi2.ppf([ALPHA / 4.0, 1.0 - ALPHA / 4.0], len(sizes))
    return bool(abs(mean_off) < stats.norm.isf(ALPHA / 4.0) and low < spread < high)


@pytest.mark.statistical
def test_poisson_batches_have_the_sizes_of_coins_and_shuffled_ones_do_not() -> None:
    run, shuffled = account(), account(sampling=Sampling.SHUFFLED)
    assert sizes_are_binomial(batches(run, np.random.default_rng(1)), run)
    assert not sizes_are_binomial(batches(shuffled, np.random.default_rng(1)), shuffled)


@pytest.mark.statistical
def test_every_example_is_as_likely_as_any_other() -> None:
    run = account()
    counts = np.zeros(run.examples)
    for batch in batches(run, np.random.default_rng(2)):
        assert (np.diff(batch) > 0).all()
        counts[batch] += 1
    variance = run.steps * run.rate * (1.0 - run.rate)
    statistic = float(np.sum((counts - run.steps * run.rate) ** 2) / variance)
    low, high = stats.chi2.ppf([ALPHA / 2.0, 1.0 - ALPHA / 2.0], run.examples)
    assert low < statistic < high


def test_a_shuffled_order_has_everybody_once() -> None:
    run = account(batch=300, steps=12, sampling=Sampling.SHUFFLED)
    drawn = list(batches(run, np.random.default_rng(3)))
    assert {len(batch) for batch in drawn} == {300}
    first, second = np.concatenate(drawn[:6]), np.concatenate(drawn[6:])
    assert len(set(first)) == len(set(second)) == 1800 and not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", 0),
        ("batch", 2001),
        ("steps", 0),
        ("noise_multiplier", -0.1),
        ("noise_multiplier", math.nan),
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", math.nan),
    ],
)
def test_bad_numbers_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must .*, got {value}"):
        account(**{name: value})
