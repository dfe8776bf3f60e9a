"""What the campaign of autotuned sketches concludes, on made-up figures."""

from __future__ import annotations

from typing import Any

import pytest

from simulations.reproduce.autotune.findings import (
    SLACK,
    beside_fixed,
    cell_of,
    claims,
    compared,
)
from simulations.reproduce.autotune.plan import Plan
from simulations.reproduce.engine.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED

PLAN = Plan(noise=(1.0,), rates=(4.0, 16.0), gammas=(0.2, 0.1), published=(0.1,), seeds=3)

RATES = {"genie 1": 1.0, "genie 4": 4.0, "genie 16": 16.0, "published 0.1": 5.0}
RATES |= {"adapt_norm 0.2": 20.0, "adapt_norm 0.1": 10.0}
WIRE = {"pairwise": 8.0, "one-shot": 3.0}


def runs_of(accuracies: list[float], rates: list[float]) -> list[dict[str, Any]]:
    """One run for each seed."""
    return [
        {
            "accuracy": accuracy,
            "rate": rate,
            "late_rate": 2.0 * rate,
            "shares": [0.0, 0.2],
            "sizes": [50, 50],
            "tests": [[1, accuracy - 0.1], [2, accuracy]],
            "seconds": 3.0,
        }
        for accuracy, rate in zip(accuracies, rates, strict=True)
    ]


def cells_of(
    accuracies: dict[str, list[float]] | None = None, rates: dict[str, list[float]] | None = None
) -> dict[str, Any]:
    """Cells of all arms: accuracy 0.9 and the rates above, unless said otherwise."""
    runs = {
        name: runs_of(
            (accuracies or {}).get(name, [0.9, 0.91, 0.89]), (rates or {}).get(name, [rate] * 3)
        )
        for name, rate in RATES.items()
    }
    return {name: cell_of(each, runs["genie 1"], WIRE) for name, each in runs.items()}


def lost_by(points: float) -> list[float]:
    """Accuracies below those of no compression, the same for each seed."""
    return [0.9 - points, 0.91 - points, 0.89 - points]


def row_of(**given: Any) -> dict[str, Any]:
    found: dict[str, Any] = compared(PLAN, 1.0, cells_of(**given))
    return found


def test_a_cell() -> None:
    """Losses are of runs of one seed, so they are surer than accuracies."""
    free = runs_of([0.9, 0.8, 0.7], [1.0] * 3)
    cell = cell_of(runs_of([0.89, 0.79, 0.69], [1.0, 4.0, 4.0]), free, WIRE)
    assert cell["accuracy"] == pytest.approx(0.79)
    assert cell["lost"] == pytest.approx(0.01)
    assert cell["lost_half_width"] == pytest.approx(0.0, abs=1e-12) != cell["accuracy_half_width"]
    assert (cell["rate"], cell["late_rate"]) == (pytest.approx(2.0), pytest.approx(4.0))
    assert (cell["share"], cell["round_seconds"]) == (pytest.approx(0.1), pytest.approx(1.5))
    assert cell["wire"] == WIRE
    single = cell_of(runs_of([0.9], [4.0]), runs_of([0.9], [1.0]), WIRE)
    assert single["lost_half_width"] is None is single["accuracy_half_width"]


@pytest.mark.parametrize(
    ("at_4", "at_16", "choice"), [(0.0, 0.009, 16.0), (0.009, 0.011, 4.0), (0.011, 0.011, 1.0)]
)
def test_the_genie_takes_the_largest_rate_within_the_slack(
    at_4: float, at_16: float, choice: float
) -> None:
    given = {"genie 4": lost_by(at_4), "genie 16": lost_by(at_16)}
    assert row_of(accuracies=given)["genie"] == choice


def test_the_law_of_gamma() -> None:
    """Proportional in the second half; an uncompressed run says nothing of it."""
    assert row_of()["gamma_slope"] == pytest.approx(1.0)
    assert row_of(rates={"adapt_norm 0.2": [40.0] * 3})["gamma_slope"] == pytest.approx(2.0)
    assert row_of(rates={"adapt_norm 0.2": [0.5] * 3})["gamma_slope"] is None


