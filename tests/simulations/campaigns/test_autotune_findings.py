"""What the campaign of autotuned sketches concludes, on made-up figures."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from simulations.campaigns.claims import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    Claim,
    Interval,
)
from simulations.campaigns.render import Grid
from simulations.reproduce.autotune.campaign import CAMPAIGN
from simulations.reproduce.autotune.findings import (
    PAPER_ARM,
    SLACK,
    beside_fixed,
    cell_of,
    claims,
    compared,
)
from simulations.reproduce.autotune.plan import Plan, paper_arm_of

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
    return compared(PLAN, 1.0, cells_of(**given))


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


def test_byte_rates_are_of_all_messages_beside_no_compression() -> None:
    cells = cells_of()
    cells["genie 1"]["wire"] = {"pairwise": 80.0, "one-shot": 60.0}
    row = compared(PLAN, 1.0, cells)
    parts = CAMPAIGN.parts({"results": [row], "slack": SLACK, "plan": {"rates": [4.0]}})
    grids = {part.title: part for part in parts if isinstance(part, Grid)}
    found = dict(grids["kB of all messages, pairwise / one-shot (rates of the bytes)"].rows)
    assert found["no compression"].endswith("(1.0 / 1.0)")
    assert found["Adapt Norm, gamma 0.1"].endswith("(10.0 / 20.0)")


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


def test_the_genie_seed_by_seed_and_between_the_rates() -> None:
    """Its choice on average, that of each seed by itself, and where a point is lost."""
    uneven = [0.9 - 0.002, 0.91 - 0.002, 0.89 - 0.02]
    row = row_of(accuracies={"genie 16": uneven})
    assert (row["genie"], row["genie_by_seed"]) == (16.0, [16.0, 16.0, 4.0])
    assert row["genie_between"] == pytest.approx(16.0)
    row = row_of(accuracies={"genie 16": lost_by(0.02)})
    assert (row["genie"], row["genie_by_seed"]) == (4.0, [4.0] * 3)
    # Half of two points, by cubics that begin flat.
    assert 8.0 < row["genie_between"] < 10.0
    nothing = row_of(accuracies={name: lost_by(0.02) for name in RATES if name != "genie 1"})
    assert nothing["genie"] == 1.0 < nothing["genie_between"] < 4.0


def test_the_genie_may_lose_a_share_of_the_accuracy() -> None:
    """Of about 0.9: 1 % is less than what the rate of 16 loses, 3 % is more."""
    plan = replace(PLAN, tolerances=(0.01, 0.03))
    rows = [row_of(accuracies={"genie 16": lost_by(0.02)})]
    found = [each for each in judged(rows, plan) if "may be lost" in each.statement]
    assert [each.verdict for each in found] == [NOT_REPRODUCED, REPRODUCED]
    measured = [each.measured for each in found]
    assert measured == pytest.approx([math.log(4 / 10), math.log(16 / 10)])


def test_shares_of_the_genies_rate() -> None:
    assert row_of()["shares"] == pytest.approx(
        {"adapt_norm 0.2": 20 / 16, "adapt_norm 0.1": 10 / 16, "published 0.1": 5 / 16}
    )


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


def judged(rows: list[dict[str, Any]], plan: Plan = PLAN) -> list[Claim]:
    return list(claims({"plan": asdict(plan), "results": rows}))


def verdict(statement: str, **given: Any) -> str:
    """Of the one claim whose statement has these words."""
    (found,) = [each for each in judged([row_of(**given)]) if statement in each.statement]
    return found.verdict


SCATTERED = [0.9 - 0.03, 0.91 + 0.02, 0.89 - 0.01]
"""Accuracies that are neither surely as good as 0.9 nor surely worse."""

AS_FREE = "as accurate as no compression"
AHEAD = "Genie's rate is above"  # which is 16
ARRIVING = "raises the rate over the whole run"  # beside a published rule whose rate is 5
HALF = "0.1 has half"  # of the Genie's rate, at no more loss than its own, which is none
TUNING = "0.1 is as accurate as a fixed rate"  # fixed rates lose nothing here
LAW = "proportional to gamma"


@pytest.mark.parametrize(
    ("statement", "rates", "accuracies", "word"),
    [
        (AS_FREE, 10.0, lost_by(SLACK / 2.0), REPRODUCED),
        (AS_FREE, 10.0, lost_by(-2.0 * SLACK), REPRODUCED),
        (AS_FREE, 10.0, lost_by(2.0 * SLACK), NOT_REPRODUCED),
        (AS_FREE, 10.0, SCATTERED, UNDECIDED),
        (AHEAD, [10.0, 11.0, 10.5], lost_by(0.0), REPRODUCED),
        (AHEAD, [20.0, 21.0, 20.5], lost_by(0.0), NOT_REPRODUCED),
        (AHEAD, [10.0, 20.0, 17.0], lost_by(0.0), UNDECIDED),
        (ARRIVING, [10.0, 11.0, 10.5], lost_by(0.0), REPRODUCED),
        (ARRIVING, [4.0, 4.1, 4.2], lost_by(0.0), NOT_REPRODUCED),
        (ARRIVING, [4.0, 8.0, 5.0], lost_by(0.0), UNDECIDED),
        (HALF, 8.0, lost_by(SLACK / 2.0), REPRODUCED),
        (HALF, 7.9, lost_by(0.0), NOT_REPRODUCED),
        (HALF, 8.0, lost_by(2.0 * SLACK), NOT_REPRODUCED),
        (HALF, 8.0, SCATTERED, UNDECIDED),
        (HALF, 7.9, SCATTERED, NOT_REPRODUCED),
        (TUNING, 10.0, lost_by(0.0), REPRODUCED),
        (TUNING, 10.0, lost_by(0.005), REPRODUCED),
        (TUNING, 10.0, lost_by(0.03), NOT_REPRODUCED),
        (LAW, 10.0, lost_by(0.0), REPRODUCED),
        (LAW, 9.5, lost_by(0.0), REPRODUCED),
        (LAW, 8.0, lost_by(0.0), NOT_REPRODUCED),
    ],
)
def test_verdicts(
    statement: str, rates: float | list[float], accuracies: list[float], word: str
) -> None:
    """Of Adapt Norm at the paper's gamma; the other gamma has twice the rate, and loses much."""
    each = rates if isinstance(rates, list) else [rates] * 3
    given = {"adapt_norm 0.1": accuracies, "adapt_norm 0.2": lost_by(0.1)}
    assert verdict(statement, rates={"adapt_norm 0.1": each}, accuracies=given) == word


