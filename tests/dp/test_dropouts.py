"""Noise under dropouts: what remains is that of the kept batches, to the bit and in law."""

from __future__ import annotations

import hashlib
import tracemalloc
from functools import cache

import numpy as np
import pytest
from dp_statistics import ALPHA, binomial_p_value, mean_tolerance
from numpy.typing import NDArray

from dp.coin_schedule import BatchVariant, CoinSchedule, TooManyDropoutsError
from dp.coins import residual_offset, sample_binomial
from dp.dropouts import batch_noise, removed_noise
from dp.keystream import NoiseSeed

both_variants = pytest.mark.parametrize("variant", BatchVariant, ids=lambda variant: variant.name)
SMALL = [(90, 6, 3, 1), (9000, 50, 5, 1), (700, 5, 2, 2), (3, 9, 6, 1), (10, 4, 0, 1)]


def seeds_for(schedule: CoinSchedule, client: int = 0) -> list[NoiseSeed]:
    """Fixed seeds of one client, one a batch."""
    return [
        NoiseSeed(hashlib.sha256(b"%d/%d" % (client, batch)).digest())
        for batch in range(len(schedule.batches))
    ]


def revealed(schedule: CoinSchedule, seeds: list[NoiseSeed], dropped: int) -> dict[int, NoiseSeed]:
    return {index: seeds[index] for index in schedule.removed(dropped)}


# --- Noise ----------------------------------------------------------------------------------


def centred(seed: NoiseSeed, coins: int, length: int) -> NDArray[np.int64]:
    return sample_binomial(seed, coins, length) - coins // 2


@pytest.mark.parametrize("setting", SMALL)
@both_variants
def test_what_remains_is_the_noise_of_the_kept_batches(
    setting: tuple[int, int, int, int], variant: BatchVariant
) -> None:
    schedule = CoinSchedule(*setting, variant)
    seeds = seeds_for(schedule)
    added = batch_noise(seeds, schedule, 1000)
    assert added.dtype == np.int64
    assert np.abs(added).max() <= schedule.largest_noise
    for dropped in range(schedule.tolerated_dropouts + 1):
        gone = removed_noise(revealed(schedule, seeds, dropped), schedule, dropped, 1000)
        kept = np.zeros(1000, dtype=np.int64)
        for index in schedule.kept(dropped):
            kept += centred(seeds[index], schedule.batches[index], 1000)
        np.testing.assert_array_equal(added - gone, kept)


def test_the_limit_is_attained() -> None:
    schedule = CoinSchedule(3, 3, 2, 0)
    assert schedule.batches == (1, 1, 1)
    assert batch_noise(seeds_for(schedule), schedule, 200).max() == schedule.largest_noise == 3


def test_vector_for_fixed_seeds() -> None:
    """Pinned: a change here breaks every server that must rebuild a client's noise."""
    schedule = CoinSchedule(90, 6, 3, 1, BatchVariant.BINARY)
    seeds = seeds_for(schedule)
    assert schedule.batches == (18, 1, 2, 4, 8, 12)
    assert batch_noise(seeds, schedule, 12).tolist() == EXPECTED_ADDED
    gone = removed_noise(revealed(schedule, seeds, 1), schedule, 1, 12)
    assert gone.tolist() == EXPECTED_REMOVED


def test_no_noise_to_remove_after_the_most_dropouts() -> None:
    schedule = CoinSchedule(90, 6, 3, 1)
    assert removed_noise({}, schedule, 3, 5).tolist() == [0] * 5
    assert batch_noise(seeds_for(schedule), schedule, 0).shape == (0,)


def test_memory_does_not_grow_with_the_number_of_batches() -> None:
    length = 100_000
    schedule = CoinSchedule(14262, 100, 66, 2)
    seeds = seeds_for(schedule)
    assert len(seeds) == 67
    batch_noise(seeds, schedule, 1)
    tracemalloc.start()
    batch_noise(seeds, schedule, length)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 8 * length


# --- Its law --------------------------------------------------------------------------------

SAMPLES = 400_000
ROUND = (90, 6, 3, 1)
"""Needs 18, 23, 30, 45. The smallest fault below is 4 coins of 115, a share e = 3.5 % of the
variance. That moves chi-square by SAMPLES e^2 / 2 = 242 at 60 degrees of freedom, where ALPHA
rejects above 127: five standard deviations to spare."""


