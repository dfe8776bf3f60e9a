"""Peers: each benchmark makes a peer do its own work, all of it, and no more."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import Refused, invoke, run_json

from protocol.errors import ConfigurationError
from simulations.bench import flower_peer
from simulations.bench.flower_peer import open_peer
from simulations.bench.mask import bench_mask
from simulations.bench.shamir import bench_shamir
from simulations.bench.unmask import bench_unmask
from simulations.common.peers import FLOWER_CLIENT, Peer
from veilsum.extras import install_command

SMALL = {
    "mask": ("mask", "--dim", "50", "--neighbours", "3", "--repeats", "2"),
    "shamir": (
        *("shamir", "--secrets", "2", "--holders", "7", "--threshold", "4"),
        *("--repeats", "2"),
    ),
    "unmask": (*("unmask", "--clients", "8", "--dim", "50", "--dropped", "3"), *("--repeats", "1")),
}


class FakeFlower(ModuleType):
    """Stands for one of the two modules of Flower: toy cryptography that notes every call."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls = Counter()
        self.made = 0

    def generate_key_pairs(self) -> tuple[int, int]:
        self.made += 1
        return self.made, self.made

    def private_key_to_bytes(self, key: int) -> bytes:
        return b"private %d" % key

    def public_key_to_bytes(self, key: int) -> bytes:
        return b"public %d" % key

    def bytes_to_private_key(self, key: bytes) -> int:
        assert key.startswith(b"private ")
        return int(key.split()[1])

    def bytes_to_public_key(self, key: bytes) -> int:
        assert key.startswith(b"public ")
        return int(key.split()[1])

    def generate_shared_key(self, private: int, public: int) -> bytes:
        self.calls["agree"] += 1
        return hashlib.sha256(repr(sorted((private, public))).encode()).digest()

    def create_shares(self, secret: bytes, threshold: int, num: int) -> list[bytes]:
        self.calls["create", threshold, num] += 1
        return [bytes([holder]) + secret for holder in range(num)]

    def combine_shares(self, share_list: list[bytes]) -> bytes:
        holders = bytes(share[0] for share in share_list)
        self.calls["combine", holders] += 1
        return share_list[0][1:]

    def pseudo_rand_gen(
        self, seed: bytes, num_range: int, dimensions_list: list[tuple[int]]
    ) -> list[np.ndarray]:
        self.calls["mask", num_range, tuple(dimensions_list)] += 1
        generator = np.random.default_rng(list(seed))
        return [generator.integers(0, num_range, shape) for shape in dimensions_list]

    def parameters_addition(
        self, left: list[np.ndarray], right: list[np.ndarray]
    ) -> list[np.ndarray]:
        return [a + b for a, b in zip(left, right, strict=True)]

    def parameters_subtraction(
        self, left: list[np.ndarray], right: list[np.ndarray]
    ) -> list[np.ndarray]:
        return [a - b for a, b in zip(left, right, strict=True)]

    def parameters_mod(self, parameters: list[np.ndarray], divisor: int) -> list[np.ndarray]:
        self.calls["reduce", divisor] += 1
        return [array % divisor for array in parameters]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Fakes of the server's and the client's module, as if flwr were installed."""
    sides = SimpleNamespace(server=FakeFlower(flower_peer.SERVER), client=FakeFlower(FLOWER_CLIENT))
    monkeypatch.setitem(sys.modules, flower_peer.SERVER, sides.server)
    monkeypatch.setitem(sys.modules, FLOWER_CLIENT, sides.client)
    return sides


def run(command: str, status: int = 0) -> tuple[dict[str, float | str], str]:
    arguments = ["bench", *SMALL[command], "--peer", "flower", "--json"]
    result = invoke(*arguments)
    assert result.exit_code == status, result.output
    return json.loads(result.stdout), result.stderr


def test_flower_masks_the_same_vector_in_the_same_run(fake: SimpleNamespace) -> None:
    figures, _ = run("mask")
    assert figures["peer"] == "flower"
    assert "not cryptographic" in figures["note"]
    assert figures["ratio_to_peer"] == pytest.approx(
        figures["elements_per_second"] / figures["peer_elements_per_second"]
    )
    # One turn to warm up, two counted, three neighbours each.
    turns = 3
    assert fake.client.calls == {
        ("mask", 1 << 32, ((1,), (50,))): 3 * turns,
        ("reduce", 1 << 32): turns,
    }


def test_flower_shares_and_rebuilds_the_same_secrets(fake: SimpleNamespace) -> None:
    figures, _ = run("shamir")
    assert figures["peer_correct"] is True
    for half in ("create", "combine"):
        ratio = figures[f"peer_{half}_seconds"] / figures[f"{half}_seconds"]
        assert figures[f"{half}_ratio_to_peer"] == pytest.approx(ratio)
    # Two secrets: once to have shares, or to see that they are right, and in each of three turns.
    assert fake.client.calls == {("create", 4, 7): 2 * 4}
    assert fake.server.calls == {("combine", bytes([3, 4, 5, 6])): 2 * 4}


def test_flower_unmasks_once_and_as_its_workflow_does(fake: SimpleNamespace) -> None:
    figures, progress = run("unmask")
    assert figures["peer_correct"] is True
    parts = figures["peer_shares_seconds"] + figures["peer_masks_seconds"]
    assert figures["peer_seconds"] == pytest.approx(parts)
    assert figures["ratio_to_peer"] == figures["peer_seconds"] / figures["seconds"]
    assert "may take minutes" in progress
    # Five survivors answer for all eight; three lost clients have seven neighbours each.
    assert figures["peer_masks_removed"] == 5 + 3 * 7
    assert fake.server.calls == {
        ("combine", bytes(range(5))): 8,
        "agree": 3 * 7,
        ("mask", 1 << 32, ((1,), (50,))): 5 + 3 * 7,
        ("reduce", 1 << 32): 1,
    }
    assert fake.client.calls["create", figures["threshold"], 8] == 8


def test_flowers_secrets_are_seeds_of_survivors_and_keys_of_the_lost(fake: SimpleNamespace) -> None:
    secrets = open_peer(Peer.FLOWER).unmasking(5, 10, 2, 3).rebuild()
    assert set(secrets) == set(range(5))
    assert [len(secrets[u]) for u in range(3)] == [32] * 3
    assert [secrets[u] for u in (3, 4)] == [b"private 4", b"private 5"]


@pytest.mark.parametrize("command", ["shamir", "unmask"])
def test_a_peer_that_is_wrong_is_status_1(
    fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(fake.server, "combine_shares", lambda shares: b"private 1")
    figures, _ = run(command, status=1)
    assert figures["correct"] is True
    assert figures["peer_correct"] is False


@pytest.mark.parametrize("missing", [flower_peer.SERVER, FLOWER_CLIENT])
@pytest.mark.parametrize(
    "measure",
    [
        lambda: bench_mask(10, 1, 32, 1, Peer.FLOWER),
        lambda: bench_shamir(1, 3, 2, 1, Peer.FLOWER),
        lambda: bench_unmask(4, 10, 0, 16, 1, 1, Peer.FLOWER),
    ],
)
def test_a_peer_that_is_not_installed_names_its_extra(
    fake: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    measure: Callable[..., Any],
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        ConfigurationError,
        match=f"flower cannot be imported.*{re.escape(install_command('flower'))}",
    ):
        measure()


@pytest.mark.parametrize("command", SMALL)
def test_a_peer_that_is_not_installed_is_status_2(
    fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, refused: Refused, command: str
) -> None:
    monkeypatch.setitem(sys.modules, flower_peer.SERVER, None)
    assert install_command("flower") in refused("bench", *SMALL[command], "--peer", "flower")


@pytest.mark.parametrize("command", SMALL)
def test_figures_without_a_peer_say_nothing_of_one(command: str) -> None:
    figures = run_json("bench", *SMALL[command])
    assert not [name for name in figures if "peer" in name or name == "note"]


# From here on: Flower itself, where it is installed.

CALLED_WHEN_UNMASKING = (
    *("combine_shares", "generate_shared_key", "bytes_to_private_key", "bytes_to_public_key"),
    *("pseudo_rand_gen", "parameters_addition", "parameters_subtraction", "parameters_mod"),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("command", SMALL)
def test_the_installed_flower_gives_right_results(command: str) -> None:
    pytest.importorskip(flower_peer.SERVER)
    figures, _ = run(command)
    assert figures.get("peer_correct", True) is True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_the_unmask_stage_of_the_installed_flower_makes_the_same_calls(
    monkeypatch: pytest.MonkeyPatch, dropped: int
) -> None:
    workflow = pytest.importorskip(flower_peer.SERVER)
    part = open_peer(Peer.FLOWER).unmasking(5, 20, dropped, 3)
    calls = Counter()
    for name in CALLED_WHEN_UNMASKING:
        monkeypatch.setattr(workflow, name, counted(calls, name, getattr(workflow, name)))
    unmasked = part.remove(part.rebuild())
    ours = calls.copy()
    calls.clear()
    seen = run_unmask_stage(workflow, part.rebuild.__self__, monkeypatch)
    assert calls == ours
    for mine, theirs, plain in zip(unmasked, seen, part.plain, strict=True):
        assert mine.tolist() == theirs.tolist() == plain.tolist()


def counted(calls: Counter[Any], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, noting its name and how long its arguments are: the number of shares, say."""

    def call(*arguments: Any) -> Any:
        calls[name, *(len(a) if isinstance(a, list | bytes) else 1 for a in arguments)] += 1
        return function(*arguments)

    return call


