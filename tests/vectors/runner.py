"""Run vector files through the state machines and functions of secagg.

Nothing here knows how the files were made; another implementation needs a runner like this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from secagg import (
    ClientSession,
    FieldVector,
    Identity,
    Mode,
    PrimeField,
    ProtocolError,
    RemoteProtocolError,
    ServerSession,
    SessionContext,
    TooFewSurvivorsError,
    WrongSharesError,
)
from secagg.errors import OpeningFailedError
from secagg.field import pack, unpack
from secagg.framing import decode_set, encode_message, encode_set
from secagg.keys import AgreementKey, SecretSeed, signature_is_valid
from secagg.merkle import HashTree, proof_is_valid
from secagg.pairwise.committee import choose_committee
from secagg.pairwise.graph import build_graph, random_order
from secagg.pairwise.masks import pairwise_key, self_key
from secagg.pairwise.messages import decode_from_client, decode_from_server
from secagg.pairwise.prg import accumulate_masks, expand_mask
from secagg.pairwise.roster import commitment
from secagg.pairwise.transitions import ClientPhase, ServerPhase
from secagg.sealing import seal, unseal
from secagg.shamir import Rand, combine, decode_share, encode_share, split
from secagg.tags import Usage, derive, digest, encode_index, tagged

from .schema import (
    Context,
    Error,
    MessageCase,
    Operation,
    PrimitiveVector,
    RefusalVector,
    Result,
    RoundVector,
)

SERVER = -1
Case = Mapping[str, Any]


class MismatchError(AssertionError):
    """The implementation and a vector differ."""


def same(found: object, expected: object, what: str) -> None:
    """Raise an error if two values differ."""
    if found != expected:
        raise MismatchError(f"{what}: {found!r}, expected {expected!r}")


def deterministic(seed: bytes) -> Rand:
    """The clients' randomness, as docs/test-vectors.md defines it."""
    block = 0

    def rand(count: int) -> bytes:
        nonlocal block
        out = bytearray()
        while len(out) < count:
            out += hashlib.sha256(seed + block.to_bytes(8, "big")).digest()
            block += 1
        return bytes(out[:count])

    return rand


def context_of(told: Context) -> SessionContext:
    """The context, and that its hash is the right one."""
    context = SessionContext(
        session_id=bytes.fromhex(told["session_id"]),
        round_number=told["round_number"],
        cohort=tuple(bytes.fromhex(key) for key in told["cohort"]),
        threshold=told["threshold"],
        minimum_survivors=told["minimum_survivors"],
        mode=Mode(told["mode"]),
        tolerated_colluders=told["tolerated_colluders"],
        degree=told["degree"],
        removal=tuple(told["removal"]),
        bits=told["bits"],
        length=told["length"],
        application_digest=bytes.fromhex(told["application_digest"]),
        security_bits=told["security_bits"],
        opened_at=told["opened_at"],
        lifetime_seconds=told["lifetime_seconds"],
    )
    same(context.hash.hex(), told["hash"], "context hash")
    return context


def error_of(error: ProtocolError) -> Error:
    """An exception as in the files."""
    described: Error = {"type": type(error).__name__}  # type: ignore[typeddict-item]
    if isinstance(error, RemoteProtocolError):
        described |= {"party": error.party, "reason": error.reason.name}
        if error.role != "client":
            described |= {"role": error.role}
    if isinstance(error, TooFewSurvivorsError):
        described |= {"stage": error.stage, "survivors": error.survivors, "needed": error.needed}
    if isinstance(error, WrongSharesError):
        described |= {
            "owner": error.owner,
            "answered": error.answered,
            "threshold": error.threshold,
        }
    if isinstance(error, OpeningFailedError):
        described |= {
            "answered": error.answered,
            "needed": error.needed,
            "dealers": list(error.dealers),
            "members": list(error.members),
        }
    return described