def test_shares_of_the_genies_rate_are_of_arms_that_lose_no_more_than_it_may() -> None:
    row = row_of(accuracies={"genie 16": lost_by(0.005), "adapt_norm 0.2": lost_by(0.006)})
    assert row["shares"] == pytest.approx(
        {"adapt_norm 0.2": 20 / 16, "adapt_norm 0.1": 10 / 16, "published 0.1": 5 / 16}
    )
    assert (row["best_arm"], row["best_share"]) == ("adapt_norm 0.2", pytest.approx(20 / 16))
    row = row_of(accuracies={"genie 16": lost_by(0.005), "adapt_norm 0.2": lost_by(0.02)})
    assert (row["best_arm"], row["best_share"]) == ("adapt_norm 0.1", pytest.approx(10 / 16))
    row = row_of(accuracies={name: lost_by(0.02) for name in RATES if name != "genie 1"})
    assert (row["genie"], row["best_arm"], row["best_share"]) == (1.0, None, 0.0)


def test_the_arm_at_half_of_the_genies_rate_is_chosen_by_rates_alone() -> None:
    """The smallest gamma that reaches it, however accurate it is."""
    assert row_of(accuracies={"adapt_norm 0.1": lost_by(0.1)})["half_arm"] == "adapt_norm 0.1"
    assert row_of(rates={"adapt_norm 0.1": [7.9] * 3})["half_arm"] == "adapt_norm 0.2"
    low = {"adapt_norm 0.1": [7.0] * 3, "adapt_norm 0.2": [7.9] * 3}
    assert row_of(rates=low)["half_arm"] is None


def test_beside_fixed_rates_that_send_as_much() -> None:
    """The shape between the rates that were run is kept: no overshoot, and a bend stays a bend."""
    fixed = [
        cell_of(runs_of([accuracy, accuracy], [rate] * 2), runs_of([0.9] * 2, [1.0] * 2), WIRE)
        for rate, accuracy in ((1.0, 0.9), (4.0, 0.9), (16.0, 0.8), (64.0, 0.2))
    ]

    def beside(rate: float) -> float:
        runs = runs_of([0.7, 0.8], [rate, rate])
        low, high = beside_fixed(cell_of(runs, runs_of([0.9] * 2, [1.0] * 2), WIRE), fixed)
        assert high - low == pytest.approx(0.1)
        return 0.7 - low

    assert [beside(rate) for rate in (1.0, 2.0, 4.0, 16.0, 64.0)] == pytest.approx(
        [0.9, 0.9, 0.9, 0.8, 0.2]
    )
    # A straight line would say 0.85.
    assert 0.86 < beside(8.0) < 0.9
    # Beyond the largest rate nothing is known, and nothing made up in the controller's favour.
    assert beside(1000.0) == pytest.approx(0.2)
    assert beside_fixed(fixed[1], fixed[:1]) == [0.0, 0.0]


def test_the_first_rounds_and_what_was_lost_midway() -> None:
    """Rates by what was sent; losses by the same share of tests as at the end."""
    long = {"accuracy": 0.8, "rate": 4.0, "late_rate": 8.0, "shares": [0.1] * 20, "seconds": 1.0}
    long["sizes"] = [100, 100, *[25] * 18]
    long["tests"] = [[6, 0.1], [7, 0.5], [10, 0.7], [11, 0.75], [20, 0.8]]
    free = {**long, "rate": 1.0, "sizes": [100] * 20, "tests": [[8, 0.65], [20, 0.8]]}
    cell = cell_of([long], [free], WIRE)
    assert cell["lost_midway"] == pytest.approx(0.65 - 0.6)
    assert cell["early_rate"] == pytest.approx(4.0 * (650 / 20) / 100)
    untested = {**long, "tests": [[20, 0.8]]}
    assert cell_of([untested], [free], WIRE)["lost_midway"] is None


def verdict(statement: str, **given: Any) -> str:
    """Of the one claim whose statement has these words."""
    (found,) = [each for each in claims(PLAN, [row_of(**given)]) if statement in each["statement"]]
    return str(found["verdict"])


@pytest.mark.parametrize(
    ("accuracies", "word"),
    [
        (lost_by(SLACK / 2.0), REPRODUCED),
        (lost_by(-2.0 * SLACK), REPRODUCED),
        (lost_by(2.0 * SLACK), NOT_REPRODUCED),
        ([0.9 - 0.03, 0.91 + 0.02, 0.89 - 0.01], UNDECIDED),
    ],
)
def test_as_accurate_as_no_compression(accuracies: list[float], word: str) -> None:
    found = verdict("as accurate as no compression", accuracies={"adapt_norm 0.1": accuracies})
    assert found == word


