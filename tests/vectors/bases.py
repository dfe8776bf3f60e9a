"""Honest rounds that refusals go on from, and what several of them need."""

from __future__ import annotations

from . import wire
from .positive import HONEST

ACTIVE = HONEST["active"][1]
ABSENT = HONEST["active-drops-even"][1]
"""Client 4 is not in the roster."""
UNSHARED = HONEST["active-drops-odd"][1]
"""Client 0 is in the roster, and no participant."""
LOST = HONEST["active-drop-before-upload"][1]
"""Client 1 is a participant, and no survivor."""
SPARSE = HONEST["sparse"][1]
SEEDS = HONEST["recovery"][1]
GONE = HONEST["recovery-semi-honest"][1]
"""Client 3 is no survivor, the seeds of survivor 2 are missing."""

BAD_ELEMENT = wire.SHAMIR_PRIME.to_bytes(4, "little")
