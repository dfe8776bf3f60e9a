"""Clients with one defence missing, for attacks that must then succeed. Never use them.

Most defences are checks of what the server says against the context. A client without such a check
runs the product's code on a context that says something else, under the same hash: `weakened`. The
others change one answer of the product's session, or run it with some function of the product
replaced: `lacking`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any, Final, TypeVar
from unittest.mock import patch

from secagg import ClientSession, FieldVector, Identity, Mode, SessionContext, keys
from secagg.oneshot.committee import Committee
from secagg.oneshot.context import OneShotContext
from secagg.pairwise import client, roster
from secagg.pairwise.client_states import Masked
from secagg.pairwise.messages import AnyMessage
from secagg.pairwise.prg import accumulate_masks
from secagg.pairwise.transitions import Local
from secagg.shamir import Rand
from simulations.threats.game.victims import SessionMaker

Terms = TypeVar("Terms", SessionContext, OneShotContext, Committee)
Context = TypeVar("Context", SessionContext, OneShotContext)


def weakened(original: Terms, **changes: Any) -> Terms:
    """The same context or committee, hash included, with fields that no check has seen."""
    kind = type(original)
    weak = object.__new__(kind)
    for name in (each.name for each in fields(kind)):
        object.__setattr__(weak, name, changes.get(name, getattr(original, name)))
    return weak


def unbound(context: Context) -> Context:
    """The same context with a hash that nothing goes into."""
    return weakened(context, hash=bytes(32))


Missing = tuple[Any, str, Any]
"""Something of the product that is replaced: its owner, its name, and what stands there instead."""


@contextmanager
def replaced(*missing: Missing) -> Iterator[None]:
    """Inside, the product lacks this."""
    with ExitStack() as stack:
        for each in missing:
            stack.enter_context(patch.object(*each))
        yield


Kind = TypeVar("Kind")


def lacking(kind: type[Kind], *missing: Missing) -> type[Kind]:
    """Parties during whose steps the product lacks something; it is whole for all others."""
    product: Any = kind

    def step(self: Any, event: Any, payload: Any) -> Any:
        with replaced(*missing):
            return product._step(self, event, payload)

    weak: Any = type(f"Weak{kind.__name__}", (kind,), {"_step": step})
    return weak  # type: ignore[no-any-return]


def believing(**changes: Any) -> SessionMaker:
    """A client that believes other parameters than those it has agreed on."""

    def make(context: SessionContext, u: int, identity: Identity, rand: Rand) -> ClientSession:
        return ClientSession(weakened(context, **changes), u, identity, rand)

    return make


no_minimum = believing(minimum_survivors=1)
"""Takes part in any sum, however small."""

no_consistency = believing(mode=Mode.SEMI_HONEST)
"""Gives up shares for the survivor set that it is told, and asks nobody what the others were."""


def low_threshold(threshold: int) -> SessionMaker:
    """Deals shares of which so many rebuild a secret, and counts on no colluders."""
    return believing(threshold=threshold, tolerated_colluders=0)


NoSelfMask = lacking(
    ClientSession,
    (
        client,
        "accumulate_masks",
        lambda total, field, keys, subtract: accumulate_masks(total, field, keys[1:], subtract[1:]),
    ),
)
"""Puts pairwise masks on its input, and none of its own."""

BothShares = lacking(
    ClientSession, (client, "_SELF_MASK", slice(2)), (client, "_MASKING_KEY", slice(2))
)
"""Asked for shares, gives up both kinds for everybody, as if a request could name both."""

KeepsAllShares = lacking(ClientSession, (client, "replace", lambda state, **_: state))
"""Asked for shares of surplus seeds, gives up what it ever held: it has forgotten nothing."""

BelievesConfirmations = lacking(ClientSession, (client, "signature_is_valid", lambda *_: True))
"""Counts the signatures on its survivor set, and verifies none."""


class ReusableSession(ClientSession):
    """Answers one survivor set after another from the same state."""

    def _step(self, event: Local | type, payload: Any) -> AnyMessage | None:
        """The product's step; once its input is masked, the state stays as it was."""
        state = self._state
        answer = super()._step(event, payload)
        if isinstance(state, Masked):
            self._state = state
        return answer


ANY_ENCODING: Final = (
    (keys, "check_public_key", lambda public: None),
    (roster, "check_public_key", lambda public: None),
)
"""Public keys are compared as they are written, and read as X25519 reads them."""

TakesAnyEncoding = lacking(ClientSession, *ANY_ENCODING)
"""Does not ask whether a public key is written as honest clients write it."""


class AbortsOnZero(ClientSession):
    """Leaves the round if it has nothing to say: what it sends depends on its input."""

    def submit(self, vector: FieldVector) -> AnyMessage:
        """The upload, of inputs that are not zero."""
        if not vector.elements.any():
            self.abort()
        return super().submit(vector)
