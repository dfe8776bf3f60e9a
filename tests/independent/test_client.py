"""Clients made from the documents, against the test vectors and among the project's own."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secagg import (
    ClientSession,
    FieldVector,
    Identity,
    Mode,
    PrimeField,
    ServerSession,
    SessionContext,
)
from tests.independent.blocks import Refused
from tests.independent.client import PairwiseClient
from tests.independent.context import Context

VECTORS = Path(__file__).parents[1] / "vectors"
ROUNDS = {path.stem: json.loads(path.read_text()) for path in (VECTORS / "rounds").glob("*.json")}
REFUSALS = sorted((VECTORS / "refusals").glob("client-*.json"))
KEYS = [Ed25519PrivateKey.generate() for _ in range(9)]
IDENTITIES = [Identity.from_private_bytes(key.private_bytes_raw()) for key in KEYS]


def rand_of(seed: bytes) -> Callable[[int], bytes]:
    """A client's randomness, as docs/test-vectors.md has it."""
    blocks = (hashlib.sha256(seed + i.to_bytes(8, "big")).digest() for i in range(2**62))
    return lambda size: b"".join(next(blocks) for _ in range(-(-size // 32)))[:size]


class Player:
    """The clients of a round of the vectors, and the last answer of each."""

    def __init__(self, played: dict[str, Any]) -> None:
        terms = dict(played["context"])
        announced = terms.pop("hash")
        for name in ("session_id", "application_digest"):
            terms[name] = bytes.fromhex(terms[name])
        terms |= {"cohort": tuple(map(bytes.fromhex, terms["cohort"]))}
        context = Context(**terms | {"removal": tuple(terms["removal"])})
        assert context.hash.hex() == announced
        people = zip(played["identities"], played["rand_seeds"], played["inputs"], strict=True)
        now = context.opened_at
        self.clients = [
            PairwiseClient(
                context,
                Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key)),
                lambda seeds, vector=vector: vector,  # type: ignore[misc]
                lambda: now,
                rand_of(bytes.fromhex(seed)),
            )
            for key, seed, vector in people
        ]
        self.answers: dict[int, bytes] = {}

    def play(self, operation: dict[str, Any], messages: dict[str, str]) -> None:
        """Play a client's step, and compare its answer."""
        who = operation["client"]
        if operation["op"] == "client_begin":
            self.answers[who] = self.clients[who].begin()
        elif operation["op"] == "client_receive":
            self.answers[who] = self.clients[who].receive(
                bytes.fromhex(messages[operation["data"]])
            )
        if operation.get("expect"):  # the masked vector is asked for one operation later
            assert self.answers[who].hex() == messages[operation["expect"]]


@pytest.mark.parametrize("name", sorted(ROUNDS))
def test_every_message_of_the_vectors(name: str) -> None:
    player = Player(ROUNDS[name])
    for operation in ROUNDS[name]["operations"]:
        if "client" in operation:
            player.play(operation, ROUNDS[name]["messages"])


@pytest.mark.parametrize("path", REFUSALS, ids=lambda path: path.stem)
def test_refuses_what_the_vectors_refuse(path: Path) -> None:
    refusal = json.loads(path.read_text())
    base, party, last = ROUNDS[refusal["base"]], refusal["party"], refusal["operations"][-1]
    messages, player = base["messages"] | refusal["messages"], Player(base)
    steps = [step for step in base["operations"][: refusal["steps"]] if step.get("client") == party]
    for step in steps + refusal["operations"][:-1]:
        player.play(step, messages)
    for data in (last["data"], last.get("instead_of", last["data"])):  # a client stops for good
        with pytest.raises(Refused):
            player.play(last | {"data": data}, messages)


def run_round(context: SessionContext, leaves: dict[int, int]) -> None:
    """A round of the project's server; clients with odd indices are made from the documents.

    Clients in `leaves` answer only so many messages. The sum has to be exact.
    """
    field, server = PrimeField(context.bits), ServerSession(context)
    draws = np.random.default_rng(7).integers(0, field.modulus, (context.size, context.length))
    vectors = draws.astype(field.dtype)
    terms = {name: getattr(context, name) for name in Context.__dataclass_fields__}
    ours = Context(**terms | {"mode": context.mode.value})
    receivers: list[Callable[[bytes], bytes | None]] = []
    for index in range(context.size):
        if index % 2:
            numbers = vectors[index].tolist()
            client = PairwiseClient(ours, KEYS[index], lambda seeds, v=numbers: v)  # type: ignore[misc]
            server.receive_bytes(index, client.begin())
            receivers.append(client.receive)
        else:
            session = ClientSession(context, index, IDENTITIES[index])
            server.receive_bytes(index, session.begin_bytes())
            vector = FieldVector(field, vectors[index])
            receivers.append(
                lambda data, s=session, v=vector: s.receive_bytes(data) or s.submit_bytes(v)  # type: ignore[misc]
            )
    left = dict(leaves)
    for _ in range(4 + (context.mode is Mode.ACTIVE)):  # the last is empty, or asks for seeds
        for index, data in server.close_round_bytes():
            left[index] = left.get(index, 9) - 1
            if left[index] >= 0:
                server.receive_bytes(index, receivers[index](data) or b"")
    total = server.unmask()
    assert total.survivors == tuple(i for i in range(context.size) if leaves.get(i, 9) >= 2)
    assert np.array_equal(
        total.vector.elements, vectors[list(total.survivors)].sum(axis=0) % field.modulus
    )
    assert len(total.removed) == (len(total.survivors) if context.removal else 0)


@pytest.mark.parametrize("leaves", [{}, {1: 0}, {2: 1, 5: 1}, {3: 1, 4: 2}, {3: 2, 4: 3}])
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(("degree", "removal"), [(0, ()), (0, (3, 1, 2, 2)), (6, (1, 2, 3, 1))])
def test_rounds_among_the_projects_clients(
    mode: Mode, degree: int, removal: tuple[int, ...], leaves: dict[int, int]
) -> None:
    context = SessionContext(
        session_id=bytes(16),
        round_number=3,
        cohort=tuple(identity.public for identity in IDENTITIES),
        threshold=4 if degree else 5,
        minimum_survivors=6,
        mode=mode,
        tolerated_colluders=0,
        degree=degree,
        removal=removal,
        bits=17,
        length=20,
        application_digest=bytes(32),
    )
    run_round(context, leaves)


def test_leaves_when_the_round_is_over() -> None:
    player = Player(ROUNDS["sparse"])
    client, operations = player.clients[0], ROUNDS["sparse"]["operations"]
    player.play(operations[0], ROUNDS["sparse"]["messages"])
    client.clock = lambda: client.context.opened_at + client.context.lifetime_seconds + 1
    with pytest.raises(Refused, match="time"):
        client.receive(bytes.fromhex(ROUNDS["sparse"]["messages"]["roster 0"]))


def test_needs_the_standard_library_and_cryptography_alone() -> None:
    for name in ("blocks", "client", "context", "draw", "one_shot"):
        source = Path(__file__).with_name(f"{name}.py").read_text()
        for line in source.splitlines():
            if line.startswith(("import ", "from ")):
                module = line.split()[1]
                known = module.split(".")[0] in {*sys.stdlib_module_names, "cryptography"}
                assert known or module.startswith("tests.independent."), line
