"""What nobody writes by hand: contents, the API, commands, keys of configurations, columns.

A page asks for a part with a comment such as `<!-- generated: api dp -->`, which readers of the
plain Markdown do not see.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import api
import columns
import commands
import configuration
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
MARK = re.compile(r"^<!-- generated: (\w+)(?: (\S+))? -->$", re.MULTILINE)

START = ["install", "tutorial/*", "glossary"]
PROJECT = [f"project/{name}" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
OUTSIDE = re.compile(r"\]\((?:\.\./)+(README|CHANGELOG|CONTRIBUTING|SECURITY)\.md")
"""Links to pages that lie above this folder, and that `project` has for the site."""
HOME = r"\]\(https://(?:github\.com/veilsum/veilsum/blob|raw\.githubusercontent\.com/veilsum/veilsum)/main/"
OF_DOCS = re.compile(HOME + "docs/")
ABOVE = re.compile(HOME + r"(README|CHANGELOG|CONTRIBUTING|SECURITY)\.md")
"""Whole links to this folder, and to the pages above it."""
HOW_TO = ["planning", "simulations", "reports", "integrations", "integrations/*"]
REFERENCE = ["wire", "test-vectors", "stability"]
SECURITY = [
    "threat-model",
    "limitations",
    "security",
    "one-shot-security",
    "span",
    "attacks-on-updates",
    "auditing",
]
CONCEPTS = [
    "architecture",
    "protocol",
    "one-shot",
    "dropouts",
    "accounting",
    "sampling",
    "correlated-noise",
    "correlated-rounds",
    "sketching",
    "compression",
    "clipping",
    "mean-estimation",
    "local-dp",
    "local-dp-*",
]
"""Pages of this folder in reading order; pages not named here come last among the concepts."""


def tables_of_contents(_: str) -> str:
    """The site's sections. No page is missing: what lies in a folder belongs to its section."""
    top = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    listed = [*START, *HOW_TO, *REFERENCE, *SECURITY, *CONCEPTS]
    named = {page.stem for name in listed for page in DOCS.glob(f"{name}.md")}
    sections = {
        "Get started": START,
        "How-to": ["howto/*", *HOW_TO],
        "Concepts": [*CONCEPTS, *sorted(top - named)],
        "Security": SECURITY,
        "Results": ["results/*"],
        "Reference": ["reference/*", *REFERENCE],
        "Project": PROJECT,
    }
    return "\n\n".join(
        "\n".join(["```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *pages, "```"])
        for caption, pages in sections.items()
    )


GENERATORS: dict[str, Callable[[str], str]] = {
    "contents": tables_of_contents,
    "api": api.page,
    "columns": columns.page,
    "commands": commands.page,
    "configuration": configuration.page,
}


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Put generated Markdown in the place of marks, and mend links that leave this folder."""
    text = MARK.sub(lambda mark: GENERATORS[mark.group(1)](mark.group(2) or ""), source[0])
    source[0] = OUTSIDE.sub(r"](/project/\1.md", text)


def bring_home(app: Sphinx, path: Path, page: str, source: list[str]) -> None:
    """Let links of an included page lead to this site: on a package index it needs whole ones."""
    source[0] = OF_DOCS.sub("](/", ABOVE.sub(r"](/project/\1.md", source[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Fill in every page as it is read."""
    app.connect("source-read", fill_in)
    app.connect("include-read", bring_home)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
