"""What a hostile server got out of the clients of one session, and what that breaks.

Only what clients sent is counted, and what colluders know. A promise is broken if the server could
rebuild both secrets of an honest client, or a seed that had to stay, or if honest clients gave up
shares for different sets, or for a set that no honest client may answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from secagg import SessionContext
from secagg.keys import KEY_BYTES
from secagg.merkle import proof_is_valid
from secagg.pairwise.messages import (
    ADVERTISEMENT_ENTRY_BYTES,
    Advertisement,
)
from simulations.threats.game.knowledge import FIRST_SEED, MASKING_KEY, SELF_MASK, Knowledge, View

LOW_ORDER = (bytes(32), b"\1" + bytes(31))
"""Two of the X25519 public keys with which everybody agrees on the same constant."""


class Transcript:
    """What a server knows, and the stories that honest clients gave it up for."""

    def __init__(
        self,
        context: SessionContext,
        colluders: Iterable[int],
        own: Mapping[int, Advertisement],
        knowledge: Knowledge,
    ) -> None:
        self._context = context
        self._colluders = frozenset(colluders)
        self._own = own
        self._knowledge = knowledge
        self._stories: dict[int, list[View]] = {}

    @property
    def released(self) -> int:
        """Honest clients that gave up shares."""
        return len(self._stories)

    def answered(self, client: int, view: View) -> None:
        """An honest client gave up shares for what it was told."""
        self._stories.setdefault(client, []).append(view)

    def broken(self) -> str | None:
        """Every promise that is broken, if one is."""
        checks = (self._both_secrets, self._kept_seeds, self._two_stories, self._bad_story)
        return "; ".join(problem for check in checks if (problem := check())) or None

    # -- promises -----------------------------------------------------------------------------

    def _two_stories(self) -> str | None:
        answered = {
            (view.shown.root, view.roster.members, view.survivors)
            for views in self._stories.values()
            for view in views
        }
        if len(answered) > 1:
            return f"honest clients gave up shares for {len(answered)} stories"
        return None

    def _both_secrets(self) -> str | None:
        for owner in self._honest():
            if all(self._can_rebuild(owner, which) for which in (SELF_MASK, MASKING_KEY)):
                return f"the server has both secrets of client {owner}"
        return None

    def _kept_seeds(self) -> str | None:
        """A seed that stays for whatever story was answered must not be rebuilt."""
        stories = [view for views in self._stories.values() for view in views]
        given = {i for v in stories for i in self._context.removed_seeds(len(v.survivors))}
        for owner in self._honest():
            for number in range(self._context.seeds):
                if number not in given and self._can_rebuild(owner, FIRST_SEED + number):
                    return f"the server has seed {number} of client {owner}, which had to stay"
        return None

    def _bad_story(self) -> str | None:
        for u, views in self._stories.items():
            for view in views:
                problem = self._objection(u, view)
                if problem:
                    return f"client {u} gave up shares although {problem}"
        return None

    def _objection(self, u: int, view: View) -> str | None:
        """Why an honest client must not have answered this story."""
        roster, least = view.roster, self._context.minimum_survivors
        sets = (roster.members, view.participants, view.survivors)
        if any(len(each) < least for each in sets):
            return f"fewer than {least} clients were left"
        if not set(sets[2]) <= set(sets[1]) <= set(sets[0]):
            return "a set was not inside the one before"
        if u not in view.survivors:
            return "it was told to be lost"
        if u not in roster.members or not self._is_in_tree(u, view):
            return "its own entry was not in the tree"
        keys = [*_keys_in(view.shown.entries), self._own[u].sealing_key, self._own[u].masking_key]
        if len(set(keys)) < len(keys):
            return "a key was repeated"
        if set(keys) & set(LOW_ORDER):
            return "a key had small order"
        return None

    # -- helpers ------------------------------------------------------------------------------

    def _can_rebuild(self, owner: int, which: int) -> bool:
        return len(self._knowledge.holders(owner, which)) >= self._context.threshold

    def _honest(self) -> list[int]:
        return [u for u in range(self._context.size) if u not in self._colluders]

    def _is_in_tree(self, u: int, view: View) -> bool:
        members, shown = view.roster.members, view.shown
        entry, place = self._own[u].entry(), members.index(u)
        return proof_is_valid(shown.root, entry, place, len(members), shown.proof)


def _keys_in(entries: bytes) -> list[bytes]:
    starts = range(0, len(entries), ADVERTISEMENT_ENTRY_BYTES)
    return [
        entries[start + offset : start + offset + KEY_BYTES]
        for start in starts
        for offset in (0, KEY_BYTES)
    ]