def test_all_noise_multipliers_together_say_more() -> None:
    """Differences that leave a doubt at each of two noises, and none in all six of them."""
    scattered = [0.9 - 0.004, 0.91 + 0.003, 0.89 - 0.005]
    rows = [
        row_of(accuracies={"adapt_norm 0.1": scattered}) | {"noise_multiplier": z} for z in (1, 2)
    ]
    verdicts = {
        each["statement"].split(":")[0]: (each["verdict"], each["half_width"])
        for each in claims(PLAN, rows)
        if "as accurate as no compression" in each["statement"]
    }
    assert verdicts["z = 1"][0] == verdicts["z = 2"][0] == UNDECIDED
    assert verdicts["all noise multipliers"][0] == REPRODUCED
    assert len(verdicts) == 3


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ([10.0, 11.0, 10.5], REPRODUCED),
        ([20.0, 21.0, 20.5], NOT_REPRODUCED),
        ([10.0, 20.0, 17.0], UNDECIDED),
    ],
)
def test_the_genie_is_ahead(rates: list[float], word: str) -> None:
    """Its rate is 16."""
    assert verdict("Genie's rate is above", rates={"adapt_norm 0.1": rates}) == word


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ([10.0, 11.0, 10.5], REPRODUCED),
        ([4.0, 4.1, 4.2], NOT_REPRODUCED),
        ([4.0, 8.0, 5.0], UNDECIDED),
    ],
)
def test_arriving_pays(rates: list[float], word: str) -> None:
    """Beside a published rule whose rate is 5, seed by seed."""
    assert verdict("arriving raises the rate", rates={"adapt_norm 0.1": rates}) == word


def test_what_a_single_seed_does_not_decide() -> None:
    cells = {
        name: cell_of(runs_of([0.9], [rate]), runs_of([0.9], [1.0]), WIRE)
        for name, rate in RATES.items()
    }
    found = claims(PLAN, [compared(PLAN, 1.0, cells)])
    undecided = {each["statement"] for each in found if each["verdict"] == UNDECIDED}
    assert len(undecided) == 5 and all(each["half_width"] is None for each in found)


@pytest.mark.parametrize(
    ("rate", "word"), [(8.0, REPRODUCED), (16.0, REPRODUCED), (7.9, NOT_REPRODUCED)]
)
def test_half_of_the_genie(rate: float, word: str) -> None:
    """What is computed from all seeds is decided either way."""
    given = {"adapt_norm 0.1": [rate] * 3}
    lost = {"adapt_norm 0.2": lost_by(0.02)}
    assert verdict("no more loss than it may have", rates=given, accuracies=lost) == word


@pytest.mark.parametrize(
    ("accuracies", "word"),
    [
        (lost_by(SLACK / 2.0), REPRODUCED),
        (lost_by(2.0 * SLACK), NOT_REPRODUCED),
        ([0.9 - 0.03, 0.91 + 0.02, 0.89 - 0.01], UNDECIDED),
    ],
)
def test_half_of_the_genie_at_its_own_loss(accuracies: list[float], word: str) -> None:
    """The Genie loses nothing here; the arm at half of its rate does."""
    assert verdict("loses no more than it does", accuracies={"adapt_norm 0.1": accuracies}) == word


@pytest.mark.parametrize(
    ("points_lost", "word"), [(0.0, REPRODUCED), (0.005, REPRODUCED), (0.03, NOT_REPRODUCED)]
)
def test_tuning_beside_fixed_rates_of_equal_bytes(points_lost: float, word: str) -> None:
    """Fixed rates lose nothing here, so what the tuned arms lose is the price of tuning."""
    tuned = {name: lost_by(points_lost) for name in RATES if name.startswith("adapt_norm")}
    assert verdict("fixed rates that send as much", accuracies=tuned) == word


@pytest.mark.parametrize(
    ("rate", "word"), [(20.0, REPRODUCED), (21.0, REPRODUCED), (25.0, NOT_REPRODUCED)]
)
def test_the_law_is_decided(rate: float, word: str) -> None:
    assert verdict("proportional to gamma", rates={"adapt_norm 0.2": [rate] * 3}) == word


def test_no_claim_is_made_of_arms_that_are_not_there() -> None:
    plan = Plan(noise=(1.0,), rates=(4.0,), gammas=(0.25,), seeds=3)
    free = runs_of([0.9] * 3, [1.0] * 3)
    cells = {arm.name: cell_of(free, free, WIRE) for arm in plan.arms()}
    found = claims(plan, [compared(plan, 1.0, cells)])
    # No arm of the paper's gamma, of the published rule, at half of a rate, or with a slope.
    statements = [each["statement"] for each in found]
    assert len(found) == 3 and sum("Genie" in each for each in statements) == 2
