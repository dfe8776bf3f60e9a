"""Benchmarks of parts: what they report, and that what they time is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from command_line import invoke, run_json

from secagg import ParameterError, PrimeField
from secagg.keys import AgreementKey, SecretSeed
from secagg.pairwise import rebuild
from secagg.pairwise.unmask import MIN_RANGE
from simulations.bench import unmask
from simulations.bench.limits import bare_keystream, modular_product
from simulations.bench.shamir import bench_shamir
from simulations.bench.unmask import bench_unmask


def test_shamir_reports_both_halves_beside_their_limits() -> None:
    figures = run_json("bench", "shamir", "--secrets", "2", "--holders", "7", "--threshold", "4")
    assert figures["correct"] is True
    for half in ("create", "combine"):
        ratio = figures[f"{half}_seconds"] / figures[f"{half}_limit_seconds"]
        assert figures[f"{half}_ratio_to_limit"] == pytest.approx(ratio)


def test_shamir_refuses_a_threshold_above_the_holders() -> None:
    with pytest.raises(ParameterError, match="threshold"):
        bench_shamir(1, 3, 4, 1)


def test_the_modular_product_is_a_matrix_product() -> None:
    p = 2**31 - 1
    left = np.array([[p - 1, 1, 0], [p - 1, p - 1, 5]], np.uint64)
    right = np.array([[p - 1, 2], [3, 4], [p - 1, p - 2]], np.uint64)
    expected = left.astype(object) @ right.astype(object) % p
    assert modular_product(left, right, p).tolist() == expected.tolist()


def test_the_bare_keystream_takes_every_length() -> None:
    for length in (1, 16, 128 * 1024 - 1, 300_000):
        bare_keystream([bytes(16)] * 2, length)


@pytest.mark.parametrize(("clients", "dropped"), [(8, 0), (8, 3), (2, 0)])
@pytest.mark.parametrize("bits", [16, 24, 32])
def test_unmasking_is_right_and_counts_its_masks(clients: int, dropped: int, bits: int) -> None:
    figures = bench_unmask(clients, 300, dropped, bits, workers=1, repeats=1)
    survivors = clients - dropped
    assert figures["correct"] is True
    assert figures["masks_removed"] == survivors + dropped * survivors
    assert figures["ratio_to_limit"] == figures["seconds"] / figures["limit_seconds"]
    assert 0 < figures["rebuild_seconds"] < figures["seconds"]
    assert figures["peak_rss_bytes"] > 1 << 20
    assert "speedup" not in figures


def test_the_rebuilt_secrets_are_checked() -> None:
    state = unmask._build(8, 10, 3, unmask.PrimeField(16), 5)
    right = state.rebuilt().secrets
    assert set(right) == set(range(8))
    for owner, secret in right.items():
        assert state._is_right(owner, secret)
        assert not state._is_right(owner, right[(owner + 1) % 8])


def test_liars_cost_a_decoding_each_and_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    original = rebuild.wrong_shares

    def counting(shares: np.ndarray, *rest: Any) -> tuple[int, ...] | None:
        decoded.append(len(shares))
        return original(shares, *rest)

    monkeypatch.setattr(rebuild, "wrong_shares", counting)
    figures = run_json(
        *("bench", "unmask", "--clients", "30", "--dropped", "2", "--liars", "6"),
        *("--dim", "50", "--repeats", "1"),
    )
    assert figures["correct"] is True
    assert (figures["liars"], figures["named"]) == (6, 6)
    assert decoded[:6] == [28, 27, 26, 25, 24, 23]


def test_a_liar_that_is_not_named_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmask, "_lie", lambda state, count: {0, 1})
    result = invoke("bench", "unmask", "--clients", "8", "--dim", "50", "--dropped", "0")
    assert result.exit_code == 1


def test_more_liars_than_can_be_found_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"liars = 2: must be in 0 \.\. 1"):
        bench_unmask(8, 10, 0, 16, 1, 1, liars=2)


def test_a_wrong_sum_is_seen_and_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = unmask._mask

    def forget_the_last(
        masked: np.ndarray,
        field: PrimeField,
        record: unmask._PublicRecord,
        u: int,
        key: AgreementKey,
        seed: SecretSeed,
        lost: range,
    ) -> None:
        honest(masked, field, record, u, key, seed, lost[:-1])

    monkeypatch.setattr(unmask, "_mask", forget_the_last)
    result = invoke("bench", "unmask", "--clients", "6", "--dim", "50", "--dropped", "1")
    assert result.exit_code == 1


def test_too_few_survivors_are_refused() -> None:
    with pytest.raises(ParameterError, match="dropped"):
        bench_unmask(8, 10, 4, 16, 1, 1)


@pytest.mark.slow
def test_unmasking_by_two_processes() -> None:
    dim = 2 * MIN_RANGE
    figures = run_json(
        *("bench", "unmask", "--clients", "4", "--dropped", "1", "--bits", "16", "--repeats", "1"),
        *("--dim", str(dim), "--workers", "2"),
    )
    assert figures["correct"] is True
    assert figures["workers"] == 2
    ratio = figures["seconds_one_process"] / figures["seconds"]
    assert figures["speedup"] == pytest.approx(ratio)
