"""A fault campaign: thousands of rounds on a hostile wire, and what became of each.

Every message, in both directions, may be lost, doubled, delayed by a stage, changed, cut, extended
or exchanged for an older one, and all arrive in random order. A round must end in the exact sum
over the survivors it names, or in a typed error: never in a wrong sum, another exception, or not at
all. A schedule is fixed by its number and the seed, so a failure can be run again by itself.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import (
    ClientSession,
    FieldSum,
    FieldVector,
    Identity,
    Mode,
    ProtocolError,
    RemoteProtocolError,
    ServerSession,
    SessionContext,
    lowest_threshold,
)
from secagg.transitions import ServerPhase

FAULTS = ("drop", "double", "delay", "flip", "cut", "extend", "exchange")

Wire = list[tuple[int, bytes]]
"""Messages on their way: the client they come from or go to, and their bytes."""


@dataclass(slots=True)
class Campaign:
    """What a campaign found.

    Attributes:
        outcomes: schedules by how they ended; "exact sum", or the name of the typed error.
        refusals: messages refused, by reason.
        faults: faults injected, by kind.
        failures: numbers of schedules with a wrong sum or an untyped error, with what happened.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)


def run_campaign(
    schedules: int, seed: int, rate: float, progress: Callable[[], None] = lambda: None
) -> Campaign:
    """Run schedules 0 .. schedules - 1.

    Args:
        rate: probability of a fault for each message.
        progress: called after each schedule.
    """
    campaign = Campaign()
    for number in range(schedules):
        try:
            outcome = run_schedule(number, seed, rate, campaign)
        except Exception as error:
            outcome = f"untyped error: {type(error).__name__}"
            campaign.failures[number] = f"{type(error).__name__}: {error}"
        campaign.outcomes[outcome] += 1
        progress()
    return campaign


def run_schedule(number: int, seed: int, rate: float, campaign: Campaign) -> str:
    """Run one schedule; returns how it ended. Untyped errors come out."""
    rng = np.random.default_rng([seed, number])
    round_ = _Round(_random_context(rng, number), rng, rate, campaign)
    try:
        total = round_.run()
    except ProtocolError as error:
        return type(error).__name__
    if not np.array_equal(total.vector.elements, round_.expected(total.survivors)):
        campaign.failures[number] = f"wrong sum over {total.survivors}"
        return "wrong sum"
    return "exact sum"


class _Round:
    """Both ends of a round and the wire between them."""

    def __init__(
        self,
        context: SessionContext,
        rng: np.random.Generator,
        rate: float,
        campaign: Campaign,
    ) -> None:
        self._context = context
        self._rng = rng
        self._rate = rate
        self._campaign = campaign
        self._server = ServerSession(context)
        self._clients = {
            u: ClientSession(
                context, u, _identity(u), _counter_rand(b"%d|%d" % (u, rng.bytes(1)[0]))
            )
            for u in range(context.size)
        }
        self._inputs = rng.integers(
            0, context.field.modulus, (context.size, context.length), np.uint64
        ).astype(context.field.dtype)
        self._old: list[bytes] = []
        self._late: Wire = []

    def expected(self, survivors: tuple[int, ...]) -> NDArray[Any]:
        """The plain sum modulo p."""
        chosen = self._inputs[list(survivors)].astype(object)
        return np.asarray(chosen.sum(axis=0) % self._context.field.modulus)

    def run(self) -> FieldSum:
        """All stages; raises what ends the round."""
        upward: Wire = [(u, client.begin_bytes()) for u, client in self._clients.items()]
        # Six stages at most, so the loop ends whatever the wire does.
        for _ in ServerPhase:
            for sender, data in self._spoil(upward):
                self._to_server(sender, data)
            if self._server.phase is ServerPhase.RECOVERING:
                break
            downward = self._spoil(self._server.close_round_bytes())
            upward = [answer for u, data in downward for answer in self._to_client(u, data)]
        return self._server.unmask()

    def _to_server(self, sender: int, data: bytes) -> None:
        try:
            self._server.receive_bytes(sender, data)
        except RemoteProtocolError as error:
            self._campaign.refusals[error.reason.name] += 1

    def _to_client(self, u: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        client = self._clients[u]
        try:
            answer = client.receive_bytes(data)
            if answer is None:
                vector = FieldVector(self._context.field, self._inputs[u].copy())
                answer = client.submit_bytes(vector)
        except ProtocolError as error:
            reason = getattr(error, "reason", None)
            self._campaign.refusals[reason.name if reason else type(error).__name__] += 1
            return
        yield u, answer

    def _spoil(self, wire: Wire) -> Wire:
        """What arrives of these messages, after what was delayed before."""
        arriving, self._late = self._late, []
        for party, data in wire:
            arriving += self._fault(party, data)
            self._old.append(data)
        return [arriving[i] for i in self._rng.permutation(len(arriving))]

    def _fault(self, party: int, data: bytes) -> Wire:
        if self._rng.random() >= self._rate:
            return [(party, data)]
        kind = FAULTS[self._rng.integers(len(FAULTS))]
        self._campaign.faults[kind] += 1
        if kind == "drop":
            return []
        if kind == "double":
            return [(party, data), (party, data)]
        if kind == "delay":
            self._late.append((party, data))
            return []
        return [(party, self._damaged(kind, data))]

    def _damaged(self, kind: str, data: bytes) -> bytes:
        place = int(self._rng.integers(len(data)))
        if kind == "flip":
            flipped = data[place] ^ (1 << int(self._rng.integers(8)))
            return data[:place] + bytes([flipped]) + data[place + 1 :]
        if kind == "cut":
            return data[:place]
        if kind == "extend":
            return data + self._rng.bytes(1 + place % 40)
        return self._old[self._rng.integers(len(self._old))] if self._old else b""


def _random_context(rng: np.random.Generator, number: int) -> SessionContext:
    """Complete and sparse graphs, both modes, with and without removable seeds."""
    size = int(rng.integers(4, 10))
    mode = Mode.ACTIVE if rng.random() < 0.6 else Mode.SEMI_HONEST
    degree = int(rng.choice([0, 0, 4])) if size > 6 else 0
    threshold = lowest_threshold(size, 0, mode, degree)
    lost = min(size - threshold, 3)
    removal = (
        tuple(int(mask) for mask in rng.integers(0, 8, lost + 1)) if rng.random() < 0.5 else ()
    )
    return SessionContext(
        session_id=number.to_bytes(16, "little"),
        round_number=number,
        cohort=tuple(_identity(u).public for u in range(size)),
        threshold=threshold,
        minimum_survivors=size - lost,
        mode=mode,
        tolerated_colluders=0,
        degree=degree,
        removal=removal,
        bits=int(rng.choice([8, 16, 24, 32, 61])),
        length=int(rng.integers(1, 20)),
        application_digest=bytes(32),
    )


def _identity(u: int) -> Identity:
    return Identity.from_private_bytes(hashlib.sha256(b"fault campaign %d" % u).digest())


def _counter_rand(seed: bytes) -> Callable[[int], bytes]:
    """A deterministic source, so that a schedule can be run again."""
    used = 0

    def rand(count: int) -> bytes:
        nonlocal used
        used += 1
        return hashlib.shake_256(seed + b"|%d" % used).digest(count)

    return rand
