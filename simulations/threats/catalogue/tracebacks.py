"""A72: an operator's screen or log shows a traceback that was drawn with its locals."""

from __future__ import annotations

import hashlib
import io
from typing import Final

import msgspec
from rich.console import Console
from rich.pretty import pretty_repr
from rich.traceback import Traceback

from dp import NoiseSeed
from protocol.round.member_noise import AddedNoise
from secagg import Identity
from secagg.keys import SecretSeed
from secagg.pairwise.messages import UnmaskShares
from simulations.threats.attack import Attack, Effort, Findings, rate


class HidingFromReprAlone(msgspec.Struct):
    """A struct as the product's would be if it had no `__rich_repr__` of its own."""

    seed: bytes

    def __repr__(self) -> str:
        return "HidingFromReprAlone(<secret>)"


def printed(victim: object) -> str:
    """All that is printed of a victim: by `repr`, by rich, and in a traceback with locals."""
    try:
        raise LookupError
    except LookupError as error:
        kind, raised, trace = type(error), error, error.__traceback__
    drawn = Traceback.from_exception(kind, raised, trace, show_locals=True)
    page = io.StringIO()
    Console(file=page, width=1000).print(drawn)
    return "\n".join((repr(victim), pretty_repr(victim), page.getvalue()))


def printed_secrets(effort: Effort, seed: int) -> Findings:
    """A72: what fails has shares, keys and seeds of noise among its locals."""
    secret = hashlib.sha256(seed.to_bytes(8, "big")).hexdigest()[:32]
    raw = secret.encode()
    victims = (
        UnmaskShares(bytes(8), 0, raw, raw, bytes(64)),
        AddedNoise(0, 1.0, raw),
        NoiseSeed(raw),
        SecretSeed(raw),
        Identity.from_private_bytes(raw),
    )
    shown = sum(secret in printed(victim) for victim in victims)
    return Findings(
        rate(shown, len(victims)), {"succeeded": secret in printed(HidingFromReprAlone(raw))}
    )


ATTACKS: Final = (
    Attack(
        id="A72",
        promise="P1",
        name="tracebacks with locals",
        title="A traceback with its locals shows no key, share or seed",
        says="reads what is printed of a failure, with all locals as older versions of Typer "
        "print them",
        stopped_by="types for secrets that print sizes or nothing",
        run=printed_secrets,
    ),
)
