"""The registry: one numbered JSON file of all sites' keys, signed by a registrar.

Its digest covers the member `registry` alone, which has one form only: what it decodes to is
encoded again, and must give the same bytes. What is wrong with a file is a `ConfigurationError`,
whoever brought it. Nothing here trusts anybody: a reader names the registrars that count.

A site may have many entries, of which one at most is not revoked. Keys stay in the registry for
ever, so that none comes back under another name, and what a site has spent cannot fall.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from protocol.errors import ConfigurationError
from secagg import Identity
from secagg.keys import KEY_BYTES, SIGNATURE_BYTES, signature_is_valid
from secagg.tags import Usage, digest
from secagg.terms import DIGEST_BYTES

FORMAT: Final = "veilsum/registry/1"
FEDERATION_BYTES = 16
MAX_REGISTRY_BYTES = 1 << 20
"""Some 4,000 entries; looked at before anything is parsed."""
MAX_SPENT = 1 << 31

# \Z and not $, which would let a line's end pass.
Key = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{2 * KEY_BYTES}}}\Z")]
AnyKey = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{{2 * KEY_BYTES}}})?\Z")]
"""A key or none."""
_Signature = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{2 * SIGNATURE_BYTES}}}\Z")]
Time = Annotated[int, Meta(ge=0, lt=1 << 40)]

Role = Literal["client", "member"]
"""Trains and uploads; or is on the named committee of one-shot rounds."""
Goal = tuple[float, float, Annotated[int, Meta(ge=1)], float | None]
"""Epsilon, delta, rounds and moment order of a `PrivacyGoal`."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key of a site.

    Attributes:
        site: name of the site: lower-case letters, digits, dots and hyphens.
        key: identity key, 64 hex digits.
        roles: ascending, at least one.
        not_before: unix seconds from which on the key is valid.
        not_after: unix seconds at which it is no longer.
        spent: rounds of `goal` that the site has spent outside the folder that this key answers
            from: under earlier keys, or in a folder that was lost.
        goal: that `spent` counts; None where nothing was spent.
        recovery: key that has to sign before another takes this one's place, 64 hex digits; empty
            for none. It is kept elsewhere.
        revoked: unix seconds; 0 for a key that is not revoked.
    """

    site: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}\Z")]
    key: Key
    roles: tuple[Role, ...]
    not_before: Time
    not_after: Time
    spent: Annotated[int, Meta(ge=0, le=MAX_SPENT)] = 0
    goal: Goal | None = None
    recovery: AnyKey = ""
    revoked: Time = 0

    def __post_init__(self) -> None:
        """See that the parts of the entry agree."""
        if not self.roles or list(self.roles) != sorted(set(self.roles)):
            raise ValueError(f"roles of {self.key} are not ascending, or none")
        if self.not_before >= self.not_after:
            raise ValueError(f"{self.key} ends at {self.not_after}, before it begins")
        if (self.goal is None) != (self.spent == 0):
            raise ValueError(f"{self.key} has spent rounds without their goal, or a goal alone")


class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a registrar signs.

    Attributes:
        federation: 32 hex digits; one for all successors.
        number: grows with each file.
        issued: unix seconds at which it was signed.
        expires: unix seconds from which on it is void.
        previous: digest of the file with the number before, 64 hex digits; empty in number 1.
        entries: ascending by key.
    """

    format: Literal["veilsum/registry/1"]
    federation: Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{2 * FEDERATION_BYTES}}}\Z")]
    number: Annotated[int, Meta(ge=1, lt=1 << 53)]
    issued: Time
    expires: Time
    previous: Annotated[str, Meta(pattern=rf"^([0-9a-f]{{{2 * DIGEST_BYTES}}})?\Z")]
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        """See that keys are distinct and ordered, and that a site has one key and one goal."""
        keys = [entry.key for entry in self.entries]
        if any(a >= b for a, b in pairwise(keys)):
            raise ValueError("entries are not ascending by key")
        if not {entry.recovery for entry in self.entries}.isdisjoint(keys):
            raise ValueError("a recovery key is a site's own, too")
        held = [entry.site for entry in self.entries if not entry.revoked]
        if len(set(held)) < len(held):
            raise ValueError("a site has two keys that are not revoked")
        goals = {(entry.site, entry.goal) for entry in self.entries if entry.spent}
        if len({site for site, _ in goals}) < len(goals):
            raise ValueError("a site has spent rounds of two goals")
        if (self.number == 1) != (self.previous == ""):
            raise ValueError("number 1 has nothing before it, and every other has")
        if self.issued >= self.expires:
            raise ValueError(f"it expires at {self.expires}, before it was issued")

    def body(self) -> bytes:
        """The one form that is hashed and signed."""
        return msgspec.json.encode(self)

    def digest(self) -> bytes:
        """What names this registry, 32 bytes."""
        return digest(Usage.REGISTRY, self.body())

    def active(self, role: Role, now: float) -> frozenset[bytes]:
        """Keys of a role that are valid at this unix time, and not revoked."""
        return frozenset(
            bytes.fromhex(entry.key)
            for entry in self.entries
            if role in entry.roles
            and not entry.revoked
            and entry.not_before <= now < entry.not_after
        )

    def registered(self, role: Role) -> frozenset[bytes]:
        """All keys of a role, whenever valid and revoked or not: a draw must not follow dates."""
        return frozenset(bytes.fromhex(each.key) for each in self.entries if role in each.roles)

    def site_of(self, key: bytes) -> str | None:
        """The site that has this key, or had it; None for a stranger's."""
        return next((entry.site for entry in self.entries if entry.key == key.hex()), None)

    def spent(self) -> dict[str, tuple[int, Goal | None]]:
        """By site, the most rounds that any of its entries says, and the goal that they are of."""
        ranked = sorted(self.entries, key=lambda entry: entry.spent)
        return {entry.site: (entry.spent, entry.goal) for entry in ranked}

    def forks_from(self, other: Registry) -> bool:
        """Whether these two cannot both be of one registrar that keeps one file."""
        first, second = sorted((self, other), key=lambda each: each.number)
        if first.federation != second.federation or first.digest() == second.digest():
            return False
        if first.number == second.number:
            return True
        follows = second.number == first.number + 1
        return follows and second.previous != first.digest().hex()

    def check_after(self, before: Registry) -> None:
        """See that this can follow an earlier one, for the registrar and for every site.

        Raises:
            ConfigurationError: another federation, an earlier time, a key that is gone or no longer
                revoked, or fewer rounds spent. Their goal may be put right: sites know their own.
        """
        if self.federation != before.federation:
            raise wrong(f"of another federation, {self.federation}", before.federation)
        if self.number <= before.number or self.issued < before.issued:
            raise wrong(f"number {self.number}, issued {self.issued}", "later than the one before")
        now = {entry.key: entry for entry in self.entries}
        spent, spent_before = self.spent(), before.spent()
        for entry in before.entries:
            kept = now.get(entry.key)
            if kept is None or kept.site != entry.site:
                raise wrong(f"without key {entry.key} of {entry.site}", "every key it ever had")
            if entry.revoked and kept.revoked != entry.revoked:
                raise wrong(f"key {entry.key} is no longer revoked", "as before")
            most, least = spent[entry.site][0], spent_before[entry.site][0]
            if most < least:
                raise wrong(f"{entry.site} has spent {most} rounds", f"at least {least}")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    registry: msgspec.Raw
    registrar: Key
    signature: _Signature


