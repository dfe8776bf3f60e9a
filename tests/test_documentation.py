"""The code in the documentation runs, its commands exist, and its links lead somewhere.

All Python blocks of a page run one after the other in one namespace, in an empty folder. Blocks
that begin with a comment such as `# small.toml` are files, and are written there. Pages of the
tutorial and the how-to pages run their commands as well, where no comment above a block says why
not; elsewhere commands must be ones that the program has.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pages import ROOT, Block, blocks, name_of
from ports import free_port
from torchrun_words import launched_words

from dp import Ledger

if TYPE_CHECKING:
    from typer.testing import Result

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NEEDS = {"docs/integrations/pfl.md": "pfl"}
"""Packages that the blocks of a page need, and that nothing else does."""
FOREIGN = {"cd", "dask", "export", "flwr", "kubectl", "mkdir", "pip", "sbatch", "source"}
"""Programs that are not ours."""


def is_run(page: Path) -> bool:
    return page.parent.name in ("tutorial", "howto")


def veilsum(*arguments: str) -> Result:
    """How a command ended, run in this process."""
    from typer.testing import CliRunner

    from simulations.commands.cli import app

    return CliRunner().invoke(app, arguments)


def run_page(page: Path, folder: Path) -> None:
    """Write its files, run its Python, and, in tutorials, its commands; in `folder`."""
    names: dict[str, object] = {"__name__": page.stem}
    with contextlib.chdir(folder):
        for block in blocks(page, "python", "toml", "console"):
            if block.language == "console":
                if is_run(page) and not block.reason:
                    run_commands(block)
            elif block.file:
                write_file(Path(block.file), block)
            elif block.language == "python":
                text = "\n" * block.line + block.text  # so that errors name lines of the page
                exec(compile(text, page, "exec", dont_inherit=True), names)  # noqa: S102


def run_commands(block: Block) -> None:
    for program, *arguments in block.commands:
        assert program == "veilsum"
        done = veilsum(*arguments)
        assert done.exit_code == 0, f"{shlex.join(arguments)}: {done.output} {done.exception}"


def write_file(path: Path, block: Block) -> None:
    """Write a block's file; it must at least be of its language."""
    if block.language == "toml":
        tomllib.loads(block.text)
    else:
        compile(block.text, path.name, "exec", dont_inherit=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python") or is_run(page)], ids=name_of
)
@pytest.mark.slow
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    if name_of(page) in NEEDS:
        pytest.importorskip(NEEDS[name_of(page)])
    run_page(page, tmp_path)


def test_wrong_code_would_be_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "howto" / "imagined.md"
    for language, text in (("python", "assert 1 == 2"), ("console", "veilsum plan --clients 1")):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
            patch.setattr(Path, "read_text", lambda _, t=text, k=language: f"```{k}\n{t}\n```\n")
            run_page(page, tmp_path)


FLOWER_TUTORIAL = ROOT / "docs" / "tutorial" / "3-flower.md"
MAKES_AN_ENVIRONMENT = "it makes an environment"
FETCHES = "it fetches"
CLONE = os.environ.get("VEILSUM_TEST_CLONE")
FLOWER_APP = os.environ.get("VEILSUM_TEST_FLOWER_APP")
APP, PACKAGE = "quickstart-pytorch", "pytorchexample"
OFFLINE = ROOT / "tests" / "doubles" / "offline"
MOST_CHANGED_LINES = 10


@dataclass(frozen=True, slots=True)
class Change:
    """Lines in place of others, which stand together and once in a file."""

    file: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def size(self) -> int:
        """Lines that somebody has to type or delete."""
        kept = sum(1 for line in self.new if line in self.old)
        return max(len(self.new), len(self.old)) - kept

    def apply(self, app: Path) -> None:
        path = app / self.file
        lines, count = path.read_text().splitlines(), len(self.old)
        places = [i for i in range(len(lines)) if tuple(lines[i : i + count]) == self.old]
        assert len(places) == 1, f"{self.file}: {self.old} stands there {len(places)} times"
        lines[places[0] : places[0] + count] = self.new
        path.write_text("\n".join(lines) + "\n")


