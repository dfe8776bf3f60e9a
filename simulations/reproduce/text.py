"""Markdown of tables and pages, and figures in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(title: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a heading and a table."""
    return f"## {title}\n\n{markdown(rows)}"


def shown(value: float | int | None, form: str, missing: str = "-") -> str:
    """Return a figure that may be missing."""
    return missing if value is None else format(value, form)


def points(value: float, half_width: float | None, form: str = ".1f") -> str:
    """Return a share in percent, with what is known of the half-width of its interval."""
    width = "" if half_width is None else f" ± {100 * half_width:{form.removeprefix('+')}}"
    return f"{100 * value:{form}}{width}"
