"""The `veilsum` command: puts its subcommands together.

With `--json` they print one object on standard output; progress and prose go to standard error.
`simulations.__main__` runs it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from simulations.commands.account import account_command
from simulations.commands.audit import audit_command
from simulations.commands.bench import bench_app
from simulations.commands.demo import demo_command
from simulations.commands.plan import plan_command
from simulations.commands.report import report_command
from simulations.commands.reproduce import LISTED, reproduce_command
from simulations.commands.run import run_command, sweep_command

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
app.command("reproduce", epilog=LISTED)(reproduce_command)


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