def test_noise_multipliers_together_are_averaged_within_a_seed() -> None:
    """What scatters between noises cancels; what a seed has in common with itself does not."""

    def together(first: list[float], second: list[float]) -> tuple[str, float]:
        rows = [
            row_of(accuracies={"adapt_norm 0.1": [0.9 + a, 0.91 + b, 0.89 + c]})
            | {"noise_multiplier": z}
            for z, (a, b, c) in enumerate([first, second], start=1)
        ]
        (found,) = [
            (each.verdict, each.half_width)
            for each in judged(rows)
            if each.statement.startswith("all noise multipliers: Adapt Norm")
        ]
        return found

    scattered, other = [-0.02, 0.02, -0.001], [0.02, -0.02, 0.001]
    word, width = together(scattered, other)
    assert (word, width) == (REPRODUCED, pytest.approx(0.0, abs=1e-12))
    word, width = together(scattered, scattered)
    alone = Interval.of(scattered).half()
    assert (word, width) == (UNDECIDED, pytest.approx(alone))


@pytest.mark.parametrize(
    ("lost", "word"), [(0.015, REPRODUCED), (0.025, NOT_REPRODUCED), (-0.005, NOT_REPRODUCED)]
)
def test_the_loss_of_the_tables(lost: float, word: str) -> None:
    """0.8 points there, to a point."""
    plan = replace(PLAN, published_loss=0.008)
    rows = [row_of(accuracies={"adapt_norm 0.1": lost_by(lost)}) for _ in range(2)]
    (found,) = [each for each in judged(rows, plan) if "in the tables" in each.statement]
    assert (found.verdict, found.published) == (word, 0.008)
    assert found.measured == pytest.approx(lost)
    assert not [each for each in judged(rows) if "in the tables" in each.statement]


