"""`veilsum account` and `veilsum audit-ledger`; their bodies load when they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from simulations.common.tables import JsonFlag

if TYPE_CHECKING:
    from simulations.reports.account.ledger import LedgerAccount
    from simulations.reports.account.mechanism import MechanismAccount

AdjacencyOption: TypeAlias = Annotated[
    str,
    typer.Option(help="zero-out (a contribution replaced by zeros) or replace-one (by any other)."),
]
ExportOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="New JSON file, which also gets the trade-off curve and the privacy losses."),
]


def account_command(
    mechanism: Annotated[
        str, typer.Option(help="binomial, skellam or discrete_gaussian.")
    ] = "binomial",
    coins: Annotated[
        int | None, typer.Option(help="Binomial: number of coins in the sum, per coordinate; even.")
    ] = None,
    variance: Annotated[
        float | None,
        typer.Option(
            help="Skellam: variance of the sum. Discrete Gaussian: the variance parameter of "
            "ONE client's noise, not of the sum."
        ),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Discrete Gaussian: honest clients in the sum.")
    ] = None,
    l2: Annotated[float, typer.Option(help="L2 sensitivity, in integer units.")] = 16.0,
    linf: Annotated[int, typer.Option(help="Largest change of one coordinate.")] = 16,
    dim: Annotated[int, typer.Option(help="Number of coordinates.")] = 1_000_000,
    delta: Annotated[float, typer.Option(help="Between 0 and 1.")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Number of releases with this noise.")] = 1,
    target_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Solve for the noise: coins of the sum (binomial), variance of the sum "
            "(skellam), one client's variance parameter (discrete_gaussian)."
        ),
    ] = None,
    adjacency: AdjacencyOption = "zero-out",
    export: ExportOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Epsilon of a mechanism by every accountant, or the noise for a target."""
    from simulations.reports.account.mechanism import account_mechanism
    from simulations.reports.account.question import Question, adjacency_of

    question = Question(
        # As it is named everywhere else, too.
        mechanism=mechanism.replace("-", "_"),
        coins=coins,
        variance=variance,
        clients=clients,
        l2=l2,
        linf=linf,
        dim=dim,
        delta=delta,
        rounds=rounds,
        target_epsilon=target_epsilon,
        adjacency=adjacency_of(adjacency),
    )
    _show(account_mechanism(question), export, 1.0, as_json)


def audit_ledger_command(
    ledger: Annotated[Path, typer.Argument(help="The ledger; it is read and not changed.")],
    delta: Annotated[
        float | None,
        typer.Option(help="Between 0 and 1. Default: the delta of the ledger's goal."),
    ] = None,
    adjacency: AdjacencyOption = "zero-out",
    dp_accounting: Annotated[
        bool,
        typer.Option(
            "--dp-accounting",
            help="Also convert the releases to events of dp-accounting, and print its epsilon.",
        ),
    ] = False,
    export: ExportOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Verify a ledger and add it up with independent code; exit status 1 if its goal is overrun."""
    from simulations.reports.account.ledger import REPLAY_ROOM, account_ledger, by_dp_accounting
    from simulations.reports.account.question import adjacency_of

    account = account_ledger(ledger, delta, adjacency_of(adjacency))
    if dp_accounting:
        account = by_dp_accounting(account)
    _show(account, export, REPLAY_ROOM, as_json)
    if account.overrun:
        raise typer.Exit(1)


def _show(
    account: MechanismAccount | LedgerAccount, export: Path | None, room: float, as_json: bool
) -> None:
    from simulations.reports.account.export import export_account
    from simulations.reports.account.view import print_account

    if export is not None:
        export_account(account, export, room)
    if as_json:
        typer.echo(json.dumps(account.as_json()))
    else:
        print_account(account, Console())
