"""What a run with `engine.insecure_seed` says of itself, wherever it says anything.

Such a run draws no secret: all of them follow from a number in its configuration, so that research
can repeat it bit for bit. Whoever knows the number can compute the masks and take the noise off, so
what the run releases protects nobody. Why this may exist at all: only simulations read the number,
and whoever runs a simulation has the data of all its clients in any case. Packages below this one
take secrets from the operating system, or from whoever calls them; no configuration of theirs has
such a key, and all of them refuse it by name (`protocol.planning.configuration`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from protocol.training.records import Notes

KEY: Final = "insecure_seed"
"""What the number is called in a configuration, a record, a summary and a ledger's notes."""

LARGEST: Final = (1 << 63) - 1
"""Of an integer that a TOML file promises to hold."""


def protects(seed: int) -> str:
    """Whom a run with this seed protects, in words that follow "protects"."""
    return f"nobody: all its secrets follow from {KEY} = {seed}, which anybody may know"


def remarks(seed: int | None) -> dict[str, str | int]:
    """What is added to figures and notes of a run; nothing without an insecure seed."""
    return {} if seed is None else {KEY: seed, "protects": protects(seed)}


def seed_in_notes(entries: Iterable[Mapping[str, Any]]) -> int | None:
    """The insecure seed that the metadata of a ledger's entries tell of; None if none does."""
    for metadata in entries:
        notes = metadata.get("notes")
        seed = notes.get(KEY) if isinstance(notes, dict) else None
        if type(seed) is int:
            return seed
    return None


def notes_of(seed: int | None) -> Notes | None:
    """The public remarks that go to the ledger with every round; None if there are none."""
    return remarks(seed) or None
