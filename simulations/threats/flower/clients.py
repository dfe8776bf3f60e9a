"""Flower's own clients, given messages as its server would send them, and one request more.

The client modifier `secaggplus_mod` is called as Flower's client app calls it: with a message, a
context that keeps its state, and a training function. Nothing of Flower is changed or replaced.

Four clients with node numbers 1 to 4, the complete graph, three shares to rebuild a secret. The
lowest is the victim. Updates lie on the grid of Flower's quantiser, so that its random rounding
leaves them alone and a recovered vector can be compared exactly.

Flower is loaded by name, where it is installed; only the adapters import it.

Source: flwr 1.41, client/mod/secure_aggregation/secaggplus_mod.py (`_unmask`) and
server/workflow/secure_aggregation/secaggplus_workflow.py.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from simulations.audits.base import Figures, Integers
from simulations.common.peers import FLOWER_CLIENT, Peer, load
from simulations.threats.flower.masks import LARGEST, RING, fold
from simulations.threats.flower.our_upload import weakly_masked
from simulations.threats.seed_search.search import Peeled, PeeledUpload

VICTIM, HONEST, COLLUDER, LOST = range(1, 5)
NODES: Final = (VICTIM, HONEST, COLLUDER, LOST)
THRESHOLD: Final = 3
CLIP: Final = 8.0
WEIGHT: Final = 1000
"""Examples of each client: all that the server allows, so updates are not scaled."""


class FlowerClients:
    """Four of Flower's clients and their inputs.

    Attributes:
        inputs: for each node int64[1 + length], as masked: its weight, then its quantised update.
    """

    def __init__(self, length: int, rng: np.random.Generator) -> None:
        self.code = load(FLOWER_CLIENT, Peer.FLOWER)
        self._app = load("flwr.app", Peer.FLOWER)
        self._compat = load("flwr.compat.common.recorddict_compat", Peer.FLOWER)
        self._common = load("flwr.common", Peer.FLOWER)
        self._shamir = load("flwr.common.secure_aggregation.crypto.shamir", Peer.FLOWER)
        updates = rng.integers(0, LARGEST + 1, (len(NODES), length))
        self.inputs: dict[int, Integers] = {
            node: np.concatenate([[LARGEST], update])
            for node, update in zip(NODES, updates, strict=True)
        }
        self.public: dict[int, bytes] = {}
        self._contexts = {node: self._context(node) for node in NODES}

    def share(self) -> dict[int, list[tuple[int, bytes]]]:
        """Stages 0 and 1: what each node is to be forwarded, as (source, ciphertext)."""
        keys = {node: self._tell(node, self._setup()) for node in NODES}
        self.public = {node: each["pk1"] for node, each in keys.items()}
        shown = {str(node): [each["pk1"], each["pk2"]] for node, each in keys.items()}
        forwarded: dict[int, list[tuple[int, bytes]]] = {node: [] for node in NODES}
        for node in NODES:
            answer = self._tell(node, {**shown, "stage": "share_keys"})
            for target, sealed in zip(answer["dsts"], answer["ctxts"], strict=True):
                forwarded[target].append((node, sealed))
        return forwarded

    def upload(self, node: int, forwarded: Sequence[tuple[int, bytes]]) -> Integers:
        """Stage 2: a node's masked vector, int64[1 + length]."""
        request = {
            "stage": "collect_masked_vectors",
            "srcs": [source for source, _ in forwarded],
            "ctxts": [sealed for _, sealed in forwarded],
        }
        answer = self._tell(node, request, self._training(node))
        arrays = [self._common.bytes_to_ndarray(each) for each in answer["masked_params"]]
        return np.concatenate(arrays)

    def unmask(self, node: int, active: Sequence[int], dead: Sequence[int]) -> list[Any]:
        """Stage 3: a node's shares as (owner, share), in the order of both lists."""
        request = {"stage": "unmask", "active_nids": list(active), "dead_nids": list(dead)}
        answer = self._tell(node, request)
        return list(zip(answer["nids"], answer["shares"], strict=True))

    def combine(self, shares: list[bytes]) -> bytes:
        """Rebuild a secret from exactly `THRESHOLD` shares by Flower's own function."""
        secret: bytes = self._shamir.combine_shares(shares)
        return secret

    def private_key(self, node: int) -> bytes:
        """A colluder's key for pairwise masks, as it keeps it."""
        state = self._contexts[node].state.config_records["secaggplus_state"]
        return bytes(state["sk1"])

    def pair_seed(self, private: bytes, node: int) -> bytes:
        """The seed of the mask between the owner of a private key and a node."""
        seed: bytes = self.code.generate_shared_key(
            self.code.bytes_to_private_key(private),
            self.code.bytes_to_public_key(self.public[node]),
        )
        return seed

    def mask(self, seed: bytes, length: int) -> Integers:
        """A whole mask of Flower's generator: int64[length]."""
        arrays: list[Integers] = self.code.pseudo_rand_gen(seed, RING, [(1,), (length - 1,)])
        return np.concatenate(arrays)

    def _setup(self) -> dict[str, Any]:
        return {
            "stage": "setup",
            "sample_num": len(NODES),
            "share_num": len(NODES),
            "threshold": THRESHOLD,
            "clipping_range": CLIP,
            "target_range": LARGEST,
            "mod_range": RING,
            "max_weight": float(WEIGHT),
        }

    def _training(self, node: int) -> Callable[[Any, Any], Any]:
        """A training function that returns the node's update on the quantiser's grid."""
        update = self.inputs[node][1:] * (2.0 * CLIP / LARGEST) - CLIP

        def train(message: Any, context: Any) -> Any:
            result = self._common.FitRes(
                status=self._common.Status(code=self._common.Code.OK, message=""),
                parameters=self._common.ndarrays_to_parameters([update]),
                num_examples=WEIGHT,
                metrics={},
            )
            content = self._compat.fitres_to_recorddict(result, keep_input=True)
            return self._app.Message(content, reply_to=message)

        return train

    def _tell(
        self, node: int, request: Mapping[str, Any], train: Callable[[Any, Any], Any] | None = None
    ) -> Mapping[str, Any]:
        """Send a node a message through Flower's modifier, and return its answer."""
        records = self._app.RecordDict({"secaggplus_configs": self._app.ConfigRecord({**request})})
        now = time.time()
        metadata = self._app.Metadata(1, "", 0, node, "", "1", now, 1000.0, "train")
        message = self._app.Message(content=records, metadata=metadata)
        answer = self.code.secaggplus_mod(message, self._contexts[node], train)
        found: Mapping[str, Any] = answer.content.config_records["secaggplus_configs"]
        return found

    def _context(self, node: int) -> Any:
        return self._app.Context(
            run_id=1, node_id=node, node_config={}, state=self._app.RecordDict(), run_config={}
        )


