"""Coins under dropouts: enough for every set of clients, hardly more, in batches that can go."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dp.coin_schedule import (
    BatchVariant,
    CoinSchedule,
    TooManyDropoutsError,
    _binary_batches,
    _binary_subset,
)
from dp.coins import MAX_COINS, residual_offset
from dp.errors import PrivacyError

PER_DROPOUT, BINARY = BatchVariant.PER_DROPOUT, BatchVariant.BINARY
VARIANTS = (PER_DROPOUT, BINARY)
SURPLUS = {PER_DROPOUT: 0, BINARY: 2}  # per cent that may be kept beyond the need
both_variants = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)

TARGETS = (1, 2, 5, 12, 37, 1000)
SMALL = [(90, 6, 3, 1), (61, 7, 4, 0), (700, 5, 2, 2), (3, 9, 6, 1), (10, 4, 0, 1)]
LARGE = [
    # (target_coins, cohort, tolerated_dropouts, tolerated_colluders)
    (14262, 64, 8, 2),
    (14262, 100, 30, 10),
    (14262, 200, 66, 20),
    (14262, 1000, 300, 100),
    (1_000_000, 500, 200, 50),
    (12_345_679, 301, 150, 60),
    (MAX_COINS, 120, 119, 0),
    (100, 1000, 400, 0),
    (1, 700, 600, 99),
    # None of them an exact cut: 3, 5, 1 and 0 removable batches.
    (660_460 * 45, 50, 5, 0),
    (660_460 * 700, 1000, 300, 0),
    (10**6, 1000, 20, 0),
    (10**6, 1000, 15, 0),
]


def limits(cohort: int) -> Iterator[tuple[int, int]]:
    """Every (tolerated dropouts, tolerated colluders) that leaves somebody honest."""
    return (
        (dropouts, colluders)
        for dropouts in range(cohort)
        for colluders in range(cohort - dropouts)
    )


# --- The guarantee, by counts and by sets ---------------------------------------------------


def violations(
    kept_coins: Callable[[int], int], setting: tuple[int, int, int, int], percent: int = 0
) -> list[str]:
    """What is wrong with a rule for kept coins, over every number of dropped and colluding."""
    target, cohort, dropouts, colluders = setting
    wrong = []
    for dropped in range(dropouts + 1):
        kept = kept_coins(dropped)
        for colluding in range(colluders + 1):
            if (cohort - dropped - colluding) * kept < target:
                wrong.append(f"too little noise: {dropped} dropped, {colluding} collude")
        need = -(-target // (cohort - dropped - colluders))
        if 100 * (kept - need) > percent * need:
            wrong.append(f"overshoot: {dropped} dropped")
    return wrong


@pytest.mark.parametrize("cohort", range(1, 13))
def test_honest_survivors_hold_enough_and_hardly_more(cohort: int) -> None:
    for (dropouts, colluders), target, variant in itertools.product(
        limits(cohort), TARGETS, VARIANTS
    ):
        setting = (target, cohort, dropouts, colluders)
        schedule = CoinSchedule(*setting, variant)
        assert not violations(schedule.kept_coins, setting, SURPLUS[variant]), schedule
        for dropped in range(dropouts + 1):
            fewest = cohort - dropped - colluders
            assert schedule.honest_coins(dropped) == fewest * schedule.kept_coins(dropped)
            # No smaller equal share would do.
            assert fewest * (schedule.needed(dropped) - 1) < target


def test_the_overshoot_bound_is_attained() -> None:
    schedule = CoinSchedule(1 + 7 * 9, cohort=12, tolerated_dropouts=2, tolerated_colluders=3)
    assert schedule.honest_coins(2) - 64 == 7 - 1


def test_a_forgotten_colluder_margin_would_be_rejected() -> None:
    # Always, where one client's coins N/n are more than rounding up can add: N >= n (n - 1).
    for cohort, target in itertools.product(range(3, 13), (133, 1000)):
        careless = CoinSchedule(target, cohort, 1, 0)
        wrong = violations(careless.kept_coins, (target, cohort, 1, 1))
        assert any("too little noise" in line for line in wrong)


def test_a_number_of_dropouts_told_by_the_server_would_be_rejected() -> None:
    for cohort in range(3, 13):
        schedule = CoinSchedule(1000, cohort, 2, 0)
        told_zero = [schedule.kept_coins(0)] * 3
        wrong = violations(told_zero.__getitem__, (1000, cohort, 2, 0))
        assert any("too little noise" in line for line in wrong)


def test_noise_always_sized_for_the_worst_would_be_rejected() -> None:
    schedule = CoinSchedule(1000, 10, 3, 1)
    wrong = violations(lambda _: schedule.kept_coins(3), (1000, 10, 3, 1), SURPLUS[BINARY])
    assert wrong == [f"overshoot: {dropped} dropped" for dropped in range(3)]


def unknown_coins(
    schedule: CoinSchedule, dropped: frozenset[int], colluding: frozenset[int]
) -> int:
    """Coins in the sum whose seed the adversary lacks, counted batch by batch."""
    survivors = [client for client in range(schedule.cohort) if client not in dropped]
    removed = set(schedule.removed(schedule.cohort - len(survivors)))
    return sum(
        coins
        for client in survivors
        for index, coins in enumerate(schedule.batches)
        if client not in colluding and index not in removed
    )


def subsets(clients: int, at_most: int) -> list[frozenset[int]]:
    return [
        frozenset(chosen)
        for size in range(at_most + 1)
        for chosen in itertools.combinations(range(clients), size)
    ]


def small_sets(schedule: CoinSchedule, colluders: int) -> int:
    """Count the pairs of dropped and colluding sets that leave fewer than the target coins."""
    return sum(
        unknown_coins(schedule, dropped, colluding) < schedule.target_coins
        for dropped in subsets(schedule.cohort, schedule.tolerated_dropouts)
        for colluding in subsets(schedule.cohort, colluders)
    )


@pytest.mark.parametrize("cohort", range(1, 8))
@both_variants
def test_no_choice_of_dropped_and_colluding_clients_is_thin(
    cohort: int, variant: BatchVariant
) -> None:
    for (dropouts, colluders), target in itertools.product(limits(cohort), (1, 23, 1000)):
        schedule = CoinSchedule(target, cohort, dropouts, colluders, variant)
        assert small_sets(schedule, colluders) == 0


def test_the_sets_catch_a_forgotten_margin() -> None:
    # One colluder anywhere among the survivors: 5 without dropouts, and 5 * 4 with one.
    assert small_sets(CoinSchedule(20, 5, 1, 0), colluders=1) == 5 + 5 * 4


# --- Batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", LARGE)
@both_variants
def test_large_schedules_keep_enough_and_remove_the_rest(
    setting: tuple[int, int, int, int], variant: BatchVariant
) -> None:
    target, cohort, dropouts, colluders = setting
    schedule = CoinSchedule(*setting, variant)
    assert not violations(schedule.kept_coins, setting, SURPLUS[variant])
    total = sum(schedule.batches)
    assert min(schedule.batches) >= 1
    assert total == schedule.needed(dropouts)
    assert schedule.removed(dropouts) == ()
    for dropped in range(dropouts + 1):
        kept, removed = schedule.kept(dropped), schedule.removed(dropped)
        assert sorted(kept + removed) == list(range(len(schedule.batches)))
        assert list(kept) == sorted(kept)
        assert list(removed) == sorted(removed)
        assert kept[0] == 0
        assert schedule.needed(dropped) == -(-target // (cohort - dropped - colluders))
        rest = total - sum(schedule.batches[index] for index in removed)
        assert schedule.kept_coins(dropped) == rest


def test_all_small_schedules_end_with_what_is_needed() -> None:
    for cohort, variant in itertools.product(range(1, 11), VARIANTS):
        for (dropouts, colluders), target in itertools.product(limits(cohort), TARGETS):
            schedule = CoinSchedule(target, cohort, dropouts, colluders, variant)
            needs = [schedule.needed(dropped) for dropped in range(dropouts + 1)]
            kept = [schedule.kept_coins(dropped) for dropped in range(dropouts + 1)]
            assert needs == sorted(needs) and kept == sorted(kept) and kept[-1] == needs[-1]
            assert min(schedule.batches) >= 1
            assert sum(schedule.batches) == needs[-1]


def test_one_batch_for_each_rise_of_the_need() -> None:
    schedule = CoinSchedule(60, 10, 5, 0)  # needs 6, 7, 8, 9, 10, 12
    assert schedule.batches == (6, 1, 1, 1, 1, 2)
    assert schedule.removed(2) == (3, 4, 5)
    flat = CoinSchedule(20, 10, 5, 0)  # needs 2, 3, 3, 3, 4, 4
    assert flat.batches == (2, 1, 1)
    assert [flat.removed(dropped) for dropped in range(6)] == [(1, 2), (2,), (2,), (2,), (), ()]


@pytest.mark.parametrize("setting", LARGE)
def test_removed_sets_of_the_plain_variant_are_nested(setting: tuple[int, int, int, int]) -> None:
    schedule = CoinSchedule(*setting)
    removed = [set(schedule.removed(dropped)) for dropped in range(setting[2] + 1)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(removed))


def test_every_amount_is_nearly_a_sum_of_binary_batches() -> None:
    for extra in (*range(1, 130), MAX_COINS - 2, MAX_COINS - 1, MAX_COINS):
        for count in range(1, extra.bit_length() + 1):
            batches = _binary_batches(extra, count)
            assert (len(batches), sum(batches)) == (count, extra)
            assert min(batches) >= 1
            for amount in (*range(0, extra, extra // 200 + 1), extra):
                chosen = _binary_subset(batches, amount)
                assert len(set(chosen)) == len(chosen)
                surplus = sum(batches[index - 1] for index in chosen) - amount
                assert 0 <= surplus < -(-extra // (2**count - 1))


@pytest.mark.parametrize("setting", LARGE)
def test_with_fewer_batches_too_much_would_be_left(setting: tuple[int, int, int, int]) -> None:
    """Whichever of them are chosen: all their sums are tried."""
    schedule = CoinSchedule(*setting, BINARY)
    most = sum(schedule.batches)

    def kept_coins(dropped: int) -> int:
        return min(total for total in totals if total >= schedule.needed(dropped))

    for count in range(len(schedule.batches) - 1):
        cut = _binary_batches(most - schedule.needed(0), count)
        base = most - sum(cut)
        totals = [base + sum(chosen) for chosen in itertools.product(*((0, size) for size in cut))]
        assert violations(kept_coins, setting, SURPLUS[BINARY])


@pytest.mark.parametrize("setting", LARGE)
def test_the_best_variant_has_fewest_seeds_to_share(setting: tuple[int, int, int, int]) -> None:
    counts = [len(CoinSchedule(*setting, variant).batches) for variant in VARIANTS]
    best = CoinSchedule.best(*setting)
    assert len(best.batches) == min(counts)
    if counts[0] == counts[1]:
        assert best.variant is PER_DROPOUT


def test_both_variants_win_somewhere() -> None:
    assert CoinSchedule.best(14262, 8, 3, 2).variant is PER_DROPOUT
    assert CoinSchedule.best(14262, 64, 3, 2).variant is BINARY
    # Many dropouts alone do not decide: here the need rises four times only.
    assert CoinSchedule(100, 100, 80, 0).batches == (1, 1, 1, 1, 1)


@both_variants
def test_the_saving_against_noise_for_the_worst_case(variant: BatchVariant) -> None:
    for target, cohort, dropouts, colluders in LARGE:
        schedule = CoinSchedule(target, cohort, dropouts, colluders, variant)
        worst, fewest = schedule.needed(dropouts), cohort - dropouts - colluders
        for dropped in range(dropouts + 1):
            honest = cohort - dropped - colluders
            factor = worst / schedule.kept_coins(dropped)
            least = honest / fewest / (1 + honest / target)
            assert least < factor * (1 + SURPLUS[variant] / 100)
            assert factor < honest / fewest * (1 + fewest / target)
    assert CoinSchedule(10**6, 100, 30, 0).needed(30) / 10**4 == pytest.approx(1 / 0.7, rel=1e-4)


@pytest.mark.parametrize("setting", [*SMALL, *LARGE])
@both_variants
def test_offset_and_limit_are_sums_over_batches(
    setting: tuple[int, int, int, int], variant: BatchVariant
) -> None:
    schedule = CoinSchedule(*setting, variant)
    for dropped in {0, setting[2] // 2, setting[2]}:
        sizes = [schedule.batches[index] for index in schedule.kept(dropped)]
        mean = sum(sizes) / 2 - sum(size // 2 for size in sizes)
        assert schedule.residual_offset(dropped) == mean == sum(map(residual_offset, sizes))
    assert schedule.largest_noise == sum(-(-size // 2) for size in schedule.batches)


# --- Refusals -------------------------------------------------------------------------------

METHODS = ("needed", "kept", "removed", "kept_coins", "honest_coins", "residual_offset")


@pytest.mark.parametrize("method", METHODS)
@both_variants
def test_too_many_dropouts_release_nothing(method: str, variant: BatchVariant) -> None:
    schedule = CoinSchedule(90, 6, 3, 1, variant)
    getattr(schedule, method)(3)
    with pytest.raises(TooManyDropoutsError, match="no sum may be released") as caught:
        getattr(schedule, method)(4)
    assert (caught.value.dropped, caught.value.tolerated) == (4, 3)
    with pytest.raises(ValueError, match="dropped must be at least 0, got -1"):
        getattr(schedule, method)(-1)
    for wrong in (1.0, True, None):
        with pytest.raises(TypeError, match="dropped must be an int"):
            getattr(schedule, method)(wrong)


def test_the_error_is_a_refusal_and_survives_pickling() -> None:
    assert issubclass(TooManyDropoutsError, PrivacyError)
    assert issubclass(TooManyDropoutsError, ValueError)
    error = pickle.loads(pickle.dumps(TooManyDropoutsError(4, 3)))  # noqa: S301
    assert (error.dropped, error.tolerated) == (4, 3)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0, 6, 3, 1), "target_coins must be at least 1, got 0"),
        ((-5, 6, 3, 1), "target_coins must be at least 1, got -5"),
        ((90, 0, 0, 0), "cohort must be at least 1, got 0"),
        ((90, 6, -1, 1), "tolerated_dropouts must be at least 0, got -1"),
        ((90, 6, 3, -1), "tolerated_colluders must be at least 0, got -1"),
        ((90, 6, 3, 3), r"cohort must exceed .* = 3 \+ 3, got 6"),
        ((90, 6, 0, 6), r"cohort must exceed .* = 0 \+ 6, got 6"),
        ((90, 6, 9, 0), r"cohort must exceed .* = 9 \+ 0, got 6"),
        ((2 * MAX_COINS + 1, 6, 3, 1), f"asks one client for {MAX_COINS + 1} coins"),
    ],
)
@both_variants
def test_infeasible_schedules(
    arguments: tuple[int, int, int, int], match: str, variant: BatchVariant
) -> None:
    with pytest.raises(ValueError, match=match):
        CoinSchedule(*arguments, variant)
    with pytest.raises(ValueError, match=match):
        CoinSchedule.best(*arguments)


def test_a_client_may_need_as_many_coins_as_can_be_drawn() -> None:
    assert sum(CoinSchedule(2 * MAX_COINS, 6, 3, 1, BINARY).batches) == MAX_COINS


def test_schedules_are_values() -> None:
    schedule = CoinSchedule(90, 6, 3, 1, BINARY)
    assert schedule == CoinSchedule(90, 6, 3, 1, BINARY)
    assert hash(schedule) == hash(CoinSchedule(90, 6, 3, 1, BINARY))
    assert schedule != CoinSchedule(90, 6, 3, 1)
    assert pickle.loads(pickle.dumps(schedule)).batches == schedule.batches  # noqa: S301
    assert dataclasses.replace(schedule, cohort=7).batches[0] == 15
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.cohort = 7  # type: ignore[misc]


# --- The page -------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "dropouts.md"


def test_the_table_of_the_page_is_true() -> None:
    rows = re.findall(r"^\| ([\d,]+(?: \| [\d,]+)+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        figures = [int(cell.replace(",", "")) for cell in row.split(" | ")]
        target, cohort, dropouts, colluders = figures[:4]
        plain, binary = (
            CoinSchedule(target, cohort, dropouts, colluders, variant) for variant in VARIANTS
        )
        assert figures[4:6] == [plain.needed(0), plain.needed(dropouts)]
        assert figures[6:] == [len(plain.batches) - 1, len(binary.batches) - 1]
