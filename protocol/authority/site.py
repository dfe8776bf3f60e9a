"""What a site holds against what is announced to it: its policy, and the newest registry it knows.

    registry.json            as the site's operator brings it; without it the site joins nothing
    state/registry/newest.json   the newest that this site has seen, from wherever it came
    state/registry/fork-*    two files that one registrar cannot both have signed in good faith
    state/joins/             when rounds were joined, by announcer

All of it is looked at before a key is erased, a quota touched or a history entered. The operator's
file is read where a round begins, and never later: the other steps go by what is known.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
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
from secagg.grinding import CLOCK_SKEW_SECONDS
from secagg.storage import replace_durably

SIGNED_REGISTRY = "registry.json"
_NEWEST = "newest.json"
REQUEST_SECONDS = 3600
"""So old may a request for a sealing key get; the times of rounds are in the policy."""

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
        signed: the bytes under the announcer's signature.
        role: that this site needs for it; None for a sealing key, where any will do.
        is_blind: whether this site does not see the cohort that it joins.
    """

    session_id: bytes
    signed: bytes
    role: Role | None
    is_blind: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """A genuine request, and who may be in its round.

    Attributes:
        clients: keys that may be in its cohort: valid in the session's registry and in the newest.
        members: likewise, on a named committee.
        registered: all clients of the session's registry, from whom committees are drawn.
        quota: of its announcer.
        now: unix seconds at which it was looked at.
    """

    clients: frozenset[bytes]
    members: frozenset[bytes]
    registered: frozenset[bytes]
    quota: Quota
    now: float

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
        warn: hears of registries that are passed over.
    """

    folder: Path
    rules: AuthorityRules
    clock: UnixClock
    warn: Callable[[str], None]

    def newest(self) -> Registry:
        """The newest registry that this site knows; its operator's file if it knows none.

        Raises:
            ConfigurationError: there is none, or two that contradict each other have met here.
        """
        with self._locked() as folder:
            if (folder / _NEWEST).exists():
                return read_signed((folder / _NEWEST).read_bytes(), self._registrars)
        return self._adopt(read_file(self.folder / SIGNED_REGISTRY))

    def brought(self) -> Registry:
        """The same, after a look at what its operator has brought."""
        return self._heard(partial(read_file, self.folder / SIGNED_REGISTRY))

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
        age = now - envelope.issued
        if about.role is None and not -CLOCK_SKEW_SECONDS <= age <= REQUEST_SECONDS:
            raise PolicyError("request", f"{age:.0f} s old", f"at most {REQUEST_SECONDS} s")
        before = self.brought()
        try:
            announced = read_signed(envelope.registry, self._registrars)
        except ConfigurationError as error:
            raise PolicyError("registry", error.problem, error.valid) from None
        if announced.digest() != said.registry or announced.federation != before.federation:
            valid = f"the session's own, of federation {before.federation}"
            raise PolicyError("registry", announced.digest().hex(), valid)
        newest, told = self._adopt(envelope.registry), announced
        if envelope.newest:
            newest = self._heard(lambda: envelope.newest)
            with suppress(ConfigurationError):
                told = read_signed(envelope.newest, self._registrars)
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
        chosen = announced.active("client", now) & told.active("client", now)
        if about.is_blind and not chosen <= clients:
            problem = f"a cohort by number {told.number}, and {newest.number} is known"
            raise PolicyError("registry", problem, "one without those whom that revokes")
        joins = self.folder / "state" / "joins" / said.announcer.hex()
        quota = Quota(joins, self.rules.joins_per_hour, self.rules.rounds_per_day)
        return Admission(clients, members, announced.registered("client"), quota, now)

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

    def _heard(self, read: Callable[[], bytes]) -> Registry:
        """As `_adopt`; but a file that is none, or cannot follow, is passed over if one is known.

        Whoever sends a bad one could as well send none: what is known goes on to hold, and its age
        counts. A site that is frozen stays so.
        """
        try:
            return self._adopt(read())
        except ConfigurationError as error:
            if not (self.folder / "state" / "registry" / _NEWEST).exists():
                raise
            self.warn(f"passed over: {error}")
            return self.newest()

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
        f"no fork-* beside {_NEWEST}: keep them elsewhere as evidence. The registrar signs a "
        f"number two above both; with that file in place they and {_NEWEST} are removed"
    )
    return ConfigurationError(str(fork), problem, valid)
