"""Answers that leave a client as they are, and the permissions that they need.

Nothing masks or noises what a client answers to an evaluation or a query: the server reads it, and
no epsilon covers it. So both sides refuse such messages until somebody sets a key whose name says
what it permits. The client's own counts against the server; the server's keeps an app from doing
this by a default of Flower's, whose strategies ask all clients to evaluate.
"""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import MessageType

from protocol.adapters.flower.record import category

EVALUATION = "allow_evaluation_in_the_clear"
QUERIES = "allow_queries_in_the_clear"

_PERMISSIONS: Mapping[str, str] = {MessageType.EVALUATE: EVALUATION, MessageType.QUERY: QUERIES}


def permission(message_type: str) -> str | None:
    """The key that permits answers to a kind of message; None if nothing does."""
    return _PERMISSIONS.get(category(message_type))


def in_the_clear(what: str, key: str) -> str:
    """Words for what is refused for want of a permission, and how to give it."""
    return (
        f"{what}, and the server would read the answers as they are: nothing masks them, and no "
        f"epsilon covers them. If it may: {key}=True for protect or SecureGrid, or "
        f"{key.replace('_', '-')} = true in [tool.flwr.app.config.veilsum]; and {key} = true in "
        f"the policy.toml of each client that agrees"
    )
