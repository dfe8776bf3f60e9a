"""The examples in docs/sampling.md run and are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "sampling.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("code", EXAMPLES)
def test_example(code: str) -> None:
    exec(compile(code, str(PAGE), "exec"), {})  # noqa: S102
