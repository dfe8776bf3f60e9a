"""What an audit looks at, what it is held against, and what it reports.

An audit measures from outside. It runs a mechanism in two worlds that differ by one client, and
compares what comes out with what was claimed. It can refute a claim and never prove one.

Every check runs on the real system and on twins with one known mistake each. A test rejects a
claim or does not, an attack succeeds or fails; a check holds if that happens to all twins and to
nothing else.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp import Event, NoiseSeed
from dp.accounting import Accountant, DominationAccountant
from protocol.checks import FRACTION
from secagg import Identity, ParameterError

ALPHA: Final = 1e-6
"""Probability with which a check may reject a system that is as claimed."""

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Figures: TypeAlias = dict[str, float | int | str | bool]
"""What one run of a check found, by name."""


class AuditedRelease(Protocol):
    """A mechanism under audit. Anything with this method can be audited."""

    def release(self, world: int, count: int, seed: int) -> NDArray[Any]:
        """Run the mechanism ``count`` times, independently, in one of two neighbouring worlds.

        Args:
            world: 0 (without the client) or 1 (with it).
            count: number of runs.
            seed: fixes all randomness; different seeds give independent runs.

        Returns:
            float or integer [count] or [count, k]: one output for each run.
        """
        ...


class Effort(enum.Enum):
    """How much of everything: seconds for tests, minutes for reports."""

    QUICK = "quick"
    FULL = "full"

    def choose(self, quick: int, full: int) -> int:
        """One of two numbers."""
        return quick if self is Effort.QUICK else full


@dataclass(frozen=True, slots=True)
class Claim:
    """What a mechanism is said to satisfy.

    Raises:
        ParameterError: a figure is out of range.
    """

    epsilon: float  # >= 0
    delta: float  # in (0, 1)

    def __post_init__(self) -> None:
        """Check both figures."""
        if not 0.0 <= self.epsilon < math.inf:
            raise ParameterError("epsilon", self.epsilon, "finite and not negative")
        FRACTION.require("delta", self.delta)

    @classmethod
    def of_event(cls, event: Event, delta: float, accountant: Accountant | None = None) -> Claim:
        """Return what an accountant says about an event; domination unless told otherwise."""
        accountant = accountant or DominationAccountant()
        accountant.compose(event)
        return cls(accountant.epsilon(delta), delta)


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A picture for a report."""

    title: str  # what it shows
    text: str  # the same in words, for those who do not see it
    media_type: str  # "image/png" or "image/svg+xml"
    data: bytes = field(repr=False)  # the file

    def __post_init__(self) -> None:
        """Check the type."""
        if self.media_type not in ("image/png", "image/svg+xml"):
            raise ParameterError("media_type", self.media_type, "image/png or image/svg+xml")


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, tried twice."""

    id: str  # short, stable name
    title: str  # the promise in words
    # figures of the real system; ``rejected``, or ``succeeded``, must be false
    with_defence: Figures
    without_defence: Figures  # figures of its broken twin; the same must be true
    held: bool  # whether both are as they must be
    exhibits: tuple[Exhibit, ...] = ()  # pictures for a report; not part of the figures

    @classmethod
    def of(
        cls, name: str, title: str, real: Figures, twin: Figures, exhibits: tuple[Exhibit, ...] = ()
    ) -> Check:
        """Build a check from both runs: tests with ``rejected``, or attacks with ``succeeded``.

        Raises:
            KeyError: one side has neither, or not what the other has.
        """
        sign = "succeeded" if "succeeded" in real else "rejected"
        held = not real[sign] and bool(twin[sign])
        return cls(name, title, real, twin, held, exhibits)

    def as_json(self) -> dict[str, object]:
        """Return plain JSON values; an infinite figure becomes the string "inf"."""
        return {
            "id": self.id,
            "title": self.title,
            "with_defence": _plain(self.with_defence),
            "without_defence": _plain(self.without_defence),
            "held": self.held,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """One promise about privacy, and the mutants of which a check of it rejects every one."""

    id: str  # of its check
    promise: str  # in words
    product: Callable[[], Figures]  # tests the real system; its figures have ``rejected``
    # likewise, by what is wrong; the first is shown, so it is one of the nearest
    mutants: Mapping[str, Callable[[], Figures]]

    def check(self) -> Check:
        """Run it: the twin's figures are the first mutant's, rejected if all mutants are."""
        found = [mutant() for mutant in self.mutants.values()]
        caught = sum(bool(figures["rejected"]) for figures in found)
        twin: Figures = {"mutants": len(found), "caught": caught, "rejected": caught == len(found)}
        title = f"{self.promise} (twin: {'; or '.join(self.mutants)})"
        return Check.of(self.id, title, self.product(), {**found[0], **twin})


def _plain(figures: Figures) -> Figures:
    """Replace what JSON does not have."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }


def derived_bytes(seed: int, *labels: object) -> bytes:
    """Return 32 bytes that follow from a seed and labels, for runs that repeat exactly."""
    return hashlib.sha256(repr(("veilsum/audit/1", seed, *labels)).encode()).digest()


def derived_seed(seed: int, *labels: object) -> int:
    """Return a non-negative integer that follows from a seed and labels."""
    return int.from_bytes(derived_bytes(seed, *labels)[:8], "big")


def noise_seed(seed: int, *labels: object) -> NoiseSeed:
    """Return a noise seed for an audit. Predictable on purpose: never use it for real inputs."""
    return NoiseSeed(derived_bytes(seed, *labels))


def identities_of(seed: int, count: int, label: str = "identity") -> list[Identity]:
    """Return identities that follow from a seed."""
    return [Identity.from_private_bytes(derived_bytes(seed, label, i)) for i in range(count)]


def public_keys(identities: Sequence[Identity]) -> tuple[bytes, ...]:
    """Return their registered halves."""
    return tuple(identity.public for identity in identities)
