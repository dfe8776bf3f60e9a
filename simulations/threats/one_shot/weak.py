"""Clients and members of one-shot rounds with one defence missing. Never use them.

Most checks compare what the server says with the context. A party without such a check runs the
product's code on a context that says something else, under the same hash. The others lack a check
while they take a step: `lacking`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from secagg.keys import SecretSeed
from secagg.oneshot import client as client_module
from secagg.oneshot import member as member_module
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.states import Checked, Finished
from secagg.sealing import unseal
from secagg.tags import Usage, derive, digest, encode_index
from simulations.threats.game.weak_clients import lacking, weakened
from simulations.threats.one_shot.parties import MemberMaker


def believing(quorum: int | None = None, **changes: Any) -> MemberMaker:
    """A member that believes other parameters than those it has agreed on."""

    def make(context: OneShotContext, *rest: Any) -> OneShotMember:
        if quorum is not None:
            changes["committee"] = weakened(context.committee, quorum=quorum)
        return OneShotMember(weakened(context, **changes), *rest)

    return make


no_agreement = believing(quorum=1)
"""Answers on the set that it signed, whatever the others have signed."""
no_minimum = believing(minimum_survivors=1)
"""Signs every set, however small."""
neither = believing(quorum=1, minimum_survivors=1)
"""Answers on any set."""


class SignsAgain(OneShotMember):
    """Keeps the shares after it has signed and answered: it can be asked about another set."""

    _kept: Checked | None = None

    def _step(self, event: Any, payload: Any) -> Any:
        """The product's step; after the answer, the state is that before the signature."""
        if isinstance(self._state, Checked):
            self._kept = self._state
        answer = super()._step(event, payload)
        if isinstance(self._state, Finished) and self._kept is not None:
            self._state = self._kept
        return answer


def _names(context: OneShotContext, headers: Sequence[Header]) -> bytes:
    """A digest of the senders alone."""
    names = b"".join(encode_index(header.sender) for header in headers)
    return digest(Usage.SURVIVORS, context.hash, names)


def opened_of_any(shared: bytes, hashed: bytes, sender: int, to: int, sealed: bytes) -> bytes:
    """The content of a seal, every client being tried as the sender."""
    for other in range(64):
        try:
            return unseal(shared, hashed, other, to, sealed)
        except ValueError:
            continue
    return unseal(shared, hashed, sender, to, sealed)


class _Unbound:
    """The secrets of an upload into whose derivation nothing goes that is uploaded."""

    def __init__(self, party: Any, state: Any, vector: Any) -> None:
        self._root: SecretSeed = state.root

    def derived(self, label: bytes, length: int) -> bytes:
        return derive(self._root.expose(), Usage.UPLOAD_SECRETS, length, label)


NamesClients = lacking(OneShotMember, (member_module, "survivors_digest", _names))
"""Signs a list of clients, and not of uploads."""
TakesAnySender = lacking(OneShotMember, (member_module, "unseal", opened_of_any))
"""Opens a seal whoever made it."""
BelievesHeaders = lacking(OneShotMember, (Header, "is_signed", lambda *_: True))
"""Does not verify who signed a header."""
SameKeyAgain = lacking(OneShotClient, (client_module, "_UploadSecrets", _Unbound))
"""Derives the secrets of an upload from its fresh bytes alone."""
