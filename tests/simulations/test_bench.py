"""Benchmarks of parts: what they report, and that what they time is right."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

from protocol.errors import ConfigurationError
from secagg import ParameterError
from secagg.unmask import MIN_RANGE
from simulations import cli
from simulations.bench import unmask
from simulations.bench.limits import bare_keystream, modular_product
from simulations.bench.mask import bench_mask
from simulations.bench.peers import Peer
from simulations.bench.shamir import bench_shamir
from simulations.bench.unmask import bench_unmask

runner = CliRunner()
UTILITIES = "flwr.common.secure_aggregation.secaggplus_utils"


def run_json(*arguments):
    result = runner.invoke(cli.app, ["bench", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class FakeFlower(ModuleType):
    """Stands for the module of Flower that makes masks; counts what it is asked for."""

    def __init__(self):
        super().__init__(UTILITIES)
        self.asked = []

    def pseudo_rand_gen(self, seed, num_range, dimensions_list):
        self.asked.append((len(seed), num_range, tuple(dimensions_list)))
        return [np.full(shape, 7, np.int64) for shape in dimensions_list]


def test_a_peer_masks_the_same_vector_in_the_same_run(monkeypatch):
    fake = FakeFlower()
    monkeypatch.setitem(sys.modules, UTILITIES, fake)
    figures = run_json(
        "mask", "--dim", "50", "--neighbours", "3", "--repeats", "2", "--peer", "flower"
    )
    assert figures["peer"] == "flower"
    assert "not cryptographic" in figures["note"]
    assert figures["ratio_to_peer"] == pytest.approx(
        figures["elements_per_second"] / figures["peer_elements_per_second"]
    )
    # One turn to warm up, two counted, three neighbours each.
    assert fake.asked == [(32, 1 << 32, ((50,),))] * 9


def test_a_peer_that_is_not_installed_names_its_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, UTILITIES, None)
    with pytest.raises(ConfigurationError, match=r"flower cannot be imported.*veilsum\[flower\]"):
        bench_mask(10, 1, 32, 1, Peer.FLOWER)
    monkeypatch.setattr(sys, "argv", ["veilsum", "bench", "mask", "--peer", "flower"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "veilsum[flower]" in capsys.readouterr().err


def test_masks_without_a_peer_say_nothing_of_one():
    figures = run_json("mask", "--dim", "50", "--neighbours", "1", "--repeats", "1")
    assert not {"peer", "ratio_to_peer", "note"} & set(figures)


def test_shamir_reports_both_halves_beside_their_limits():
    figures = run_json("shamir", "--secrets", "2", "--holders", "7", "--threshold", "4")
    assert figures["correct"] is True
    for half in ("create", "combine"):
        ratio = figures[f"{half}_seconds"] / figures[f"{half}_limit_seconds"]
        assert figures[f"{half}_ratio_to_limit"] == pytest.approx(ratio)


def test_shamir_refuses_a_threshold_above_the_holders():
    with pytest.raises(ParameterError, match="threshold"):
        bench_shamir(1, 3, 4, 1)


def test_the_modular_product_is_a_matrix_product():
    p = 2**31 - 1
    left = np.array([[p - 1, 1, 0], [p - 1, p - 1, 5]], np.uint64)
    right = np.array([[p - 1, 2], [3, 4], [p - 1, p - 2]], np.uint64)
    expected = left.astype(object) @ right.astype(object) % p
    assert modular_product(left, right, p).tolist() == expected.tolist()


def test_the_bare_keystream_takes_every_length():
    for length in (1, 16, 128 * 1024 - 1, 300_000):
        bare_keystream([bytes(16)] * 2, length)


@pytest.mark.parametrize(("clients", "dropped"), [(8, 0), (8, 3), (2, 0)])
@pytest.mark.parametrize("bits", [16, 24, 32])
def test_unmasking_is_right_and_counts_its_masks(clients, dropped, bits):
    figures = bench_unmask(clients, 300, dropped, bits, workers=1, repeats=1)
    survivors = clients - dropped
    assert figures["correct"] is True
    assert figures["masks_removed"] == survivors + dropped * survivors
    assert figures["ratio_to_limit"] == figures["seconds"] / figures["limit_seconds"]
    assert 0 < figures["rebuild_seconds"] < figures["seconds"]
    assert figures["peak_rss_bytes"] > 1 << 20
    assert "speedup" not in figures


def test_the_rebuilt_secrets_are_checked():
    state = unmask._build(8, 10, 3, unmask.PrimeField(16), 5)
    right = state.rebuilt()
    assert set(right) == set(range(8))
    for owner, secret in right.items():
        assert state._is_right(owner, secret)
        assert not state._is_right(owner, right[(owner + 1) % 8])


def test_a_wrong_sum_is_seen_and_is_status_1(monkeypatch):
    honest = unmask._mask

    def forget_the_last(masked, field, record, u, key, seed, lost):
        honest(masked, field, record, u, key, seed, lost[:-1])

    monkeypatch.setattr(unmask, "_mask", forget_the_last)
    result = runner.invoke(
        cli.app, ["bench", "unmask", "--clients", "6", "--dim", "50", "--dropped", "1"]
    )
    assert result.exit_code == 1


def test_too_few_survivors_are_refused():
    with pytest.raises(ParameterError, match="dropped"):
        bench_unmask(8, 10, 4, 16, 1, 1)


@pytest.mark.slow
def test_unmasking_by_two_processes():
    dim = 2 * MIN_RANGE
    figures = run_json(
        *("unmask", "--clients", "4", "--dropped", "1", "--bits", "16", "--repeats", "1"),
        *("--dim", str(dim), "--workers", "2"),
    )
    assert figures["correct"] is True
    assert figures["workers"] == 2
    ratio = figures["seconds_one_process"] / figures["seconds"]
    assert figures["speedup"] == pytest.approx(ratio)
