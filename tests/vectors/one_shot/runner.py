"""Run the one-shot vector files through the state machines and functions of secagg."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from secagg import FieldVector, Identity, ParameterError
from secagg.keys import AgreementKey
from secagg.merkle import joint_proof_is_valid
from secagg.oneshot import gaussian, packed_sharing, public_element
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import Committee, CommitteeKind, Member
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import decode_from_member, decode_to_member, decode_upload
from secagg.oneshot.packing import Packing
from secagg.oneshot.records import MemberUploads, RoundRecord
from secagg.oneshot.ring import Ring
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.sortition import Draw, Places, Registry, ticket
from secagg.oneshot.wire import decode

from .. import player
from ..player import SERVER, Case, MismatchError, Player, deterministic, drawing, hexed, same
from ..schema import MessageCase, PrimitiveVector
from .schema import (
    DrawTerms,
    MemberUploadsTerms,
    OneShotOperation,
    OneShotRefusalVector,
    OneShotResult,
    OneShotRoundVector,
)
from .schema import (
    OneShotContext as ContextFields,
)


def cohort_of(told: ContextFields) -> Cohort:
    """The invited clients."""
    return Cohort([bytes.fromhex(key) for key in told["cohort"]])


def draw_of(told: DrawTerms) -> Draw:
    """How a committee was drawn."""
    return Draw(
        registry_root=bytes.fromhex(told["registry_root"]),
        registry_size=told["registry_size"],
        odds=told["odds"],
        beacon=bytes.fromhex(told["beacon"]),
    )


def uploads_of(told: MemberUploadsTerms) -> MemberUploads:
    """The terms of members' uploads."""
    return MemberUploads(
        fewest=told["fewest"],
        returning=told["returning"],
        fewest_returning=told["fewest_returning"],
        block=bytes.fromhex(told["block"]),
        records=tuple(
            RoundRecord(
                each["round_number"],
                each["clients"],
                tuple(each["entered"]),
                tuple(each["returned"]),
            )
            for each in told["records"]
        ),
    )


def context_of(told: ContextFields) -> OneShotContext:
    """The context, and that its root and its hash are the right ones."""
    cohort, named = cohort_of(told), told["committee"]
    same(cohort.root.hex(), told["cohort_root"], "cohort root")
    context = OneShotContext(
        session_id=bytes.fromhex(told["session_id"]),
        round_number=told["round_number"],
        size=len(cohort),
        cohort_root=cohort.root,
        committee=Committee(
            kind=CommitteeKind(named["kind"]),
            members=tuple(
                Member(
                    identity=bytes.fromhex(each["identity"]),
                    sealing_key=bytes.fromhex(each["sealing_key"]),
                    first_round=each["first_round"],
                    last_round=each["last_round"],
                    signature=bytes.fromhex(each["signature"]),
                )
                for each in named["members"]
            ),
            corrupt=named["corrupt"],
            randomness=named["randomness"],
            per_polynomial=named["per_polynomial"],
            quorum=named["quorum"],
            draw=draw_of(named["draw"]) if "draw" in named else None,
        ),
        minimum_survivors=told["minimum_survivors"],
        tolerated_colluders=told["tolerated_colluders"],
        degree=told["degree"],
        limbs=told["limbs"],
        rounding_bits=told["rounding_bits"],
        entries=told["entries"],
        allow_weak=told["allow_weak"],
        removal=tuple(told["removal"]),
        bits=told["bits"],
        length=told["length"],
        application_digest=bytes.fromhex(told["application_digest"]),
        opened_at=told["opened_at"],
        lifetime_seconds=told["lifetime_seconds"],
        member_uploads=uploads_of(told["member_uploads"]) if "member_uploads" in told else None,
    )
    same(context.hash.hex(), told["hash"], "context hash")
    return context


