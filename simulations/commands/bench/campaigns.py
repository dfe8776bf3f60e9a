"""Campaigns against the protocol and its decoders: exit status 1 if one breaks a promise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from simulations.commands.bench.options import prose
from simulations.common.schemes import AnyScheme
from simulations.common.tables import JsonFlag, show, show_rows


def faults_command(
    schedules: Annotated[int, typer.Option(help="Rounds to run.", min=1)] = 2000,
    rate: Annotated[float, typer.Option(help="Faults per message.", min=0, max=1)] = 0.05,
    seed: Annotated[int, typer.Option(help="Fixes every schedule.", min=0)] = 1,
    first: Annotated[int, typer.Option(help="Number of the first schedule.", min=0)] = 0,
    play: Annotated[
        list[str] | None,
        typer.Option(
            help="wire, encoded, client, member, server, or the name of one behaviour; may be "
            "repeated."
        ),
    ] = None,
    scheme: Annotated[
        AnyScheme, typer.Option(help="Whose rounds; the behaviours of all chosen take turns.")
    ] = AnyScheme.PAIRWISE,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the result. An interrupted campaign goes on from it."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Rounds with hostile networks, parties and servers; exit status 1 if one breaks a promise."""
    from rich.progress import Progress

    from simulations.threats.faults import behaviours_named
    from simulations.threats.faults.campaign import OtherCampaignError, Question, figures, run_kept

    names = tuple(play or ())
    try:
        behaviours_named(names, scheme.names)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--play") from None
    question = Question(scheme.names, names, seed, rate, first)
    with Progress(console=prose) as progress:
        task = progress.add_task("schedules", total=schedules)
        try:
            campaign = run_kept(question, schedules, out, lambda done: progress.advance(task, done))
        except OtherCampaignError as error:
            raise typer.BadParameter(str(error), param_hint="--out") from None
    found = figures(campaign)
    behaviours = {"behaviours": found.pop("behaviours")}
    asked = {"schedules": schedules, "first": first, "seed": seed, "rate": rate}
    _show_campaign({**asked, **found}, behaviours, as_json)
    if campaign.failures:
        raise typer.Exit(1)


def fuzz_command(
    seconds: Annotated[float, typer.Option(help="How long to run.", min=0.1)] = 60.0,
    cases: Annotated[
        int | None, typer.Option(help="Stop after this many cases instead.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes every case.", min=0)] = 1,
    first: Annotated[int, typer.Option(help="Number of the first case.", min=0)] = 0,
    decoder: Annotated[
        list[str] | None,
        typer.Option(help="Only decoders with this in their name; may be repeated."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Hostile bytes for every decoder; exit status 1 if one fails other than with a typed error."""
    from rich.progress import Progress

    from simulations.threats.fuzzing import run_fuzz

    with Progress(console=prose) as progress:
        task = progress.add_task("cases" if cases else "seconds", total=cases or seconds)
        try:
            report = run_fuzz(
                seed,
                seconds=seconds,
                cases=cases,
                first=first,
                names=decoder or [],
                progress=lambda done: progress.update(task, completed=done),
            )
        except LookupError as error:
            raise typer.BadParameter(str(error), param_hint="--decoder") from None
    _show_campaign(
        {
            "cases": report.cases,
            "first": first,
            "seed": seed,
            "cases_per_second": report.cases_per_second,
            "bugs": [bug.figures() for bug in report.bugs],
        },
        {"decoders": {name: dict(ends) for name, ends in report.outcomes.items()}},
        as_json,
    )
    if report.bugs:
        raise typer.Exit(1)


def _show_campaign(
    figures: Mapping[str, object],
    counts: Mapping[str, Mapping[str, Mapping[str, int]]],
    as_json: bool,
) -> None:
    """Print figures, and a table of outcomes: one line for each behaviour or decoder."""
    show("campaign", {**figures, **counts} if as_json else figures, as_json)
    if as_json:
        return
    for title, found in counts.items():
        rows = [
            (name, ", ".join(f"{outcome}: {count:,}" for outcome, count in sorted(ends.items())))
            for name, ends in found.items()
        ]
        show_rows("", (title, "outcomes"), rows)
