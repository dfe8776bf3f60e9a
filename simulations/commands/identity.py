"""`veilsum identity`: a client's key, from its first day to its last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulations.commands.provision import client_command

if TYPE_CHECKING:
    from secagg import Identity

identity_app = typer.Typer(
    help="A client's key on Flower: make it, replace it, end it.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
identity_app.command("new")(client_command)

HomeOption = Annotated[Path, typer.Option(help="The client's folder.")]


@identity_app.command("show")
def show_command(home: HomeOption) -> None:
    """Print the client's public key, and what the newest registry that it knows says of it."""
    from protocol.adapters.flower.home import ClientHome

    client = ClientHome(home)
    key, authority = client.identity.public, client.authority
    typer.echo(key.hex())
    if authority is not None:
        registry = authority.brought()
        for entry in registry.entries:
            if entry.key == key.hex():
                state = "revoked" if entry.revoked else "+".join(entry.roles)
                spent = f"{registry.spent()[entry.site][0]} rounds spent elsewhere"
                typer.echo(f"{entry.site}: {state} in number {registry.number}, {spent}")


@identity_app.command("rotate")
def rotate_command(
    home: HomeOption,
    recovery: Annotated[
        Path | None, typer.Option(help="The recovery key's file, if the site has one.")
    ] = None,
) -> None:
    """Make the next key, and print a statement about it for `veilsum registry rotate`.

    Once the folder's registry has the next key, the same command puts it in place.
    """
    from protocol.adapters.flower.folders import rotate

    said = rotate(home, None if recovery is None else _read(recovery))
    typer.echo("the new key is in place" if said is None else said.decode(), err=said is None)


@identity_app.command("revoke")
def revoke_command(
    recovery: Annotated[Path, typer.Option(help="The recovery key's file.")],
    registry: Annotated[Path, typer.Option(help="The signed file.")] = Path("registry.json"),
) -> None:
    """Print a statement for `veilsum registry rotate` that a stolen or lost key has ended."""
    from protocol.authority.registry import read_file, read_signed
    from protocol.authority.rotation import revocation

    typer.echo(revocation(read_signed(read_file(registry), None), _read(recovery)).decode())


def _read(path: Path) -> Identity:
    from protocol.adapters.private_files import read_identity

    return read_identity(path, "the recovery key")
