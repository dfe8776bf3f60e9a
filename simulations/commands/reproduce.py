"""`veilsum reproduce`: one command for all campaigns of `simulations.reproduce`."""

from __future__ import annotations

import json
import shlex
from concurrent.futures import Executor
from dataclasses import asdict
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from protocol.errors import ConfigurationError
from simulations.campaigns.catalog import PAPERS, STUDIES
from simulations.commands.places import SchedulerOption, WorkersOption
from simulations.common.files import write_whole
from simulations.common.provenance import source_hash
from simulations.common.tables import JsonFlag, show, show_rows

if TYPE_CHECKING:
    from simulations.campaigns.campaign import Campaign, Options
    from simulations.campaigns.render import Part

HEADS = {"Of the five papers": PAPERS, "Of this project": STUDIES}
LISTED = "\n\n".join(
    "\n\n".join([f"{head}:", *(f"{name}: {about}" for name, about in named.items())])
    for head, named in HEADS.items()
)


def reproduce_command(
    name: Annotated[str | None, typer.Argument(help="Of a campaign; see the list below.")] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A small plan: seconds to minutes, without data sets to fetch."
        ),
    ] = False,
    preset: Annotated[
        str | None, typer.Option(help="Which of the campaign's plans; an error lists them.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="field=value,value,... of the plan; may be repeated."),
    ] = None,
    show_plan: Annotated[
        bool,
        typer.Option("--plan", help="Print the plan, whose fields --set changes; run nothing."),
    ] = False,
    seed: Annotated[int, typer.Option(help="The first of them.", min=0)] = 1,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of everything that has several.", min=1)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of data sets; VEILSUM_DATA_DIR if left out.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for figures, page, plots and results; veilsum-NAME if left out."),
    ] = None,
    written: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Figures of a campaign, NAME.json or NAME.json.gz: judge and draw them anew; run "
            "nothing.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            help="A page of yours: make the tables anew that stand between <!-- rows: FILE, "
            "TITLE --> and <!-- end of rows -->; run nothing.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Reproduce published results and compare them with this project's own.

    Every result is kept in the folder as soon as it is there, with its configuration and a digest
    of the code that made it; the same command resumes a campaign. Under torchrun, the ranks make
    the results.
    """
    if page is not None:
        from simulations.campaigns.page import renewed

        if name is not None:
            raise ConfigurationError("--page", f"given together with {name}", "one of the two")
        write_whole(page, renewed(page))
        return
    if name is None:
        for head, named in HEADS.items():
            typer.echo("\n".join([head, *(f"  {each:20}{about}" for each, about in named.items())]))
        return
    from simulations.campaigns.campaign import QUICK, Options
    from simulations.campaigns.catalog import campaign
    from simulations.learning.run.overrides import once, read_choices

    options = Options(
        preset=QUICK if quick else preset,
        changes=dict(once(map(read_choices, change or []))),
        seed=seed,
        seeds=seeds,
    )
    folder = out or Path(f"veilsum-{name}")
    if show_plan:
        show(f"the plan of {name}", asdict(campaign(name).plan(options)), as_json)
        return
    if written is not None:
        made = campaign(name)
        present(made, made.judged(figures_in(written, name)), folder, as_json)
        return
    from simulations.common.executors import executor, serve
    from simulations.common.ranks import joined

    with joined() as ranks:
        if ranks.rank:
            serve(ranks)
            return
        with executor(workers, scheduler, ranks) as places:
            if (figures := finished(folder, name, options)) is None:
                carry_out(campaign(name), options, folder, data_dir, places, as_json)
                return
    Console(stderr=True).print(f"finished, nothing is left to run: {figures}", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(json.loads(figures.read_text(encoding="utf-8"))))


reproduce_command.__doc__ = f"{cleandoc(reproduce_command.__doc__ or '')}\n\n{LISTED}"


def carry_out(
    campaign: Campaign[Any],
    options: Options,
    out: Path,
    data_dir: Path | None = None,
    places: Executor | None = None,
    as_json: bool = False,
) -> None:
    """Run what is missing of a campaign, and present its figures.

    Args:
        places: makes several results at a time; None for one after another, here.
        as_json: print the figures as JSON in place of a summary.
    """
    plan, told = campaign.plan(options), Console(stderr=True)
    study = campaign.study(
        plan,
        out,
        options.seed,
        data_dir=data_dir,
        executor=places,
        tell=lambda text: told.print(escape(text), soft_wrap=True),
    )
    figures = campaign.run(study, _words(campaign.name, options))
    left = f"{study.made} made now" if study.made else "nothing was left to run"
    told.print(f"{study.found} results were there, {left}", soft_wrap=True)
    present(campaign, figures, out, as_json)


def figures_in(file: Path, name: str) -> dict[str, Any]:
    """Read the figures of a campaign; `ConfigurationError` if these are others."""
    from simulations.campaigns.page import figures_of

    figures = figures_of(file)
    command = figures["command"]
    if command.split()[0] != name:
        raise ConfigurationError("--from", f"figures of {command}", f"figures of {name}")
    return figures


def present(campaign: Campaign[Any], figures: dict[str, Any], out: Path, as_json: bool) -> None:
    """Print the figures of a campaign, then write them into a folder.

    In this order, so that a folder that cannot be written to does not cost the figures.
    """
    told, console = Console(stderr=True), Console()
    if as_json:
        typer.echo(json.dumps(figures))
    else:
        for part in campaign.all_parts(figures):
            if part.brief:
                _show(part)
    for name, path in campaign.write(figures, out).items():
        (told if as_json else console).print(f"{name}: {escape(str(path))}", soft_wrap=True)


def finished(folder: Path, name: str, options: Options) -> Path | None:
    """Return the figures of a campaign that this command has finished; None if there are none.

    They count if the same words made them with the same source. This needs none of what trains or
    draws. A file that the words name may have changed since, so such a campaign is looked through.
    """
    given = (str(value) for values in options.changes.values() for value in values)
    if any(Path(each).is_file() for each in given):
        return None
    for path in sorted(folder.glob("*.json")):
        try:
            figures = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        wanted = {"command": _words(name, options), "source": source_hash()}
        if path.with_suffix(".md").exists() and isinstance(figures, dict):
            if wanted.items() <= {key: figures.get(key) for key in wanted}.items():
                return path
    return None


def _show(part: Part) -> None:
    """Print a part of the page."""
    from simulations.campaigns.render import Grid

    if isinstance(part, Grid):
        head, *rows = part.rows
        show_rows(part.title, head, rows)
    else:
        Console().print(escape(part.text))


def _words(name: str, options: Options) -> str:
    """Return the command that makes the same figures, as `--set` reads it."""
    from simulations.learning.run.overrides import as_choices

    words = [name]
    if options.preset is not None:
        words += ["--quick"] if options.preset == "quick" else ["--preset", options.preset]
    for key, values in options.changes.items():
        words += ["--set", shlex.quote(f"{key}={as_choices(values)}")]
    if options.seeds is not None:
        words += ["--seeds", str(options.seeds)]
    return " ".join([*words, "--seed", str(options.seed)])
