"""The citation file is well formed, and says what the package says of itself."""

from __future__ import annotations

import datetime
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import veilsum

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="pyyaml is not installed: the extra dev has it")
    found: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    return found


def test_it_has_what_the_format_asks_for(citation: dict[str, Any]) -> None:
    """Keys and kinds of the Citation File Format 1.2.0, as far as they are used here."""
    words = {"message", "type", "title", "abstract", "version", "license", "repository-code"}
    required = {"cff-version", "message", "title", "authors"}
    assert required <= set(citation) <= required | words | {"date-released", "keywords"}
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert all(isinstance(citation[key], str) and citation[key] for key in words)
    assert all(set(author) == {"name"} for author in citation["authors"])
    assert isinstance(citation["date-released"], datetime.date)


def test_it_agrees_with_the_package(citation: dict[str, Any]) -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## (\S+) - (\S+)$", changes, re.MULTILINE)
    assert (citation["version"], str(citation["date-released"])) == released[0]
    # Between releases the package's own version is a later one.
    assert ("## Unreleased" in changes) is (".dev" in veilsum.__version__)
    assert ".dev" in veilsum.__version__ or veilsum.__version__ == released[0][0]
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["title"].removeprefix("veilsum: ").lower() == PROJECT["description"].lower()


def test_the_urls_lead_into_one_repository_and_to_files_that_are_there() -> None:
    urls, home = PROJECT["urls"], PROJECT["urls"]["Homepage"]
    assert all(url.startswith(home) for url in urls.values())
    for url in urls.values():
        if place := re.search(r"/(?:tree|blob)/main/(.+)$", url):
            assert (ROOT / place[1]).exists()
