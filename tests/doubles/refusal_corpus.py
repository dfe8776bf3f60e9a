"""The refusal corpus of a protocol, and how its rows are played.

The rows are in tests/vectors/refusals.py and tests/vectors/one_shot/refusals.py. All are played by
the vectors' player: the change is refused as the row says, and nothing is taken after it, or the
server is as it was and ends with the exact sum; in its place the honest message is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

from vector_files import VECTORS, load

from secagg import ProtocolError


class Corpus:
    """The table of one protocol."""

    def __init__(self, folder: str, package: str = "") -> None:
        self.table, self.runner = load(f"{package}refusals"), load(f"{package}runner")
        self.groups: dict[str, Callable[[], Any]] = {
            group.__name__: group for group in self.table.TABLE
        }
        self._folder = VECTORS / folder
        self._honest: dict[str, Any] = {}

    @cached_property
    def rows(self) -> list[Any]:
        """All of them."""
        return list(load("corpus").rows(self.table))

    @property
    def reasons(self) -> set[str]:
        """All reasons that rows give."""
        return {row.reason for row in self.rows} - {"", load("corpus").OVER}

    def wrong(self, group: str) -> dict[str, str]:
        """The rows of a group that are not as they say, and what happens instead."""
        found = {}
        for row in self.groups[group]():
            base = row.base or self.table.DEFAULT
            try:
                vector = row.vector(self.table.ROUNDS[base], base)
                self.runner.run_refusal(vector, self.honest(base))
            except (AssertionError, ProtocolError) as error:
                found[row.name] = repr(error)
        return found

    def honest(self, base: str) -> Any:
        """A round of the table, from its file if there is one."""
        if base not in self._honest:
            if (path := self._folder / f"{base}.json").exists():
                self._honest[base] = json.loads(path.read_text())
            else:
                round_ = self.table.ROUNDS[base]
                script = load("script").Script(round_, base)
                script.play(round_.events())
                self._honest[base] = script.vector()
        return self._honest[base]

    def check(self) -> None:
        """Names are unique, and every message is changed for every side that gets it."""
        names = [row.name for row in self.rows]
        assert len(names) == len(set(names))
        got = {(row.side, row.at.split()[0]) for row in self.rows if row.at and not row.op}
        wanted = {
            (event.op.split("_")[0], event.data.split()[0])
            for round_ in self.table.ROUNDS.values()
            for event in round_.events()
            if event.data is not None
        }
        # A message without a row is one whose checks nobody tries.
        assert got == wanted
