"""Run vector files through the state machines and functions of secagg."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from secagg import (
    ClientSession,
    FieldVector,
    Identity,
    Mode,
    PrimeField,
    ServerSession,
    SessionContext,
)
from secagg.field import pack, unpack
from secagg.framing import decode_set, encode_set
from secagg.keys import AgreementKey, SecretSeed, signature_is_valid
from secagg.merkle import HashTree, proof_is_valid
from secagg.pairwise.committee import choose_committee
from secagg.pairwise.graph import build_graph, random_order
from secagg.pairwise.masks import pairwise_key, self_key
from secagg.pairwise.messages import decode_from_client, decode_from_server
from secagg.pairwise.prg import accumulate_masks, expand_mask
from secagg.pairwise.roster import commitment
from secagg.sealing import seal, unseal
from secagg.shamir import combine, decode_share, encode_share, split
from secagg.tags import Usage, derive, digest, encode_index, tagged

from . import player
from .player import SERVER, Case, MismatchError, Player, deterministic, drawing, hexed, same
from .schema import (
    Context,
    MessageCase,
    Operation,
    PrimitiveVector,
    RefusalVector,
    Result,
    RoundVector,
)


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


class Play(Player):
    """A round, its clients and its server."""

    def __init__(self, vector: RoundVector) -> None:
        super().__init__(vector)
        self.context = context_of(vector["context"])
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

    def parties(self, role: str) -> list[ClientSession]:
        """All clients, the only role beside the server."""
        return self.clients

    def party(self, operation: Operation) -> int:
        """The client that a step is about."""
        return operation.get("client", SERVER)

    def server_state(self) -> object:
        """What a refused message must not change."""
        return self.server.phase, self.server.answered, self.server.participants

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
    return player.run_round(Play, vector)


def run_refusal(vector: RefusalVector, base: RoundVector) -> None:
    """The refused step after the base's first ones; then the honest one in its place."""
    party = vector["party"]
    player.run_refusal(Play, vector, base, ("server" if party == SERVER else "client", party))


def run_message(case: MessageCase) -> None:
    """One decoder; and the encoder, where the bytes are a message."""
    player.run_message({"client": decode_from_client, "server": decode_from_server}, case)


# -- primitives ---------------------------------------------------------------------------------


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
    secrets = [bytes.fromhex(secret) for secret in case["secrets"]]
    shares = split(secrets, case["holders"], case["threshold"], drawing(case))
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