class OneShotPlay(Player):
    """A round, its clients, its members and its server."""

    def __init__(self, vector: OneShotRoundVector) -> None:
        super().__init__(vector)
        self.context = context_of(vector["context"])
        cohort = cohort_of(vector["context"])
        self.inputs, self.rounded = vector["inputs"], vector["rounded"]
        self.server = OneShotServer(self.context, cohort)
        keys = zip(vector["identities"], vector["rand_seeds"], strict=True)
        self.clients = [
            OneShotClient(
                self.context,
                u,
                Identity.from_private_bytes(bytes.fromhex(key)),
                cohort.proof(u),
                deterministic(bytes.fromhex(seed)),
                u in vector.get("returning", ()),
            )
            for u, (key, seed) in enumerate(keys)
        ]
        owners = zip(
            vector["member_identities"], vector["sealing_keys"], vector["own"], strict=True
        )
        self.members = [
            OneShotMember(
                self.context,
                j,
                Identity.from_private_bytes(bytes.fromhex(key)),
                AgreementKey(bytes.fromhex(sealing)),
                self.own(own),
            )
            for j, (key, sealing, own) in enumerate(owners)
        ]

    def own(self, told: list[Any] | None) -> tuple[int, bytes | None] | None:
        """What a member that is a client knows of its own upload."""
        if told is None:
            return None
        return told[0], None if told[1] is None else bytes.fromhex(told[1])

    def parties(self, role: str) -> Any:
        """The clients, or the members."""
        return self.members if role == "member" else self.clients

    def party(self, operation: OneShotOperation) -> int:
        """The client or member that a step is about."""
        return operation.get("party", SERVER)

    def server_state(self) -> object:
        """What a refused message must not change."""
        return self.server.phase, self.server.answered, self.server.survivors

    def client_seeds(self, operation: OneShotOperation) -> list[str]:
        """Ask for the removable seeds."""
        u = operation["party"]
        seeds = self.clients[u].seeds(bytes.fromhex(self.rounded[u]))
        return [seed.expose().hex() for seed in seeds]

    def client_submit(self, operation: OneShotOperation) -> bytes:
        """Hand over the input."""
        u, field = operation["party"], self.context.field
        return self.clients[u].submit_bytes(
            FieldVector(field, np.array(self.inputs[u], field.dtype))
        )

    def client_resend(self, operation: OneShotOperation) -> bytes:
        """Send the upload again."""
        return self.clients[operation["party"]].resend_bytes()

    def member_receive(self, operation: OneShotOperation) -> bytes:
        """A message from the server."""
        data = self.messages[operation["data"]]
        return self.members[operation["party"]].receive_bytes(data)

    def server_receive_upload(self, operation: OneShotOperation) -> None:
        """A message from a client."""
        self.server.receive_upload(operation["party"], self.messages[operation["data"]])

    def server_receive_from_member(self, operation: OneShotOperation) -> None:
        """A message from a member."""
        self.server.receive_from_member(operation["party"], self.messages[operation["data"]])

    def server_open(self, operation: OneShotOperation) -> OneShotResult:
        """The end of the last stage."""
        found = self.server.open()
        return {
            "total": found.vector.elements.tolist(),
            "survivors": list(found.survivors),
            "excluded": list(self.server.excluded),
            "wrong_members": list(found.wrong_members),
            "noisy": list(found.noisy),
            "seeds": {str(u): [seed.hex() for seed in given] for u, given in found.removed.items()},
        }


def run_round(vector: OneShotRoundVector) -> OneShotPlay:
    """All operations of a round."""
    return player.run_round(OneShotPlay, vector)


def run_refusal(vector: OneShotRefusalVector, base: OneShotRoundVector) -> None:
    """The refused step after the base's first ones; then the honest one in its place."""
    player.run_refusal(OneShotPlay, vector, base, (vector["role"], vector["party"]))


DECODERS = {"client": decode_upload, "member": decode_from_member, "server": decode_to_member}


def run_message(case: MessageCase) -> None:
    """One decoder; and the encoder, where the bytes are a message."""
    player.run_message(DECODERS, case)


# -- primitives ---------------------------------------------------------------------------------


