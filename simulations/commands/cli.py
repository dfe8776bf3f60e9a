"""The `veilsum` command: names its subcommands, which are imported when they are called.

With `--json` they print one object on standard output; progress and prose go to standard error.
`veilsum.__main__` runs it.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated, ClassVar

import typer

from simulations.commands.verbs import LazyGroup, Verb
from veilsum.notices import before_compiling

_HERE = "simulations.commands"


class Commands(LazyGroup):
    """Every verb, with the help that it has itself."""

    verbs: ClassVar[dict[str, Verb]] = {
        "account": Verb(
            f"{_HERE}.account",
            "account_command",
            "Epsilon of a mechanism by every accountant, or the noise for a target.",
        ),
        "audit": Verb(
            f"{_HERE}.audit",
            "audit_command",
            "Attack the protocol and measure its privacy; exit status 1 if a check does not hold.",
        ),
        "audit-ledger": Verb(
            f"{_HERE}.account",
            "audit_ledger_command",
            "Verify a ledger and add it up with independent code; exit status 1 if its goal is "
            "overrun.",
        ),
        "doctor": Verb(
            f"{_HERE}.doctor",
            "doctor_command",
            "Check the installation, and say what helps: kernels, caches, packages, versions, "
            "folders.",
        ),
        "export": Verb(
            f"{_HERE}.export",
            "export_command",
            "Write the rounds of one or more runs as one flat table.",
        ),
        "identity": Verb(
            f"{_HERE}.identity",
            "identity_app",
            "A client's key on Flower: make it, replace it, end it.",
        ),
        "init": Verb(
            f"{_HERE}.init",
            "init_command",
            "Write a configuration with a comment for every key, for `veilsum run`.",
        ),
        "plan": Verb(
            f"{_HERE}.plan",
            "plan_command",
            "What a deployment needs: graph, threshold and bytes; with a goal, also noise and "
            "error.",
        ),
        "provision": Verb(
            f"{_HERE}.provision",
            "provision_app",
            "Make the folders of clients on Flower: identities, registries, policies.",
        ),
        "registry": Verb(
            f"{_HERE}.registry",
            "registry_app",
            "Make and sign the registry of all sites' keys, for policies that name a registrar.",
        ),
        "report": Verb(
            f"{_HERE}.report",
            "report_command",
            "Write one self-contained HTML page about one or more runs; several are compared.",
        ),
        "run": Verb(
            f"{_HERE}.run",
            "run_command",
            "Run one experiment. If it is interrupted, the same command resumes it.",
        ),
        "site": Verb(
            f"{_HERE}.site",
            "site_app",
            "A site's own process for Flower: it answers, and the researcher's app only trains.",
        ),
        "sweep": Verb(
            f"{_HERE}.run",
            "sweep_command",
            "Run every point of a grid, each in its own folder. Finished points are not run again.",
        ),
        "demo": Verb(
            f"{_HERE}.demo",
            "demo_command",
            "Train a small network on real digits: real cryptography, dropouts, noise, a "
            "tuned sketch.",
        ),
        "bench": Verb(
            f"{_HERE}.bench",
            "bench_app",
            "Measure speed and compare it with its physical limit.",
        ),
        "stats": Verb(
            f"{_HERE}.stats",
            "stats_app",
            "Private statistics of clients: what to expect, the answers, and pictures of them.",
        ),
        "reproduce": Verb(
            f"{_HERE}.reproduce",
            "reproduce_command",
            "Reproduce published results and compare them with this project's own.",
        ),
    }


app = typer.Typer(
    name="veilsum",
    cls=Commands,
    help="Secure aggregation with distributed differential privacy, for federated learning.",
    no_args_is_help=True,
    # Locals in a traceback may be secrets; older versions of Typer print them.
    pretty_exceptions_show_locals=False,
    # Commands inherit it.
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"veilsum {version('veilsum')}")
        raise typer.Exit


class LogLevel(Enum):
    """Levels of `logging`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _set_log_level(level: LogLevel) -> None:
    import logging

    logging.basicConfig(level=level.name)
    # The compiler's own debugging is tens of thousands of lines.
    logging.getLogger("numba").setLevel(max(logging.getLevelName(level.name), logging.INFO))


@app.callback()
def options(
    log_level: Annotated[
        LogLevel,
        typer.Option(
            help="Log messages of this level and above on standard error; debug adds the "
            "traceback of an error that is otherwise one line."
        ),
    ] = LogLevel.WARNING,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Secure aggregation with distributed differential privacy, for federated learning."""
    _set_log_level(log_level)
    if sys.stderr.isatty():
        before_compiling(_say_compiling)


def _say_compiling() -> None:
    typer.echo("Compiling, once on this machine: some ten seconds.", err=True)