def changes(page: Path) -> list[Change]:
    """What a page's diffs change."""
    found = []
    for block in blocks(page, "diff"):
        head, *hunks = re.split(r"^@@\n", block.text, flags=re.MULTILINE)
        for hunk in hunks:
            lines = [(line[:1], line[1:]) for line in hunk.splitlines()]
            assert {sign for sign, _ in lines} <= {" ", "-", "+"}
            old = tuple(text for sign, text in lines if sign != "+")
            new = tuple(text for sign, text in lines if sign != "-")
            found.append(Change(head.strip().removeprefix("--- "), old, new))
    return found


def test_the_flower_tutorial_changes_few_lines() -> None:
    found = changes(FLOWER_TUTORIAL)
    assert sum(change.size for change in found) == 7 <= MOST_CHANGED_LINES
    assert "## Seven lines" in FLOWER_TUTORIAL.read_text()
    assert {change.file for change in found} == {
        f"{PACKAGE}/client_app.py",
        f"{PACKAGE}/server_app.py",
        "pyproject.toml",
    }


def test_the_size_of_a_change_is_what_has_to_be_typed_or_deleted() -> None:
    assert Change("f", ("a",), ("a", "b")).size == 1
    assert Change("f", ("a",), ("b",)).size == 1
    assert Change("f", ("a", "b", "c"), ("b",)).size == 2
    assert Change("f", ("a",), ("b", "c", "d")).size == 3


def test_a_change_has_one_place(tmp_path: Path) -> None:
    for text in ("a\na\n", "b\n"):
        (tmp_path / "f").write_text(text)
        with pytest.raises(AssertionError, match="times"):
            Change("f", ("a",), ("c",)).apply(tmp_path)


def test_the_flower_tutorial_is_right_about_the_noise() -> None:
    """Nine times as long as an update with ten clients, a quarter of one with a thousand."""
    from protocol import PrivacyGoal

    def length(epsilon: float, clients: int) -> float:
        weights, rounds = 62_006, 3
        return PrivacyGoal(epsilon, 1e-5, rounds).noise_multiplier / clients * weights**0.5

    assert round(length(30.0, 10)) == 9
    assert round(length(8.0, 1000), 2) == 0.26


def own_flower_app(folder: Path, environment: dict[str, str]) -> Path:
    """The PyTorch app that the latest Flower wrote by itself, by that Flower's own `flwr new`.

    Today's fetches it. The names and the one line that the page says are other ones are changed.
    """
    wheels = sorted((Path(sys.prefix) / "flwr-new").glob("flwr-*.whl"))
    if not wheels:
        pytest.skip("no older Flower, which has templates: `make test-flower` brings it")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(folder / "older-flower")
    command = f"{shlex.quote(sys.executable)} -c 'from flwr.cli.app import app; app()' "
    older = {**environment, "PYTHONPATH": str(folder / "older-flower")}
    bash(command + f"new {PACKAGE} --framework PyTorch --username you", folder, older)
    app = (folder / PACKAGE).rename(folder / APP)
    (said,) = re.findall(r"the line to replace is `([^`]+)`", FLOWER_TUTORIAL.read_text())
    today = "strategy = FedAvg(fraction_evaluate=fraction_evaluate)"
    for here, there in ((said, today),):
        Change(f"{PACKAGE}/server_app.py", (f"    {here}",), (f"    {there}",)).apply(app)
    return app


def converted(folder: Path, environment: dict[str, str]) -> Path:
    """An app that Flower wrote, with the page's changes."""
    if FLOWER_APP:
        app = Path(shutil.copytree(FLOWER_APP, folder / APP))
    else:
        app = own_flower_app(folder, environment)
    for change in changes(FLOWER_TUTORIAL):
        change.apply(app)
    return app


