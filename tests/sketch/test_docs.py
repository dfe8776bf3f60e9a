"""The examples of docs/sketching.md run, and its figures are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from sketch import fixed_point_relative_std
from sketch.hashing import CHUNK, LABEL, Usage
from sketch.spec import SPEC_VERSION, SketchKind

PAGE = (Path(__file__).parents[2] / "docs" / "sketching.md").read_text()


def test_examples_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/sketching.md", "exec"), {})  # noqa: S102


def test_portable_definition_is_that_of_the_code() -> None:
    assert f"the {len(LABEL)} ASCII bytes `{LABEL.decode()}`" in PAGE
    assert (Usage.BUCKET.value, Usage.SIGN.value) == (1, 2)
    assert (Usage.ROTATION_FIRST.value, Usage.ROTATION_LAST.value) == (3, 4)
    assert (SPEC_VERSION, SketchKind.IDENTITY.value, SketchKind.COUNT_MEAN.value) == (1, 0, 1)
    assert f"{CHUNK:,} coordinates at a time" in PAGE
    assert f"{(4 * CHUNK + CHUNK // 8) // 1024} KiB" in PAGE


def test_figure_of_the_rule() -> None:
    assert f"{fixed_point_relative_std(1, 0.1):.1f} / sqrt(L)" in PAGE
    assert f"{100 * fixed_point_relative_std(7600, 0.1):.0f} % at L = 7,600" in PAGE