@cache
def added(schedule: CoinSchedule, client: int) -> NDArray[np.int64]:
    """All noise of a client; several tests remove parts of it."""
    return batch_noise(seeds_for(schedule, client), schedule, SAMPLES)


def released(
    schedule: CoinSchedule,
    dropped: int,
    *,
    claimed: int | None = None,
    careless: bool = False,
    known: int = 0,
) -> NDArray[np.int64]:
    """The noise of a whole round's sum, with the mean taken off and the coins' centre put back."""
    answer = dropped if claimed is None else claimed
    total = np.zeros(SAMPLES, dtype=np.int64)
    survivors = range(schedule.cohort - dropped)
    for client in survivors[known:]:
        total += added(schedule, client)
        if not (careless and client == survivors[0]):
            seeds = seeds_for(schedule, client)
            total -= removed_noise(revealed(schedule, seeds, answer), schedule, answer, SAMPLES)
    honest = len(survivors) - known
    centre = honest * (schedule.kept_coins(dropped) / 2 - schedule.residual_offset(dropped))
    return total + int(centre)


@pytest.mark.statistical
@pytest.mark.parametrize("dropped", range(4))
@both_variants
def test_the_sum_is_exactly_binomial(variant: BatchVariant, dropped: int) -> None:
    schedule = CoinSchedule(*ROUND, variant)
    coins = (schedule.cohort - dropped) * schedule.kept_coins(dropped)
    p_value = binomial_p_value(released(schedule, dropped), coins)
    assert p_value > ALPHA, f"p = {p_value:.3g}; a correct sum fails with probability {ALPHA}"


@pytest.mark.statistical
@pytest.mark.parametrize("dropped", range(4))
@both_variants
def test_what_colluders_do_not_know_is_binomial_and_enough(
    variant: BatchVariant, dropped: int
) -> None:
    schedule = CoinSchedule(*ROUND, variant)
    coins = schedule.honest_coins(dropped)
    assert coins >= schedule.target_coins
    p_value = binomial_p_value(released(schedule, dropped, known=1), coins)
    assert p_value > ALPHA, f"p = {p_value:.3g}; a correct sum fails with probability {ALPHA}"


@pytest.mark.statistical
@pytest.mark.parametrize("dropped", [1, 2, 3])
@both_variants
def test_one_missing_batch_would_be_rejected(variant: BatchVariant, dropped: int) -> None:
    schedule = CoinSchedule(*ROUND, variant)
    coins = (schedule.cohort - dropped) * schedule.kept_coins(dropped)
    samples = released(schedule, dropped)
    # One survivor reveals one kept batch too many, the largest one, and the server uses it.
    index = max(schedule.kept(dropped)[1:], key=lambda kept: schedule.batches[kept])
    samples -= centred(seeds_for(schedule)[index], schedule.batches[index], SAMPLES)
    assert binomial_p_value(samples, coins) < ALPHA


@pytest.mark.statistical
@both_variants
def test_dropouts_told_by_the_server_would_be_rejected(variant: BatchVariant) -> None:
    schedule = CoinSchedule(*ROUND, variant)
    samples = released(schedule, 3, claimed=0)
    assert binomial_p_value(samples, 3 * schedule.kept_coins(3)) < ALPHA


@pytest.mark.statistical
@both_variants
def test_a_forgotten_removal_would_be_rejected(variant: BatchVariant) -> None:
    schedule = CoinSchedule(*ROUND, variant)
    samples = released(schedule, 1, careless=True)
    assert binomial_p_value(samples, 5 * schedule.kept_coins(1)) < ALPHA


