"""The page of headline results says nothing that the page it links to does not say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
HEADLINE = RESULTS / "README.md"
VERDICTS = {"reproduced", "not reproduced", "not decided"}
NUMBER = re.compile(r"(?<![\w.,^])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w^])")
LINK = re.compile(r"\]\(([^)#]+\.md)\)")


def rows() -> list[tuple[str, list[str]]]:
    """Every row of every table that ends in a link to a page, with its heading."""
    found, heading = [], ""
    for line in HEADLINE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith("|") and LINK.search(line.rsplit("|", 2)[-2]):
            found.append((heading, [cell.strip() for cell in line.strip("|").split("|")]))
    return found


def unsaid(cells: list[str]) -> list[str]:
    """The numbers of all cells but the first and the last that the linked page does not have."""
    target = LINK.search(cells[-1])
    assert target is not None
    page = (HEADLINE.parent / target[1]).read_text(encoding="utf-8")
    said = {number.rstrip(",") for number in NUMBER.findall(page)}
    return [n for cell in cells[1:-1] for n in NUMBER.findall(cell) if n.rstrip(",") not in said]


@pytest.mark.parametrize(("heading", "cells"), rows())
def test_every_figure_is_on_the_page_that_it_comes_from(heading: str, cells: list[str]) -> None:
    assert not unsaid(cells), f"{heading}: {cells[0]}"


def test_a_figure_that_was_changed_is_found() -> None:
    cells = next(cells for _, cells in rows() if "196 to 314" in " ".join(cells))
    assert unsaid([cell.replace("196", "197") for cell in cells]) == ["197"]


def test_every_claim_has_one_of_three_verdicts() -> None:
    text = HEADLINE.read_text(encoding="utf-8")
    papers = text.split("\n## The papers")[1].split("\n## ")[0]
    claims = [line.split("|")[2].strip() for line in papers.splitlines() if "](" in line[-40:]]
    assert set(claims) == VERDICTS


def test_every_page_of_results_is_linked() -> None:
    text = HEADLINE.read_text(encoding="utf-8")
    pages = {path.name for path in RESULTS.glob("*.md")} - {HEADLINE.name}
    assert pages == {link for link in LINK.findall(text) if "/" not in link}
