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
    same_user: Annotated[
        bool,
        typer.Option(
            "--same-user",
            help="For tests: let apps train as this user, who can read this site's keys.",
        ),
    ] = False,
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
    from protocol.errors import ConfigurationError

    site, rules = ClientHome(home.resolve()), read_rules(home)
    public = site.identity.public.hex()
    _ = site.policy, site.registry, site.committee
    key = read_private(secret, "the secret that the SuperNode was started with")
    if not key:
        raise ConfigurationError(str(secret), "an empty file", "at least one byte, better 32")
    if not rules.trainer and not same_user:
        valid = "a command that starts apps in a sandbox; or, for tests, --same-user"
        raise ConfigurationError("trainer", "missing from site.toml", valid)
    known = certificates.read_bytes() if certificates else None
    if known is None and node.rpartition(":")[0] not in ("127.0.0.1", "localhost", "[::1]"):
        valid = "given, as tasks and their tokens would cross a network in the clear"
        raise ConfigurationError("certificates", f"left out for {node}", valid)
    warn(f"site {public}: {len(rules.approved_apps)} approved apps, tasks of {node}")
    tasks = Node(node, key, known)
    run(Site(site, rules, tasks.wait).answer, tasks)
