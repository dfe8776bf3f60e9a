"""Clients made from the documents join rounds of training by what the server announces."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from dp import CoinSchedule, Ledger
from protocol import (
    ClientHistory,
    Independent,
    OneShot,
    Pairwise,
    PrivacyGoal,
    PrivateTraining,
    RemoteAggregator,
    TrainingPlan,
)
from protocol.exchange.remote import answer_or_refuse
from protocol.exchange.remote_one_shot import RemoteMember, RemoteOneShotAggregator
from protocol.round.member import MemberPolicy, RoundMember
from protocol.round.stored_sealing import SealingFolder
from protocol.round.stored_upload import UploadReceipt
from secagg import Identity, Mode
from sketch.controllers import FixedRate
from tests.independent.client import PairwiseClient
from tests.independent.context import (
    Context,
    OneShotContext,
    read_announcement,
    read_one_shot,
    removal_table,
)
from tests.independent.one_shot import OneShotClient
from tests.independent.wire import Refused, field_prime

SIZE, DROPOUTS = 8, 2
KEYS = [Ed25519PrivateKey.generate() for _ in range(SIZE)]
IDENTITIES = [Identity.from_private_bytes(key.private_bytes_raw()) for key in KEYS]
REGISTRY = [identity.public for identity in IDENTITIES]
MODEL = hashlib.sha256(b"a model").digest()
COINS, ROUNDED = Independent(), Independent(exact=False)
SKELLAM = Independent(mechanism="skellam")

Messages = Iterable[tuple[int, bytes]]


def vector_of(index: int, bits: int, length: int) -> list[int]:
    """Small signed integers, modulo p."""
    prime = field_prime(bits)
    return [(index - place % 8) % prime for place in range(length)]


def plan_of(scheme: Any, noise: Independent) -> TrainingPlan:
    """A plan for one round of all."""
    return TrainingPlan(
        goal=PrivacyGoal(epsilon=8.0, delta=1e-6, rounds=1),
        cohort=SIZE,
        tolerated_dropouts=DROPOUTS,
        tolerated_colluders=0,
        clip_l2=1.0,
        lifetime_seconds=600,
        scheme=scheme,
        noise=noise,
    )


def run(plan: TrainingPlan, aggregator: Any, folder: Path, size: int, lost: set[int]) -> None:
    """A round of so many coordinates, whose sum has to be exact."""
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        rate = FixedRate(1.0)
        training = PrivateTraining(plan, size, rate, aggregator, ledger, clock=time.time)
        total = training.run_round(REGISTRY, MODEL).outcome.total
    assert total.survivors == tuple(index for index in range(SIZE) if index not in lost)
    bits, elements = total.vector.field.bits, total.vector.elements
    vectors = [vector_of(index, bits, len(elements)) for index in total.survivors]
    assert np.array_equal(elements, np.sum(vectors, axis=0) % field_prime(bits))
    surplus = plan.noise == COINS and len(lost) < DROPOUTS
    assert len(total.removed) == (len(total.survivors) if surplus else 0)


@pytest.mark.parametrize(
    ("mode", "noise", "answers", "lost"),  # some clients send only so many messages
    [
        (Mode.ACTIVE, COINS, {}, set()),
        (Mode.ACTIVE, COINS, {4: 1}, {4}),
        (Mode.ACTIVE, COINS, {4: 2, 1: 3}, {4}),  # of client 1 the seeds are asked for
        (Mode.ACTIVE, COINS, {4: 2, 7: 1}, {4, 7}),
        (Mode.SEMI_HONEST, COINS, {4: 2, 0: 3}, {4}),
        (Mode.SEMI_HONEST, ROUNDED, {4: 1}, {4}),
        (Mode.ACTIVE, SKELLAM, {4: 2}, {4}),
    ],
)
def test_pairwise_rounds(
    mode: Mode, noise: Independent, answers: dict[int, int], lost: set[int], tmp_path: Path
) -> None:
    clients: dict[int, PairwiseClient] = {}
    left = dict(answers)

    def begin(index: int, data: bytes) -> bytes:
        context = read_announcement(data, MODEL)
        vector = vector_of(index, context.bits, context.length)
        clients[index] = PairwiseClient(context, KEYS[index], lambda _: vector)
        return clients[index].begin()

    def exchange(stage: Any, messages: Messages) -> Iterator[tuple[int, bytes]]:
        for index, message in messages:
            left[index] = left.get(index, 9) - 1
            if left[index] >= 0:
                step = (
                    clients[index].receive if index in clients else lambda d, i=index: begin(i, d)
                )
                yield index, b"\0" + step(bytes(message))

    plan = plan_of(Pairwise(mode=mode), noise)
    run(plan, RemoteAggregator(exchange), tmp_path, 300, lost)


AWAY = 4  # is asked, and never heard of again
CHANGES: list[dict[str, Any]] = [
    {"session_id": bytes(16)},  # members' keys are signed for another one
    {"round_number": 2**40},
    {"randomness": 0, "corrupt": 1},
    {"randomness": 4},
    {"quorum": 4},
    {"minimum_survivors": 4},
    {"degree": 4096, "limbs": 4},
    {"rounding_bits": 0},
    {"cohort_root": bytes(32)},
    {"opened_at": 1},
]


@pytest.mark.parametrize(("noise", "size"), [(COINS, 40), (SKELLAM, 3000), (ROUNDED, 10000)])
def test_one_shot_rounds(noise: Independent, size: int, tmp_path: Path) -> None:
    plan = plan_of(OneShot(), noise)
    policy = MemberPolicy(
        minimum_survivors=plan.minimum_survivors,
        tolerated_colluders=0,
        corrupt=0,
        registry=frozenset(REGISTRY),
    )
    keys: dict[int, Any] = {}
    members: dict[int, RemoteMember] = {}
    receipts: dict[int, UploadReceipt] = {}

    def collect(announcements: Messages) -> Iterator[tuple[int, bytes]]:
        for number, data in announcements:
            context = read_one_shot(bytes(data), MODEL)
            if number == AWAY:
                for change in CHANGES:
                    with pytest.raises(Refused):
                        OneShotClient(OneShotContext(**vars(context) | change), KEYS[number])
                with pytest.raises(Refused, match="model"):
                    read_one_shot(bytes(data), bytes(32))
                continue
            client = OneShotClient(context, KEYS[number])
            vector = vector_of(number, context.bits, context.length)
            yield number, b"\0" + client.upload(vector)
            with pytest.raises(Refused, match="second"):
                client.upload(vector)
            terms = (context.session_id, context.round_number, context.index)
            receipts[number] = UploadReceipt(*terms, client.name, hashlib.sha256(data).digest())

    def consult(stage: Any, messages: Messages) -> Iterator[tuple[int, bytes]]:
        for number, message in messages:
            if number not in members:
                who = (IDENTITIES[number], keys[number])
                member = RoundMember(*who, policy, ClientHistory(), time.time)
                members[number] = RemoteMember(member, receipts.get(number))
            yield number, answer_or_refuse(members[number], message)[0]

    def members_of(session: bytes, cohort: Any, number: int) -> list[Any]:
        for index, identity in enumerate(IDENTITIES):
            folder = SealingFolder(tmp_path / str(index), time.time)
            keys[index] = folder.begin(identity, session)
        return [keys[index].entry for index in range(SIZE)]

    run(plan, RemoteOneShotAggregator(collect, consult, members_of), tmp_path, size, {AWAY})


@given(
    coins=st.integers(1, 10**5),
    cohort=st.integers(2, 150),
    dropouts=st.integers(0, 40),
    colluders=st.integers(0, 20),
)
def test_removal_tables(coins: int, cohort: int, dropouts: int, colluders: int) -> None:
    fewest = cohort - dropouts - colluders
    assume(fewest > 0)
    schedule = CoinSchedule.best(
        target_coins=coins * fewest,
        cohort=cohort,
        tolerated_dropouts=dropouts,
        tolerated_colluders=colluders,
    )
    removed = [schedule.removed(lost) for lost in range(dropouts + 1)]
    masks = [sum(1 << (batch - 1) for batch in batches) for batches in removed]
    terms = {"tolerated_dropouts": dropouts, "tolerated_colluders": colluders, "exact": True}
    found = removal_table(Context(noise=coins, **terms), cohort)
    assert found == (masks if len(schedule.batches) > 1 else [])
