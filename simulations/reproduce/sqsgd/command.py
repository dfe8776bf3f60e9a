"""The options of `veilsum reproduce sqsgd`; everything else is loaded late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.common.tables import JsonFlag
from simulations.reproduce.options import DataDir, Epochs, FirstSeed, QuickTraining
from simulations.reproduce.output import progress_bar

MODELS = ("lenet5", "resnet110")
DATA = ("mnist", "fashion-mnist")


def sqsgd_command(
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "lenet5",
    data: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(DATA)}, instead of the model's.")
    ] = None,
    quick: QuickTraining = False,
    epochs: Epochs = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of every point.", min=1)] = None,
    seed: FirstSeed = 1,
    force: Annotated[
        bool, typer.Option("--force", help="Train ResNet-110 without a GPU: weeks.")
    ] = False,
    data_dir: DataDir = None,
    out: Annotated[
        Path, typer.Option(help="Folder for figures, tables and the plot; finished runs stay.")
    ] = Path("veilsum-sqsgd"),
    as_json: JsonFlag = False,
) -> None:
    """sqSGD's Figures 1 to 3: accuracy by levels, epsilon and baseline, and its claims."""
    import torch

    from protocol.errors import ConfigurationError
    from simulations.learning.data import load_dataset
    from simulations.reproduce.sqsgd.plan import Plan, build_model
    from simulations.reproduce.sqsgd.report import REPORT
    from simulations.reproduce.sqsgd.training import progress_steps, reproduce

    for name, value, valid in (("model", model, MODELS), ("data", data or DATA[0], DATA)):
        if value not in valid:
            raise ConfigurationError(name, f"value {value!r}", ", ".join(valid))
    device = "cuda" if torch.cuda.is_available() and not quick else "cpu"
    if model == "resnet110" and device == "cpu" and not (force or quick):
        raise ConfigurationError(
            "model", "resnet110 on a CPU takes weeks", "a machine with a GPU, or --force"
        )
    usual = Plan.quick() if quick else Plan() if model == "lenet5" else Plan.residual()
    plan = usual.changed(None if quick else data, epochs, seeds, seed)
    examples = load_dataset(plan.data) if quick else load_dataset(plan.data, data_dir)
    with progress_bar("sqSGD", progress_steps(plan, build_model(plan))) as bar:
        figures = reproduce(plan, examples, out, device, bar.advance)
    REPORT.finish(figures, out, as_json)
