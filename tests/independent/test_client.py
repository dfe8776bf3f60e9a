"""Clients made from the documents play the test vectors."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.independent.client import PairwiseClient
from tests.independent.context import Context
from tests.independent.wire import Refused

HERE = Path(__file__).parent
VECTORS = HERE.parent / "vectors"
PLAYED = sorted((VECTORS / "rounds").glob("*.json"))
PLAYED += sorted((VECTORS / "refusals").glob("client-*.json"))


@cache
def load(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


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
        terms["cohort"] = [bytes.fromhex(key) for key in terms["cohort"]]
        context = Context(**terms)
        assert context.hash.hex() == announced
        self.played, self.now = played, context.opened_at
        self.clients = [self.client(context, place) for place in range(len(context.cohort))]
        self.answers: dict[int, bytes] = {}

    def client(self, context: Context, place: int) -> PairwiseClient:
        names = ("identities", "rand_seeds", "inputs")
        key, seed, vector = (self.played[name][place] for name in names)
        identity = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key))
        rand = rand_of(bytes.fromhex(seed))
        return PairwiseClient(context, identity, lambda _: vector, lambda: self.now, rand)

    def play(self, operation: dict[str, Any], messages: dict[str, str]) -> None:
        """Play a client's step, and compare its answer."""
        who = operation["client"]
        if operation["op"] == "client_begin":
            self.answers[who] = self.clients[who].begin()
        elif operation["op"] == "client_receive":
            data = bytes.fromhex(messages[operation["data"]])
            self.answers[who] = self.clients[who].receive(data)
        if operation.get("expect"):  # the masked vector is asked for one operation later
            assert self.answers[who].hex() == messages[operation["expect"]]


@pytest.mark.parametrize("path", PLAYED, ids=lambda path: path.stem)
def test_plays_the_vectors(path: Path) -> None:
    """All that clients send in a round, or what one client refuses, and then stops for good."""
    vector = load(path)
    base = load(VECTORS / "rounds" / f"{vector.get('base', path.stem)}.json")
    messages, player = base["messages"] | vector["messages"], Player(base)
    who, refusing = vector.get("party"), "base" in vector
    steps = base["operations"][: vector.get("steps")]
    for step in steps:
        if "client" in step and (who is None or step["client"] == who):
            player.play(step, messages)
    if refusing:
        *steps, last = vector["operations"]
        for step in steps:
            player.play(step, messages)
        for data in (last["data"], last.get("instead_of", last["data"])):
            with pytest.raises(Refused):
                player.play(last | {"data": data}, messages)


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": 1},
        {"tolerated_colluders": 2},
        {"minimum_survivors": 4},
        {"mode": "trusting"},
        {"cohort": [bytes(32)] * 3},
    ],
)
def test_begins_no_round_that_promises_nothing(change: dict[str, Any]) -> None:
    client = Player(load(VECTORS / "rounds" / "active.json")).clients[0]
    vars(client.context).update(change)
    with pytest.raises(Refused):
        client.begin()


def test_leaves_when_the_round_is_over() -> None:
    played = load(VECTORS / "rounds" / "sparse.json")
    player = Player(played)
    player.play(played["operations"][0], played["messages"])
    player.now += player.clients[0].context.lifetime_seconds + 1
    with pytest.raises(Refused, match="time"):
        player.clients[0].receive(bytes.fromhex(played["messages"]["roster 0"]))


def test_needs_the_standard_library_and_cryptography_alone() -> None:
    for path in {*HERE.glob("*.py")} - {*HERE.glob("test_*.py")}:
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "from ")):
                module = line.split()[1]
                known = module.split(".")[0] in {*sys.stdlib_module_names, "cryptography"}
                assert known or module.startswith("tests.independent"), line
