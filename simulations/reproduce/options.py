"""Options that several `veilsum reproduce` commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None, typer.Option(help="Folder of data sets; VEILSUM_DATA_DIR if left out.")
]
Epochs = Annotated[int | None, typer.Option(help="Of every run, instead of the plan's.", min=1)]
QuickTraining = Annotated[
    bool, typer.Option("--quick", help="Embedded digits, a small network: seconds, no files.")
]
QuickCampaign = Annotated[
    bool, typer.Option("--quick", help="Embedded digits, few clients: a minute, no files.")
]
FirstSeed = Annotated[int, typer.Option(help="The first of them.", min=0)]
FirstEvaluated = Annotated[int, typer.Option(help="The first of those evaluated.", min=0)]
