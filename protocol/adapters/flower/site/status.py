"""How a site stands, and the same as metrics: read from a copy, so a running site is left alone.

A site opens its history when a message comes, and gives up the round if somebody else has it open.
So whoever else looks at a site looks at a copy of its files, and writes nothing in its folder.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from dp import LedgerError
from protocol.adapters.flower.frozen import why_frozen
from protocol.adapters.flower.home import IDENTITY, STATE, ClientHome
from protocol.adapters.flower.waiting import Clock
from protocol.errors import ConfigurationError
from protocol.round.stored_history import StoredHistory
from secagg import ProtocolError

BACKED_UP: Final = "last-backup"
"""Unix seconds of the last backup, and how many rounds were joined by then."""
FILES: Final = re.compile(
    r"last-backup|(policy|site)\.toml|registry\.(txt|json)|committee\.txt|state/(owner\.txt|restored\.json"
    r"|(member/)?(charges\.jsonl|answered/[0-9a-f]{32}(\.charged)?)|turns/secret"
    r"|registry/(newest|fork-[0-9]+-[0-9a-f]{64})\.json|joins/[0-9a-f]{64})"
)
"""What is looked at and backed up. No key has such a name, and nothing that is sent twice."""
_TRIES, _PAUSE = 20, 0.1
T = TypeVar("T")


def files(home: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of a site's files: marks before their ledger, so that a charge has one."""
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if path.is_symlink() and (path.is_dir() or FILES.fullmatch(name)):
            raise ConfigurationError(
                str(path), "a symbolic link", "what it points to, in its place"
            )
        if FILES.fullmatch(name):
            yield name, path.read_bytes()


def write_files(home: Path, found: Mapping[str, bytes]) -> None:
    """Write a site's files into a folder."""
    for name, data in found.items():
        path = home / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
        if path.name == "charges.jsonl":  # it has its marks beside it, even if there are none
            (path.parent / "answered").mkdir(mode=0o700, exist_ok=True)


def seen(home: Path, look: Callable[[ClientHome, dict[str, bytes]], T], left: int = _TRIES) -> T:
    """What somebody sees in a copy of a site's folder, and in the bytes of its files.

    If the site wrote meanwhile, marks and charges may not fit: then another copy is looked at.
    """
    with tempfile.TemporaryDirectory(prefix="veilsum-") as copy:
        try:
            found = dict(files(home))
            write_files(Path(copy), found)
            (Path(copy) / IDENTITY).symlink_to((home / IDENTITY).resolve())  # its bytes stay there
            return look(ClientHome(Path(copy)), found)
        except ConfigurationError as error:
            parts = error.key, error.problem, error.valid
            key, problem, valid = (each.replace(copy, str(home)) for each in parts)
            raise ConfigurationError(key, problem, valid) from None
        except (LedgerError, FileNotFoundError) as error:
            if left == 1:
                raise type(error)(str(error).replace(copy, str(home))) from None
    time.sleep(_PAUSE)
    return seen(home, look, left - 1)


@dataclass(frozen=True, slots=True)
class Spent:
    """What of a goal is spent."""

    epsilon_spent: float  # by this folder's history, at the goal's delta
    epsilon: float  # of the goal
    delta: float
    rounds: int
    rounds_elsewhere: int  # that the registry says, or that were lost with a disk
    rounds_left: int


@dataclass(frozen=True, slots=True)
class Status:
    """How a site stands; None where it is not known."""

    identity: str | None  # public key, 64 hex digits
    frozen: str | None  # why nothing is answered; None if something is
    goal: Spent | None  # of its policy
    registry_number: int | None  # of the newest signed registry that it knows
    registry_issued: int | None  # unix seconds
    last_backup: int | None  # unix seconds
    problems: dict[str, str]  # by name, of what is not as it should be

    @property
    def ready(self) -> bool:
        """Whether it would take part in a round."""
        return not (self.frozen or self.problems or self.goal is None) and self.goal.rounds_left > 0