class Play:
    """The parties of a round, taking the steps that a file lists."""

    def __init__(self, vector: RoundVector) -> None:
        self.context = context_of(vector["context"])
        self.messages = {name: bytes.fromhex(data) for name, data in vector["messages"].items()}
        self.inputs = vector["inputs"]
        self.server = ServerSession(self.context)
        self.clients = [
            ClientSession(self.context, u, Identity.from_private_bytes(key), deterministic(seed))
            for u, (key, seed) in enumerate(
                zip(
                    map(bytes.fromhex, vector["identities"]),
                    map(bytes.fromhex, vector["rand_seeds"]),
                    strict=True,
                )
            )
        ]

    def step(self, operation: Operation) -> None:
        """Take one step and compare its outcome."""
        where = f"{operation['op']} {operation.get('client', '')}"
        take: Callable[[Operation], object] = getattr(self, operation["op"])
        if (error := operation.get("error")) is None:
            outcome = take(operation)
            if "expect" in operation:
                same(outcome, self.known(operation["expect"]), where)
            return
        before = self.server_state()
        try:
            take(operation)
        except ProtocolError as raised:
            same(error_of(raised), error, where)
        else:
            raise MismatchError(f"{where}: accepted, expected {error}")
        self.check_after_error(operation, before)

    def check_after_error(self, operation: Operation, before: object) -> None:
        """Clients abort, the server is as it was, and a deadline that failed ends the session."""
        if operation["op"].startswith("client"):
            over = {ClientPhase.ABORTED, ClientPhase.FINISHED}
            same(self.clients[operation["client"]].phase in over, True, "the client's end")
        elif operation["op"] == "server_receive":
            same(self.server_state(), before, "the server's state after a refused message")
        else:
            same(self.server.phase, ServerPhase.ABORTED, "the server's phase")

    def server_state(self) -> object:
        """What a refused message must not change."""
        return self.server.phase, self.server.answered, self.server.participants

    def known(self, expected: Any) -> Any:
        """What is expected, with bytes in the place of the names of messages."""
        if isinstance(expected, str):
            return self.messages[expected]
        if isinstance(expected, list):
            return [(to, self.messages[name]) for to, name in expected]
        return expected

    def client_begin(self, operation: Operation) -> bytes:
        """Open the round."""
        return self.clients[operation["client"]].begin_bytes()

    def client_receive(self, operation: Operation) -> bytes | None:
        """A message from the server."""
        data = self.messages[operation["data"]]
        return self.clients[operation["client"]].receive_bytes(data)

    def client_submit(self, operation: Operation) -> bytes:
        """Hand over the input."""
        u, field = operation["client"], self.context.field
        vector = FieldVector(field, np.array(self.inputs[u], field.dtype))
        return self.clients[u].submit_bytes(vector)

    def server_receive(self, operation: Operation) -> None:
        """A message from a client."""
        self.server.receive_bytes(operation["client"], self.messages[operation["data"]])

    def server_close(self, operation: Operation) -> list[tuple[int, bytes]]:
        """The stage's deadline has passed."""
        return sorted(self.server.close_round_bytes())

    def server_unmask(self, operation: Operation) -> Result:
        """The end of the last stage."""
        total = self.server.unmask()
        seeds = sorted(total.removed.items())
        return {
            "total": total.vector.elements.tolist(),
            "survivors": list(total.survivors),
            "culprits": list(total.culprits),
            "seeds": {str(u): [seed.hex() for seed in given] for u, given in seeds},
        }


def run_round(vector: RoundVector) -> Play:
    """All operations of a round."""
    play = Play(vector)
    for operation in vector["operations"]:
        play.step(operation)
    if vector["success"]:
        same(play.server.phase, ServerPhase.FINISHED, "the server's phase")
    return play


def run_refusal(vector: RefusalVector, base: RoundVector) -> None:
    """The refused step after the base's first ones; then the honest one in its place."""
    play = _prelude(vector, base)
    for operation in vector["operations"]:
        play.step(operation)
    last = vector["operations"][-1]
    if (honest := last.get("instead_of")) is None:
        return
    # The server takes the honest message afterwards; a client has aborted, so another one does.
    after = play if vector["party"] == SERVER else _prelude(vector, base)
    intended = base["operations"][vector["steps"]]
    same(intended.get("data"), honest, "the base's next message")
    after.step(intended)


def _prelude(vector: RefusalVector, base: RoundVector) -> Play:
    play = Play(base)
    same(play.messages.keys() & vector["messages"].keys(), set(), "names that the base has")
    play.messages |= {name: bytes.fromhex(data) for name, data in vector["messages"].items()}
    for operation in base["operations"][: vector["steps"]]:
        client = operation["client"] if operation["op"].startswith("client") else SERVER
        if client == vector["party"]:
            play.step(operation)
    return play


