"""What a program says before something slow happens in a library; nothing, unless it sets how."""

from __future__ import annotations

from collections.abc import Callable

_before: list[Callable[[], None]] = []


def before_compiling(tell: Callable[[], None]) -> None:
    """Have this called once, before the first kernel is compiled that no cache has."""
    _before[:] = [tell]


def tell_of_compiling() -> None:
    """Call what `before_compiling` was given, the first time."""
    while _before:
        _before.pop()()
