"""What schedules of every protocol are made of: lies, and how a schedule ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulations.threats.faults.tally import Tally
from simulations.threats.game.contexts import Wanted


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a schedule ended, and what is wrong with that, if anything is."""

    outcome: str
    problem: str | None = None


Play = Callable[[np.random.Generator, int, float, Tally], Verdict]
"""Runs one schedule: (rng, number, rate of faults on the wire, counts)."""

Edit = Callable[[Any, Any], Iterable[tuple[int, Any]]]
"""Makes of a liar and its honest message those that are sent instead, each with the party that the
transport says it came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """One way to lie.

    Args:
        edits: what becomes of honest messages, by their type.
        wanted: what the lie needs of its round.
        leaves_before: the liar sends nothing from this message on.
        company_leaves_before: an honest client sends nothing from this message on.
        bearable: it costs the round no more than the liar, so the sum comes out: it is refused at
            the door, left out, or corrected.
    """

    edits: Mapping[type, Edit] = field(default_factory=dict)
    wanted: Wanted = field(default_factory=Wanted)
    leaves_before: type | None = None
    company_leaves_before: type | None = None
    bearable: bool = False
