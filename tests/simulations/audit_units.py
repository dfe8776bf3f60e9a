"""Units that end as a test needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulations.audits.base import Check, Exhibit
from simulations.reports.audit import Unit

PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU"
    b"\0\0\0\nIDATx\x9cc`\0\0\0\x02\0\x01H\xaf\xa4q\0\0\0\0IEND\xaeB`\x82"
)
PICTURE = Exhibit("A digit", "A grey square.", "image/png", PNG)
SVG = Exhibit("A line", "A line.", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>")

RATES = (
    {"trials": 40, "successes": 21, "lower": 0.3, "upper": 0.7, "chance": 0.5, "succeeded": False},
    {"trials": 40, "successes": 40, "lower": 0.8, "upper": 1.0, "chance": 0.5, "succeeded": True},
)


def attack(name: str = "A1", held: bool = True, **figures: object) -> Check:
    """A check of one attack, refused by the product."""
    real = {"refused_with": "RemoteProtocolError BAD_SEAL", "succeeded": not held, **figures}
    return Check(name, f"what {name} tries is in vain", real, {"succeeded": True}, held)


def rated(name: str = "A10") -> Check:
    """A check with success rates."""
    real, twin = RATES
    return Check(name, "a difference says nothing", dict(real), dict(twin), True, (PICTURE, SVG))


def unit(check: Check, calls: list[str] | None = None) -> Unit:
    """A unit with one check, which notes that it was run."""
    return unit_of(check.id, lambda: [check], calls)


def unit_of(name: str, run: Callable[[], Sequence[Check]], calls: list[str] | None = None) -> Unit:
    """A unit that runs something."""

    def noted() -> Sequence[Check]:
        if calls is not None:
            calls.append(name)
        return run()

    return Unit(name, f"what {name} is about", noted, "a seal")
