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
from tests.independent.blocks import answer, field_prime
from tests.independent.client import PairwiseClient
from tests.independent.context import read_announcement, read_one_shot, removal_table
from tests.independent.one_shot import OneShotClient

SIZE, DROPOUTS = 20, 5
KEYS = [Ed25519PrivateKey.generate() for _ in range(SIZE)]
IDENTITIES = [Identity.from_private_bytes(key.private_bytes_raw()) for key in KEYS]
REGISTRY = [identity.public for identity in IDENTITIES]
MODEL = hashlib.sha256(b"a model").digest()
AWAY = 4  # is asked, and never heard of again

Messages = Iterable[tuple[int, bytes]]


def vector_of(index: int, bits: int, length: int) -> list[int]:
    """Small signed integers, modulo p."""
    prime = field_prime(bits)
    return [(index - place % 8) % prime for place in range(length)]


def run(plan: TrainingPlan, aggregator: Any, folder: Path, rate: float = 1.0) -> None:
    """A round of 300 coordinates, whose sum has to be exact."""
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        training = PrivateTraining(plan, 300, FixedRate(rate), aggregator, ledger, clock=time.time)
        total = training.run_round(REGISTRY, MODEL).outcome.total
    assert total.survivors == tuple(index for index in range(SIZE) if index != AWAY)
    bits, elements = total.vector.field.bits, total.vector.elements
    vectors = [vector_of(index, bits, len(elements)) for index in total.survivors]
    assert np.array_equal(elements, np.sum(vectors, axis=0) % field_prime(bits))


def plan_of(**terms: Any) -> TrainingPlan:
    """A plan for one round of all."""
    goal = PrivacyGoal(epsilon=8.0, delta=1e-6, rounds=1)
    return TrainingPlan(
        goal=goal,
        cohort=SIZE,
        tolerated_dropouts=DROPOUTS,
        clip_l2=1.0,
        lifetime_seconds=600,
        **terms,
    )


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
    masks = tuple(sum(1 << (batch - 1) for batch in batches) for batches in removed)
    expected = masks if len(schedule.batches) > 1 else ()
    assert removal_table(coins, cohort, dropouts, colluders) == expected


NOISES = [Independent(), Independent(exact=False), Independent(mechanism="skellam")]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("rate", [1.0, 5.0])
def test_pairwise_rounds(noise: Independent, mode: Mode, rate: float, tmp_path: Path) -> None:
    clients: dict[int, PairwiseClient] = {}

    def exchange(stage: Any, messages: Messages) -> Iterator[tuple[int, bytes]]:
        for index, message in messages:
            if index not in clients:
                context = read_announcement(bytes(message), MODEL)
                vector = vector_of(index, context.bits, context.length)
                client = PairwiseClient(context, KEYS[index], lambda seeds, v=vector: v, time.time)  # type: ignore[misc]
                clients[index] = client
                yield index, answer(client.begin)
            elif index != AWAY:
                yield index, answer(lambda i=index, m=message: clients[i].receive(bytes(m)))  # type: ignore[misc]

    plan = plan_of(noise=noise, scheme=Pairwise(mode=mode), tolerated_colluders=1)
    run(plan, RemoteAggregator(exchange), tmp_path, rate)


@pytest.mark.parametrize("noise", NOISES)
def test_one_shot_rounds(noise: Independent, tmp_path: Path) -> None:
    plan = plan_of(noise=noise, scheme=OneShot(), tolerated_colluders=0)
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
            context, index, path = read_one_shot(bytes(data), MODEL)
            client = OneShotClient(context, index, path, KEYS[number], time.time)
            vector = vector_of(index, context.bits, context.length)
            if number != AWAY:
                yield number, answer(lambda c=client, v=vector: c.upload(v))  # type: ignore[misc]
                announced = hashlib.sha256(data).digest()
                terms = (context.session_id, context.round_number, index)
                receipts[number] = UploadReceipt(*terms, client.name, announced)

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

    run(plan, RemoteOneShotAggregator(collect, consult, members_of), tmp_path)
