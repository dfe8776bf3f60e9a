"""Tables of a page that people wrote, made anew from the figures that lie beside it.

A block of such a page stands between two comments, the first of which names a file of figures and
a table of its campaign:

    <!-- rows: FILE.json.gz, TITLE -->
    ...
    <!-- end of rows -->
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from protocol.errors import ConfigurationError
from simulations.campaigns.catalog import campaign
from simulations.campaigns.render import Grid

if TYPE_CHECKING:
    from simulations.campaigns.rows import Figures

END: Final = "<!-- end of rows -->"
BLOCK: Final = re.compile(rf"(<!-- rows: (?P<file>\S+), (?P<title>.+?) -->).*?{END}", re.DOTALL)


def figures_of(file: Path) -> dict[str, Any]:
    """Read what a campaign wrote, NAME.json or NAME.json.gz."""
    try:
        data = file.read_bytes()
        found = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
        found["command"].split()
    except (ValueError, OSError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(str(file), "no figures", "a file that a campaign wrote") from None
    return dict(found)


def renewed(page: Path) -> str:
    """Return the text of a page with all its blocks made anew; claims are judged again."""
    known: dict[str, dict[str, str]] = {}

    def block(found: re.Match[str]) -> str:
        file, title = found["file"], found["title"]
        if file not in known:
            known[file] = dict(_tables(figures_of(page.parent / file)))
        if title not in known[file]:
            valid = "; ".join(known[file])
            raise ConfigurationError(str(page), f"no table {title!r} in {file}", valid)
        return f"{found[1]}\n\n{known[file][title]}\n{END}"

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def _tables(figures: Figures) -> Iterator[tuple[str, str]]:
    made = campaign(figures["command"].split()[0])
    for part in made.all_parts(made.judged(figures)):
        if isinstance(part, Grid) and part.title:
            yield part.title, Grid("", part.rows).markdown()
