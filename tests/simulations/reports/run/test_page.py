"""The page of runs: needs nothing but itself, says everything in words, leaves out what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from html_elements import Elements, assert_for_every_reader, dangling, loads
from report_runs import drawn, folder_of, record

from simulations.reports.run import find_runs, read_run, render_runs
from simulations.reports.run import page as module
from simulations.reports.run.charts import (
    accuracy_chart,
    bytes_chart,
    charts_of,
    clients_chart,
    time_chart,
)
from simulations.reports.run.comparison import comparison_tables, settings_that_differ
from simulations.reports.run.folders import Run

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>$\\frac{1$"
LOCAL = {
    "bits": None,
    "rationale": None,
    "epsilons": {"server": 3.0, "outsider": 3.0, "one_report": 1.5, "delta": 1e-5},
    "error": {"measured": 700.0},
}
PLAIN = {
    "sketch_size": 4810,
    "compression": 1.0,
    "epsilons": {"server": "inf"},
    "error": None,
    "lost": {},
    "lost_later": {},
    "survivors": 64,
}


def page_of(path: Path, records: list[dict[str, Any]], **tables: Any) -> str:
    run = read_run(folder_of(path / "run", records, **tables))
    return render_runs([run], "a run")


def text_of(page: str, tag: str = "body") -> str:
    return " ".join(" ".join("".join(text) for _, text in Elements(page).named(tag)).split())


def titles(page: str) -> list[str]:
    """Of the plots of a page."""
    return [text for attributes, text in Elements(page).named("title") if attributes]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the plots out where a test is about something else on the page: they take longest."""
    monkeypatch.setattr(module, "charts_of", lambda *_: [])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(tmp_path_factory.mktemp("page"), [record(number) for number in (1, 2, 3)])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    top = tmp_path_factory.mktemp("pair")
    folder_of(top / "epsilon=5", [record(1), record(2)], privacy={"epsilon": 5.0})
    folder_of(top / "epsilon=2", [record(1)], privacy={"epsilon": 2.0})
    return find_runs([top])


@pytest.fixture(scope="module")
def pair_page(pair: list[Run]) -> str:
    return render_runs(pair, "two")


def test_the_page_loads_nothing_and_leads_somewhere(page: str, pair_page: str) -> None:
    for each in (page, pair_page):
        assert loads(each) == []
        assert dangling(each) == []


def test_every_plot_has_words_and_a_table(page: str) -> None:
    elements = Elements(page)
    assert len(elements.named("svg")) == 8
    words = elements.words_of_plots()
    assert words["run1-accuracy-desc"].startswith("After round 3, 72.0% of the test examples")
    assert "The estimated norm asks for this size" in words["run1-sketch-desc"]
    assert "Of 192 invitations, 180 ended in a sum." in words["run1-clients-desc"]
    assert "noise (privacy) 0.2, sketch (compression) 0.02" in words["run1-error-desc"]
    assert "clients train 1.50 s, protocol and noise 3.75 s" in words["run1-time-desc"]
    figures = [text for text in elements.named("summary") if text[1] == "Figures of this plot"]
    assert len(figures) == len(elements.named("table")) == 8


def test_the_page_is_for_every_reader(page: str) -> None:
    assert_for_every_reader(page)
    # The first stop of the keyboard leads past everything else.
    links = [(a.get("class"), a["href"]) for a, _ in Elements(page).named("a")]
    assert links[0] == ("skip", "#main")
    # What scrolls can be reached without a mouse.
    assert page.count('<div class="wide') == 16
    assert page.count('tabindex="0"') == 17


