"""`veilsum site`: a site's own process; `protocol.adapters.flower.site` is its work."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

Home = Annotated[Path, typer.Option(help="The site's folder, with site.toml in it.")]
Node = Annotated[str, typer.Option(help="HOST:PORT of the SuperNode's Runtime API.")]
Secret = Annotated[
    Path, typer.Option(help="File of the SuperNode's --superexec-auth-secret-file; mode 600.")
]
Passphrase = Annotated[
    Path | None,
    typer.Option(help="File with the backup's passphrase, mode 600; asked for if left out."),
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
    log_json: Annotated[
        bool | None,
        typer.Option(
            "--log-json/--log-text",
            help="A line of JSON for each event on standard error; without a terminal if left out.",
        ),
    ] = None,
) -> None:
    """Answer the tasks of a SuperNode that runs with --isolation process, until it is stopped.

    Keys, policy and history are those of the folder. Only apps that site.toml approves may train,
    in a process of their own; whatever goes wrong there becomes an update of zeros.
    """
    from protocol.adapters.flower.home import ClientHome
    from protocol.adapters.flower.log import warn
    from protocol.adapters.flower.site.journal import Journal, log_as_json
    from protocol.adapters.flower.site.serving import Site
    from protocol.adapters.flower.site.tasks import Node, run
    from protocol.adapters.private_files import read_private
    from protocol.errors import ConfigurationError

    if log_json if log_json is not None else not sys.stderr.isatty():
        log_as_json()
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
    journal = Journal(site.folder, Site(site, rules, tasks.wait).answer)
    journal.write()
    run(journal.answer, tasks, journal.write)


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


@site_app.command("status")
def status_command(home: Home) -> None:
    """Print as JSON how the site stands; exit status 1 if it would take part in no round.

    A running site is not disturbed, and nothing is written.
    """
    from protocol.adapters.flower.site.status import status_of

    status = status_of(home)
    typer.echo(json.dumps({"ready": status.ready, **asdict(status)}, indent=1))
    raise typer.Exit(not status.ready)


@site_app.command("freeze")
def freeze_command(
    home: Home, reason: Annotated[str, typer.Option(help="Shown to whoever asks why.")] = ""
) -> None:
    """Have the site answer nothing from now on, whatever it is asked; it may go on running."""
    from protocol.adapters.flower.frozen import freeze

    freeze(home, reason)
    typer.echo(f"Frozen: {home.resolve()}")


@site_app.command("unfreeze")
def unfreeze_command(
    home: Home,
    accept_loss: Annotated[
        int | None,
        typer.Option(
            help="For a site that came from a backup: at least as many rounds as it joined since "
            "that was made, on whatever disk. They count as spent; a second number is added."
        ),
    ] = None,
) -> None:
    """Have a frozen site answer again."""
    from protocol.adapters.flower.frozen import unfreeze

    unfreeze(home, accept_loss)


@site_app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(help="File to write; on another disk.")],
    home: Home,
    passphrase_file: Passphrase = None,
) -> None:
    """Write what a site needs to go on into one sealed file; the site may go on meanwhile.

    Identity, policy, rules, registries, histories; no keys of rounds, and nothing that is sent.
    """
    from protocol.adapters.flower.site.backup import back_up

    size = back_up(home, file, _passphrase(passphrase_file, new=True))
    typer.echo(f"{file}: {size} bytes")


@site_app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(help="That `veilsum site backup` wrote.")],
    home: Home,
    passphrase_file: Passphrase = None,
) -> None:
    """Make a site's folder of a backup. It starts frozen, and never serves on a committee again.

    The folder that was lost must never answer again.
    """
    from protocol.adapters.flower.site.backup import restore

    record = restore(file, home, _passphrase(passphrase_file))
    typer.echo(record.identity)
    made = datetime.fromtimestamp(record.made, UTC)
    typer.echo(f"Frozen. Made at {made:%Y-%m-%d %H:%M} UTC: how many rounds since?", err=True)


def _passphrase(file: Path | None, new: bool = False) -> bytes:
    from protocol.adapters.private_files import read_private

    if file is not None:
        return read_private(file, "the passphrase of the backup").strip()
    typed = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    return str(typed).strip().encode()


def _rules(home: Path, same_user: bool) -> Any:
    """Of a site's folder; apps have a process of another user, or this one is asked for."""
    from protocol.adapters.flower.site.rules import read_rules
    from protocol.errors import ConfigurationError

    rules = read_rules(home)
    if not rules.trainer and rules.sandbox is None and not same_user:
        valid = "`sandbox` or `trainer` in site.toml; or, for tests, --same-user"
        raise ConfigurationError("sandbox", "missing from site.toml", valid)
    return rules
