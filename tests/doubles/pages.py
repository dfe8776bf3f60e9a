"""Pages of the documentation as programs read them: their fenced blocks, files and commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FILE: Final = re.compile(r"# ([\w/.-]+\.(?:py|toml))\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, why it is not run (empty if it is), and its line."""

    language: str
    text: str
    reason: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that it is the content of."""
        match = FILE.match(self.text)
        return match.group(1) if match else None

    @property
    def lines(self) -> list[str]:
        """Commands, each on one line, as somebody would type them."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if shlex.split(line, comments=True)]

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command, without comments."""
        return [shlex.split(line, comments=True) for line in self.lines]


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page that are in one of some languages, in order."""
    source = page.read_text()
    return [
        Block(each["language"], each["text"], each["reason"] or "", source.count("\n", 0, start))
        for each in BLOCK.finditer(source)
        if (start := each.start("text")) and each["language"] in languages
    ]


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()