def test_the_page_says_what_was_run_and_on_what(page: str) -> None:
    text = text_of(page).replace("\u2011", "-")
    for part in (
        "3 of 3 rounds: 72.0% of the test examples correct, epsilon 5 guaranteed "
        "against the server at delta 1e-05 (2.4 spent so far)",
        "Guaranteed wherever the run stops: epsilon 5, its goal. Spent so far by the busiest "
        "client (an estimate): 2.4 against the server; 2.1 against an outsider, "
        "who sees released models only.",
        "mlp, 4,810 parameters",
        "192, 64 in a round",
        "sketch, sized by AdaptNorm",
        "0123abcd + changes",
        "feedfacefeedface",
        "python 3.11.7, numpy 2.4.6",
        "Neighbours: zero-out",
        "[privacy]",
    ):
        assert part in text
    assert "veilsum audit-ledger" not in text


def test_a_page_opens_with_the_verdict_then_its_plots(page: str, pair_page: str) -> None:
    """Reasons, tables and settings follow."""
    text = text_of(page)
    order = [
        "Verdict: Nearly every client is clipped.",
        "What epsilon 5 means: an attacker who knows every update but one client's",
        "Test accuracy",
        "Reasons for the verdict",
        "97% of the updates were longer than the clip",
        "Not known: how long the noise is beside the updates",
        "192, 64 in a round",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    both = text_of(pair_page)
    assert both.index("Test accuracy of all runs") < both.index("Settings that differ")


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_stopped_says_so_and_its_ledger_is_pointed_at(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", [record(1), record(2), record(3)])
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:2]))
    (folder / "ledger.jsonl").touch()
    text = text_of(render_runs([read_run(folder)], "a run"))
    assert "Stopped after 2 of 3 rounds" in text
    assert f"veilsum audit-ledger {folder}/ledger.jsonl" in text


def test_a_run_without_a_round_has_a_page(tmp_path: Path) -> None:
    text = text_of(page_of(tmp_path, []))
    assert "No round of 1 is finished." in text


def test_local_runs_have_no_sketch_and_no_parts(tmp_path: Path) -> None:
    page = page_of(tmp_path, [record(1, **LOCAL), record(2, **LOCAL)])
    assert "Values that a client sends" not in titles(page)
    text = text_of(page)
    assert "one report" in text
    assert "what the clip took off" not in text and "one draw of all of it" in text


def test_plain_runs_have_neither_privacy_nor_losses(tmp_path: Path) -> None:
    page = page_of(tmp_path, [record(1, **PLAIN)], engine={"aggregator": "plain"})
    assert titles(page) == ["Test accuracy", "Bytes of one client", "Time by stage"]
    text = text_of(page)
    assert "without privacy" in text
    assert "clip 0.25" not in text
    assert "Verdict" not in text and "means: an attacker" not in text


def test_old_records_without_time_and_error_are_shown_all_the_same(tmp_path: Path) -> None:
    old = {key: v for key, v in record(1).items() if key not in ("stages", "error", "lost_later")}
    shown = charts_of(read_run(folder_of(tmp_path / "run", [old])), 1)
    assert not {"Time by stage", "Error of the mean update"} & {chart.title for chart in shown}
    (clients,) = [chart for chart in shown if chart.title == "Clients lost, by stage"]
    stages = ("no update (input)", "no shares (share)", "no keys (advertise)")
    assert clients.table.columns == ("round", "in the sum", *stages)
    assert "is in the sum all the same" not in clients.text


def test_bytes_are_those_of_the_vector_and_of_the_protocol(tmp_path: Path) -> None:
    """4801 values of 18 bits are 86,418 bits."""
    odd = record(1, sketch_size=4801, bytes_per_client=30_000.0)
    chart = drawn(bytes_chart, tmp_path, [odd])
    assert chart.table.columns == ("round", "vector, kB", "protocol, kB", "together, kB")
    assert chart.table.rows == (("1", "10.8", "19.2", "30"),)
    assert "10.8 kB of a round are the vector" in chart.text


def test_bytes_that_are_a_report_are_not_split(tmp_path: Path) -> None:
    chart = drawn(bytes_chart, tmp_path, [record(1, **LOCAL)])
    assert chart.table.columns == ("round", "kB")


