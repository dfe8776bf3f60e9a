"""State diagrams as tables: no script draws them, and they read well aloud."""

from __future__ import annotations

import re
from typing import ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ARROW = re.compile(r"(\S+) --> ([^\s:]+)(?:: (.+))?$")
ENDS = {"[*]": ("begin", "end")}


class Mermaid(SphinxDirective):
    """A `stateDiagram-v2` as a table of transitions; any other diagram as its source."""

    has_content = True
    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        """Make the table, or a block with the source."""
        arrows = [ARROW.match(line.strip()) for line in self.content[1:] if line.strip()]
        if not self.content[0].startswith("stateDiagram") or not all(arrows):
            text = "\n".join(self.content)
            return [nodes.literal_block(text, text, language="text")]
        rows = [match.groups("") for match in arrows if match]
        return [_table([(_state(old, 0), on, _state(new, 1)) for old, new, on in rows])]


def _state(name: str, end: int) -> str:
    return ENDS[name][end] if name in ENDS else name


def _table(rows: list[tuple[str, str, str]]) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in range(3)), cols=3)
    group += nodes.thead("", _row(("state", "on", "next state")))
    group += nodes.tbody("", *(_row(row) for row in rows))
    return nodes.table("", group)


def _row(cells: tuple[str, str, str]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


def setup(app: Sphinx) -> dict[str, bool]:
    """Let `mermaid` blocks be tables."""
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
