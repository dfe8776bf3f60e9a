"""The `veilsum` command: puts its subcommands together. With `--json` they print one object on
standard output; progress and prose go to standard error.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from protocol.errors import ConfigurationError
from simulations.account_command import account_command
from simulations.audit_command import audit_command
from simulations.bench.commands import bench_app
from simulations.demo_command import demo_command
from simulations.plan_command import plan_command
from simulations.report_command import report_command
from simulations.reproduce_command import reproduce_app
from simulations.run_command import run_command, sweep_command

app = typer.Typer(
    name="veilsum",
    help="Private sums from an untrusted server, for federated learning.",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(bench_app, name="bench")
app.command("account")(account_command)
app.command("audit")(audit_command)
app.command("plan")(plan_command)
app.command("report")(report_command)
app.command("run")(run_command)
app.command("sweep")(sweep_command)
app.command("demo")(demo_command)
app.add_typer(reproduce_app, name="reproduce")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"veilsum {version('veilsum')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Private sums from an untrusted server, for federated learning."""


def main() -> None:
    """Entry point: typed errors become one line on standard error and exit status 2."""
    from dp import PrivacyError
    from protocol.errors import PolicyError
    from secagg import ProtocolError

    try:
        app()
    except (ConfigurationError, PolicyError, PrivacyError, ProtocolError) as error:
        reasons = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        text = escape(f"{error}{reasons}")
        Console(stderr=True).print(f"[red]{type(error).__name__}[/red]: {text}", highlight=False)
        sys.exit(2)
