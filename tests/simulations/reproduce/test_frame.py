"""What all campaigns share: kept results, intervals, files, summaries, words."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from simulations.reproduce.intervals import half_width
from simulations.reproduce.kept import Kept
from simulations.reproduce.output import Report
from simulations.reproduce.plots import sheet
from simulations.reproduce.text import points, section, shown


def test_kept_results_are_found_under_their_key_only(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "runs")
    assert kept.find("a", {"seed": 1}) is None
    assert kept.keep("a", {"seed": 1}, {"curve": (1, 2)}) == {"curve": [1, 2]}
    assert kept.find("a", {"seed": 1}) == {"curve": [1, 2]}
    assert kept.find("a", {"seed": 2}) is None
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a.json"]


def test_what_is_kept_is_not_made_again(tmp_path: Path) -> None:
    kept, made = Kept(tmp_path), list[int]()

    def make() -> list[int]:
        made.append(1)
        return [len(made)]

    assert kept.get("a", {"seed": 1}, make) == kept.get("a", {"seed": 1}, make) == [1]
    assert kept.get("a", {"seed": 2}, make) == [2]


def test_intervals_are_students() -> None:
    assert half_width([0.5]) is None
    # The quantile with one degree of freedom is tan(0.475 pi), the standard error 0.05.
    assert half_width([0.4, 0.5]) == pytest.approx(math.tan(0.475 * math.pi) * 0.05)
    # With two it is 4.3027, and 9.9248 for 99 %; the standard error is 1 / sqrt(3).
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert half_width([1.0, 2.0, 3.0], 0.99) == pytest.approx(9.924843 / math.sqrt(3), rel=1e-6)


def test_a_report_writes_and_shows_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(_: object) -> Figure:
        return sheet(1.0, 1.0)

    rows = [["way", "accuracy"], ["[none]", "1 %"]]
    report = Report(
        "made-up-{data}",
        {"page": (".md", lambda figures: figures["text"]), "plot": (".png", draw)},
        lambda _: [("a title", rows), "a line with [brackets]"],
    )
    figures = {"data": "digits", "text": "words\n"}
    paths = report.write(figures, tmp_path / "new")
    assert {name: path.name for name, path in paths.items()} == {
        "figures": "made-up-digits.json",
        "page": "made-up-digits.md",
        "plot": "made-up-digits.png",
    }
    assert json.loads(paths["figures"].read_text()) == figures
    assert paths["page"].read_text() == "words\n"
    assert paths["plot"].read_bytes().startswith(b"\x89PNG")
    report.finish(figures, tmp_path / "new", as_json=False)
    printed = capsys.readouterr().out
    for words in ("a title", "[none]", "a line with [brackets]", f"plot: {paths['plot']}"):
        assert words in printed


@pytest.mark.parametrize("as_json", [False, True])
def test_a_folder_that_cannot_be_written_to_does_not_cost_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    (tmp_path / "file").touch()
    report = Report("made-up", {}, lambda figures: [f"accuracy {figures['accuracy']}"])
    with pytest.raises(OSError, match="file"):
        report.finish({"accuracy": 0.25}, tmp_path / "file" / "new", as_json)
    assert "0.25" in capsys.readouterr().out


def test_words() -> None:
    assert section("Title", [["a", "b"], ["1", "2"]]) == (
        "## Title\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    )
    assert (shown(None, "g"), shown(2.0, "g"), shown(None, "g", "none")) == ("-", "2", "none")
    assert (points(0.5, None), points(0.5, 0.01)) == ("50.0", "50.0 ± 1.0")
    assert points(0.125, 0.0125, "+.2f") == "+12.50 ± 1.25"
