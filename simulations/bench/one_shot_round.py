"""One whole one-shot round with real cryptography, every party timed by itself."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from protocol.exchange.one_shot import EXCHANGES, one_shot_script
from protocol.exchange.stages import SERVER_PARTY, Inbound, Messages, RoundOutcome, conduct
from protocol.round.losses import Stage
from protocol.round.one_shot_setup import OneShotAnnouncement, OneShotSetup
from protocol.schemes.committee import CommitteeNumbers, choose_ring
from secagg import Identity, PrimeField, centre, lift
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import CommitteeKind, Member, entry_is_signed
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import upload_bytes
from secagg.oneshot.server import OneShotServer
from secagg.pairwise.graph_parameters import share_of
from simulations.bench.round import CORRUPT, adding_parameters
from simulations.bench.timing import PartyClock, peak_rss_bytes
from simulations.common.committees import committee_figures

ROUND_TRIPS = {"client": 1, "member": 1 + len(EXCHANGES)}
"""Messages of a client, and of one that is a member as well, each waiting for the server's word."""
_WARM_UP = CommitteeNumbers(3, 0, 1, 2, 2)
_DISTINCT = 8
"""Different inputs: those of a thousand clients would not fit in memory."""


def bench_one_shot_round(
    clients: int, dim: int, dropout: float, bits: int, numbers: CommitteeNumbers, repeats: int = 1
) -> dict[str, Any]:
    """Run one round with a named committee, and check its sum against the plain sum.

    The lost clients never upload; every member answers. A client is made when its turn comes and
    gone when it has uploaded, so that the memory of this process is that of the server and the
    committee.

    `server_seconds`, `client_seconds_median` and `member_seconds_median` are each party's own work,
    one after the other in this process; the `cpu` figures are what of it this process spent
    computing, which say more on a busy machine. `announcement_seconds` is what a client takes to
    read the announcement and to check every member's key, if it has not yet in this session; it is
    not in its other seconds. `bytes_per_client` is what a surviving client sends and receives, the
    announcement counted; `floor_bytes_per_client` is the packed vector alone, and the `bytes_...`
    figures are those of each part. `member_bytes_down` and `member_bytes_up` are what a member is
    sent and sends. `round_trips` of a member are those of one that is a client too.
    `peak_rss_bytes` is that of this process.
    """
    if not _Round(4, 64, 0, bits, _WARM_UP).play()[0]:
        raise RuntimeError("the sum of the warm-up round is wrong")
    lost = int(clients * dropout)
    playing = _Round(clients, dim, lost, bits, numbers, keep=repeats > 1)
    context, announcement = playing.context, playing.setup.announce(lost)
    correct, outcome = playing.play()
    seconds, cpu = playing.clock.seconds, playing.clock.cpu_seconds
    peak = peak_rss_bytes()
    server, server_cpu = seconds[SERVER_PARTY], cpu[SERVER_PARTY]
    for _ in range(repeats - 1):
        again = playing.again()
        server = min(server, again.seconds[SERVER_PARTY])
        server_cpu = min(server_cpu, again.cpu_seconds[SERVER_PARTY])
    floor = context.field.packed_bytes(dim)
    parts = upload_bytes(context)
    each = outcome.bytes_up[lost] + len(announcement)
    down = statistics.median(outcome.member_bytes_down.values())
    uploaded, members = range(lost, clients), [_party(j) for j in range(numbers.size)]
    return {
        "clients": clients,
        "dim": dim,
        "bits": bits,
        "dropped": lost,
        **committee_figures(numbers),
        "ring_degree": context.degree,
        "ring_limbs": context.limbs,
        "rounding_bits": context.rounding_bits,
        "server_seconds": server,
        "client_seconds_median": statistics.median(seconds[i] for i in uploaded),
        "member_seconds_median": statistics.median(seconds[j] for j in members),
        "server_cpu_seconds": server_cpu,
        "client_cpu_seconds_median": statistics.median(cpu[i] for i in uploaded),
        "member_cpu_seconds_median": statistics.median(cpu[j] for j in members),
        "announcement_seconds": _seconds_to_join(announcement, playing.setup),
        "bytes_per_client": each,
        "floor_bytes_per_client": floor,
        "bytes_ratio": each / floor,
        "bytes_vector": parts["ciphertext"],
        "bytes_seals": parts["seals"],
        "bytes_seeds": parts["commitments"],
        "bytes_header": outcome.bytes_up[lost] - sum(parts.values()) + parts["header"],
        "bytes_announcement": len(announcement),
        "member_bytes_down": down,
        "member_bytes_up": statistics.median(outcome.member_bytes_up.values()),
        "member_bytes_down_per_upload": down / (clients - lost),
        "round_trips": ROUND_TRIPS,
        "peak_rss_bytes": peak,
        "correct": correct,
    }


