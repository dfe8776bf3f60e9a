"""Honest rounds that refusals go on from, and what several of them need."""

from __future__ import annotations

from . import wire
from .positive import HONEST

ACTIVE = HONEST["active"][1]
SPARSE = HONEST["sparse"][1]
SEEDS = HONEST["recovery"][1]
GONE = HONEST["recovery-semi-honest"][1]
"""Client 3 is no survivor, the seeds of survivor 2 are missing."""

BAD_ELEMENT = wire.SHAMIR_PRIME.to_bytes(4, "little")
