"""Headline results, and the papers claim by claim: figures, code and verdicts that are there."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from pkgutil import resolve_name
from shutil import copyfile
from typing import Any

import pytest

from simulations.campaigns.catalog import CAMPAIGNS
from simulations.campaigns.page import BLOCK, figures_of, renewed

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
HEADLINE, PAPERS = RESULTS / "README.md", RESULTS / "papers.md"
STATES = {
    *("reproduced", "not reproduced", "not decided"),
    *("implemented", "not run", "not tested"),
}
NUMBER = re.compile(r"(?<![\w.,^])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w^])")
LINK = re.compile(r"\]\(([^)#]+\.md)\)")


def rows(page: Path) -> list[tuple[str, list[str]]]:
    """Every row of every table that ends in a link to a page, with its heading."""
    found, heading = [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith("|") and LINK.search(line.rsplit("|", 2)[-2]):
            found.append((heading, [cell.strip() for cell in line.strip("|").split("|")]))
    return found


def unsaid(cells: list[str]) -> list[str]:
    """The numbers of all cells but the first and the last that the linked page does not have."""
    target = LINK.search(cells[-1])
    assert target is not None
    page = (RESULTS / target[1]).read_text(encoding="utf-8")
    said = {number.rstrip(",") for number in NUMBER.findall(page)}
    return [n for cell in cells[1:-1] for n in NUMBER.findall(cell) if n.rstrip(",") not in said]


@pytest.mark.parametrize(("heading", "cells"), [*rows(HEADLINE), *rows(PAPERS)])
def test_every_figure_is_on_the_page_that_it_comes_from(heading: str, cells: list[str]) -> None:
    assert not unsaid(cells), f"{heading}: {cells[0]}"


def test_a_figure_that_was_changed_is_found() -> None:
    cells = next(cells for _, cells in rows(HEADLINE) if "196 to 314" in " ".join(cells))
    assert unsaid([cell.replace("196", "197") for cell in cells]) == ["197"]


def test_every_claim_has_its_code_and_one_of_the_states() -> None:
    found = [cells for _, cells in rows(PAPERS)]
    assert {cells[3] for cells in found} == STATES
    for cells in found:
        # Whatever was decided by running something has a name to look it up.
        assert cells[2] != "-" or cells[3] in ("not run", "not tested"), cells[0]
        if cells[2] != "-":
            resolve_name(cells[2].strip("`"))


NUMBERED = re.compile(r"(Algorithm|Theorem|Lemma|Corollar|Table|Figure)(?:y|ies|s)? ([^;A-Z]+)")
RANGE = re.compile(r"(\d+\.)?(\d+)(?: to (?:\d+\.)?(\d+))?")


def numbered(text: str) -> set[str]:
    """Every numbered item that is named, ranges written out: "Theorems 1 and 3 to 4" is three."""
    return {
        f"{kind} {chapter}{number}"
        for kind, numbers in NUMBERED.findall(text)
        for chapter, low, high in RANGE.findall(numbers)
        for number in range(int(low), int(high or low) + 1)
    }


def test_no_numbered_item_of_a_paper_is_left_out() -> None:
    sections = PAPERS.read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(sections) == 6
    for section in sections:
        promised = section.splitlines()[2]
        told = " ".join(line.split("|")[1] for line in section.splitlines() if line[:2] == "| ")
        assert not numbered(promised) - numbered(told), section.splitlines()[0]
        assert numbered(promised) or "Bonawitz" in section.splitlines()[0]


PAGES = {path.stem for path in RESULTS.glob("*.md") if BLOCK.search(path.read_text("utf-8"))}


def test_every_campaign_has_its_rows_beside_its_page() -> None:
    assert set(CAMPAIGNS) == PAGES


@pytest.mark.parametrize("name", sorted(PAGES))
def test_tables_and_verdicts_are_those_of_the_rows(name: str, tmp_path: Path) -> None:
    page = RESULTS / f"{name}.md"
    assert renewed(page) == page.read_text(encoding="utf-8")
    # A row that says something else changes the page.
    (file, *_) = [found["file"] for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    copyfile(page, tmp_path / page.name)
    for other in RESULTS.glob("*.json.gz"):
        copyfile(other, tmp_path / other.name)
    figures = figures_of(RESULTS / file)

    def remade(figures: dict[str, Any]) -> str:
        (tmp_path / file).write_bytes(gzip.compress(json.dumps(figures).encode()))
        return renewed(tmp_path / page.name)

    assert remade(doubled(figures)) != page.read_text(encoding="utf-8")
    # Verdicts follow from the rows, whatever the file says of them.
    assert remade({**figures, "claims": []}) == page.read_text(encoding="utf-8")


def doubled(value: Any) -> Any:
    """Every number of results twice as large; not those that were chosen."""
    if isinstance(value, dict):
        kept = ("plan", "noise_multiplier", "epsilon", "genie", "momentum")
        return {name: each if name in kept else doubled(each) for name, each in value.items()}
    if isinstance(value, list):
        return [doubled(each) for each in value]
    return 2 * value if isinstance(value, float) else value


def test_every_row_of_the_papers_says_where_it_comes_from() -> None:
    lines = [line for line in PAPERS.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    heads = sum(line.startswith("| where |") for line in lines)
    assert len(rows(PAPERS)) == len(lines) - heads


def test_every_page_of_results_is_linked() -> None:
    text = HEADLINE.read_text(encoding="utf-8")
    pages = {path.name for path in RESULTS.glob("*.md")} - {HEADLINE.name}
    assert pages == {link for link in LINK.findall(text) if "/" not in link}
