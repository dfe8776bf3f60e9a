"""A21: noise under 32-bit seeds is taken off, noise under fresh seeds is not."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np
import pytest

from dp import BinomialRelease, NoiseSeed
from dp.coins import sample_binomial
from simulations.audits.base import ALPHA, Check
from simulations.audits.distribution import noise_test
from simulations.threats.attack import Effort
from simulations.threats.catalogue import noise_seeds
from simulations.threats.catalogue.noise_seeds import ATTACKS, SEEDS_DRAWN, repeated
from simulations.threats.seed_search import noise
from simulations.threats.seed_search.noise import (
    COINS,
    DIMENSION,
    FIRST,
    Released,
    our_noise,
    release,
    search_ours,
    search_time_stamp,
    search_weak,
    told_window,
    weak_noise,
)


def test_our_noise_is_the_products() -> None:
    seed = NoiseSeed(bytes(range(32)))
    number = int.from_bytes(seed.material, "little")
    expected = sample_binomial(seed, COINS, 99) - COINS // 2
    assert np.array_equal(our_noise(number, 99), expected)


@pytest.mark.statistical
def test_the_twins_noise_has_the_right_law_and_only_its_seed_is_weak() -> None:
    weak = weak_noise(12345, 50_000).astype(np.float64)
    assert not noise_test(weak, BinomialRelease(COINS, 0.0, 1, 1)).rejected
    assert noise_test(weak, BinomialRelease(COINS // 2, 0.0, 1, 1)).rejected


@pytest.mark.parametrize("start", [0, 1 << 20, (1 << 32) - 64])
def test_the_search_looks_at_the_first_coins_of_each_seed(start: int) -> None:
    found = noise._weak_first(start, np.arange(64, dtype=np.uint64))
    expected = [weak_noise(start + i, FIRST) + COINS // 2 for i in range(64)]
    assert np.array_equal(found, np.array(expected).T)


def test_the_search_looks_at_the_first_coins_of_our_seeds() -> None:
    found = noise._our_first(5, 7, np.arange(3, dtype=np.uint64))
    expected = [our_noise(i * 128 + 5, FIRST) + COINS // 2 for i in range(3)]
    assert np.array_equal(found, np.array(expected).T)


def test_what_is_left_of_a_released_sum_is_the_update_and_its_noise() -> None:
    released = release(weak_noise, 77, np.random.default_rng(1))
    assert np.array_equal(released.remainder - weak_noise(77, DIMENSION), released.plain)
    assert 0 < released.plain @ released.plain <= released.bound
    # The noise hides it: the bound is far below what noise alone comes to.
    assert released.bound < 0.2 * DIMENSION * COINS / 4


def test_first_coordinates_never_refute_the_right_noise() -> None:
    rng = np.random.default_rng(2)
    for number in range(50):
        released = release(weak_noise, number, rng)
        ones = weak_noise(number, FIRST)[:, None] + COINS // 2
        assert released.accept(ones.astype(np.uint32)).tolist() == [True]


def test_coordinates_are_accepted_up_to_the_bound_on_the_norm() -> None:
    zero = np.zeros(DIMENSION, np.int64)
    ones = np.full((2, 3), COINS // 2, np.uint32)
    ones[:, 1] += np.array([3, 4], np.uint32)
    ones[:, 2] -= np.array([3, 5], np.uint32)
    assert Released(zero, 25, zero).accept(ones).tolist() == [True, True, False]


def test_the_update_is_recovered_below_a_weak_seed() -> None:
    number = secrets.randbits(32)
    success, search = search_weak(np.random.default_rng(3), number, told_window(number, 14))
    assert success
    assert search.tried == 1 << 14


def test_it_is_not_if_the_seed_is_not_among_the_candidates() -> None:
    success, _ = search_weak(np.random.default_rng(3), 5, range(1 << 14, 1 << 15))
    assert not success


@pytest.mark.parametrize("number", [0, 12345, (1 << 32) - 1])
def test_a_window_holds_what_is_told(number: int) -> None:
    window = told_window(number, 10)
    assert number in window
    assert len(window) == 1 << 10
    assert window.start % (1 << 10) == 0


def test_the_second_of_the_round_is_found_among_those_of_the_day() -> None:
    success, search = search_time_stamp(np.random.default_rng(4))
    assert success
    assert search.tried == 24 * 60 * 60


def test_the_same_search_finds_our_seed_if_it_is_told_nearly_all_of_it() -> None:
    rng = np.random.default_rng(5)
    assert search_ours(rng, told_bits=248, tried_bits=8)
    assert not search_ours(rng, told_bits=21, tried_bits=8)


def test_so_many_seeds_are_drawn_that_32_bits_would_show() -> None:
    pairs = SEEDS_DRAWN * (SEEDS_DRAWN - 1) / 2
    assert np.exp(-pairs / 2**32) == pytest.approx(ALPHA, rel=1e-3)
    assert repeated([b"a", b"b", b"a", b"a"]) == 2


def test_what_the_attack_reports(quick_check: Callable[[str], Check]) -> None:
    check = quick_check("A21")
    real, twin = check.with_defence, check.without_defence
    assert (real["successes"], real["repeated_seeds"]) == (0, 0)
    assert twin["successes"] == twin["trials"] == real["trials"]
    assert twin["time_stamp_found"] is twin["timed_search_found_it"] is True
    assert twin["all_seeds"] == 1 << 32


def test_a_product_with_seeds_stretched_from_32_bits_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stretched:
        @staticmethod
        def fresh() -> NoiseSeed:
            return NoiseSeed(secrets.token_bytes(4) * 8)

    monkeypatch.setattr(noise_seeds, "NoiseSeed", Stretched)
    check = ATTACKS[0].check(Effort.QUICK, 21)
    assert check.with_defence["repeated_seeds"] > 0
    assert not check.held
