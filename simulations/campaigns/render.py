"""Figures as tables and text: columns are data, and one grid serves the page and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from simulations.campaigns.claims import half_width
from simulations.campaigns.rows import Figures, Row, Value, distinct, value_of


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    head: str  # over it
    value: Value  # of a row; None is missing, words and lists stand as they are
    form: str = ""  # of a number, as `format` takes it
    scale: float = 1  # by which a number is multiplied first; 100 for shares in percent
    width: Value | None = None  # half-width of the number's interval, if it has one
    width_form: str = ""  # of it; that of the number if left out
    missing: str = "-"  # what stands for no value

    def cell(self, row: Row) -> str:
        """Return the text of one cell."""
        found = value_of(row, self.value)
        if found is None:
            return self.missing
        if isinstance(found, bool):
            return "yes" if found else "no"
        if isinstance(found, str):
            return found
        if isinstance(found, list | tuple):
            return ", ".join(map(str, found)) or self.missing
        text = format(found if self.scale == 1 else self.scale * found, self.form)
        width = None if self.width is None else value_of(row, self.width)
        if width is None:
            return text
        form = self.width_form or self.form.removeprefix("+")
        return f"{text} ± {format(self.scale * width, form)}"


def percent(
    head: str, value: Value, width: Value | None = None, form: str = ".1f", missing: str = "-"
) -> Column:
    """Return a column of shares, in percent or points."""
    return Column(head, value, form, 100, width, missing=missing)


def points(value: float, width: float | None, form: str = ".1f") -> str:
    """Return a share in percent, with the half-width of its interval, for use in text."""
    return percent("", "value", "width", form).cell({"value": value, "width": width})


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """Return the mean of shares, one for each seed, in percent with its interval."""
    return points(fmean(values), half_width(values), form)


def with_lost(row: Row) -> str:
    """Return the accuracy of runs with its interval, and how many of them were lost."""
    lost = f", {row['diverged']} lost" if row["diverged"] else ""
    return points(row["accuracy"], half_width(row["accuracies"])) + lost


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: a head, and lines of text."""

    title: str  # over it; a heading of the page unless it is empty
    rows: list[list[str]]  # the first is its head
    brief: bool = False  # shown in the terminal as well

    def markdown(self) -> str:
        """Return the table with its heading."""
        head, *body = self.rows
        lines = [head, ["---"] * len(head), *body]
        title = f"## {self.title}\n\n" if self.title else ""
        # A bar within a cell would end it.
        cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        return title + "".join(f"| {' | '.join(line)} |\n" for line in cells)


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, list or heading in Markdown; `brief` if the terminal shows it as well."""

    text: str
    brief: bool = False

    def markdown(self) -> str:
        """Return the text."""
        return f"{self.text}\n"


Part = Grid | Text


def table(title: str, columns: Sequence[Column], rows: Iterable[Row], brief: bool = False) -> Grid:
    """Return a line for each row."""
    lines = [[column.cell(row) for column in columns] for row in rows]
    return Grid(title, [[column.head for column in columns], *lines], brief)


def pivot(
    title: str,
    labels: Sequence[Column],
    across: Value,
    cell: Column,
    rows: Iterable[Row],
    *,
    head: Callable[[Any], str] = "{:g}".format,
    brief: bool = False,
) -> Grid:
    """Return a line for everything that has the same labels, a column for each value across.

    A row whose value across is None is the same in all columns. The cell's `missing` stands where
    there is no row; `head` is that of a column, from its value.
    """
    listed = list(rows)
    values = [each for each in distinct(listed, across) if each is not None]
    lines: dict[tuple[str, ...], dict[Any, str]] = {}
    for row in listed:
        line = lines.setdefault(tuple(label.cell(row) for label in labels), {})
        at = value_of(row, across)
        line |= dict.fromkeys(values if at is None else [at], cell.cell(row))
    first = [*(label.head for label in labels), *map(head, values)]
    body = [
        [*name, *(line.get(each, cell.missing) for each in values)] for name, line in lines.items()
    ]
    return Grid(title, [first, *body], brief)


def _tried(row: Row) -> str:
    return ", ".join(f"{rate:g}: {100 * accuracy:.1f}" for rate, accuracy in sorted(row["tried"]))


def rates_table(rows: Iterable[Row]) -> Grid:
    """Return the learning rates that were tried for each run, and what came of them."""
    return table("Rates tried", (Column("run", "name"), Column("rate: accuracy, %", _tried)), rows)


CLAIM = (
    Column("claim", "statement"),
    Column("source", "source"),
    Column("published", "published", ".4g"),
    Column("here", "measured", ".4g", width="half_width", width_form=".2g"),
    Column("verdict", "verdict"),
    Column("from", "seen"),
)


def claims_table(claims: Sequence[Row]) -> Grid:
    """Return all claims with their verdicts."""
    return table("Claims", CLAIM, claims, brief=True)


# Facts that a page begins with
ORIGIN: Final = frozenset(("commit", "source", "python", "command", "seconds"))


def setting_table(figures: Figures) -> Grid:
    """Return every plain fact of the figures, and what the plan says."""
    plan = {f"plan: {name}": value for name, value in figures["plan"].items()}
    kinds = (bool, int, float, str)
    rows = []
    for name, value in {**figures, **plan}.items():
        listed = value if isinstance(value, list | tuple) else [value]
        if name not in ORIGIN and all(isinstance(each, kinds) for each in listed):
            rows.append([name.replace("_", " "), ", ".join(map(str, listed)) or "-"])
    return Grid("Setting", [["what", "value"], *rows])
