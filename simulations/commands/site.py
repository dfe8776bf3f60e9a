"""`veilsum site`: a site's own process; `protocol.adapters.flower.site` is its work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

site_app = typer.Typer(
    help="A site's own process for Flower: it answers, and the researcher's app only trains.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@site_app.command("run")
def run_command(
    home: Annotated[Path, typer.Option(help="The site's folder, with site.toml in it.")],
    node: Annotated[str, typer.Option(help="HOST:PORT of the SuperNode's Runtime API.")],
    secret: Annotated[
        Path,
        typer.Option(help="File of the SuperNode's --superexec-auth-secret-file; mode 600."),
    ],
    certificates: Annotated[
        Path | None,
        typer.Option(help="PEM file to know the SuperNode by; left out on the same machine."),
    ] = None,
) -> None:
    """Answer the tasks of a SuperNode that runs with --isolation process, until it is stopped.

    Keys, policy and history are those of the folder. Only apps that site.toml approves may train,
    in a process of their own; whatever goes wrong there becomes an update of zeros.
    """
    from protocol.adapters.flower.home import ClientHome
    from protocol.adapters.flower.log import warn
    from protocol.adapters.flower.site.rules import read_rules
    from protocol.adapters.flower.site.serving import Site
    from protocol.adapters.flower.site.tasks import Node, run
    from protocol.adapters.private_files import read_private

    site, rules = ClientHome(home.resolve()), read_rules(home)
    public = site.identity.public.hex()
    _ = site.policy, site.registry, site.committee
    key = read_private(secret, "the secret that the SuperNode was started with")
    known = certificates.read_bytes() if certificates else None
    if not rules.trainer:
        warn(
            "apps train as this user, who can read this site's keys: name a trainer in site.toml "
            "that starts them in a sandbox"
        )
    warn(f"site {public}: {len(rules.approved_apps)} approved apps, tasks of {node}")
    run(Site(site, rules).answer, Node(node, key, known))
