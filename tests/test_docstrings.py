"""Docstrings say something by themselves: what ruff's rules of form cannot see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("secagg", "dp", "sketch", "protocol", "simulations", "examples", "tests")
TERSE = ("secagg", "dp", "sketch", "veilsum")
"""Packages whose private names list no errors, and where no name repeats those of all functions."""
LEAST_WORDS = 3
POINTING = re.compile(
    r"see the module|see above|\bditto\b|\bas above\b|\bthe sheet\b", re.IGNORECASE
)
"""Words that send a reader elsewhere without saying where."""
GENERAL = re.compile(
    r"^ *\w+(, \w+)*: (an (argument|attribute)|arguments) (is )?"
    r"(of (the wrong|another) type|out of range)( or out of range)?\.$",
    re.MULTILINE,
)
"""What any function may raise: said once, where its package begins."""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, those that follow an assignment included."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    yield statement.lineno, text


def is_riddle(text: str) -> bool:
    """Whether a docstring is too short to say anything, or only points elsewhere."""
    return len(text.split()) < LEAST_WORDS or POINTING.search(text) is not None


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_docstring_says_something(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in docstrings(path.read_text())
        if is_riddle(text)
    ]
    assert found == []


@pytest.mark.parametrize("text", ["2.", "The file.", "A19: see the module.", "Args: as above."])
def test_riddles_would_be_found(text: str) -> None:
    assert is_riddle(text)


def test_a_sentence_is_no_riddle() -> None:
    assert not is_riddle("The plain sum of all inputs.")


def errors_of_private_names(source: str) -> list[str]:
    """Private functions and classes whose docstrings have a section of errors."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.name.startswith("_")
        and not node.name.endswith("__")
        and "Raises:" in (ast.get_docstring(node) or "")
    ]


@pytest.mark.parametrize("package", TERSE)
def test_errors_are_listed_where_they_say_something(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        source = path.read_text()
        assert errors_of_private_names(source) == [], path
        repeated = [line for line, text in docstrings(source) if GENERAL.search(text)]
        assert repeated == [], f"{path}: the errors of every function are said of the package"


@pytest.mark.parametrize(
    "text",
    [
        "TypeError, ValueError: an argument is out of range.",
        "TypeError: arguments of another type.",
    ],
)
def test_general_errors_would_be_found(text: str) -> None:
    assert GENERAL.search(f"One.\n\nRaises:\n    {text}\n")
    assert errors_of_private_names(f"def _f():\n    '''One.\n\n    Raises:\n        {text}'''")


def test_a_particular_error_is_not_a_general_one() -> None:
    assert not GENERAL.search("    ValueError: an argument is out of range, or no N is enough.\n")
