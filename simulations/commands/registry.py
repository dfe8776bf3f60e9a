"""`veilsum registry`: a registrar's file of all sites' keys; `protocol.authority` makes it."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from protocol.authority.registry import Entry, Registry
    from secagg import Identity

registry_app = typer.Typer(
    help="Make and sign the registry of all sites' keys, for policies that name a registrar.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)

KeyOption = Annotated[Path, typer.Option(help="The registrar's key, a file of mode 600.")]
FileOption = Annotated[Path, typer.Option("--registry", help="The signed file.")]
DaysOption = Annotated[int, typer.Option(help="Until the file expires.", min=1)]
SiteOption = Annotated[str, typer.Option(help="Its name: a-z, 0-9, dots and hyphens.")]
FILE, DAYS = Path("registry.json"), 30


@registry_app.command("init")
def init_command(key: KeyOption, registry: FileOption = FILE, days: DaysOption = DAYS) -> None:
    """Begin a federation: a registry with nobody in it, and the registrar's key if there is none.

    The key that is printed goes into the policies of all sites, as one of their registrars.
    """
    from protocol.adapters.private_files import write_identity
    from protocol.authority.registrar import first
    from protocol.errors import ConfigurationError
    from secagg import Identity

    if not key.exists():
        write_identity(key, Identity.generate())
    with _signing(key, registry) as registrar:
        if registry.exists():
            raise ConfigurationError("registry", f"{registry} exists", "a new file")
        _write(registry, first(time.time(), days), registrar)
        typer.echo(registrar.public.hex())


@registry_app.command("enrol")
def enrol_command(
    key: KeyOption,
    site: SiteOption,
    key_of: Annotated[str, typer.Option(help="The site's public key, 64 hex digits.")],
    role: Annotated[
        list[str] | None,
        typer.Option(help="client or member; may be repeated. client if left out, or as before."),
    ] = None,
    spent: Annotated[
        int | None,
        typer.Option(help="Rounds spent under earlier keys, or in a folder that was lost.", min=0),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Of the goal of those rounds.")] = None,
    delta: Annotated[float | None, typer.Option(help="Of the same goal.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Of the same goal.")] = None,
    moment_order: Annotated[float | None, typer.Option(help="Of the same goal, if any.")] = None,
    recovery: Annotated[
        str | None, typer.Option(help="Key that signs before another takes the site's place.")
    ] = None,
    days_valid: Annotated[int, typer.Option(help="Until the key ends.", min=1)] = 365,
    registry: FileOption = FILE,
    days: DaysOption = DAYS,
) -> None:
    """Take in a site's key, prolong it, or raise what the site has spent."""
    from protocol.authority.registrar import enrolled

    goal = None
    if epsilon is not None and delta is not None and rounds is not None:
        goal = epsilon, delta, rounds, moment_order
    told = None if spent is None else (spent, goal if spent else None)
    _changed(
        key,
        registry,
        days,
        lambda before, now: enrolled(
            before, site, key_of, role or [], told, now, days_valid, recovery
        ),
    )


@registry_app.command("revoke")
def revoke_command(
    key: KeyOption, site: SiteOption, registry: FileOption = FILE, days: DaysOption = DAYS
) -> None:
    """End a site's key. Another may be enrolled, with what the site has spent."""
    from protocol.authority.registrar import revoked

    _changed(key, registry, days, lambda before, now: revoked(before, site, now))


@registry_app.command("rotate")
def rotate_command(
    key: KeyOption,
    statement: Annotated[Path, typer.Option(help="Of veilsum identity rotate or revoke.")],
    key_of: Annotated[
        str | None,
        typer.Option(help="The new key, told by another way, if the site has no recovery key."),
    ] = None,
    registry: FileOption = FILE,
    days: DaysOption = DAYS,
) -> None:
    """Put another key in the place of a site's, or end it, as the site itself has signed."""
    from protocol.authority.registry import read_file
    from protocol.authority.rotation import rotated

    said = read_file(statement)
    _changed(key, registry, days, lambda before, now: rotated(before, said, key_of, now))


@registry_app.command("sign")
def sign_command(
    key: KeyOption,
    registry: FileOption = FILE,
    days: DaysOption = DAYS,
    before: Annotated[
        str | None, typer.Option(help="The earlier registrar's public key, to take its place.")
    ] = None,
    number: Annotated[
        int | None, typer.Option(help="Two above a file that is void; the next one if left out.")
    ] = None,
) -> None:
    """Sign the same entries again, with fresh times."""
    _changed(key, registry, days, lambda found, _: found.entries, before, number)


@registry_app.command("verify")
def verify_command(
    registry: FileOption = FILE,
    registrar: Annotated[
        str | None, typer.Option(help="Key that must have signed; the file's own if left out.")
    ] = None,
) -> None:
    """Verify a registry, and print what it says."""
    from protocol.adapters.private_files import read_key
    from protocol.authority.registry import read_file, read_signed

    keys = None if registrar is None else {read_key(Path("--registrar"), registrar)}
    found = read_signed(read_file(registry), keys)
    _say(found)
    for entry in found.entries:
        state = "revoked" if entry.revoked else "+".join(entry.roles)
        typer.echo(f"{entry.site} {entry.key} {state}, {entry.spent} rounds spent elsewhere")


def _changed(
    key: Path,
    path: Path,
    days: int,
    change: Callable[[Registry, float], Iterable[Entry]],
    earlier: str | None = None,
    number: int | None = None,
) -> None:
    from protocol.adapters.private_files import read_key
    from protocol.authority.registrar import successor
    from protocol.authority.registry import read_file, read_signed

    with _signing(key, path) as registrar:
        signer = registrar.public if earlier is None else read_key(Path("--before"), earlier)
        before, now = read_signed(read_file(path), {signer}), time.time()
        _write(path, successor(before, change(before, now), now, days, number), registrar)


@contextmanager
def _signing(key: Path, path: Path) -> Iterator[Identity]:
    """The registrar's key, while no other command has the file: no number is signed twice."""
    from protocol.adapters.private_files import read_identity

    identity = read_identity(key, "the registrar's key")
    # Beside the file, which is replaced.
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield identity


def _write(path: Path, registry: Registry, registrar: Identity) -> None:
    from protocol.authority.registry import signed
    from secagg.storage import replace_durably

    replace_durably(path, signed(registry, registrar))
    path.chmod(0o644)
    _say(registry)


def _say(registry: Registry) -> None:
    typer.echo(f"number {registry.number}, digest {registry.digest().hex()}", err=True)
