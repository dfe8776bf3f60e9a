"""The notebooks among the examples: stored without outputs, and they run from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

ALPHA = 1e-6
ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))
FIRST_LOOK = ROOT / "examples" / "first_look.ipynb"


def read(path: Path) -> Any:
    """A notebook, checked against the format's own schema."""
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: the extra dev")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def execute(notebook: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The outputs of all cells, run in a kernel that leaves nothing outside of a folder."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: the extra dev")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: the extra dev")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    place = {"metadata": {"path": str(folder)}}
    given = {"timeout": 3000, "kernel_name": "python3", "resources": place}
    nbclient.NotebookClient(notebook, **given).execute()
    return [each for cell in notebook.cells for each in cell.get("outputs", [])]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
class TestStored:
    """What a notebook is like in the repository."""

    def test_it_has_no_outputs(self, path: Path) -> None:
        for cell in read(path).cells:
            if cell.cell_type == "code":
                assert not cell.outputs and cell.execution_count is None

    def test_its_links_lead_somewhere(self, path: Path) -> None:
        text = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
        targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
        assert targets
        for target in targets:
            assert (path.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.statistical
def test_the_first_look_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    outputs = execute(read(FIRST_LOOK), tmp_path, monkeypatch)
    pictures = [each for each in outputs if "image/png" in each.get("data", {})]
    assert len(pictures) == 4
    assert not [each for each in outputs if each.get("name") == "stderr"]
    text = "".join(each.text for each in outputs if each.output_type == "stream")
    private, plain = map(float, re.findall(r"^(?:private|plain): +([\d.]+)%", text, re.MULTILINE))
    # A tenth is guessed; noise leaves 86 to 92.
    assert 75.0 < private < plain + 2.0 and plain > 90.0
    games = re.findall(r"epsilon (\d+): (\d+) of (\d+) .* lets (\d+)% be right", text)
    for epsilon, right, of, share in games:
        law = stats.binom(int(of), int(share) / 100)
        # Shares are printed to a hundredth.
        slack = 0.005 * int(of)
        low, high = law.ppf(ALPHA / 2) - slack, law.isf(ALPHA / 2) + slack
        assert low <= int(right) <= high, f"epsilon {epsilon}"
    assert [(each[0], each[3]) for each in games] == [("1", "55"), ("16", "93")]


def test_a_cell_that_raises_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nbclient", reason="nbclient is not installed: the extra dev")
    from nbclient.exceptions import CellExecutionError
    from nbformat.v4 import new_code_cell, new_notebook

    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(new_notebook(cells=[new_code_cell("1 / 0")]), tmp_path, monkeypatch)
