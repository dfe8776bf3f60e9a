"""What walks the pages: it carries on from step to step, ends at a failure, and says so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import walk
from pages import ROOT, blocks

PAGE = """# Imagined

```console
mkdir inner   # a folder
cd inner
WORD=kept
echo $WORD \\
    > word.txt
```

```python
from pathlib import Path

found = Path("inner/word.txt").read_text()
```

```python
# more/own.py
VALUE = 3
```

```python
assert found == "kept\\n" and Path("more/own.py").exists()
```
"""
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}


def followed(folder: Path, text: str, *skipped: str) -> list[walk.Step]:
    (folder / "page.md").write_text(text)
    found = walk.Walk(folder, ENVIRONMENT, skipped)
    found.follow("page.md")
    return found.steps


def test_a_page_has_one_shell_and_one_interpreter(tmp_path: Path) -> None:
    steps = followed(tmp_path, PAGE)
    assert [step.outcome for step in steps] == ["ok"] * 6
    assert [step.what.split()[0] for step in steps] == [
        "mkdir", "cd", "WORD=kept", "echo", "Python,", "Python,"
    ]  # fmt: skip
    assert sum("a new interpreter" in step.what for step in steps) == 1
    assert all(step.seconds > 0.0 for step in steps)


@pytest.mark.parametrize(
    ("old", "new", "after"), [("cd inner", "cd nowhere", 2), ('"kept', '"lost', 6)]
)
def test_a_failure_ends_the_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], old: str, new: str, after: int
) -> None:
    steps = followed(tmp_path, PAGE.replace(old, new))
    assert [step.outcome for step in steps] == ["ok"] * (after - 1) + ["failed"]
    told = capfd.readouterr().err
    assert "No such file" in told or "AssertionError" in told


@pytest.mark.parametrize(
    ("reason", "said", "outcome"),
    [
        ("it fetches an app", "Unable to connect to it", walk.OFFLINE),
        ("it fetches an app", "No such app", "failed"),
        ("it takes minutes", "Unable to connect to it", "failed"),
    ],
)
def test_only_what_fetches_may_lack_a_network(
    tmp_path: Path, reason: str, said: str, outcome: str
) -> None:
    block = f"<!-- not run: {reason} -->\n```console\necho {said}; false\necho more\n```\n"
    assert [step.outcome for step in followed(tmp_path, block)] == [outcome]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    steps = followed(tmp_path, PAGE, "echo", "cd inner")
    assert next(s.what for s in steps if s.outcome == "left out on request") == "cd inner"
    assert steps[-1].outcome == "failed"  # the file is not there


def test_the_table_has_every_step() -> None:
    steps = [
        walk.Step("README.md", walk.INSTALL, 10.0, "ok"),
        walk.Step("README.md", "Python, line 30, a new interpreter", 8.25, "ok"),
        walk.Step("README.md", "its Python again", 1.5, "ok"),
        walk.Step("README.md", "make test    # all of it", 0.0, "left out on request"),
        walk.Step("page.md", f"a | {'long ' * 20}", 1.0, "failed"),
    ]
    lines = walk.table(steps).splitlines()
    assert lines[2] == "| README.md | `pip install -e .` | 10.0 | ok |"
    assert lines[5] == "| README.md | `make test` |  | left out on request |"
    assert r"`a \| long" in lines[6] and "...`" in lines[6]
    assert walk.headline(steps) == (
        "From `pip install -e .` to the first example's output: 18.2 s "
        "(10.0 s to install, 8.2 s to run; 1.5 s when run again)."
    )


def test_it_walks_the_readme_and_the_tutorial() -> None:
    assert [ROOT / page for page in walk.WALK] == [
        ROOT / "README.md",
        *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    ]
    assert walk.INSTALL in (ROOT / "README.md").read_text()
    assert blocks(ROOT / "README.md", "python")


def test_the_environment_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "elsewhere")
    found = walk.variables(Path("/new"))
    assert "elsewhere" not in found.values()
    assert found["PATH"].split(os.pathsep)[0] == "/new/bin" and found["VIRTUAL_ENV"] == "/new"
