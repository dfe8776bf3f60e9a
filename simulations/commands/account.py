"""The options of `veilsum account`; `simulations.reports.account`, its body, loads when it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from protocol.errors import ConfigurationError
from simulations.common.tables import JsonFlag


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
    delta: Annotated[
        float | None,
        typer.Option(help="Between 0 and 1. Default: 1e-5, or the delta of the ledger's goal."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of releases with this noise.")] = 1,
    target_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Solve for the noise: coins of the sum (binomial), variance of the sum "
            "(skellam), one client's variance parameter (discrete_gaussian)."
        ),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Replay this ledger instead, with independent code.")
    ] = None,
    adjacency: Annotated[
        str,
        typer.Option(
            help="zero-out (a contribution replaced by zeros) or replace-one (by any other)."
        ),
    ] = "zero-out",
    export: Annotated[
        Path | None,
        typer.Option(
            help="New JSON file, which also gets the trade-off curve and the privacy losses."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Epsilon of a mechanism by every accountant, the noise for a target, or a ledger's total."""
    from simulations.reports.account.export import export_account
    from simulations.reports.account.ledger import REPLAY_ROOM, LedgerAccount, account_ledger
    from simulations.reports.account.mechanism import MechanismAccount, account_mechanism
    from simulations.reports.account.question import Question, adjacency_of
    from simulations.reports.account.view import print_account

    account: MechanismAccount | LedgerAccount
    about = adjacency_of(adjacency)
    if ledger is not None:
        if (coins, variance, clients, target_epsilon) != (None, None, None, None):
            raise ConfigurationError(
                "ledger", "given together with a mechanism's options", "one or the other"
            )
        account = account_ledger(ledger, delta, about)
    else:
        question = Question(
            # As it is named everywhere else, too.
            mechanism=mechanism.replace("-", "_"),
            coins=coins,
            variance=variance,
            clients=clients,
            l2=l2,
            linf=linf,
            dim=dim,
            delta=1e-5 if delta is None else delta,
            rounds=rounds,
            target_epsilon=target_epsilon,
            adjacency=about,
        )
        account = account_mechanism(question)
    if export is not None:
        export_account(account, export, 1.0 if ledger is None else REPLAY_ROOM)
    if as_json:
        typer.echo(json.dumps(account.as_json()))
    else:
        print_account(account, Console())