def status_of(home: Path, own: bool = False) -> Status:
    """How a site stands; what is wrong with it is in `Status.problems`, and never raised.

    Args:
        own: whether this is the site itself, between two messages: it needs no copy.
    """
    problems: dict[str, str] = {}

    def tried(name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (ConfigurationError, ProtocolError, LedgerError, OSError, ValueError) as error:
            problems[name] = str(error)
            return None

    def looked(look: Callable[[ClientHome, dict[str, bytes]], T]) -> T:
        return look(ClientHome(home), {}) if own else seen(home, look)

    identity = tried("identity", lambda: ClientHome(home).identity.public.hex())
    frozen = tried("frozen", lambda: why_frozen(home)) or problems.get("frozen")
    goal = tried("history", lambda: looked(_spent))
    number, issued = tried("registry", lambda: looked(_registry)) or (None, None)
    backed_up = tried("last backup", lambda: _last_backup(home)[0])
    return Status(identity, frozen, goal, number, issued, backed_up, problems)


@contextmanager
def whole_history(home: ClientHome) -> Iterator[StoredHistory]:
    """A site's history; `LedgerError` if it has less than the last backup."""
    with home.history(home.policy) as history:
        least, joined = _last_backup(home.folder)[1], joined_rounds(home)
        if joined < least:
            found = f"{joined} rounds joined, and {least} at the last backup"
            raise LedgerError(f"the history in {home.folder / STATE} is not whole: {found}")
        yield history


def joined_rounds(home: ClientHome) -> int:
    """How many rounds there are marks of, as a client or as a member."""
    return sum(1 for _ in (home.folder / STATE).rglob("answered/*"))


def _last_backup(home: Path) -> tuple[int | None, int]:
    """Unix seconds of a site's last backup, and the rounds joined by then; None and 0 for none."""
    path = home / BACKED_UP
    if not path.exists():
        return None, 0
    try:
        made, joined = map(int, path.read_text().split())
    except ValueError:
        valid = "two numbers, as `veilsum site backup` wrote them"
        raise ConfigurationError(str(path), "something else", valid) from None
    return made, joined


def _spent(home: ClientHome, _: object) -> Spent:
    goal = home.rules.goal
    with whole_history(home) as history:
        left = max(0, goal.rounds - history.rounds)
        numbers = goal.epsilon, goal.delta, goal.rounds, history.earlier, left
        return Spent(history.epsilon, *numbers)


def _registry(home: ClientHome, _: object) -> tuple[int, int] | None:
    authority, now = home.authority, Clock().unix()
    newest = authority.newest() if authority else None
    if authority and newest:
        age, most = now - newest.issued, authority.rules.largest_registry_age_seconds
        if age > most:
            raise ConfigurationError("registry", f"signed {age:.0f} s ago", f"at most {most} s")
        if now >= newest.expires:
            raise ConfigurationError("registry", f"expired at {newest.expires}", "a newer one")
    if (own := home.identity.public) not in home.registry | home.committee:
        raise ConfigurationError("registry", "without this site's key, or revoked", own.hex())
    return (newest.number, newest.issued) if newest else None


def metrics(status: Status) -> str:
    """A site's status as Prometheus text. Times, not ages: the text may be read later."""
    goal = status.goal
    values = (
        ("epsilon_spent", goal and goal.epsilon_spent, "by the history of this folder"),
        ("epsilon_goal", goal and goal.epsilon, "most that all rounds together may cost"),
        ("rounds_left", goal and goal.rounds_left, "of the goal"),
        ("registry_issued_timestamp_seconds", status.registry_issued, "of the newest known"),
        ("frozen", int(status.frozen is not None), "1 if nothing is answered"),
        ("ready", int(status.ready), "1 if it would take part in a round"),
        ("last_backup_timestamp_seconds", status.last_backup or 0, "0 for never"),
    )
    return "".join(
        f"# HELP veilsum_{name} {text}\n# TYPE veilsum_{name} gauge\nveilsum_{name} {value}\n"
        for name, value, text in values
        if value is not None
    )
