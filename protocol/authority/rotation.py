"""A site's own word about its key: that another takes its place, or that it ends.

A recovery key, kept elsewhere, signs both: whoever steals the site's key alone can neither rotate
its owner out nor end it. A registrar's signature on the next registry is what makes either hold.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from protocol.authority.registry import AnyKey, Entry, Key, Registry, wrong
from secagg import Identity
from secagg.grinding import CLOCK_SKEW_SECONDS
from secagg.keys import SIGNATURE_BYTES, signature_is_valid
from secagg.tags import Usage

_Signature = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{{2 * SIGNATURE_BYTES}}})?\Z")]


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site has signed.

    Attributes:
        federation: of the registry.
        site: name of the site.
        old: its key, 64 hex digits.
        new: in its place; empty if there is none, for a revocation.
        agreed: the old key's signature, 128 hex digits; empty for a revocation.
        recovered: the recovery key's; empty if the site has none.
    """

    federation: str
    site: str
    old: Key
    new: AnyKey
    agreed: _Signature = ""
    recovered: _Signature = ""

    def parts(self) -> tuple[bytes, ...]:
        """What is signed, by either key."""
        names = self.federation.encode(), self.site.encode()
        return *names, bytes.fromhex(self.old), bytes.fromhex(self.new)


def rotation(
    registry: Registry, own: Identity, new: bytes, recovery: Identity | None = None
) -> bytes:
    """A site's statement that another key, 32 bytes, takes the place of its own, as JSON.

    Raises:
        ConfigurationError: the registry is without the site.
    """
    site = registry.site_of(own.public)
    if site is None:
        raise wrong(f"number {registry.number}", f"one with this client's key, {own.public.hex()}")
    said = Rotation(registry.federation, site, own.public.hex(), new.hex())
    agreed = own.sign(Usage.ROTATE, *said.parts()).hex()
    return _signed(msgspec.structs.replace(said, agreed=agreed), recovery)


def revocation(registry: Registry, recovery: Identity) -> bytes:
    """A statement that the key to which a recovery key belongs has ended, as JSON.

    Raises:
        ConfigurationError: there is no such key, or it is revoked.
    """
    key = recovery.public.hex()
    found = [each for each in registry.entries if each.recovery == key and not each.revoked]
    if not found:
        raise wrong(f"number {registry.number}", f"one with a key that {key} recovers")
    return _signed(Rotation(registry.federation, found[0].site, found[0].key, ""), recovery)


def _signed(said: Rotation, recovery: Identity | None) -> bytes:
    if recovery is not None:
        recovered = recovery.sign(Usage.ROTATE, *said.parts()).hex()
        said = msgspec.structs.replace(said, recovered=recovered)
    return msgspec.json.encode(said)


def rotated(before: Registry, data: bytes, told: str | None, now: float) -> list[Entry]:
    """Entries after what a site's statement says. What the site has spent stays.

    Args:
        data: the statement.
        told: the new key as its owner told the registrar by another way, 64 hex digits; it is
            needed where no recovery key has signed.
        now: unix seconds.

    Raises:
        ConfigurationError: it is malformed, not about a site's present key, or not signed by all
            who have to.
    """
    try:
        said = msgspec.json.decode(data, type=Rotation)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise wrong(str(error), "a statement of veilsum identity rotate or revoke") from None
    old = next((e for e in before.entries if e.key == said.old and not e.revoked), None)
    is_present = old is not None and old.site == said.site and now < old.not_after
    if old is None or not is_present or said.federation != before.federation:
        problem = f"{said.old} of {said.site} in federation {said.federation}"
        raise wrong(problem, f"a site's present key, in federation {before.federation}")
    signers = [(said.old, said.agreed)] if said.new else []
    if old.recovery or not said.new:
        signers.append((old.recovery, said.recovered))
    elif told != said.new:
        raise wrong(f"{said.new}, which no recovery key signed", "--key-of, as its owner told you")
    for key, signature in signers:
        by, signed = bytes.fromhex(key), bytes.fromhex(signature)
        if not signature_is_valid(by, signed, Usage.ROTATE, *said.parts()):
            raise wrong(f"not signed by {key or 'a recovery key'}", "signed by whoever has to")
    ended = msgspec.structs.replace(old, revoked=int(now))
    others = [each for each in before.entries if each.key != old.key]
    if not said.new:
        return [*others, ended]
    since = int(now) - CLOCK_SKEW_SECONDS
    return [*others, ended, msgspec.structs.replace(old, key=said.new, not_before=since)]