@pytest.mark.statistical
@both_variants
def test_half_the_coins_would_be_rejected(variant: BatchVariant) -> None:
    schedule = CoinSchedule(*ROUND, variant)
    half = CoinSchedule(ROUND[0] // 2, *ROUND[1:], variant)
    centre = 5 * (schedule.kept_coins(1) - half.kept_coins(1)) // 2
    samples = released(half, 1) + centre
    assert binomial_p_value(samples, 5 * schedule.kept_coins(1)) < ALPHA


@pytest.mark.statistical
@both_variants
def test_revealed_noise_says_nothing_about_what_remains(variant: BatchVariant) -> None:
    schedule = CoinSchedule(*ROUND, variant)
    seeds = seeds_for(schedule)
    gone = removed_noise(revealed(schedule, seeds, 1), schedule, 1, SAMPLES)
    kept = batch_noise(seeds, schedule, SAMPLES) - gone
    deviations = np.sqrt([(45 - 23) / 4, 23 / 4])
    gone_mean = sum(residual_offset(schedule.batches[index]) for index in schedule.removed(1))
    product = (gone - gone_mean) * (kept - schedule.residual_offset(1))
    assert abs(product.mean()) <= mean_tolerance(deviations.prod(), SAMPLES)


@pytest.mark.statistical
def test_one_seed_for_two_batches_would_be_noticed(seed: NoiseSeed) -> None:
    product = centred(seed, 8, SAMPLES) * centred(seed, 6, SAMPLES)
    assert abs(product.mean()) > mean_tolerance(np.sqrt(8 * 6) / 4, SAMPLES)


# --- Refusals -------------------------------------------------------------------------------


def test_too_many_dropouts_rebuild_no_noise() -> None:
    with pytest.raises(TooManyDropoutsError):
        removed_noise({}, CoinSchedule(90, 6, 3, 1), 4, 1)


def test_seeds_must_be_one_a_batch_and_all_different() -> None:
    schedule = CoinSchedule(90, 6, 3, 1)
    seeds = seeds_for(schedule)
    for wrong in (seeds[:-1], [*seeds, NoiseSeed(bytes(32))], []):
        with pytest.raises(ValueError, match="seeds must be 4, one per batch"):
            batch_noise(wrong, schedule, 1)
    with pytest.raises(ValueError, match="seeds must all be different"):
        batch_noise([*seeds[:-1], seeds[0]], schedule, 1)
    # A client that repeats a seed spoils its own noise; the server must not stumble over it.
    twice = {2: seeds[2], 3: NoiseSeed(seeds[2].material)}
    assert removed_noise(twice, schedule, 1, 1).shape == (1,)
    with pytest.raises(TypeError, match="must be a NoiseSeed, got bytes"):
        batch_noise([*seeds[:-1], bytes(32)], schedule, 1)  # type: ignore[list-item]


def test_only_the_removed_batches_may_be_revealed() -> None:
    schedule = CoinSchedule(90, 6, 3, 1)
    seeds = seeds_for(schedule)
    assert schedule.removed(1) == (2, 3)
    with pytest.raises(ValueError, match=r"missing \[2\], not to be revealed \[\]"):
        removed_noise({3: seeds[3]}, schedule, 1, 1)
    with pytest.raises(ValueError, match=r"missing \[\], not to be revealed \[1\]"):
        removed_noise({i: seeds[i] for i in (1, 2, 3)}, schedule, 1, 1)
    with pytest.raises(ValueError, match=r"missing \[2, 3\], not to be revealed \[0, 9\]"):
        removed_noise({0: seeds[0], 9: seeds[1]}, schedule, 1, 1)


@pytest.mark.parametrize(("length", "kind"), [(-1, ValueError), (1.0, TypeError)])
def test_bad_lengths(length: int, kind: type[Exception]) -> None:
    schedule = CoinSchedule(90, 6, 3, 1)
    with pytest.raises(kind, match="length must be"):
        batch_noise(seeds_for(schedule), schedule, length)
    with pytest.raises(kind, match="length must be"):
        removed_noise({}, schedule, 3, length)


def test_messages_show_no_secret() -> None:
    schedule = CoinSchedule(90, 6, 3, 1)
    seed = NoiseSeed(b"top secret seed material, 32 byt")
    with pytest.raises(ValueError, match="different") as caught:
        batch_noise([seed] * 4, schedule, 1)
    assert "secret" not in str(caught.value)


EXPECTED_ADDED = [1, 2, 5, 0, 4, -1, 1, 1, 4, -1, -3, 3]
EXPECTED_REMOVED = [1, -1, 3, -2, 4, -2, 1, -2, 0, 2, -3, 3]
