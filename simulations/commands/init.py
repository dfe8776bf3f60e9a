"""`veilsum init`: a configuration to begin from; `simulations.learning.template` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text


def init_command(
    path: Annotated[Path, typer.Argument(help="The new file.")] = Path("veilsum.toml"),
    example: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Begin from this example; an unknown name prints the list.",
        ),
    ] = "digits",
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Another data set. The other values stay those of the example."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Another model.")] = None,
) -> None:
    """Write a configuration with a comment for every key, for `veilsum run`.

    The file must be new. Its values are those of an example; what the example leaves out is there
    as a comment, with its default.
    """
    from protocol.errors import ConfigurationError
    from simulations.learning.template import commented

    chosen = {"data": data, "model": model}
    text = commented(example, **{key: name for key, name in chosen.items() if name is not None})
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(str(path), "already exists", "the name of a new file") from None
    console = Console()
    for line in (
        f"{path} is written: open it in an editor, every key is explained there.",
        f"veilsum run {path} --dry-run    checks it, and says what the run would take",
        f"veilsum run {path}              runs it",
    ):
        console.print(Text(line), soft_wrap=True)
