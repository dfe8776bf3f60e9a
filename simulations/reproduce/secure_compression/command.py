"""The options of `veilsum reproduce secure-compression`; everything else is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.options import DataDir, FirstEvaluated, QuickCampaign
from simulations.reproduce.output import progress_bar


def secure_compression_command(
    data_dir: DataDir = None,
    out: Annotated[
        Path, typer.Option(help="Folder for figures, page and plot; finished runs stay.")
    ] = Path("veilsum-secure-compression"),
    quick: QuickCampaign = False,
    seed: FirstEvaluated = 1,
    as_json: JsonFlag = False,
) -> None:
    """Secure PowerSGD, clips that follow norms, and Denoise: do they help, at equal epsilon?"""
    from simulations.learning.data import load_dataset
    from simulations.reproduce.secure_compression.campaign import Campaign, reproduce
    from simulations.reproduce.secure_compression.plan import Plan
    from simulations.reproduce.secure_compression.report import REPORT

    plan = Plan.quick() if quick else Plan()
    data = load_dataset(plan.data) if quick else load_dataset(plan.data, data_dir)
    campaign = Campaign(plan, data, seed, out)
    with progress_bar("secure compression", campaign.steps) as bar:
        figures = reproduce(campaign, bar.ended)
    REPORT.finish(figures, out, as_json)
