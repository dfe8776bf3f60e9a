"""A registrar's changes to the registry: each gives the entries of the file that comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from protocol.authority.quota import DAY
from protocol.authority.registry import (
    FEDERATION_BYTES,
    FORMAT,
    Entry,
    Goal,
    Registry,
    wrong,
)
from secagg.grinding import CLOCK_SKEW_SECONDS
from secagg.keys import os_random
from secagg.shamir import Rand

MOST_SKIPPED = 1000
"""A number can never be taken back: a mistyped one must not use them up."""


def first(now: float, days: int, rand: Rand = os_random) -> Registry:
    """A new federation's registry, with nobody in it.

    Args:
        now: unix seconds.
        days: until it expires.
    """
    issued, federation = int(now), rand(FEDERATION_BYTES).hex()
    return Registry(FORMAT, federation, 1, issued, issued + days * DAY, "", ())


def successor(
    before: Registry, entries: Iterable[Entry], now: float, days: int, number: int | None = None
) -> Registry:
    """The registry that follows, if these entries may.

    Args:
        number: of it; the next one if left out. Some are skipped to get above a file that is void.

    Raises:
        ConfigurationError: the clock is behind, the number is far, or the entries break a rule.
    """
    issued, ordered = int(now), tuple(sorted(entries, key=lambda entry: entry.key))
    previous, number = before.digest().hex(), number or before.number + 1
    if number > before.number + MOST_SKIPPED:
        raise wrong(f"number {number}", f"at most {before.number + MOST_SKIPPED}")
    try:
        after = Registry(
            FORMAT, before.federation, number, issued, issued + days * DAY, previous, ordered
        )
    except ValueError as error:
        raise wrong(str(error), "as the page about registries says") from None
    after.check_after(before)
    return after


def enrolled(
    before: Registry,
    site: str,
    key: str,
    roles: Sequence[str],
    spent: tuple[int, Goal | None] | None,
    now: float,
    days: int,
    recovery: str | None = None,
) -> list[Entry]:
    """Entries with a key of a site: a new one, or the one that it has, for so many days from now.

    Args:
        key: 64 hex digits.
        roles: client if there are none, or as they were; others are refused when it is signed.
        spent: rounds that the site has spent outside the key's folder, and their goal; None for
            none, or as it was.
        recovery: 64 hex digits; the site's own so far if left out.

    Raises:
        ConfigurationError: the key is revoked or another site's, the site has another key that is
            not revoked, or had one and nothing is said of what it spent.
    """
    known = next((entry for entry in before.entries if entry.key == key), None)
    if known is None:
        held = [entry for entry in before.entries if entry.site == site]
        if any(not entry.revoked for entry in held):
            raise wrong(f"{site} has a key that is not revoked", "veilsum registry revoke, first")
        if held and spent is None:
            problem = f"{site} has had a key before, and nothing is said of what it spent"
            raise wrong(problem, "--spent, of all its rounds that the new key's folder lacks")
        # A site whose clock is a little behind has its key at once.
        known = Entry(site, key, ("client",), int(now) - CLOCK_SKEW_SECONDS, int(now) + 1)
        kept = next((entry.recovery for entry in held if entry.recovery), "")
        recovery = kept if recovery is None else recovery
    if known.site != site or known.revoked:
        problem = f"{key} is a key of {known.site}" + (", revoked" if known.revoked else "")
        raise wrong(problem, "a new key")
    rounds, goal = (known.spent, known.goal) if spent is None else spent
    try:
        entry = msgspec.structs.replace(
            known,
            roles=tuple(sorted(set(roles))) or known.roles,
            not_after=int(now) + days * DAY,
            spent=rounds,
            goal=goal,
            recovery=known.recovery if recovery is None else recovery,
        )
    except ValueError as error:
        raise wrong(str(error), "--spent with --epsilon, --delta and --rounds, or 0") from None
    others = [each for each in before.entries if each.key != key]
    # Of two goals the smaller number would be forgotten: the one that is put right holds for all.
    return [
        msgspec.structs.replace(each, goal=goal)
        if goal and each.site == site and each.spent
        else each
        for each in others
    ] + [entry]


def revoked(before: Registry, site: str, now: float) -> list[Entry]:
    """Entries in which a site has no key; `ConfigurationError` if it has none already."""
    if all(entry.site != site or entry.revoked for entry in before.entries):
        raise wrong(f"{site} has no key that is not revoked", "a site that has one")
    return [
        msgspec.structs.replace(entry, revoked=int(now))
        if entry.site == site and not entry.revoked
        else entry
        for entry in before.entries
    ]
