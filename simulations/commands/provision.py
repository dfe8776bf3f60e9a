"""`veilsum provision`: clients' folders; `protocol.adapters.flower.provision` makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

provision_app = typer.Typer(
    help="Make the folders of clients on Flower: identities, registries, policies.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@provision_app.command("client")
def client_command(
    home: Annotated[Path, typer.Option(help="The client's folder; made if there is none.")],
) -> None:
    """Make one identity, where it stays, and print its public key for the operators' registry.

    If the folder has an identity, that one's key is printed.
    """
    from protocol.adapters.flower.provision import new_client

    typer.echo(new_client(home).public.hex())


@provision_app.command("network")
def network_command(
    out: Annotated[Path, typer.Option(help="Folder for all of them and the server's registry.")],
    clients: Annotated[int, typer.Option(help="How many.")],
    epsilon: Annotated[float, typer.Option(help="Most that all rounds together may cost.")],
    delta: Annotated[float, typer.Option(help="Of the same promise.")],
    rounds: Annotated[int, typer.Option(help="Most rounds that a client takes part in.")],
    clip_l2: Annotated[float, typer.Option(help="Largest l2 norm of an update.")],
    minimum_survivors: Annotated[int, typer.Option(help="Smallest sum to be part of.")],
    tolerated_colluders: Annotated[
        int, typer.Option(help="Clients of all that may work for the server.")
    ],
    block: Annotated[
        int | None,
        typer.Option(
            help="Hidden cohorts: rounds of a block, of which a client comes to the one that its "
            "own coin says; any rounds if left out."
        ),
    ] = None,
    lifetime_seconds: Annotated[
        int | None, typer.Option(help="Longest that a round may live; for ever if left out.")
    ] = None,
    committee: Annotated[
        Literal["everyone", "named", "drawn"] | None,
        typer.Option(
            help="One-shot rounds in place of pairwise ones, and who opens their sums: everyone, "
            "a named committee of the first clients, or members drawn by lot in every round."
        ),
    ] = None,
    committee_size: Annotated[
        int | None, typer.Option(help="Members, if they are named or drawn.")
    ] = None,
    committee_odds: Annotated[
        float | None, typer.Option(help="Chance of every client to be drawn, if members are.")
    ] = None,
    committee_corrupt: Annotated[
        int | None,
        typer.Option(
            help="Members that may work for the server, or, where they are drawn, of all clients; "
            "--tolerated-colluders if left out."
        ),
    ] = None,
    committee_threshold: Annotated[
        int | None,
        typer.Option(help="Fewest members that together could read one upload; 2 if left out."),
    ] = None,
    committee_scheme: Annotated[
        Literal["one-shot", "validated"],
        typer.Option(help="With --committee: validated leaves out vectors that are too long."),
    ] = "one-shot",
    returned_apart: Annotated[
        int | None,
        typer.Option(
            help="With --committee named: its members add noise and take it back in the next "
            "round, and a client takes part in every so many rounds at most."
        ),
    ] = None,
    allow_evaluation_in_the_clear: Annotated[
        bool,
        typer.Option(
            "--allow-evaluation-in-the-clear", help="Answers to evaluations leave as they are."
        ),
    ] = False,
    allow_queries_in_the_clear: Annotated[
        bool,
        typer.Option("--allow-queries-in-the-clear", help="Answers to queries leave as they are."),
    ] = False,
    evaluation: Annotated[
        list[str] | None,
        typer.Option(
            help="Digest of a private evaluation that clients answer, as the server logs it; may "
            "be repeated."
        ),
    ] = None,
    allow_declared_evaluation: Annotated[
        bool,
        typer.Option(
            "--allow-declared-evaluation",
            help="Clients answer the private evaluation that a run's configuration declares.",
        ),
    ] = False,
    signed: Annotated[
        bool,
        typer.Option(
            "--signed",
            help="Rounds and the registry are signed: makes announcer.key, registrar.key and "
            "registry.json.",
        ),
    ] = False,
) -> None:
    """Make all folders of a test network in one place, and print where the registry is.

    Whoever runs it knows every client's key. Each folder has a whole policy.toml, every key
    explained. A policy that no round of so many clients can meet is refused.
    """
    from protocol.adapters.flower.home import REGISTRY, ClientRules
    from protocol.adapters.flower.provision import provision_network
    from protocol.authority.site import SIGNED_REGISTRY
    from protocol.errors import ConfigurationError
    from protocol.planning.configuration import parse

    options = {
        "size": (committee_size, ("named", "drawn")),
        "odds": (committee_odds, ("drawn",)),
        "corrupt": (committee_corrupt, ("named", "drawn", "everyone")),
        "threshold": (committee_threshold, ("named", "drawn", "everyone")),
    }
    for name, (value, kinds) in options.items():
        if value is not None and committee not in kinds:
            valid = f"{' or '.join(kinds)}, as --committee-{name} is given; or leave that out"
            raise ConfigurationError("committee", committee or "left out", valid)
    asked: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "rounds": rounds,
        "clip_l2": clip_l2,
        "minimum_survivors": minimum_survivors,
        "tolerated_colluders": tolerated_colluders,
        "block": block,
        "lifetime_seconds": lifetime_seconds,
        "allow_evaluation_in_the_clear": allow_evaluation_in_the_clear,
        "allow_queries_in_the_clear": allow_queries_in_the_clear,
        "evaluations": evaluation or [],
        "allow_declared_evaluation": allow_declared_evaluation,
        "pairwise": {} if committee is None else None,
    }
    if committee is not None:
        asked["committee"] = {
            "kind": committee,
            "scheme": committee_scheme,
            "corrupt": committee_corrupt,
            "threshold": 2 if committee_threshold is None else committee_threshold,
        }
        if committee == "drawn":
            asked["committee"] |= {"size": committee_size, "odds": committee_odds}
    if returned_apart is not None:
        asked |= {"returned": {"apart": returned_apart}, "mechanism": "discrete-gaussian"}
    named = committee_size or 0 if committee == "named" else 0
    provision_network(out, clients, parse(asked, ClientRules), named, signed)
    typer.echo(out / (SIGNED_REGISTRY if signed else REGISTRY))