class _Round:
    """All parties of a round that only adds integers: no clip, no sketch, no noise."""

    def __init__(
        self,
        clients: int,
        dim: int,
        lost: int,
        bits: int,
        numbers: CommitteeNumbers,  # of the committee
        *,
        keep: bool = False,  # all messages to the server, to play its part again
    ) -> None:
        self._keep = keep
        self._kept_uploads: list[tuple[int, bytes]] = []
        self._kept_answers: dict[IntEnum, list[tuple[int, bytes]]] = {}
        self._identities = [Identity.generate() for _ in range(clients)]
        self._named = [Identity.generate() for _ in range(numbers.size)]
        self._sealing = [AgreementKey(os.urandom(KEY_BYTES)) for _ in range(numbers.size)]
        self._lost = lost
        largest = PrimeField(bits).largest_centred // clients
        parameters = adding_parameters(dim, largest, lost)
        cohort = Cohort([identity.public for identity in self._identities])
        session = os.urandom(16)
        members = [
            Member.sign(identity, session, key.public, 0, 0)
            for identity, key in zip(self._named, self._sealing, strict=True)
        ]
        ring = choose_ring(clients, dim, bits, 0, numbers)
        self.context = OneShotContext(
            session_id=session,
            round_number=0,
            size=clients,
            cohort_root=cohort.root,
            minimum_survivors=clients - lost,
            tolerated_colluders=share_of(clients, CORRUPT),
            committee=numbers.committee(CommitteeKind.NAMED, members),
            degree=ring.degree,
            limbs=ring.limbs,
            rounding_bits=ring.rounding_bits,
            entries=ring.entries,
            bits=bits,
            length=dim,
            application_digest=parameters.digest(),
        )
        self.setup = OneShotSetup(self.context, parameters, cohort)
        self.clock = PartyClock()
        generator = np.random.default_rng(0)
        distinct = min(clients, _DISTINCT)
        self._inputs = generator.integers(-largest, largest + 1, (distinct, dim))
        self._members: dict[int, OneShotMember] = {}

    def play(self) -> tuple[bool, RoundOutcome]:
        """Play it; whether the sum is right, and what became of everything."""
        server = OneShotServer(self.context, self.setup.known_cohort())
        script = one_shot_script(server, self.setup)
        outcome = conduct(script, self._announced(), self._carry, clock=self.clock)
        survivors = np.arange(self._lost, self.context.size) % len(self._inputs)
        plain = np.bincount(survivors, minlength=len(self._inputs)) @ self._inputs
        return bool(np.array_equal(centre(outcome.total.vector), plain)), outcome

    def again(self) -> PartyClock:
        """The server's part once more, on the messages that were kept; returns its time."""
        clock, server = PartyClock(), OneShotServer(self.context, self.setup.known_cohort())

        def answers(stage: IntEnum, messages: Messages) -> Iterator[tuple[int, bytes]]:
            for _ in messages:
                pass
            yield from self._kept_uploads if stage is Stage.INPUT else self._kept_answers[stage]

        conduct(one_shot_script(server, self.setup), self._announced(), answers, clock=clock)
        return clock

    def _announced(self) -> Iterator[tuple[int, bytes]]:
        """Whoever uploads, told nothing: its context is at hand."""
        return ((index, b"") for index in range(self._lost, self.context.size))

    def _carry(self, stage: IntEnum, messages: Messages) -> Inbound:
        return self._uploads(messages) if stage is Stage.INPUT else self._answers(stage, messages)

    def _uploads(self, messages: Messages) -> Iterator[tuple[int, bytes]]:
        cohort = self.setup.known_cohort()
        for index, _ in messages:
            # The server's work, which it may do long before a round.
            proof = cohort.proof(index)
            upload = index, self.clock.charge(index, partial(self._upload, index, proof))
            if self._keep:
                self._kept_uploads.append(upload)
            yield upload

    def _upload(self, index: int, proof: bytes) -> bytes:
        values = self._inputs[index % len(self._inputs)]
        client = OneShotClient(self.context, index, self._identities[index], proof)
        client.seeds(values.tobytes())
        return client.submit_bytes(lift(values, self.context.field))

    def _answers(self, stage: IntEnum, messages: Messages) -> Iterator[tuple[int, bytes]]:
        kept = self._kept_answers.setdefault(stage, [])
        for index, data in messages:
            answer = index, self.clock.charge(_party(index), partial(self._answer, index, data))
            if self._keep:
                kept.append(answer)
            yield answer

    def _answer(self, index: int, data: bytes) -> bytes:
        if index not in self._members:
            keys = self._named[index], self._sealing[index]
            self._members[index] = OneShotMember(self.context, index, *keys)
        return self._members[index].receive_bytes(data)


def _party(member: int) -> int:
    """What a member's work is charged to."""
    return SERVER_PARTY - 1 - member


def _seconds_to_join(announcement: bytes, setup: OneShotSetup) -> float:
    """Of reading the first announcement of a session, which checks the members' keys."""
    entry_is_signed.cache_clear()
    start = time.perf_counter()
    OneShotAnnouncement.read(announcement).setup(setup.parameters.model_digest)
    return time.perf_counter() - start
