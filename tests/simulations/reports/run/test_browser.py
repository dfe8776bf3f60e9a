"""The page in a browser: on a phone nothing is missing, and nothing sticks out."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from report_runs import folder_of, record

from protocol.errors import ConfigurationError
from simulations.common.pages import browser
from simulations.common.pages.browser import Window, find_browser, run_browser, take_pictures
from simulations.reports.run import find_runs, render_runs

# Frames of the page at several widths, measured by the page around them. What scrolls by itself may
# be wider than the window; everything else may not.
MEASURING = """<!doctype html><title>measuring</title><body><script>
const found = {};
const widths = [360, 1280];
function measure(frame, width) {
  const page = frame.contentDocument, within = e => e.closest(".wide, pre");
  page.querySelectorAll("details").forEach(d => { d.open = true; });
  const wide = [...page.body.querySelectorAll("*")].filter(e => !within(e) && !e.closest(".skip")
    && e.getBoundingClientRect().right > width + 1);
  const plots = [...page.querySelectorAll("svg[role=img]")].map(e => e.getBoundingClientRect());
  found[width] = {
    page: page.documentElement.scrollWidth,
    wide: wide.map(e => e.tagName + "." + e.className),
    plots: plots.length,
    flat: plots.filter(b => b.width < 100 || b.height < 100).length,
    loaded: frame.contentWindow.performance.getEntriesByType("resource").map(e => e.name),
    heading: page.querySelector("h1").textContent,
  };
  if (Object.keys(found).length === widths.length) document.title = JSON.stringify(found);
}
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:800px;border:0`;
  frame.srcdoc = PAGE;
  frame.onload = () => measure(frame, width);
  document.body.append(frame);
}
</script></body>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    found = find_browser()
    if found is None:
        pytest.skip("no Chromium on PATH")
    return found


def measured(chromium: str, page: str, folder: Path) -> dict[str, Any]:
    source = json.dumps(page).replace("</", "<\\/")
    (folder / "measuring.html").write_text(MEASURING.replace("PAGE", source))
    done = run_browser(
        chromium,
        "--virtual-time-budget=20000",
        "--dump-dom",
        (folder / "measuring.html").resolve().as_uri(),
    )
    (title,) = re.findall(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[:1]
    return json.loads(html.unescape(title))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    top = tmp_path_factory.mktemp("runs")
    for epsilon in (2, 5):
        folder_of(top / f"epsilon={epsilon}", [record(1), record(2)])
    return render_runs(find_runs([top]), "two runs")


def test_nothing_is_missing_and_nothing_sticks_out(
    chromium: str, page: str, tmp_path: Path
) -> None:
    found = measured(chromium, page, tmp_path)
    assert set(found) == {"360", "1280"}
    for width, figures in found.items():
        assert figures["heading"] == "two runs"
        assert figures["page"] <= int(width)
        assert figures["wide"] == []
        assert (figures["plots"], figures["flat"]) == (page.count("<svg "), 0)
        assert figures["loaded"] == []


def test_what_sticks_out_would_be_found(chromium: str, page: str, tmp_path: Path) -> None:
    """The control: a table outside of its scrolling box."""
    broken = page.replace('<div class="wide"', "<div").replace("overflow-x: auto", "")
    found = measured(chromium, broken, tmp_path)
    assert found["360"]["page"] > 360 and found["360"]["wide"]


def test_pictures_are_of_the_size_of_the_window(chromium: str, page: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page)
    (picture,) = take_pictures(chromium, path, tmp_path, [Window("phone", 360, 700)])
    assert picture.name == "report-phone.png"
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    size = (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
    assert size == (360, 700)


def test_a_browser_that_draws_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "no display")
    monkeypatch.setattr(browser, "run_browser", lambda *_: failed)
    with pytest.raises(OSError, match="no display"):
        take_pictures("chromium", tmp_path / "report.html", tmp_path)


def test_the_command_writes_a_page_into_the_first_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "find_browser", lambda: None)
    folder = folder_of(tmp_path / "run", [record(1)])
    result = invoke("report", str(folder))
    assert result.exit_code == 0, result.output
    assert str(folder / "report.html") in result.stdout.replace("\n", "")
    assert "<title>veilsum: run</title>" in (folder / "report.html").read_text()
    other = tmp_path / "new" / "page.html"
    arguments = ["report", str(folder), "--out", str(other), "--title", "mine"]
    assert invoke(*arguments).exit_code == 0
    assert "<title>mine</title>" in other.read_text()


def test_pictures_need_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "find_browser", lambda: None)
    folder = folder_of(tmp_path / "run", [record(1)])
    result = invoke("report", str(folder), "--screenshots", str(tmp_path))
    assert isinstance(result.exception, ConfigurationError)
    assert "no Chromium" in str(result.exception)