def fresh_pair_keys(count: int) -> list[bytes]:
    """Seeds of masks that fresh pairs of Flower's clients agree on."""
    code = load(FLOWER_CLIENT, Peer.FLOWER)
    _, public = code.generate_key_pairs()
    return [code.generate_shared_key(code.generate_key_pairs()[0], public) for _ in range(count)]


SURVIVORS = (VICTIM, HONEST, COLLUDER)


def flower_upload(length: int, rng: np.random.Generator, tried_bits: int) -> PeeledUpload:
    """An honest round of Flower's clients, and all masks off the victim's upload but one."""
    clients = FlowerClients(length, rng)
    uploads = _uploads(clients, SURVIVORS)
    owned = _collect(clients, {node: (SURVIVORS, (LOST,)) for node in SURVIVORS})
    left = uploads[VICTIM] - clients.mask(clients.combine(owned[VICTIM][:THRESHOLD]), length + 1)
    keys = (clients.combine(owned[LOST][:THRESHOLD]), clients.private_key(COLLUDER))
    # A client subtracts the mask that it shares with a node of a higher number.
    for key in keys:
        left = left + clients.mask(clients.pair_seed(key, VICTIM), length + 1)
    peeled = Peeled(left % RING, True, RING, LARGEST)
    last = clients.pair_seed(clients.private_key(HONEST), VICTIM)
    return weakly_masked(peeled, clients.inputs[VICTIM], last, tried_bits)


def varying_bits(samples: int) -> int:
    """How many bits of a folded pairwise key were seen to vary, over fresh pairs of Flower's keys.

    A bit that varies evenly is missed with probability 2^(1 - samples).
    """
    keys = [fold(key) for key in fresh_pair_keys(samples)]
    varied = int(np.bitwise_or.reduce(keys) & ~np.bitwise_and.reduce(keys))
    return varied.bit_count()


def take_both_secrets(length: int, rng: np.random.Generator) -> Figures:
    """Nobody is lost and nobody colludes; the server puts the victim on both lists.

    Each client answers one request with a share of the victim's self-mask seed and one of its key
    for pairwise masks. All of its masks are known then. All computing is done by Flower's own
    functions.
    """
    clients = FlowerClients(length, rng)
    uploads = _uploads(clients, NODES)
    asked = {node: (NODES, (VICTIM,)) for node in NODES if node != VICTIM}
    owned = _collect(clients, asked)
    halves = len(owned[VICTIM]) // 2
    seed, key = (
        clients.combine(part[:THRESHOLD]) for part in (owned[VICTIM][0::2], owned[VICTIM][1::2])
    )
    left = uploads[VICTIM] - clients.mask(seed, length + 1)
    for node in (HONEST, COLLUDER, LOST):
        left = left + clients.mask(clients.pair_seed(key, node), length + 1)
    right = left % RING == clients.inputs[VICTIM]
    again = [_is_answered(clients, node) for node in asked]
    return {
        "clients": len(NODES),
        "threshold": THRESHOLD,
        "requests": len(asked),
        "requests_answered": len(asked),
        "shares_of_each_secret": halves,
        "second_requests_answered": sum(again),
        "coordinates": int(right.size),
        "coordinates_recovered": int(np.count_nonzero(right)),
        "succeeded": bool(np.all(right)),
    }


def _uploads(clients: FlowerClients, nodes: Sequence[int]) -> dict[int, Integers]:
    forwarded = clients.share()
    return {node: clients.upload(node, forwarded[node]) for node in nodes}


def _collect(
    clients: FlowerClients, asked: Mapping[int, tuple[Sequence[int], Sequence[int]]]
) -> dict[int, list[bytes]]:
    """Ask clients, each with its lists of active and dead neighbours; shares by owner."""
    owned: defaultdict[int, list[bytes]] = defaultdict(list)
    for node, (active, dead) in asked.items():
        for owner, share in clients.unmask(node, active, dead):
            owned[owner].append(share)
    return owned


def _is_answered(clients: FlowerClients, node: int) -> bool:
    """Whether a client answers a second request; the stage after the last is the first."""
    try:
        clients.unmask(node, NODES, ())
    except ValueError:
        return False
    return True
