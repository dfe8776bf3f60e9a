"""The command line as Markdown: what `typer utils docs` makes of the program itself."""

from __future__ import annotations

import re
import subprocess
import sys

COMMAND = [
    sys.executable,
    "-m",
    "typer",
    "simulations.commands.cli",
    "utils",
    "docs",
    "--name",
    "veilsum",
]


def page(_: str) -> str:
    """Every command with its arguments and options."""
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=True)  # noqa: S603
    # The page has a title, and headings in place of lists whose lines are cut short.
    text = done.stdout.split("\n", 1)[1]
    return re.sub(r"\*\*Commands\*\*:\n\n(?:\*.*\n)+", "", text)
