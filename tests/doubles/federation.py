"""A registrar, an announcer and the sites of a federation, for tests of what they sign."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.authority.registrar import enrolled, first, revoked, successor
from protocol.authority.registry import Entry, Registry, signed
from protocol.authority.session import Announcer
from protocol.authority.site import AuthorityRules
from secagg import Identity

APP = bytes(range(32))


@dataclass
class Federation:
    """Its registrar's registry as it stands, and the file that it is published in."""

    path: Path
    now: float = field(default_factory=time.time)
    registrar: Identity = field(default_factory=Identity.generate)
    announcer: Identity = field(default_factory=Identity.generate)
    registry: Registry = None  # type: ignore[assignment]
    written: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = self.registry or first(self.now, 30)

    def publish(
        self, entries: Iterable[Entry] | None = None, number: int | None = None, **changes: Any
    ) -> bytes:
        """The next file, of the same entries if none are given."""
        entries = self.registry.entries if entries is None else entries
        after = successor(self.registry, entries, self.now, 30, number)
        self.registry = replaced(after, **changes)
        return self.write()

    def write(self) -> bytes:
        data = signed(self.registry, self.registrar)
        self.path.write_bytes(data)
        self.written.append(data)
        return data

    def enrol(
        self,
        site: str,
        key: bytes,
        roles: Sequence[Any] = (),
        spent: Any = None,
        recovery: str | None = None,
    ) -> bytes:
        about = key.hex(), roles, spent, self.now, 365, recovery
        return self.publish(enrolled(self.registry, site, *about))

    def revoke(self, site: str) -> bytes:
        return self.publish(revoked(self.registry, site, self.now))

    def session(self, run: str = "77", **others: Any) -> Announcer:
        values: dict[str, Any] = {"key": self.announcer, "read": self.path.read_bytes, "app": APP}
        return Announcer(**{**values, "clock": lambda: self.now, "run": run, **others})

    def rules(self, **changes: Any) -> AuthorityRules:
        values: dict[str, Any] = {
            "registrars": [self.registrar.public.hex()],
            "announcers": [self.announcer.public.hex()],
            "joins_per_hour": 30,
            "rounds_per_day": 200,
            "largest_registry_age_seconds": 7 * 24 * 3600,
        }
        return AuthorityRules(**{**values, **changes})


def replaced(registry: Registry, **changes: Any) -> Registry:
    """Another registry; its own checks are made again."""
    values = {name: getattr(registry, name) for name in registry.__struct_fields__}
    return Registry(**{**values, **changes})
