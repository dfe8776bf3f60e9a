"""The docstrings of this project as reStructuredText.

They are plain prose with the sections of Google's style, code between single backticks, indented
formulas, and lines that begin with `Pre:`, `Post:` or `Source:`. Napoleon reads the sections, this
extension the rest: nothing in a formula may be taken for markup.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

DOCS = Path(__file__).parents[1]
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):$")
REMARK = re.compile(r"(Pre|Post|Source): *(.*)$")
CODE = re.compile(r"(``.+?``|(?::\w+:)?`.+?`)", re.DOTALL)
ROLE = re.compile(r"^:\w+:")
BOLD = re.compile(r"\\\*\\\*(\w[^*\\]*\w)\\\*\\\*")
LINKS = {
    re.compile(r"arXiv (\d{4}\.\d{4,5})"): r"`arXiv \1 <https://arxiv.org/abs/\1>`__",
    re.compile(r"ia\.cr/(\d{4}/\d+)"): r"`ia.cr/\1 <https://ia.cr/\1>`__",
}
ARRAY = re.compile(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]")


def restructured(lines: list[str]) -> list[str]:
    """A docstring, without its common indentation, in markup that Napoleon can process."""
    result: list[str] = []
    section = False
    for block in _blocks(lines):
        if SECTION.match(block[0]):
            section = True
        elif not block[0].startswith(" "):
            section = False
        remark = REMARK.match(block[0])
        if block[0].startswith(" ") and not section:
            result += ["::", "", *(f"    {line}" for line in block), ""]
        elif remark:
            kind, text = remark.group(1), "\n".join([remark.group(2), *block[1:]])
            result += [*f"**{kind}:** {_remark(kind, text)}".split("\n"), ""]
        else:
            result += [*_prose("\n".join(block)).split("\n"), ""]
    return result


def _blocks(lines: list[str]) -> list[list[str]]:
    """Paragraphs; sections and remarks begin new ones, with or without an empty line."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if not line.strip() or SECTION.match(line) or REMARK.match(line):
            blocks.append([])
        if line.strip():
            blocks[-1].append(line.rstrip())
    return [block for block in blocks if block]


def _remark(kind: str, text: str) -> str:
    """Conditions are expressions; sources are prose."""
    words = " ".join(text.split())
    expression = kind != "Source" and "`" not in words and re.search(r"[=<>]|\bin\b", words)
    return f"``{words}``" if expression else _prose(words)


def _prose(text: str) -> str:
    parts = CODE.split(text)
    # Every second part is code.
    parts[1::2] = [f"``{' '.join(ROLE.sub('', part).strip('`').split())}``" for part in parts[1::2]]
    parts[::2] = [_plain(part) for part in parts[::2]]
    return "\\ ".join(parts)  # an escaped space is not printed, and lets code touch words


def _plain(text: str) -> str:
    """Nothing is markup but bold words and a list's dash; papers and pages of ours are links."""
    escaped = BOLD.sub(r"**\1**", re.sub(r"([*|\\])", r"\\\1", text))
    escaped = re.sub(r"(?<=\w)_(?!\w)", r"\_", escaped)
    for pattern, link in LINKS.items():
        escaped = pattern.sub(link, escaped)
    return re.sub(r"docs/([\w/-]+)\.md", _page, escaped)


def _page(match: re.Match[str]) -> str:
    name = match.group(1)
    return f":doc:`/{name}`" if (DOCS / f"{name}.md").exists() else match.group()


def _process_docstring(
    app: Sphinx, kind: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    lines[:] = restructured(lines)


def _process_signature(
    app: Sphinx,
    kind: str,
    name: str,
    thing: object,
    options: Any,
    arguments: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Arrays as their annotations name them."""
    return tuple(text and ARRAY.sub(r"NDArray[\1]", text) for text in (arguments, result))


def setup(app: Sphinx) -> dict[str, bool]:
    """Before Napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", _process_docstring, priority=400)
    app.connect("autodoc-process-signature", _process_signature)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"  # our own word, in place of Sphinx's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
