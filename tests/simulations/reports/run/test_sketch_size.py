"""The plot of sketch sizes: its interval, its words, and records that tell less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_runs import drawn, record

from simulations.common.pages import Chart
from simulations.reports.run.sketch_size import sketch_chart
from sketch.controllers.base import ControllerState
from sketch.controllers.norm_belief import NormBelief
from sketch.controllers.sizing import arrive

PLANNED = "The plan's clip and noise ask for this size at most."
DOWN = "The norm is smaller: down to the upper end of its interval."
UP = "The norm is larger: up to its likeliest size at once."
STAYS = "The size lies within the interval of the norm: it stays."
SIZES = (900, 2400, 2400, 1500, 1200, 1200, 1155)
REASONS = (PLANNED, UP, STAYS, DOWN, DOWN, STAYS, DOWN)


def of_size(number: int, size: int, **changes: Any) -> dict[str, Any]:
    return record(number, sketch_size=size, compression=4810 / size, **changes)


def arrived(sizes: tuple[int, ...] = SIZES, **figures: float) -> list[dict[str, Any]]:
    """Rounds of a controller that knows an interval after its first."""
    records = []
    for number, (size, why) in enumerate(zip(sizes, REASONS, strict=True), 1):
        told = {"wanted_size": float(size), "size": float(size)}
        if number > 1:
            told |= {"shortest": 0.8 * size, "longest": 1.25 * size, **figures}
        records.append(of_size(number, size, rationale=why, figures=told))
    return records


def chart_of(path: Path, records: list[dict[str, Any]]) -> Chart:
    return drawn(sketch_chart, path, records)


def test_the_interval_is_drawn_and_told(tmp_path: Path) -> None:
    chart = chart_of(tmp_path, arrived())
    assert "shortest to longest" in chart.svg
    assert chart.text.endswith("The band is from the shortest to the longest size that the "
                               "controller allows.")  # fmt: skip
    assert chart.table.columns[:4] == ("round", "values", "shortest", "longest")
    assert [row[2:4] for row in chart.table.rows[:2]] == [("-", "-"), ("1,920", "3,000")]
    # What has a column is not told twice.
    assert chart.table.rows[1][-1] == "wanted size 2400, size 2400"


def test_the_words_count_moves_with_their_reasons(tmp_path: Path) -> None:
    text = chart_of(tmp_path, arrived()).text
    for part in (
        "Between 900 and 2,400 values instead of 4,810: compression 3.13x over the whole run, "
        "3.81x in the second half of its rounds.",
        f'The first round sends 900: "{PLANNED[:-1]}".',
        f'the size goes down in 3 rounds ("{DOWN[:-1]}"), goes up in 1 round ("{UP[:-1]}"), stays '
        f'in 2 rounds ("{STAYS[:-1]}").',
        # 2400 is more than 1.5 times 1200.
        "After round 3 all sizes are within a factor of 1.5 of the median of the second half, "
        "1,200.",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((*SIZES[:-1], 801), "After round 3 all sizes"),
        ((*SIZES[:-1], 799), "At the end the size still moves: it is not within"),
        ((1000, 1200, 1200, 1100, 1000, 1000, 990), "All sizes are within a factor of 1.5"),
    ],
)
def test_it_is_told_since_when_the_size_stays(
    tmp_path: Path, sizes: tuple[int, ...], said: str
) -> None:
    assert said in chart_of(tmp_path, arrived(sizes)).text


def test_the_sentences_are_those_of_the_controllers() -> None:
    """What is counted here is what `arrive` says of a size above, in and below an interval."""
    belief = NormBelief(100.0, 100.0)
    moves = [arrive(belief, 1.0, 1.0, 1.0, ControllerState(1000, size), 1) for size in (200, 50)]
    kept = arrive(belief, 1.0, 1.0, 1.0, ControllerState(1000, 105), 1)
    assert [move.words for move in (*moves, kept)] == [DOWN, UP, STAYS]
    assert {"shortest", "longest"} <= kept.numbers.keys()


def test_rules_without_an_interval_have_no_band(tmp_path: Path) -> None:
    """As the published rule, and runs of earlier versions."""
    words = ("The first rate is given.", "The estimated norm asks for this size.")
    figures = {"estimate": 0.2, "norm_squared": 0.1, "wanted_size": 2400.0, "size": 2400.0}
    records = [of_size(1, 4810, rationale=words[0]), of_size(2, 2400, rationale=words[1])]
    records[1]["figures"] = figures
    chart = chart_of(tmp_path, records)
    assert "shortest" not in chart.svg and "The band" not in chart.text
    assert chart.table.columns[:3] == ("round", "values", "compression")
    assert f'The first round sends 4,810: "{words[0][:-1]}".' in chart.text
    assert f'the size goes down in 1 round ("{words[1][:-1]}").' in chart.text


def test_records_without_reasons_are_shown_all_the_same(tmp_path: Path) -> None:
    records = [of_size(n, 4000 // n, rationale=None, figures=None) for n in (1, 2)]
    text = chart_of(tmp_path, records).text
    assert "The first round sends 4,000. After it the size goes down in 1 round. " in text


def test_a_fixed_rate_is_told_in_one_sentence(tmp_path: Path) -> None:
    records = [of_size(n, 600, rationale="The rate is fixed.", figures=None) for n in (1, 2)]
    for rounds in (1, 2):  # of one round that is all there is
        assert chart_of(tmp_path / str(rounds), records[:rounds]).text == (
            "600 values instead of 4,810: compression 8.02x over the whole run. "
            'Why: "The rate is fixed".'
        )


def heights(chart: Chart) -> list[float]:
    """Vertical positions of the band's outline, downwards."""
    paths = [part for part in chart.svg.split("<path ") if "opacity: 0.45" in part]
    # The shorter one is in the legend.
    points = max(paths, key=len).split('d="')[1].split('"')[0].split()
    return [float(word) for word in points if word not in "MLz"][1::2]


def test_the_band_of_a_second_sketch_is_that_of_all_values_sent(tmp_path: Path) -> None:
    plain = heights(chart_of(tmp_path / "a", arrived()))
    second = heights(chart_of(tmp_path / "b", arrived(probe_size=500.0)))
    assert min(second) < min(plain) and max(second) < max(plain)


def test_the_band_ends_where_the_model_does(tmp_path: Path) -> None:
    """An interval of a norm that is not known yet must not squeeze all else."""
    huge = heights(chart_of(tmp_path / "a", arrived(longest=1e9)))
    whole = heights(chart_of(tmp_path / "b", arrived(longest=4810.0)))
    assert min(huge) == min(whole)


def test_sizes_far_below_that_of_the_model_are_told_apart(tmp_path: Path) -> None:
    """Equal factors are equal distances there."""
    near = chart_of(tmp_path / "a", arrived())
    far = chart_of(tmp_path / "b", arrived(tuple(size // 20 for size in SIZES)))
    assert ">0<" in near.svg and ">0<" not in far.svg
    assert ">50<" in far.svg and ">2,000<" in far.svg
