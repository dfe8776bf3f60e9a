"""What several refusals of a one-shot round need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..schema import Error
from ..script import remote
from .played import OneShotRound
from .rounds import HONEST
from .schema import OneShotRefusalVector, OneShotRoundVector
from .script import SERVER, refusal

Made = tuple[str, OneShotRefusalVector | OneShotRoundVector]


def flip(data: bytes) -> bytes:
    """The lowest bit of the first byte flipped."""
    return bytes([data[0] ^ 1]) + data[1:]


def places(base: str, wanted: Callable[[Any], bool]) -> tuple[OneShotRound, int, Any]:
    """The first step of an honest round that is wanted, and its place."""
    round_ = HONEST[base][1]
    for place, event in enumerate(round_.events()):
        if wanted(event):
            return round_, place, event
    raise AssertionError(f"no such step in {base}")


def server_refuses(
    name: str,
    description: str,
    at: str,
    data: bytes,
    error: Error,
    *,
    base: str = "plain",
    sender: int | None = None,
    op: str | None = None,
    has_honest: bool = True,
) -> Made:
    """The server gets `data` where the honest round has the message `at`."""
    round_, place, event = places(
        base, lambda e: e.op.startswith("server_receive") and e.data == at
    )
    honest = {"instead_of": at} if has_honest else {}
    return f"server-{name}", refusal(
        description,
        base,
        round_,
        ("server", SERVER),
        place,
        op=op or event.op,
        party=event.client if sender is None else sender,
        data=data,
        error=error,
        **honest,
    )


def member_refuses(
    name: str,
    description: str,
    at: str,
    data: bytes,
    reason: str,
    *,
    base: str = "plain",
    member: int = 0,
    has_honest: bool = True,
) -> Made:
    """A member gets `data` where the honest round has the message `at`."""
    round_, place, _ = places(
        base,
        lambda e: e.op == "member_receive" and e.client == member and e.data.split()[0] == at,
    )
    honest = {"instead_of": f"{at} {member}" if at == "delivery" else at} if has_honest else {}
    return f"member-{name}", refusal(
        description,
        base,
        round_,
        ("member", member),
        place,
        op="member_receive",
        party=member,
        data=data,
        error=remote(SERVER, reason),
        **honest,
    )
