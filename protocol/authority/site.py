"""What a site holds against what is announced to it: its policy, and the newest registry it knows.

    registry.json            as the site's operator brings it; without it the site joins nothing
    state/registry/newest.json   the newest that this site has seen, from wherever it came
    state/registry/fork-*    two files that one registrar cannot both have signed in good faith
    state/joins/             when rounds were joined, by announcer

All of it is looked at before a key is erased, a quota touched or a history entered.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from protocol.authority.quota import Quota
from protocol.authority.registry import Registry, Role, read_file, read_signed, wrong
from protocol.authority.session import Envelope
from protocol.errors import ConfigurationError, PolicyError
from protocol.goal import PrivacyGoal
from protocol.planning.configuration import Section
from protocol.round.rings import UnixClock
from protocol.round.stored_history import StoredHistory
from secagg.grinding import CLOCK_SKEW_SECONDS
from secagg.storage import replace_durably

SIGNED_REGISTRY = "registry.json"
_NEWEST = "newest.json"

_Keys = Annotated[list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]], Field(min_length=1)]


class AuthorityRules(Section):
    """Who may announce rounds to a site, and how many."""

    registrars: _Keys = Field(
        description="keys of which any signs the registry; two while one replaces the other"
    )
    announcers: _Keys = Field(description="keys of which any signs announcements")
    joins_per_hour: int = Field(
        ge=1, description="most rounds of one announcer that this client joins in an hour"
    )
    rounds_per_day: int = Field(ge=1, description="the same in a day, lost rounds among them")
    largest_registry_age_seconds: int = Field(
        ge=1, description="since the newest known registry was signed; then there are no rounds"
    )


@dataclass(frozen=True, slots=True)
class About:
    """What a request is about, as far as an announcer signs it.

    Attributes:
        session_id: 16 bytes.
        round_number: of the round, or of the one that a sealing key is for.
        signed: the bytes under the announcer's signature.
        role: that this site needs for it; None if any will do.
    """

    session_id: bytes
    round_number: int
    signed: bytes
    role: Role | None


@dataclass(frozen=True, slots=True)
class Admission:
    """A genuine request, and who may be in its round.

    Attributes:
        about: the round.
        clients: keys that may be in its cohort: valid in the session's registry and in the newest.
        members: likewise, on a named committee.
        quota: of its announcer.
        now: unix seconds at which it was looked at.
    """

    about: About
    clients: frozenset[bytes]
    members: frozenset[bytes]
    quota: Quota
    now: float

    def require_new(self, history: StoredHistory, *, repeats: bool = False) -> None:
        """See that the round was not answered before; that is no reason to give up another.

        Args:
            history: open, and so locked.
            repeats: whether an answer is there to be sent again.

        Raises:
            PolicyError: it was.
        """
        number = self.about.round_number
        if history.has_answered(self.about.session_id, number) and not repeats:
            raise PolicyError("round_number", number, "a number it has not answered before")

    def take_place(self) -> None:
        """Take a place of the announcer's, for a history that is about to enter the round.

        Not before: of one genuine signature a server could make many requests that are refused.
        """
        self.quota.take(self.now)


@dataclass(frozen=True, slots=True)
class SiteAuthority:
    """The checks of one site.

    Args:
        folder: of the site.
        rules: of its policy.
        clock: tells unix seconds.
    """

    folder: Path
    rules: AuthorityRules
    clock: UnixClock

    def newest(self) -> Registry:
        """The newest registry that this site knows; its operator's file is looked at first.

        Raises:
            ConfigurationError: there is none, it does not follow the one before, or two that
                contradict each other have met here.
        """
        return self._adopt(read_file(self.folder / SIGNED_REGISTRY))

    def envelope(self, signed: bytes) -> Envelope:
        """What came with a request, before anything else of the request is looked at.

        Raises:
            PolicyError: nothing came, or it is no announcer of ours.
            RemoteProtocolError: it is malformed, or the session's signature is wrong.
        """
        envelope = Envelope.read(signed)
        announcer = envelope.statement.announcer.hex()
        if announcer not in self.rules.announcers:
            raise PolicyError("announcer", announcer, " or ".join(self.rules.announcers))
        return envelope

    def admit(
        self, envelope: Envelope, own: bytes, run: str, app: bytes | None, about: About
    ) -> Admission:
        """Hold a request against its signature, the registries and the clock.

        Args:
            envelope: what came with it, of an announcer of ours.
            own: key of this site, 32 bytes.
            run: the framework's name of the run.
            app: SHA-256 of the app's file, 32 bytes; None where nobody knows it.
            about: what the request is about.

        Raises:
            PolicyError: it is of another session, run or app, or its registry is void, too old or
                without this site.
            RemoteProtocolError: the announcer has signed something else.
            ConfigurationError: as `newest` does.
        """
        said, now = envelope.statement, self.clock()
        envelope.require(about.session_id, about.signed)
        if said.run != run:
            raise PolicyError("run", said.run, f"this one, {run}")
        if app is not None and said.app != app:
            raise PolicyError("app", said.app.hex(), f"the one that was given, {app.hex()}")
        before = self.newest()
        try:
            announced = read_signed(envelope.registry, self._registrars)
        except ConfigurationError as error:
            raise PolicyError("registry", error.problem, error.valid) from None
        if announced.digest() != said.registry or announced.federation != before.federation:
            valid = f"the session's own, of federation {before.federation}"
            raise PolicyError("registry", announced.digest().hex(), valid)
        newest = self._adopt(envelope.registry)
        if envelope.newest:
            newest = self._adopt(envelope.newest)
        for each in (announced, newest):
            if not each.issued - CLOCK_SKEW_SECONDS <= now < each.expires:
                problem = f"number {each.number}, from {each.issued} to {each.expires}"
                raise PolicyError("registry", problem, f"one that is valid now, at {now:.0f}")
        age, most = now - newest.issued, self.rules.largest_registry_age_seconds
        if not age <= most:
            raise PolicyError("registry_age", f"{age:.0f} s", f"at most {most} s")
        clients = announced.active("client", now) & newest.active("client", now)
        members = announced.active("member", now) & newest.active("member", now)
        allowed = {"client": clients, "member": members}.get(about.role or "", clients | members)
        if own not in allowed:
            problem = f"number {announced.number}, and {newest.number} is known"
            valid = f"both with this site's key as a {about.role or 'party'}, not revoked"
            raise PolicyError("registry", problem, valid)
        joins = self.folder / "state" / "joins" / said.announcer.hex()
        quota = Quota(joins, self.rules.joins_per_hour, self.rules.rounds_per_day)
        return Admission(about, clients, members, quota, now)

    def earlier(self, own: bytes, goal: PrivacyGoal | None) -> int:
        """Rounds that the site of this key has spent elsewhere, as the newest registry says.

        Raises:
            ConfigurationError: it has none of that key, or says it of another goal.
        """
        newest = self.newest()
        site = newest.site_of(own)
        if site is None:
            valid = f"one with this client's key, {own.hex()}"
            raise ConfigurationError("registry", f"number {newest.number}, without it", valid)
        rounds, of = newest.spent()[site]
        asked = goal and (goal.epsilon, goal.delta, goal.rounds, goal.moment_order)
        if rounds and of != asked:
            problem = f"{asked} in policy.toml, and {site} has spent {rounds} rounds of another"
            raise ConfigurationError("goal", problem, f"epsilon, delta, rounds, order = {of}")
        return rounds

    @property
    def _registrars(self) -> frozenset[bytes]:
        return frozenset(bytes.fromhex(key) for key in self.rules.registrars)

    def _adopt(self, data: bytes) -> Registry:
        """Remember a registry if it is newer; the newest afterwards.

        Only what a registrar has signed comes so far, so no server can freeze a site.
        """
        found, now = read_signed(data, self._registrars), self.clock()
        # One wrong date, remembered, would keep out every later file.
        if not found.issued - CLOCK_SKEW_SECONDS <= now:
            raise wrong(f"number {found.number} was issued at {found.issued}", f"by now, {now:.0f}")
        with self._locked() as folder:
            path = folder / _NEWEST
            if not path.exists():
                replace_durably(path, data)
                return found
            kept = path.read_bytes()
            held = read_signed(kept, self._registrars)
            if found.forks_from(held):
                for each, raw in ((found, data), (held, kept)):
                    name = f"fork-{each.number}-{each.digest().hex()}.json"
                    replace_durably(folder / name, raw)
                raise _frozen(folder / name)
            if found.number <= held.number:
                return held
            found.check_after(held)
            replace_durably(path, data)
            return found

    @contextmanager
    def _locked(self) -> Iterator[Path]:
        """The folder of what is remembered, for this process alone, unless it is frozen."""
        folder = self.folder / "state" / "registry"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for fork in sorted(folder.glob("fork-*")):
                raise _frozen(fork)
            yield folder


def _frozen(fork: Path) -> ConfigurationError:
    problem = "two registries of one registrar contradict each other: this site is frozen"
    valid = (
        f"no fork-* beside {_NEWEST}: keep them elsewhere as evidence. The registrar signs until "
        f"its number is two above both; with that file in place they and {_NEWEST} are removed"
    )
    return ConfigurationError(str(fork), problem, valid)