def run_message(case: MessageCase) -> None:
    """One decoder; and the encoder, where the bytes are a message."""
    data = bytes.fromhex(case["data"])
    decode = decode_from_client if case["sent_by"] == "client" else decode_from_server
    try:
        message = decode(data, case["party"], case["limit"])
    except ProtocolError as raised:
        same(error_of(raised), case.get("error"), case["description"])
        return
    same(None, case.get("error"), case["description"])
    fields = msgspec.structs.asdict(message)
    encoded = {k: v if isinstance(v, int) else v.hex() for k, v in fields.items()}
    same(encoded, case["fields"], case["description"])
    same(type(message).__name__, case["name"], case["description"])
    same(encode_message(message), data, case["description"])


# -- primitives ---------------------------------------------------------------------------------


def hexed(case: Case, *names: str) -> tuple[bytes, ...]:
    """Fields of a case as bytes."""
    return tuple(bytes.fromhex(case[name]) for name in names)


def check_mask(case: Case) -> None:
    """Alone, inside a longer range, and taken off again."""
    field, elements, start = PrimeField(case["bits"]), case["elements"], case["start"]
    (key,) = hexed(case, "key")
    same(expand_mask(field, key, len(elements), start).tolist(), elements, "mask")
    lead = min(start, 5)
    longer = expand_mask(field, key, len(elements) + lead, start - lead)
    same(longer[lead:].tolist(), elements, "mask from an earlier start")
    total = np.array(elements, field.dtype)
    accumulate_masks(total, field, [key], [True], start)
    same(total.tolist(), [0] * len(elements), "mask taken off")


def check_shamir(case: Case) -> None:
    """Shares, their encoding, and what the last t rebuild."""
    draws = [bytes.fromhex(drawn) for drawn in case["draws"]]

    def rand(count: int) -> bytes:
        if not count:
            return b""
        drawn = draws.pop(0)
        same(count, len(drawn), "bytes of a draw")
        return drawn

    secrets = [bytes.fromhex(secret) for secret in case["secrets"]]
    shares = split(secrets, case["holders"], case["threshold"], rand)
    same([encode_share(share).hex() for share in shares], case["shares"], "shares")
    last = slice(-case["threshold"], None)
    read = [decode_share(bytes.fromhex(share), len(secrets)) for share in case["shares"][last]]
    same(combine(np.array(read), case["holders"][last]), secrets, "rebuilt secrets")


def check_ring(case: Case) -> None:
    """Order, neighbours and the derived key."""
    (round_hash, key) = hexed(case, "round_hash", "key")
    members = tuple(case["members"])
    same(derive(round_hash, Usage.GRAPH, 16), key, "graph key")
    same(list(random_order(members, round_hash, Usage.GRAPH)), case["order"], "order")
    graph = build_graph(members, case["degree"], round_hash)
    same([list(graph.neighbours(u)) for u in members], case["neighbours"], "neighbours")
    same([list(graph.holders(u)) for u in members], case["neighbours"], "holders")


def check_committee(case: Case) -> None:
    """Size and quorum, the derived key, and who is in it."""
    (round_hash, key) = hexed(case, "round_hash", "key")
    members = tuple(case["members"])
    chosen = choose_committee(len(members), case["corrupt"], case["alive"], case["security_bits"])
    same([chosen.size, chosen.quorum], [case["size"], case["quorum"]], "size and quorum")
    same(derive(round_hash, Usage.COMMITTEE, 16), key, "committee key")
    drawn = random_order(members, round_hash, Usage.COMMITTEE)[: chosen.size]
    same(sorted(drawn), case["committee"], "committee")


def check_tree(case: Case) -> None:
    """The root, all proofs, and none of them in another place."""
    entries = [bytes.fromhex(entry) for entry in case["entries"]]
    proofs = [bytes.fromhex(proof) for proof in case["proofs"]]
    (root,), count = hexed(case, "root"), len(entries)
    tree = HashTree(entries)
    same(tree.root, root, "root")
    for i, proof in enumerate(proofs):
        same(tree.proof(i), proof, "proof")
        for place in range(count + 1):
            valid = proof_is_valid(root, entries[i], place, count, proof)
            same(valid, place == i, f"proof of {i} at {place} of {count}")


