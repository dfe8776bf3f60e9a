"""A fuzzer for everything that reads bytes from outside: messages, states, ledgers, files.

Rule: arbitrary bytes are accepted, or refused with the documented typed error. Anything else is a
bug, and is printed with the bytes that did it. A case is fixed by the seed, its number and the
choice of decoders.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from simulations.threats.fuzzing.decoders import all_decoders
from simulations.threats.fuzzing.engine import Decoder, Report, fuzz

__all__ = ["Decoder", "Report", "all_decoders", "fuzz", "run_fuzz"]


def run_fuzz(
    seed: int,
    *,
    seconds: float | None = None,
    cases: int | None = None,
    first: int = 0,
    names: Sequence[str] = (),
    progress: Callable[[float], None] = lambda _: None,
) -> Report:
    """Fuzz every decoder, or those that have one of `names` in their name."""
    with tempfile.TemporaryDirectory() as folder:
        decoders = [
            decoder
            for decoder in all_decoders(Path(folder))
            if not names or any(name in decoder.name for name in names)
        ]
        if not decoders:
            raise LookupError(f"no decoder has any of {', '.join(names)} in its name")
        return fuzz(decoders, seed, seconds=seconds, cases=cases, first=first, progress=progress)