def test_what_a_single_seed_does_not_decide() -> None:
    cells = {
        name: cell_of(runs_of([0.9], [rate]), runs_of([0.9], [1.0]), WIRE)
        for name, rate in RATES.items()
    }
    found = judged([compared(PLAN, 1.0, cells)])
    undecided = {each.statement for each in found if each.verdict == UNDECIDED}
    assert len(undecided) == 7 and all(each.half_width is None for each in found)


def test_half_of_the_genie_has_to_be_reached_at_every_noise() -> None:
    rows = [row_of(), row_of(rates={"adapt_norm 0.1": [7.0] * 3}) | {"noise_multiplier": 2.0}]
    words = {each.statement: each.verdict for each in judged(rows)}
    assert [word for name, word in words.items() if "0.2 has half" in name] == [REPRODUCED]
    assert [word for name, word in words.items() if "0.1 has half" in name] == [NOT_REPRODUCED]


def test_no_claim_is_made_of_arms_that_are_not_there() -> None:
    plan = Plan(noise=(1.0,), rates=(4.0,), gammas=(0.25,), seeds=3)
    free = runs_of([0.9] * 3, [1.0] * 3)
    cells = {arm.name: cell_of(free, free, WIRE) for arm in plan.arms()}
    found = judged([compared(plan, 1.0, cells)], plan)
    # None of the paper's gamma, of the published rule, or with a slope.
    assert len(found) == 2 and all("gamma = 0.25" in each.statement for each in found)


def test_without_fixed_rates_nothing_is_said_of_the_genie() -> None:
    plan = paper_arm_of(PLAN, 3)
    assert [arm.name for arm in plan.arms()] == ["genie 1", "adapt_norm 0.1"]
    cells = {name: each for name, each in cells_of().items() if name in ("genie 1", PAPER_ARM)}
    found = judged([compared(plan, 1.0, cells)], plan)
    assert ["as accurate as no compression" in each.statement for each in found] == [True]


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ([5.0, 6.0, 5.5], REPRODUCED),
        ([14.0, 15.0, 13.0], NOT_REPRODUCED),
        ([5.0, 90.0, 30.0], UNDECIDED),
    ],
)
def test_two_stage_is_judged_by_its_rate(rates: list[float], word: str) -> None:
    runs = [runs_of(lost_by(lost), rates) for lost in (0.05, 0.0)]
    row = row_of()
    row["arms"] |= {"two_stage": cell_of(*runs, WIRE)}
    plan = {"published": [], "gammas": [], "rates": [], "published_loss": None}
    (found,) = [c for c in claims({"plan": plan, "results": [row]}) if "Two Stage" in c.statement]
    assert found.verdict == word and "5.0 ± 0.0 points less accurate" in found.seen


@pytest.mark.parametrize(
    ("points", "word"), [(0.05, REPRODUCED), (0.0, NOT_REPRODUCED), (0.01, UNDECIDED)]
)
def test_adapt_tail_is_judged_by_what_it_loses(points: float, word: str) -> None:
    row = row_of()
    spread = [lost - d for lost, d in zip(lost_by(points), (0.002, 0.0, -0.002), strict=True)]
    tail = runs_of(spread, [30.0] * 3)
    row["arms"] |= {"adapt_tail": cell_of(tail, tail, WIRE)}
    (found,) = [claim for claim in judged([row]) if claim.source == "Appendix H"]
    assert found.verdict == word
