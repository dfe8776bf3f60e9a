"""The options of `veilsum reproduce trust-models`; everything else is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.options import DataDir, FirstEvaluated, QuickCampaign
from simulations.reproduce.output import progress_bar


def trust_models_command(
    data_dir: DataDir = None,
    out: Annotated[
        Path, typer.Option(help="Folder for figures, page and plot; finished runs stay.")
    ] = Path("veilsum-trust-models"),
    quick: QuickCampaign = False,
    seed: FirstEvaluated = 1,
    as_json: JsonFlag = False,
) -> None:
    """Local, distributed and central privacy on one task: at equal epsilon, and by bytes."""
    from simulations.learning.data import load_dataset
    from simulations.reproduce.trust_models.campaign import reproduce
    from simulations.reproduce.trust_models.plan import Plan
    from simulations.reproduce.trust_models.report import REPORT

    plan = Plan.quick() if quick else Plan()
    data = load_dataset(plan.data) if quick else load_dataset(plan.data, data_dir)
    with progress_bar("trust models", len(plan.settings())) as bar:
        figures = reproduce(plan, data, seed, out, bar.ended)
    REPORT.finish(figures, out, as_json)
