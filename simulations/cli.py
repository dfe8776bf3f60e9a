"""The `veilsum` command: reads arguments, runs, prints. `--json` prints one object on standard
output; progress and prose go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from secagg import Mode, ParameterError

app = typer.Typer(
    name="veilsum",
    help="Private sums from an untrusted server, for federated learning.",
    no_args_is_help=True,
    add_completion=False,
)
bench = typer.Typer(help="Measure speed beside its physical limit.", no_args_is_help=True)
app.add_typer(bench, name="bench")

prose = Console(stderr=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
BitsOption = Annotated[int, typer.Option(help="Bits of a field element, 8 to 62.")]


@bench.command("mask")
def bench_mask_command(
    dim: Annotated[int, typer.Option(help="Elements of the vector.", min=1)] = 1 << 20,
    neighbours: Annotated[int, typer.Option(help="Masks added to it.", min=1)] = 100,
    bits: BitsOption = 32,
    repeats: Annotated[int, typer.Option(help="Counted repetitions.", min=1)] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Mask expansion and addition, beside the bare AES-CTR keystream."""
    from simulations.bench.mask import bench_mask

    show("mask", bench_mask(dim, neighbours, bits, repeats), as_json)


@bench.command("round")
def bench_round_command(
    clients: Annotated[int, typer.Option(help="Size of the cohort.", min=2)] = 100,
    dim: Annotated[int, typer.Option(help="Elements of each vector.", min=1)] = 100_000,
    dropout: Annotated[float, typer.Option(help="Share that never uploads.", min=0, max=0.9)] = 0.1,
    bits: BitsOption = 24,
    mode: Annotated[Mode, typer.Option(help="What the server is trusted with.")] = Mode.ACTIVE,
    as_json: JsonFlag = False,
) -> None:
    """One round of secure aggregation with real cryptography; exit status 1 if its sum is wrong."""
    from simulations.bench.round import bench_round

    figures = bench_round(clients, dim, dropout, bits, mode)
    show("round", figures, as_json)
    if not figures["correct"]:
        raise typer.Exit(1)


def show(title: str, figures: Mapping[str, Any], as_json: bool) -> None:
    """Print figures as one JSON object, or as a table for people."""
    if as_json:
        typer.echo(json.dumps(figures))
        return
    table = Table("figure", "value", title=title)
    for name, value in figures.items():
        table.add_row(name, readable(value))
    Console().print(table)


def readable(value: object) -> str:
    """A number with separators and four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def main() -> None:
    """Entry point: typed errors become one line on standard error and exit status 2."""
    from dp import PrivacyError
    from protocol.errors import ConfigurationError
    from secagg import ProtocolError

    try:
        app()
    except (ConfigurationError, ParameterError, PrivacyError, ProtocolError) as error:
        prose.print(f"[red]{type(error).__name__}[/red]: {error}", highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
