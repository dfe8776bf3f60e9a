"""What a campaign leaves and says: files in a folder, a summary or JSON, a bar while it runs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID
from rich.table import Table

from simulations.common.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = Mapping[str, Any]
Titled = tuple[str | None, Sequence[Sequence[str]]]
"""A table with its title, if it has one; the first row is its head."""


@dataclass(frozen=True, slots=True)
class Report:
    """How the plain figures of a campaign become files and a summary.

    Attributes:
        stem: with which all files begin; names in braces stand for figures.
        parts: what is written beside the figures, by name: how its file ends, and what makes it.
        summary: lines and tables that people are shown, before the list of files.
    """

    stem: str
    parts: Mapping[str, tuple[str, Callable[[Figures], str | Figure]]]
    summary: Callable[[Figures], Iterable[str | Titled]]

    def write(self, figures: Figures, folder: Path) -> dict[str, Path]:
        """Write figures and parts into a folder, made if need be; return the files by name."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = self.stem.format_map(figures)
        paths = {"figures": folder / f"{stem}.json"}
        write_whole(paths["figures"], json.dumps(figures, indent=1) + "\n")
        for name, (ending, make) in self.parts.items():
            made, paths[name] = make(figures), folder / f"{stem}{ending}"
            write_whole(paths[name], made if isinstance(made, str) else _png(made))
        return paths

    def show(self, figures: Figures, console: Console) -> None:
        """Print the summary."""
        for part in self.summary(figures):
            if isinstance(part, str):
                console.print(escape(part))
                continue
            title, (head, *rows) = part
            table = Table(*head, title=title)
            for row in rows:
                table.add_row(*map(escape, row))
            console.print(table)

    def finish(self, figures: Figures, folder: Path, as_json: bool) -> None:
        """Print the figures as JSON, or the summary; then write everything, and say where it is.

        In this order, so that a folder that cannot be written to does not cost the figures.
        """
        console = Console()
        if as_json:
            typer.echo(json.dumps(figures))
        else:
            self.show(figures, console)
        paths = self.write(figures, folder)
        if as_json:
            return
        for name, path in paths.items():
            console.print(f"{name}: {escape(str(path))}", soft_wrap=True)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar on standard error."""

    progress: Progress
    task: TaskID

    def advance(self, steps: int = 1) -> None:
        """Move on."""
        self.progress.advance(self.task, steps)

    def ended(self, name: str) -> None:
        """Move on by one, and say what has ended."""
        self.progress.update(self.task, advance=1, description=name)


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Bar]:
    """Show a bar until the block ends."""
    with Progress(console=Console(stderr=True)) as progress:
        yield Bar(progress, progress.add_task(title, total=total))
