"""Options of the commands that can hand their work to others."""

from __future__ import annotations

from typing import Annotated

import typer

WorkersOption = Annotated[int, typer.Option(help="Processes of this machine.", min=1)]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Hand the work to the Dask cluster whose scheduler has this address, such as "
        "tcp://HOST:8786. Its workers need this version of veilsum, the data, and for a sweep the "
        "folder of the output.",
    ),
]