def check_gaussian(case: Case) -> None:
    """Samples of a key."""
    (key,) = hexed(case, "key")
    same(gaussian.sample(key, len(case["samples"])).tolist(), case["samples"], "samples")


def check_public_element(case: Case) -> None:
    """Values in the transform domain: the first of each prime, and the hash of all words."""
    (key,) = hexed(case, "key")
    ring = Ring(case["degree"], case["limbs"])
    same(list(ring.primes), case["primes"], "primes")
    found = public_element.expand(ring, key, case["block"])
    same(found[:, : len(case["first"][0])].tolist(), case["first"], "values")
    hashed = hashlib.sha256(found.astype("<u4").tobytes()).hexdigest()
    same(hashed, case["sha256"], "hash of all values")


def check_ciphertext(case: Case) -> None:
    """Coefficients on the wire, and what must be refused."""
    ring = Ring(case["degree"], case["limbs"])
    packing = Packing(ring, case["largest"], case["clients"], case["rounding_bits"])
    same(packing.delta, case["delta"], "delta")
    same(packing.per, case["per"], "coordinates of a coefficient")
    (data,) = hexed(case, "encoded")
    try:
        found = decode(packing, case["length"], data)
    except ValueError:
        same(None, case["coefficients"], "coefficients")
        return
    wanted = [
        [(value << case["rounding_bits"]) % p for value in case["coefficients"]]
        for p in ring.primes
    ]
    same(found.residues.tolist(), wanted, "residues")
    same(found.encode(), data, "encoded")


def check_packed_shares(case: Case) -> None:
    """Shares of secrets, and that the last T + l open them."""
    secrets = np.array(case["secrets"], np.uint32)
    per, randomness, members = case["per_polynomial"], case["randomness"], case["members"]
    shares = packed_sharing.deal(secrets, per, randomness, members, drawing(case))
    same(shares.tolist(), case["shares"], "shares")
    last = range(members - per - randomness, members)
    opened, wrong = packed_sharing.open(
        shares[list(last)], list(last), randomness, per, len(secrets), deterministic(b"opening")
    )
    same((opened.tolist(), wrong), (case["secrets"], ()), "opened secrets")


def check_context(case: Case) -> None:
    """Check the encoding of a context and its hash."""
    same(context_of(case["context"]).encode().hex(), case["encoded"], "encoded context")


def check_draw(case: Case) -> None:
    """Tickets of all who are registered, and whether some are where they are said to be."""
    registry = Registry([bytes.fromhex(key) for key in case["registry"]])
    draw = draw_of(case["draw"])
    same(registry.root, draw.registry_root, "root")
    seed = draw.seed(bytes.fromhex(case["session_id"]), case["round_number"])
    same(seed.hex(), case["seed"], "seed")
    same([ticket(seed, key) for key in registry.keys], case["tickets"], "tickets")
    proof, count = bytes.fromhex(case["proof"]), len(registry)
    members = [registry.keys[place] for place in case["positions"] if place < count]
    members += [bytes(32)] * (len(case["positions"]) - len(members))
    found = joint_proof_is_valid(registry.root, members, case["positions"], count, proof)
    same(found, case["valid"], "proof")
    if found:
        same(registry.places(members), Places(tuple(case["positions"]), proof), "places")


def check_undrawn(case: Case) -> None:
    """A context that nobody takes."""
    try:
        context_of(case["context"])
    except ParameterError as error:
        same(error.argument, case["argument"], "argument")
        return
    raise MismatchError("a context that must be refused")


CHECKS: dict[str, Callable[[Case], None]] = {
    "one-shot-gaussian": check_gaussian,
    "one-shot-public-element": check_public_element,
    "one-shot-ciphertext": check_ciphertext,
    "one-shot-shares": check_packed_shares,
    "one-shot-context": check_context,
    "one-shot-draw": check_draw,
    "one-shot-undrawn": check_undrawn,
}


def run_primitive(vector: PrimitiveVector) -> None:
    """All cases of one building block."""
    for case in vector["cases"]:
        CHECKS[vector["primitive"]](case)
