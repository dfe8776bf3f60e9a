"""Another key in the place of a site's: by whom, once, and with all that the site has spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from protocol.authority.rotation import Rotation, revocation, rotated, rotation
from protocol.errors import ConfigurationError
from secagg import Identity
from secagg.tags import Usage
from tests.doubles.federation import Federation

GOAL = (4.0, 1e-5, 10, None)


@dataclass
class Keys:
    """A federation with one site that can recover and one that cannot."""

    federation: Federation
    own: Identity = field(default_factory=Identity.generate)
    bare: Identity = field(default_factory=Identity.generate)
    new: Identity = field(default_factory=Identity.generate)
    recovery: Identity = field(default_factory=Identity.generate)

    def __post_init__(self) -> None:
        enrol = self.federation.enrol
        roles, recovery = ["client", "member"], self.recovery.public.hex()
        enrol("a", self.own.public, roles, spent=(3, GOAL), recovery=recovery)
        enrol("b", self.bare.public)

    def said(self, own: Identity | None = None, recovers: bool = True) -> bytes:
        by = self.recovery if recovers else None
        return rotation(self.federation.registry, own or self.own, self.new.public, by)

    def apply(self, data: bytes, told: str | None = None) -> None:
        registry, now = self.federation.registry, self.federation.now
        self.federation.publish(rotated(registry, data, told, now))

    def changed(self, data: bytes, **parts: str) -> bytes:
        return msgspec.json.encode(
            msgspec.structs.replace(msgspec.json.decode(data, type=Rotation), **parts)
        )

    def signed(self, by: Identity, recovers: Identity | None = None, **parts: str) -> bytes:
        """A statement that is signed as it stands, whatever it says."""
        said = msgspec.json.decode(self.changed(self.said(), **parts), type=Rotation)
        agreed = by.sign(Usage.ROTATE, *said.parts()).hex()
        recovered = (recovers or self.recovery).sign(Usage.ROTATE, *said.parts()).hex()
        return self.changed(msgspec.json.encode(said), agreed=agreed, recovered=recovered)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(Federation(tmp_path / "registry.json"))


def test_a_rotated_key_keeps_what_its_site_has_spent(keys: Keys) -> None:
    keys.apply(keys.said())
    active = keys.federation.registry.active("member", keys.federation.now)
    assert active == {keys.new.public}
    assert keys.federation.registry.spent()["a"] == (3, GOAL)
    (entry,) = (e for e in keys.federation.registry.entries if e.key == keys.new.public.hex())
    assert (entry.spent, entry.recovery) == (3, keys.recovery.public.hex())
    # And so on: the next is signed by the key that has taken its place.
    old, keys.new = keys.new, Identity.generate()
    keys.apply(keys.said(old))
    assert keys.federation.registry.spent()["a"] == (3, GOAL)


BENT: dict[str, Callable[[Keys], bytes]] = {
    "without the recovery key": lambda k: k.said(recovers=False),
    "by a stranger's recovery key": lambda k: k.signed(k.own, Identity.generate()),
    "by the recovery key alone": lambda k: k.changed(k.said(), agreed=""),
    "by a stranger": lambda k: k.signed(k.bare),
    "of another federation": lambda k: k.signed(k.own, federation="ab" * 16),
    "of another site": lambda k: k.signed(k.own, site="b"),
    "of a key that is nobody's": lambda k: k.signed(k.own, old=k.new.public.hex()),
    "another new key": lambda k: k.changed(k.said(), new=Identity.generate().public.hex()),
    "to another site's key": lambda k: k.signed(k.own, new=k.bare.public.hex()),
    "to its own key": lambda k: k.signed(k.own, new=k.own.public.hex()),
    "to the recovery key": lambda k: k.signed(k.own, new=k.recovery.public.hex()),
    "a revocation by the old key": lambda k: k.signed(k.own, k.own, new=""),
    "a revocation without a recovery key": lambda k: k.signed(
        k.bare, site="b", old=k.bare.public.hex(), new=""
    ),
    "nothing": lambda _: b"{}",
}


@pytest.mark.parametrize("how", BENT)
def test_what_not_all_have_signed_changes_nothing(keys: Keys, how: str) -> None:
    said, before = BENT[how](keys), keys.federation.registry
    with pytest.raises(ConfigurationError, match="registry"):
        keys.apply(said, keys.new.public.hex())
    assert keys.federation.registry == before


@pytest.mark.parametrize("first", ["rotated", "revoked by its owner", "revoked", "expired"])
def test_a_statement_is_of_the_present_key(keys: Keys, first: str) -> None:
    """Once, and not after the key has ended: a thief's, too."""
    late = keys.said()
    if first == "rotated":
        keys.apply(late)
        keys.new = Identity.generate()
        thief = rotation(keys.federation.registry, keys.own, keys.new.public, keys.recovery)
        with pytest.raises(ConfigurationError, match="present key"):
            keys.apply(thief)
    elif first == "expired":
        keys.federation.now += 366 * 24 * 3600
    elif first == "revoked":
        keys.federation.revoke("a")
    else:
        keys.apply(revocation(keys.federation.registry, keys.recovery))
        with pytest.raises(ConfigurationError, match="recovers"):
            revocation(keys.federation.registry, keys.recovery)
    with pytest.raises(ConfigurationError, match="present key"):
        keys.apply(late)
    active = keys.federation.registry.active("client", keys.federation.now)
    assert keys.own.public not in active


def test_without_a_recovery_key_the_registrar_asks_its_owner(keys: Keys) -> None:
    """The key may be stolen, and then its signature says nothing of who wants another."""
    said = keys.said(keys.bare, recovers=False)
    for told in (None, "", keys.own.public.hex()):
        with pytest.raises(ConfigurationError, match="--key-of"):
            keys.apply(said, told)
    keys.apply(said, keys.new.public.hex())
    assert keys.new.public in keys.federation.registry.active("client", keys.federation.now)
    with pytest.raises(ConfigurationError, match="with this client's key"):
        keys.said(Identity.generate())


def test_a_site_that_comes_back_has_its_recovery_key(keys: Keys) -> None:
    keys.federation.revoke("a")
    keys.federation.enrol("a", keys.new.public, spent=(3, GOAL))
    assert revocation(keys.federation.registry, keys.recovery)
    with pytest.raises(ConfigurationError, match="recovery key is a site's own"):
        keys.federation.enrol("b", keys.bare.public, recovery=keys.new.public.hex())