def run_unmask_stage(
    workflow: ModuleType, held: flower_peer._UnmaskStage, monkeypatch: pytest.MonkeyPatch
) -> list[np.ndarray]:
    """Let Flower's own stage run on what our stage held; what it found before it rescales it."""
    everyone = range(len(held.public))
    state = workflow.WorkflowState(
        sampled_node_ids=set(everyone),
        active_node_ids=set(held.survivors),
        threshold=3,
        mod_range=flower_peer.RING,
        quantization_range=1,
        nid_to_neighbours={u: set(everyone) for u in everyone},
        nid_to_publickeys={u: [key, b""] for u, key in held.public.items()},
        aggregate_ndarrays=held.masked,
    )
    answers = [answer(workflow, held, u) for u in held.survivors]
    grid = SimpleNamespace(send_and_receive=lambda messages, timeout: answers)
    records = {workflow.MAIN_CONFIGS_RECORD: {workflow.WorkflowKey.CURRENT_ROUND: 1}}
    context = SimpleNamespace(
        state=SimpleNamespace(config_records=records),
        strategy=SimpleNamespace(aggregate_fit=lambda *_: (None, {})),
    )
    # A real one wants to know the run that it belongs to; nobody reads these requests.
    monkeypatch.setattr(workflow, "Message", SimpleNamespace)
    seen = []
    extract = workflow.factor_extract
    monkeypatch.setattr(workflow, "factor_extract", lambda p: seen.extend(p) or extract(p))
    assert workflow.SecAggPlusWorkflow(1.0, 0.5).unmask_stage(grid, context, state)
    return seen


def answer(workflow: ModuleType, held: flower_peer._UnmaskStage, survivor: int) -> SimpleNamespace:
    """A survivor's message: its share of everybody's secret."""
    content = {
        workflow.Key.NODE_ID_LIST: list(held.shares),
        workflow.Key.SHARE_LIST: [shares[survivor] for shares in held.shares.values()],
    }
    return SimpleNamespace(
        has_error=lambda: False,
        metadata=SimpleNamespace(src_node_id=survivor),
        content=SimpleNamespace(config_records={workflow.RECORD_KEY_CONFIGS: content}),
    )
