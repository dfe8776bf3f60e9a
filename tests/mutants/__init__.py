"""Faults that the tests have to notice: a list of them, and random ones."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        file: from the root of the repository.
        source: of the whole file, with the fault.
        breaks: what is wrong with it, in a sentence.
        tests: paths, of which one has to fail.
    """

    file: str
    source: str
    breaks: str
    tests: tuple[str, ...]


def listed(root: Path) -> list[Mutant]:
    """Those of the list; ValueError if a text does not stand in its file once."""
    found = []
    for each in tomllib.loads((root / "tests" / "mutants" / "listed.toml").read_text())["mutants"]:
        source, text = (root / each["file"]).read_text(), each["text"]
        if source.count(text) != 1:
            raise ValueError(f"{each['file']} must have this once: {text!r}")
        source = source.replace(text, each["mutant"])
        found.append(Mutant(each["file"], source, each["breaks"], tuple(each["tests"])))
    return found
