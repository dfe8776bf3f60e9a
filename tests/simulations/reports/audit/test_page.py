"""The report's page: needs nothing but itself, says everything in words, escapes what it shows."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from audit_units import PNG, attack, rated
from html_elements import Elements, assert_for_every_reader, dangling, loads

from simulations.audits.base import Check, Exhibit
from simulations.common.provenance import Provenance
from simulations.reports.audit.page import render_page
from simulations.reports.audit.promises import NOT_PROMISED
from simulations.reports.audit.results import AuditReport, UnitOutcome

MADE = Provenance("0123abcd + changes", "feedfacefeedface", {"cores": 2}, {"python": "3.11"})
HOSTILE = "\"><script>alert('x')</script><img src=x onerror=alert(1)>$\\frac{1$"


def report_of(*checks: Check, **changes: Any) -> AuditReport:
    figures = {
        "seed": 1,
        "effort": "quick",
        "finished": "2026-11-21T12:00:00+00:00",
        "outcomes": tuple(UnitOutcome(check.id, (check,), 0.5) for check in checks),
        "defences": {},
        "provenance": MADE,
    }
    return AuditReport(**{**figures, **changes})


def worlds(epsilon: float = 1.5) -> Check:
    def side(bound: float, rejected: bool) -> dict[str, float | str]:
        return {
            "claimed_epsilon": 2.0,
            "epsilon_at_least": bound,
            "epsilon_ceiling": 6.0,
            "gaussian_ceiling": "inf",
            "confidence": 0.999999,
            "rejected": rejected,
        }

    real, twin = side(epsilon, False), side(4.5, True)
    return Check.of("privacy-two-worlds-coins", "no bound above (twin: half)", real, twin)


def noise() -> Check:
    def side(ratio: float, rejected: bool) -> dict[str, float]:
        return {"variance_ratio": ratio, "variance_tolerance": 0.04, "rejected": rejected}

    return Check.of("privacy-noise-law", "noise is there", side(1.01, False), side(0.5, True))


@pytest.fixture
def page() -> str:
    checks = (attack("A1"), rated("A23"), worlds(), noise())
    return render_page(report_of(*checks, defences={"A1": "the self mask"}))


def test_the_page_loads_nothing(page: str) -> None:
    assert loads(page) == []


def test_every_picture_is_a_data_uri_with_words(page: str) -> None:
    pictures = [attributes for attributes, _ in Elements(page).named("img")]
    assert len(pictures) == 2
    assert pictures[0]["src"] == "data:image/png;base64," + base64.b64encode(PNG).decode()
    assert pictures[1]["src"].startswith("data:image/svg+xml;base64,")
    assert [p["alt"] for p in pictures] == ["A grey square.", "A line."]


def test_every_plot_has_words(page: str) -> None:
    elements = Elements(page)
    assert len(elements.named("svg")) == 3
    words = elements.words_of_plots()
    told = [text for name, text in words.items() if name.endswith("-desc")]
    assert ["with the defence" in text for text in told] == [True] * 3
    assert "A23: with the defence attack failed; 21 of 40" in words["rates-desc"]
    assert "epsilon at least 1.5, accounted 2" in words["epsilon-desc"]


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    assert dangling(page) == []
    targets = {a["href"][1:] for a, _ in Elements(page).named("a") if "href" in a}
    assert {"main", "summary", "not-promised", "again"} < targets


def test_the_page_is_for_every_reader(page: str) -> None:
    assert_for_every_reader(page)
    # What scrolls can be reached without a mouse.
    assert page.count('<div class="wide') == page.count('tabindex="0"') == 4


def test_the_page_says_what_was_run_and_how_it_ended(page: str) -> None:
    text = " ".join("".join(Elements(page).named("body")[0][1]).split())
    assert "All 4 checks held" in text
    for part in ("quick", "0123abcd + changes", "feedfacefeedface", "python 3.11", "2 s"):
        assert part in text
    assert "The victim lacks: the self mask." in text
    assert "The victim: half." in text
    assert "21 of 40 (52.5\u00a0%)".replace("\u00a0", " ") in text.replace("\u00a0", " ")
    assert "1 - 1e-06" in text
    for name, sentence in NOT_PROMISED:
        assert name in text
        assert sentence in text


def test_failures_come_first() -> None:
    error = Check("A18", "messages", {"error": "KeyError: 3"}, {"error": "KeyError: 3"}, False)
    page = render_page(report_of(attack("A1"), attack("A2", held=False), error))
    (result,) = [t for a, t in Elements(page).named("p") if "result" in a.get("class", "")]
    assert " ".join(result.split()) == "2 of 3 checks did not hold: A2, A18."
    assert "KeyError: 3" in page


def test_a_page_without_anything_tried_says_so() -> None:
    page = render_page(report_of(notes=("Flower is not installed.",)))
    assert "Nothing was tested." in page
    assert Elements(page).named("svg") == []


def test_hostile_strings_are_shown_and_not_obeyed() -> None:
    exhibit = Exhibit(HOSTILE, HOSTILE, "image/png", PNG)
    figures = {"succeeded": False, HOSTILE: HOSTILE, "refused_with": HOSTILE, "note": "a\nb"}
    check = Check(HOSTILE, HOSTILE, figures, {"succeeded": True}, True, (exhibit,))
    made = Provenance(HOSTILE, HOSTILE, {"system": HOSTILE}, {"python": HOSTILE})
    report = report_of(check, notes=(HOSTILE,), defences={HOSTILE: HOSTILE}, provenance=made)
    page = render_page(report)
    elements = Elements(page)
    assert elements.named("script") == []
    assert [attributes["alt"] for attributes, _ in elements.named("img")] == [HOSTILE]
    assert all("onerror" not in attributes for _, attributes, _ in elements.found)
    assert HOSTILE in elements.named("main")[0][1]


def test_many_figures_unfold() -> None:
    many = {f"figure_{i}": i for i in range(40)}
    page = render_page(report_of(attack("A12", **many)))
    assert "more figures</summary>" in page
    assert all(f"<dt>figure {i}</dt>" in page for i in range(40))
