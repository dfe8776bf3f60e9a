"""`veilsum site`: a site's own process; `protocol.adapters.flower.site` is its work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Home = Annotated[Path, typer.Option(help="The site's folder, with site.toml in it.")]
Node = Annotated[str, typer.Option(help="HOST:PORT of the SuperNode's Runtime API.")]
Secret = Annotated[
    Path, typer.Option(help="File of the SuperNode's --superexec-auth-secret-file; mode 600.")
]
SameUser = Annotated[
    bool,
    typer.Option(
        "--same-user",
        help="For tests: let apps train as this user, who can read this site's keys.",
    ),
]

site_app = typer.Typer(
    help="A site's own process for Flower: it answers, and the researcher's app only trains.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@site_app.command("run")
def run_command(
    home: Home,
    node: Node,
    secret: Secret,
    certificates: Annotated[
        Path | None,
        typer.Option(help="PEM file to know the SuperNode by; left out on the same machine."),
    ] = None,
    same_user: SameUser = False,
) -> None:
    """Answer the tasks of a SuperNode that runs with --isolation process, until it is stopped.

    Keys, policy and history are those of the folder. Only apps that site.toml approves may train,
    in a process of their own; whatever goes wrong there becomes an update of zeros.
    """
    from protocol.adapters.flower.home import ClientHome
    from protocol.adapters.flower.log import warn
    from protocol.adapters.flower.site.serving import Site
    from protocol.adapters.flower.site.tasks import Node, run
    from protocol.adapters.private_files import read_private
    from protocol.errors import ConfigurationError

    site, rules = ClientHome(home.resolve()), _rules(home, same_user)
    public = site.identity.public.hex()
    _ = site.policy, site.registry, site.committee
    key = read_private(secret, "the secret that the SuperNode was started with")
    if not key:
        raise ConfigurationError(str(secret), "an empty file", "at least one byte, better 32")
    known = certificates.read_bytes() if certificates else None
    if known is None and node.rpartition(":")[0] not in ("127.0.0.1", "localhost", "[::1]"):
        valid = "given, as tasks and their tokens would cross a network in the clear"
        raise ConfigurationError("certificates", f"left out for {node}", valid)
    warn(f"site {public}: {len(rules.approved_apps)} approved apps, tasks of {node}")
    tasks = Node(node, key, known)
    run(Site(site, rules, tasks.wait).answer, tasks)


@site_app.command("check")
def check_command(home: Home, same_user: SameUser = False) -> None:
    """Try, from inside the sandbox, to reach what no app should; exit status 1 if one attempt can.

    An app of our own trains twice there, as any app would, and nothing of it reaches a server.
    """
    from protocol.adapters.flower.site.check import reached

    found = reached(home, _rules(home, same_user))
    for name, success in found.items():
        typer.echo(f"{'REACHED' if success else 'no'.ljust(7)}  {name}")
    if any(found.values()):
        typer.echo("An app can reach what is marked: this is no sandbox yet.", err=True)
        raise typer.Exit(1)


@site_app.command("units")
def units_command(
    into: Annotated[Path, typer.Argument(help="Folder to write them to; made if there is none.")],
    home: Home,
    node: Node,
    secret: Secret,
    user: Annotated[str, typer.Option(help="Who owns the site's folder.")] = "veilsum",
    data: Annotated[
        list[Path] | None,
        typer.Option(help="What training may read: a file or a folder; several times if several."),
    ] = None,
    group: Annotated[
        str, typer.Option(help="That may read the data; everybody has to, if left out.")
    ] = "",
    device: Annotated[
        list[str] | None, typer.Option(help="What training may use, such as /dev/nvidia0.")
    ] = None,
    memory: Annotated[str, typer.Option(help="Most that training may use.")] = "8G",
    compose: Annotated[
        str | None,
        typer.Option(help="Image with veilsum in it: write a compose file in place of units."),
    ] = None,
) -> None:
    """Write systemd units, or a compose file: the site's service, and the sandbox of its apps."""
    from protocol.adapters.flower.site.units import SOCKET, Services

    services = Services(
        home=home.resolve(),
        rules=_rules(home, True),
        node=node,
        secret=secret.resolve(),
        user=user,
        data=[each.resolve() for each in data or ()],
        group=group,
        devices=device or (),
        memory=memory,
        image=compose or "veilsum",
    )
    into.mkdir(parents=True, exist_ok=True)
    texts = {"compose.yaml": services.compose()} if compose else services.units()
    for name, text in texts.items():
        (into / name).write_text(text)
        typer.echo(into / name)
    typer.echo(f'In site.toml, in place of a trainer: sandbox = "{SOCKET}"', err=True)


def _rules(home: Path, same_user: bool) -> Any:
    """Of a site's folder; apps have a process of another user, or this one is asked for."""
    from protocol.adapters.flower.site.rules import read_rules
    from protocol.errors import ConfigurationError

    rules = read_rules(home)
    if not rules.trainer and rules.sandbox is None and not same_user:
        valid = "`sandbox` or `trainer` in site.toml; or, for tests, --same-user"
        raise ConfigurationError("sandbox", "missing from site.toml", valid)
    return rules