def test_compiling_is_told_apart_where_there_was_any(tmp_path: Path) -> None:
    stages = {"training": 0.5, "aggregation": 0.25, "test": 0.125, "compiling": 1.0}
    compiled = drawn(time_chart, tmp_path / "a", [record(1, stages=stages), record(2)])
    assert "compiling (once) 1.00 s" in compiled.text and "the next run does not" in compiled.text
    assert compiled.table.columns[3] == "compiling (once)"
    kept = drawn(time_chart, tmp_path / "b", [record(1, stages={**stages, "compiling": 0.0})])
    assert "compiling" not in kept.text and "compiling (once)" not in kept.table.columns


def test_refused_clients_are_counted(tmp_path: Path) -> None:
    clients = drawn(clients_chart, tmp_path, [record(1, survivors=58, refused=2)])
    assert clients.table.columns[-1] == "refused, or otherwise"
    assert clients.table.rows[0][-1] == "2"


def test_a_run_that_is_not_tested_after_every_round(tmp_path: Path) -> None:
    untested = record(1, accuracy=None, loss=None)
    accuracy = drawn(accuracy_chart, tmp_path, [untested, record(2)])
    assert [row[0] for row in accuracy.table.rows] == ["2"]


def test_runs_are_compared(pair: list[Run], pair_page: str) -> None:
    assert settings_that_differ(pair) == ["privacy.epsilon", "rounds"]
    tables = dict(comparison_tables(pair))
    assert list(tables) == ["Results", "Costs", "Settings that differ"]
    settings = tables["Settings that differ"]
    assert settings.columns == ("run", "privacy.epsilon")
    assert settings.rows == (("epsilon=2", "2"), ("epsilon=5", "5"))
    assert [row[:2] for row in tables["Results"].rows] == [
        ("epsilon=2", "1 of 1"),
        ("epsilon=5", "2 of 2"),
    ]
    for table in (tables["Results"], tables["Costs"]):
        assert sum(span for _, span in table.groups) == len(table.columns)
        assert all(len(row) == len(table.columns) for row in table.rows)
    # 4510 values of 18 bits are 10147.5 bytes, of 2.5 * 4510 in all.
    one = dict(zip(tables["Costs"].columns, tables["Costs"].rows[0], strict=True))
    assert (one["vector"], one["protocol"]) == ("10.15", "1.127")
    assert (one["in all"], one["compiling"]) == ("2.0", "-")
    # Of 4510 and 4210 values in two rounds; the second half is the second round.
    two = dict(zip(tables["Costs"].columns, tables["Costs"].rows[1], strict=True))
    assert (two["all rounds"], two["second half"]) == ("1.1x", "1.14x")
    assert 'colspan="3">epsilon of one client</th>' in pair_page
    assert 'colspan="2">compression</th>' in pair_page
    text = text_of(pair_page)
    assert "2 runs side by side" in text
    assert "epsilon=2: 52.0% at epsilon 2, epsilon=5: " in text
    assert "In the second half of its rounds: epsilon=2 1.07x, epsilon=5 1.14x." in text
    runs = [attributes for attributes, _ in Elements(pair_page).named("details") if attributes]
    assert ["open" in a for a in runs if a["class"] == "run"] == [True, False]


def test_the_same_run_gives_the_same_plots(pair: list[Run], pair_page: str) -> None:
    assert all(chart.svg in pair_page for chart in charts_of(pair[0], 1))


def test_hostile_strings_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    changes = {"rationale": HOSTILE, "figures": {HOSTILE: 1.0}, "lost": {"advertise": 4}}
    run = read_run(folder_of(tmp_path / "run", [record(1, **changes)]), HOSTILE)
    elements = Elements(render_runs([run, run], HOSTILE))
    assert elements.named("script") == [] and elements.named("img") == []
    assert HOSTILE in elements.named("h1")[0][1]
    assert {HOSTILE, f"{HOSTILE} 1"} <= {text for _, text in elements.named("td")}
    assert HOSTILE in {text for _, text in elements.named("th")}
