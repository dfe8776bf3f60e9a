"""Carries out `veilsum reproduce NAME`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from simulations.common.tables import show
from simulations.reproduce.engine.campaign import QUICK, Campaign, Options


def carry_out(
    campaign: Campaign[Any],
    options: Options,
    out: Path,
    data_dir: Path | None = None,
    workers: int = 1,
    as_json: bool = False,
    plan_only: bool = False,
) -> None:
    """Run what is missing of a campaign, print its figures and write them into a folder.

    Args:
        campaign: which.
        options: its plan.
        out: the folder, made if need be.
        data_dir: folder of data sets.
        workers: processes.
        as_json: print the figures as JSON.
        plan_only: print the plan, and run nothing.

    Raises:
        ConfigurationError: the plan cannot be run.
        DataError: a file is missing, of another version or broken.
    """
    plan = campaign.plan(options)
    if plan_only:
        show(f"the plan of {campaign.name}", asdict(plan), as_json)
        return
    told = Console(stderr=True)
    where: dict[str, Any] = {"data_dir": data_dir, "workers": workers}
    study = campaign.study(
        plan, out, options.seed, tell=lambda text: told.print(escape(text), soft_wrap=True), **where
    )
    figures = campaign.run(study, _words(campaign.name, options))
    found = (
        "nothing was left to run" if study.found and not study.made else f"{study.made} made now"
    )
    told.print(f"{study.found} results were there, {found}", soft_wrap=True)
    campaign.finish(figures, out, as_json)


def _words(name: str, options: Options) -> str:
    """Return the command that makes the same figures."""
    words = [name]
    if options.preset == QUICK:
        words.append("--quick")
    elif options.preset is not None:
        words += ["--preset", options.preset]
    for key, values in options.changes.items():
        words += ["--set", shlex.quote(f"{key}={','.join(map(str, values))}")]
    if options.seeds is not None:
        words += ["--seeds", str(options.seeds)]
    return " ".join([*words, "--seed", str(options.seed)])
