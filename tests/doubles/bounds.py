"""Rows of tables of refusals: an argument, and both sides of its bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Row(NamedTuple):
    """One argument of something."""

    call: Callable[[Any], object]
    words: str
    out: list[Any]
    kinds: list[Any] = []  # noqa: RUF012
    within: list[Any] = []  # noqa: RUF012

    def check(self) -> None:
        """Try every value."""
        for value in self.out:
            with pytest.raises(ValueError, match=self.words):
                self.call(value)
        for value in self.kinds:
            with pytest.raises(TypeError, match=self.words):
                self.call(value)
        for value in self.within:
            self.call(value)