@pytest.mark.slow
def test_the_flower_tutorial_trains(tmp_path: Path) -> None:
    """The page's changes and its commands, in the environment that runs this; nothing is fetched.

    `VEILSUM_TEST_FLOWER_APP` names the folder of an app that today's `flwr new` fetched.
    """
    pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")
    pytest.importorskip("ray", reason="ray is not installed: flwr[simulation]")
    pytest.importorskip("torch", reason="torch is not installed: `make test-flower` brings it")
    folder, bin_ = tmp_path / "folder", Path(sys.executable).parent
    folder.mkdir()
    more = {
        "PATH": os.pathsep.join([str(bin_), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(OFFLINE)]),
        "UV_OFFLINE": "1",
    }
    with flower_environment(tmp_path, **more) as environment:
        converted(folder, environment)
        printed = bash(as_written(FLOWER_TUTORIAL, environment=False), folder, environment)
        check_trained(printed, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(CLONE is None, reason="makes an environment: set VEILSUM_TEST_CLONE=1")
def test_the_flower_tutorial_trains_from_a_clone(tmp_path: Path) -> None:
    """All of its commands run but the one that fetches the app, in an environment that they make.

    That is what somebody does who has nothing but a clone of what is committed here.
    """
    pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)  # noqa: S603, S607
    own = {name for name in os.environ if name.startswith("PYTHON")} | {"VIRTUAL_ENV"}
    page = clone / FLOWER_TUTORIAL.relative_to(ROOT)
    with flower_environment(tmp_path, without=own) as environment:
        converted(clone, environment)
        script = as_written(page, environment=True).splitlines()
        # What the app needs, less what fetches pictures.
        made = next(i for i, line in enumerate(script) if line.startswith("pip install"))
        script[made + 1 : made + 1] = ["pip install torch", f"export PYTHONPATH={OFFLINE}"]
        check_trained(bash("\n".join(script), clone, environment), tmp_path)


def check_trained(printed: str, home: Path) -> None:
    """Three rounds, each in the ledger, and a model that is not the one it began as."""
    assert printed.count("aggregate_train: Received 1 results and 0 failures") == 3, printed
    assert "private rounds of 10 clients, 8 of whom must stay; epsilon 30 at" in printed
    assert "a simulation, which protects nobody" in printed
    (book,) = (home / ".cache" / "veilsum" / "flower").glob("*/ledger.jsonl")
    assert f"ledger {book};" in printed
    with Ledger.open(book) as ledger:
        entries = list(ledger.entries())
    assert [entry.metadata["survivors"] for entry in entries] == [10, 10, 10]
    (spent,) = re.findall(r"3: {[^}]*'epsilon-spent': '([\d.e+]+)'", printed)
    assert 0.0 < float(spent) <= 30.0
    (model,) = home.rglob("final_model.pt")
    check_moved(model)


def check_moved(file: Path) -> None:
    """Noise alone has a standard deviation of some 0.02 to 0.04 a weight and round."""
    import torch

    weights = torch.load(file)
    assert sum(weight.numel() for weight in weights.values()) == 62_006
    # PyTorch begins below one over the root of the inputs, 400 of them here: a bound that noise of
    # this size crosses many times, in 48,000 weights.
    assert float(weights["fc1.weight"].abs().max()) > 400**-0.5 + 0.01


def as_written(page: Path, environment: bool) -> str:
    """A page's commands as a script, in order, word by word, but for those that fetch an app."""
    parts = ["set -e"]
    for block in blocks(page, "console"):
        makes = block.reason.startswith(MAKES_AN_ENVIRONMENT)
        if not block.reason.startswith(FETCHES) and (environment or not makes):
            parts.append(block.text)
    return "\n".join(parts)


