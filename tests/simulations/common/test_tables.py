"""Tables for people: nothing is cut off, however narrow the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from simulations.common.tables import show_rows

HEADS = ("theorem", "accountant alone", "sensitivities", "[verdict]")
ROWS = [
    ("Theorem 3", "1.40 ± 0.01", "12345678901", "holds for every vector that was tried"),
    ("Theorem 4", "", "2", "-"),
]
WORDS = [word for row in (HEADS, *ROWS) for cell in row for word in cell.split()]


@pytest.mark.parametrize(("width", "listed"), [(120, False), (80, False), (56, False), (30, True)])
def test_a_table_fits_with_all_of_its_words_unbroken(width: int, listed: bool) -> None:
    text = io.StringIO()
    show_rows("what was tried", HEADS, ROWS, Console(file=text, width=width))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert set(WORDS) <= set(text.getvalue().split())
    # Where columns do not fit, every row has all heads beside it.
    assert text.getvalue().count("sensitivities") == (2 if listed else 1)