def signed(registry: Registry, registrar: Identity) -> bytes:
    """The file of a registry, which every reader accepts.

    Raises:
        ConfigurationError: the registry breaks a rule that is about one file.
    """
    body = registry.body()
    signature = registrar.sign(Usage.REGISTRY, body).hex()
    file = _File(msgspec.Raw(body), registrar.public.hex(), signature)
    data = msgspec.json.encode(file)
    read_signed(data, {registrar.public})
    return data


def read_signed(data: bytes, registrars: Collection[bytes] | None) -> Registry:
    """A registry from its file.

    Args:
        registrars: keys that count, 32 bytes each; None for the one that the file names, which says
            that it is whole, and not by whom it is.

    Raises:
        ConfigurationError: it is too long, not in its one form, breaks a rule, or is not signed by
            one of them.
    """
    if len(data) > MAX_REGISTRY_BYTES:
        raise wrong(f"{len(data)} bytes", f"at most {MAX_REGISTRY_BYTES}")
    try:
        file = msgspec.json.decode(data, type=_File)
        registrar, body = bytes.fromhex(file.registrar), bytes(file.registry)
        if registrars is not None and registrar not in registrars:
            valid = "signed by " + (" or ".join(each.hex() for each in registrars) or "nobody")
            raise wrong(f"signed by {file.registrar}", valid)
        if not signature_is_valid(registrar, bytes.fromhex(file.signature), Usage.REGISTRY, body):
            raise wrong("its signature does not verify", f"a file as {file.registrar} signed it")
        registry = msgspec.json.decode(body, type=Registry)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise wrong(str(error), f"a file of format {FORMAT}") from None
    if registry.body() != body:
        raise wrong("not in its one form", "the bytes that veilsum registry wrote")
    return registry


def read_file(path: Path) -> bytes:
    """The bytes of a registry's file; `ConfigurationError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_REGISTRY_BYTES + 1)
    except OSError as error:
        problem = error.strerror or os.strerror(error.errno or 0)
        raise ConfigurationError(str(path), problem, "a signed registry") from None


def wrong(problem: str, valid: str) -> ConfigurationError:
    """The refusal of a registry."""
    return ConfigurationError("registry", problem, valid)