def check_seal(case: Case) -> None:
    """Sealed and opened; not opened when anything differs."""
    shared, round_hash, plain, sealed = hexed(case, "shared", "round_hash", "plain", "sealed")
    parties = case["sender"], case["recipient"]
    bound = round_hash, *(encode_index(party) for party in parties)
    same(derive(shared, Usage.SEAL, 64, *bound).hex(), case["key"], "key")
    same(tagged(Usage.SEAL, *bound).hex(), case["associated_data"], "associated data")
    same(seal(shared, round_hash, *parties, plain), sealed, "sealed")
    same(unseal(shared, round_hash, *parties, sealed), plain, "opened")
    for args in (
        (round_hash, shared, *parties, sealed),
        (shared, round_hash, *reversed(parties), sealed),
        (shared, round_hash, *parties, sealed[:-1]),
    ):
        try:
            unseal(*args)
        except ValueError:
            continue
        raise MismatchError("a seal opens that should not")


def check_commitment(case: Case) -> None:
    """Check the hash of a commitment."""
    round_hash, seed = hexed(case, "round_hash", "seed")
    found = commitment(round_hash, case["party"], case["number"], SecretSeed(seed))
    same(found.hex(), case["commitment"], "commitment")


def check_context(case: Case) -> None:
    """Check the encoding of a context and its hash."""
    same(context_of(case["context"]).encode().hex(), case["encoded"], "encoded context")


def check_keys(case: Case) -> None:
    """Both clients get the same pair mask key."""
    round_hash, seed = hexed(case, "round_hash", "seed_u")
    u, v = case["u"], case["v"]
    own, peer = (AgreementKey(key) for key in hexed(case, "private_u", "private_v"))
    same([own.public.hex(), peer.public.hex()], [case["public_u"], case["public_v"]], "public")
    same(own.agree(peer.public).hex(), case["agreed"], "agreed secret")
    same(peer.agree(own.public).hex(), case["agreed"], "agreed secret")
    expected = case["pair_mask_key"]
    same(pairwise_key(own, peer.public, round_hash, u, v).hex(), expected, "pair mask key")
    same(pairwise_key(peer, own.public, round_hash, v, u).hex(), expected, "pair mask key")
    found = self_key(SecretSeed(seed), round_hash, u).hex()
    same(found, case["self_mask_key_u"], "self mask key")


def check_tagged(case: Case) -> None:
    """The string, its hash, a derivation and a signature."""
    usage = Usage(case["usage"].encode())
    strings = [bytes.fromhex(string) for string in case["parts"]]
    secret, private, signature = hexed(case, "secret", "private", "signature")
    same(tagged(usage, *strings).hex(), case["tagged"], "tagged string")
    same(digest(usage, *strings).hex(), case["digest"], "digest")
    same(derive(secret, usage, 48, *strings).hex(), case["derived"], "derived bytes")
    identity = Identity.from_private_bytes(private)
    same(identity.sign(usage, *strings), signature, "signature")
    same(signature_is_valid(identity.public, signature, usage, *strings), True, "signature")


def check_field(case: Case) -> None:
    """The prime and the packing, both ways."""
    field = PrimeField(case["bits"])
    same(field.modulus, case["prime"], "prime")
    vector = FieldVector(field, np.array(case["elements"], field.dtype))
    same(pack(vector).hex(), case["packed"], "packed")
    (packed,) = hexed(case, "packed")
    read = unpack(packed, len(case["elements"]), field).elements.tolist()
    same(read, case["elements"], "unpacked")


def check_set(case: Case) -> None:
    """Check a set in both directions, or that it is refused."""
    (bitmap,) = hexed(case, "bitmap")
    try:
        members = list(decode_set(bitmap, case["size"]))
    except ValueError:
        members = None
    same(members, case["members"], "members")
    if members is not None:
        same(encode_set(members, case["size"]), bitmap, "bitmap")


CHECKS: dict[str, Callable[[Case], None]] = {
    "mask": check_mask,
    "shamir": check_shamir,
    "ring": check_ring,
    "committee": check_committee,
    "tree": check_tree,
    "seal": check_seal,
    "commitment": check_commitment,
    "context": check_context,
    "keys": check_keys,
    "tagged": check_tagged,
    "field": check_field,
    "set": check_set,
}


def run_primitive(vector: PrimitiveVector) -> None:
    """All cases of one building block."""
    for case in vector["cases"]:
        CHECKS[vector["primitive"]](case)
