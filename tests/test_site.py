"""The documentation as a site: it builds without a warning, and needs no network to be read."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def extension(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """One of our extensions of Sphinx."""
    pytest.importorskip("sphinx", reason="sphinx is not installed: the extra docs has it")
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason=f"{package} is not installed: the extra docs has it")
    out = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "--quiet"]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(out)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
class TestSite:
    """Built once for all of them."""

    def test_every_page_is_there(self, site: Path) -> None:
        for page in DOCS.rglob("*.md"):
            assert (site / page.relative_to(DOCS).with_suffix(".html")).exists()

    def test_reading_it_needs_no_network(self, site: Path) -> None:
        for page in site.rglob("*.html"):
            loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text())
            assert not [tag for tag in loaded if re.search(r'"(?:https?:)?//', tag)], page
        for sheet in site.rglob("*.css"):
            assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text())

    def test_every_public_name_is_in_the_reference(self, site: Path) -> None:
        text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
        names = json.loads((ROOT / "tests" / "public_names.json").read_text())
        shown = set(re.findall(r'id="([\w.]+)"', text))
        for package, members in names.items():
            # What the package above has as well is shown once, and the face has the packages' own.
            above = names.get(package.rpartition(".")[0], [])
            if package == "veilsum":
                above = {name for other in names.keys() - {package} for name in names[other]}
            for name in set(members) - set(above):
                assert f"{package}.{name}" in shown

    def test_no_formula_is_left_as_it_was_written(self, site: Path) -> None:
        assert (site / "accounting.html").read_text().count("<math ") > 100
        for page in site.rglob("*.html"):
            set_apart = r"<(math|pre|code|script|style)\b.*?</\1>"
            assert "$" not in re.sub(set_apart, "", page.read_text(), flags=re.DOTALL), page

    def test_commands_keys_and_columns_are_those_of_the_program(self, site: Path) -> None:
        commands = (site / "reference" / "commands.html").read_text()
        assert "--compression" in commands and "independent code" in commands
        keys = (site / "reference" / "configuration.html").read_text()
        assert "noise_multiplier" in keys and "tolerated_colluders" in keys
        columns = (site / "reference" / "columns.html").read_text()
        assert "released_norm_squared" in columns and "units of the model" in columns


def test_no_cell_of_the_keys_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in extension("configuration", monkeypatch).page("").splitlines()
        if line.startswith("|")
    ]
    assert len(rows) > 100
    assert all(len(row) == 4 and all(row) for row in rows)


class TestDocstrings:
    """Plain prose is not taken for markup."""

    def markup(self, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
        return "\n".join(extension("docstrings", monkeypatch).restructured(text.splitlines()))

    def test_bold_words_are_bold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        marked = self.markup("This is **not a bound**, but 2 ** x ** 3.", monkeypatch)
        assert marked.strip() == r"This is **not a bound**, but 2 \*\* x \*\* 3."

    def test_formulas_stay_what_they_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.markup("Mean of a * b | c_ here.", monkeypatch).strip() == (
            r"Mean of a \* b \| c\_ here."
        )
        block = self.markup("It is\n\n    |x| * |y|\n\nand more.", monkeypatch)
        assert "::\n\n        |x| * |y|\n" in block

    def test_code_may_touch_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.markup("All `Seed`s of :func:`draw`.", monkeypatch).strip() == (
            r"All \ ``Seed``\ s of \ ``draw``\ ."
        )

    def test_remarks_and_sections_are_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "One.\n\nPost: x >= 0\nRaises:\n    ValueError: never.\nSource: arXiv 2004.00010."
        marked = self.markup(text, monkeypatch)
        assert "**Post:** ``x >= 0``\n\nRaises:\n    ValueError: never.\n" in marked
        assert "**Source:** `arXiv 2004.00010 <https://arxiv.org/abs/2004.00010>`__" in marked


class TestFormulas:
    """LaTeX's notation becomes MathML, or the build fails."""

    def build(self, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """A site of one page, with our settings for formulas."""
        pytest.importorskip("sphinx", reason="sphinx is not installed: the extra docs has it")
        ours = (DOCS / "conf.py").read_text()
        settings = re.findall(r"^(?:myst_\w*|html_math\w*) = [^\n]+$", ours, re.MULTILINE)
        extensions = "extensions = ['myst_parser', 'mathml']"
        path = f"import sys; sys.path.insert(0, {str(DOCS / '_ext')!r})"
        (folder / "conf.py").write_text("\n".join([path, extensions, *settings]))
        (folder / "index.md").write_text(f"# Page\n\n{text}\n")
        options = ["--fail-on-warning", "--keep-going", "--quiet"]
        return subprocess.run(  # noqa: S603
            [sys.executable, "-m", "sphinx", *options, str(folder), str(folder / "out")],
            capture_output=True,
            text=True,
        )

    def test_they_become_elements(self, tmp_path: Path) -> None:
        text = "A $\\sqrt{d}$ for $5 and $6.\n\n$$\n\\sum_i x_i^2 \\le C\n$$"
        done = self.build(text, tmp_path)
        assert done.returncode == 0, done.stderr
        page = (tmp_path / "out" / "index.html").read_text()
        inline, block = re.findall(r"<math .*?</math>", page, re.DOTALL)
        assert "<msqrt>" in inline and 'display="block"' not in inline
        assert "<msubsup>" in block and 'display="block"' in block
        assert "for $5 and $6." in page

    @pytest.mark.parametrize("wrong", [r"\unheardof{x}", r"\frac{a}{", r"a}"])
    def test_one_that_cannot_be_converted_fails_the_build(self, wrong: str, tmp_path: Path) -> None:
        done = self.build(f"One ${wrong}$ here.", tmp_path)
        assert done.returncode != 0
        assert "index.md:3: WARNING: a formula cannot be converted" in done.stderr


def test_a_state_diagram_becomes_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    module = extension("state_tables", monkeypatch)
    arrows = [module.ARROW.match(line) for line in ("[*] --> FRESH", "FRESH --> SHARED: Roster")]
    rows = [(module._state(arrow[1], 0), arrow[3] or "", arrow[2]) for arrow in arrows]
    cells = [text for text in module._table(rows).astext().split("\n") if text]
    heads = ["state", "on", "next state"]
    assert cells == [*heads, "begin", "FRESH", "FRESH", "Roster", "SHARED"]
