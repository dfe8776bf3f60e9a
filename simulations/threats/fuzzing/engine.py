"""Feeds hostile bytes to decoders: accepted, or refused with the documented error, or it is a bug.

What is accepted must encode again to the same bytes, where the format has one form only. A decoder
must not allocate far more than it was given, and must come to an end.
"""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulations.threats.faults.behaviours import no_hang
from simulations.threats.fuzzing.mutation import Mutation, mutate_bytes, pick

CASE_SECONDS = 20
"""A case that takes longer is a hang: most take some microseconds."""

SPARE_BYTES = 16 << 20
"""What a decoder may allocate for any input, however short: tables of a round's parameters."""

GROWTH = 64
"""Bytes that a decoder may allocate for each byte of its input: Python objects are large."""

MOST_BUGS = 20
"""Bugs of one decoder that are listed; more are most likely the same again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Something that reads bytes from outside.

    Args:
        seeds: valid bytes to start from.
        encode: the bytes of what `decode` returned; None if it cannot be encoded again.
        one_form: whether accepted bytes must equal what `encode` gives.
        mutations: ways to make hostile bytes, beside changes of single bytes.
    """

    name: str
    seeds: Sequence[bytes]
    decode: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    encode: Callable[[Any], bytes] | None = None
    one_form: bool = True
    mutations: Sequence[Mutation] = ()

    def example(self, rng: np.random.Generator) -> bytes:
        """Draw hostile bytes: a mutation of a seed."""
        mutation = pick(rng, (mutate_bytes, *self.mutations))
        hostile: bytes = mutation(rng, pick(rng, self.seeds), self.seeds)
        return hostile


@dataclass(frozen=True, slots=True)
class Bug:
    """What went wrong, and the bytes that did it."""

    decoder: str
    case: int
    what: str
    data: bytes

    def figures(self) -> dict[str, str | int]:
        """For reports; bytes in hexadecimal. The fuzzer made them, so they are no secret."""
        return {
            "decoder": self.decoder,
            "case": self.case,
            "what": self.what,
            "bytes": self.data.hex(),
        }


@dataclass(slots=True)
class Report:
    """What a run found."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    bugs: list[Bug] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        """Number of cases over all decoders."""
        return sum(counter.total() for counter in self.outcomes.values())

    @property
    def cases_per_second(self) -> float:
        """Cases per second over all decoders."""
        return self.cases / self.seconds if self.seconds else 0.0


def fuzz(
    decoders: Sequence[Decoder],
    seed: int,
    *,
    seconds: float | None = None,
    cases: int | None = None,
    first: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> Report:
    """Run cases first, first + 1, ..., the decoders taking turns, for a time or a number."""
    report = Report()
    begin = time.monotonic()
    number = first
    tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        while True:
            done = number - first if cases is not None else time.monotonic() - begin
            if done >= (cases if cases is not None else seconds or 0.0):
                break
            if number % 64 == 0:
                progress(done)
            run_case(decoders[number % len(decoders)], seed, number, report)
            number += 1
    finally:
        if not tracing:
            tracemalloc.stop()
    progress(cases if cases is not None else seconds or 0.0)
    report.seconds = time.monotonic() - begin
    return report


def run_case(decoder: Decoder, seed: int, number: int, report: Report) -> None:
    """One case: fixed by the seed, its number and the decoder."""
    data = decoder.example(np.random.default_rng([seed, number]))
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    outcome, what = judge(decoder, data)
    peak = tracemalloc.get_traced_memory()[1] - before
    if what is None and peak > SPARE_BYTES + GROWTH * len(data):
        outcome, what = "BUG", f"allocated {peak} bytes for {len(data)}"
    report.outcomes.setdefault(decoder.name, Counter())[outcome] += 1
    listed = sum(bug.decoder == decoder.name for bug in report.bugs)
    if what is not None and listed < MOST_BUGS:
        report.bugs.append(Bug(decoder.name, number, what, data))


def judge(decoder: Decoder, data: bytes) -> tuple[str, str | None]:
    """How a decoder took some bytes, and what is wrong with that, if anything is."""
    try:
        with no_hang(CASE_SECONDS):
            value = decoder.decode(data)
    except decoder.errors as error:
        reason = getattr(error, "reason", None)
        return (reason.name if reason else type(error).__name__), None
    except Exception as error:
        # Anything else is what this is looking for, memory and recursion errors included.
        return "BUG", f"{type(error).__name__}: {error}"[:300]
    if decoder.encode is None:
        return "accepted", None
    try:
        return _judge_encoding(decoder, decoder.encode, value, data)
    except Exception as error:
        return "BUG", f"accepted, but cannot be encoded: {type(error).__name__}: {error}"[:300]


def _judge_encoding(
    decoder: Decoder, encode: Callable[[Any], bytes], value: Any, data: bytes
) -> tuple[str, str | None]:
    """Whether what was accepted encodes to the bytes it came from, or to other ones that stay."""
    again = encode(value)
    if again == data:
        return "accepted", None
    if decoder.one_form:
        return "BUG", "accepted, but encodes to other bytes"
    if encode(decoder.decode(again)) != again:
        return "BUG", "accepted, but encodes to something else each time"
    return "accepted, another form", None
