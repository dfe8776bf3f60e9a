"""`veilsum plan`: what a deployment needs, from its graph alone to a whole privacy goal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from secagg import Mode
from secagg.terms import MAX_COHORT
from simulations.common.schemes import AnyScheme, AnySchemeOption, CommitteeOption
from simulations.common.tables import JsonFlag

MAX_DIMENSION = 1 << 62
"""Far beyond any model, and within what figures of 64 bits can say."""


def plan_command(
    clients: Annotated[
        int | None,
        typer.Option(
            help="Size of the cohort; needed but with --correlated.", min=2, max=MAX_COHORT
        ),
    ] = None,
    corrupt: Annotated[
        float, typer.Option(help="Share of clients that may collude with the server.")
    ] = 0.05,
    dropout: Annotated[float, typer.Option(help="Share of clients that may drop out.")] = 0.05,
    mode: Annotated[
        Mode,
        typer.Option(help="Whether the server may deviate (active) or follows the protocol."),
    ] = Mode.ACTIVE,
    graph: Annotated[
        str | None,
        typer.Option(
            help="sparse, complete, or auto (complete up to 200 clients). Default: sparse; with "
            "--epsilon, auto."
        ),
    ] = None,
    dim: Annotated[
        int, typer.Option(help="Length of an update.", min=1, max=MAX_DIMENSION)
    ] = 100_000,
    bits: Annotated[
        int | None,
        typer.Option(help="Bits of a field element; computed when --epsilon is given."),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy goal of each client against the server; plans the noise and everything "
            "else."
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of the goal.")] = 1e-5,
    rounds: Annotated[
        int,
        typer.Option(
            help="Rounds that a client takes part in; with --correlated, those of the run.", min=1
        ),
    ] = 1,
    clip: Annotated[float, typer.Option(help="L2 bound of an update.")] = 1.0,
    compression: Annotated[
        float, typer.Option(help="Length of an update divided by what is sent.", min=1.0)
    ] = 1.0,
    mechanism: Annotated[
        str, typer.Option(help="Noise of each client: binomial, skellam or discrete-gaussian.")
    ] = "binomial",
    exact_noise: Annotated[
        bool | None,
        typer.Option(
            help="Remove the noise that was added for dropouts that did not happen. Default: if it "
            "is binomial, as no other can be removed."
        ),
    ] = None,
    error_share: Annotated[
        float, typer.Option(help="Extra variance allowed, relative to the Gaussian mechanism.")
    ] = 0.01,
    wrap_probability: Annotated[
        float,
        typer.Option(
            help="Accepted probability that a round's sum does not fit its field; 0 for never."
        ),
    ] = 1e-9,
    security_bits: Annotated[
        int | None,
        typer.Option(
            help="Security bits of a sparse graph; 40 gives published values. Default: 80; with "
            "--epsilon, as many as the goal needs."
        ),
    ] = None,
    lifetime: Annotated[
        int,
        typer.Option(help="Seconds until a round expires, with --epsilon; 0 for never.", min=0),
    ] = 0,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Ledger of the run so far; the plan is refused if the goal differs or is spent."
        ),
    ] = None,
    scheme: AnySchemeOption = AnyScheme.PAIRWISE,
    committee: CommitteeOption = None,
    correlated: Annotated[
        bool,
        typer.Option(
            "--correlated",
            help="Plan noise of which a part comes back in the next round, for a run of --rounds.",
        ),
    ] = False,
    participations: Annotated[
        int | None, typer.Option(help="With --correlated: most rounds of one client.", min=1)
    ] = None,
    apart: Annotated[
        int | None,
        typer.Option(help="With --correlated: minimum rounds between participations.", min=1),
    ] = None,
    optimiser: Annotated[
        str,
        typer.Option(
            help="With --correlated: how the model adds up the sums of its rounds: sgd, momentum "
            "(0.9), decay (linear, to 0) or average (of all models so far)."
        ),
    ] = "sgd",
    as_json: JsonFlag = False,
) -> None:
    """What a deployment needs: graph, threshold and bytes; with a goal, also noise and error."""
    from protocol.errors import ConfigurationError
    from simulations.reports.labels import grouped_table

    if correlated:
        from simulations.reports.correlated_plan import correlated_figures

        figures = correlated_figures(
            rounds, participations, apart, optimiser, epsilon, delta, clients
        )
        if as_json:
            typer.echo(json.dumps(figures))
            return
        Console().print(grouped_table("plan of correlated noise", figures))
        if not figures["pays"]:
            typer.echo(
                "Nothing is gained: a client that takes part this often is charged for what comes "
                "back as much as the model gains by it. Use independent noise."
            )
        return
    if participations is not None or apart is not None:
        name = "apart" if participations is None else "participations"
        raise ConfigurationError(name, "given without --correlated", "left out")
    if clients is None:
        raise ConfigurationError("clients", "left out", "the size of the cohort, at least 2")
    from simulations.reports.plan import Wish, deployment_figures, masks_note, round_figures

    wish = Wish(
        clients, corrupt, dropout, mode, graph, dim, bits, delta, rounds, clip, compression,
        mechanism, exact_noise, error_share, wrap_probability, security_bits, lifetime,
    )  # fmt: skip
    plans = {}
    for name in scheme.names:
        chosen = replace(wish, scheme=name, committee=committee)
        plans[name] = (
            round_figures(chosen)
            if epsilon is None
            else deployment_figures(chosen, epsilon, ledger)
        )
    if as_json:
        typer.echo(json.dumps(plans if len(plans) > 1 else plans[scheme.names[0]]))
        return
    for name, figures in plans.items():
        title = "plan" if len(plans) == 1 else f"plan, {name}"
        Console().print(grouped_table(title, figures))
        if len(plans) == 1 and (note := masks_note(figures)):
            typer.echo(note)
