"""`veilsum report`: runs on one HTML page; its body is `simulations.reports.run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from protocol.errors import ConfigurationError

PAGE: Final = "report.html"


def report_command(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, sweeps or demos; all runs in them are shown."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="HTML file. Default: report.html in the first folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    screenshots: Annotated[
        Path | None,
        typer.Option(help="Also save pictures of the page in this folder; needs Chromium."),
    ] = None,
) -> None:
    """Write one self-contained HTML page about one or more runs; several are compared."""
    from simulations.common.pages.browser import find_browser, take_pictures
    from simulations.reports.run import find_runs, write_page

    browser = find_browser()
    if screenshots is not None and browser is None:
        raise ConfigurationError(
            "--screenshots", "no Chromium on PATH", "left out, or Chromium installed"
        )
    runs = find_runs(folders)
    named = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    page = write_page(runs, title or f"veilsum: {named}", out or folders[0] / PAGE)
    console = Console()
    console.print(Text(f"Report: {page}"), soft_wrap=True)
    if screenshots is not None and browser is not None:
        for picture in take_pictures(browser, page, screenshots):
            console.print(Text(f"Picture: {picture}"), soft_wrap=True)