def bash(script: str, folder: Path, environment: dict[str, str]) -> str:
    """All that a script prints, which has to succeed."""
    done = subprocess.run(  # noqa: S603
        ["bash", "-c", script],  # noqa: S607
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextlib.contextmanager
def flower_environment(
    folder: Path, without: Collection[str] = (), **more: str
) -> Iterator[dict[str, str]]:
    """A place for `flwr run` as somebody types it: a home and ports of its own.

    The SuperLink that it leaves running is ended, with all that it started.
    """
    if not Path("/proc/self/environ").exists():
        pytest.skip("no /proc, so what `flwr run` leaves running could not be ended")
    ports = [free_port(), free_port()]
    mark = f"VEILSUM_TEST={folder}"
    yielded = {
        **{name: value for name, value in os.environ.items() if name not in without},
        "HOME": str(folder),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(ports[0]),
        "FLWR_LOCAL_CONTROL_API_PORT": str(ports[1]),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        **dict([mark.split("=", 1)]),
        **more,
    }
    yielded.pop("FLWR_HOME", None)
    try:
        yield yielded
    finally:
        for process in started_with(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def started_with(variable: str) -> list[int]:
    """Processes that have a variable in their environment."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable.encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


def test_the_example_file_is_the_one_in_the_readme() -> None:
    (block,) = blocks(ROOT / "README.md", "python")
    assert (ROOT / "examples" / "private_mean.py").read_text().endswith(block.text)
    assert len(block.text.splitlines()) <= 8


HOME = (
    "https://github.com/veilsum/veilsum/blob/main/",
    "https://raw.githubusercontent.com/veilsum/veilsum/main/",
)


def test_the_readme_reads_the_same_on_a_package_index() -> None:
    """An index resolves no relative link and draws no diagram language."""
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 10 and "mermaid" not in text
    for target in targets:
        home = next((each for each in HOME if target.startswith(each)), None)
        assert home is not None, target
        assert (ROOT / target.removeprefix(home).partition("#")[0]).exists(), target


def test_the_readme_s_figures_are_those_of_the_results() -> None:
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    figures = re.findall(r"\d+\.\d+", "".join(table))
    results = (ROOT / "docs" / "results" / "README.md").read_text()
    assert len(figures) >= 8
    for figure in figures:
        # Rounded as the table has it.
        digits = len(figure.partition(".")[2])
        found = {f"{float(each):.{digits}f}" for each in re.findall(r"\d+\.\d+", results)}
        assert figure in found, figure


def commands(page: Path) -> Iterator[tuple[list[str], Path]]:
    """All commands of a page, with the folder that they are given in; also those within text."""
    folder = ROOT
    for block in blocks(page, "console"):
        for words in block.commands:
            if words[0] == "cd":
                folder = ROOT / words[1]
            yield words, folder
    for text in re.findall(r"`(veilsum [a-z][^`]*)`", page.read_text()):
        # A sentence may name an option without a value.
        yield shlex.split(re.sub(r" --[\w-]+$", "", text)), ROOT


@cache
def exists(words: tuple[str, ...], folder: Path) -> bool:
    """Whether there is such a command, with such options."""
    program, rest = Path(words[0]).name, words[1:]
    if program == "veilsum":
        return veilsum(*rest, "--help").exit_code == 0
    if program == "make":
        dry = ["make", "--dry-run", "--directory", str(ROOT), *rest]
        return subprocess.run(dry, capture_output=True).returncode == 0  # noqa: S603
    if program == "torchrun":
        launched = launched_words(rest)
        return launched is not None and exists(("veilsum", *launched), folder)
    if program in ("python", "python3") and rest[0] == "-m":
        return importlib.util.find_spec(rest[1]) is not None
    if program in FOREIGN:
        ours = (word.rpartition("=")[2] for word in rest)
        return all((ROOT / word).exists() for word in ours if word.startswith("examples/"))
    return program == "python" and (folder / rest[0]).is_file()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    for words, folder in commands(page):
        assert exists(tuple(words), folder), f"{name_of(page)}: {shlex.join(words)}"


@pytest.mark.parametrize(
    "line",
    [
        "veilsum pln",
        "veilsum plan --cleints 5",
        "make tset",
        "python examples/none.py",
        "vielsum",
        "kubectl apply -f examples/none.yaml",
        "torchrun --nprocs 2 -m simulations run FILE",
        "torchrun --nproc-per-node 2 simulations run FILE",
        "torchrun --nproc-per-node 2 -m simulations run FILE --ranks 2",
    ],
)
def test_wrong_commands_would_be_noticed(line: str) -> None:
    assert not exists(tuple(line.split()), ROOT)


def test_no_page_has_two_versions_of_a_passage() -> None:
    """A merge that was not finished builds and links well."""
    marker = re.compile(r"^(<{7} |>{7} |={7}$)", re.MULTILINE)
    assert marker.search("<<<<<<< HEAD\n")
    assert [page.name for page in PAGES if marker.search(page.read_text())] == []


def test_the_readme_names_both_commands() -> None:
    targets = {words[1] for words, _ in commands(ROOT / "README.md") if words[0] == "make"}
    assert {"demo", "test"} <= targets


def links(page: Path) -> Iterator[str]:
    """Targets of a page's links to files, without their anchors."""
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def reached(start: Path) -> set[Path]:
    """The pages that links lead to from one of them."""
    found, ahead = set(), [start.resolve()]
    while ahead:
        page = ahead.pop()
        if page.suffix == ".md" and page not in found:
            found.add(page)
            ahead += [(page.parent / target).resolve() for target in links(page)]
    return found


def test_every_page_can_be_reached_from_the_first_one() -> None:
    """Those of `project` are for the site alone, which includes the pages above `docs` by them."""
    missing = set(PAGES) - reached(ROOT / "docs" / "index.md")
    assert {page.parent for page in missing} == {ROOT / "docs" / "project"}
