"""Benchmarks of one-shot rounds: what they report, alone and beside the pairwise protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from command_line import invoke, run_json

from protocol.schemes.committee import CommitteeNumbers, committee_numbers
from secagg import ParameterError
from secagg.oneshot.ring import Ring
from simulations.bench import growth, one_shot_mask, one_shot_round
from simulations.bench.growth import bench_one_shot_growth
from simulations.bench.one_shot_mask import bare_transforms
from simulations.bench.one_shot_round import bench_one_shot_round
from simulations.common.committees import default_committee, numbers_of

COMMITTEE = ("--committee", "9", "1", "1")
ROUND = ("bench", "round", "--clients", "12", "--dim", "900", "--dropout", "0.2", *COMMITTEE)
NUMBERS = committee_numbers(9, 1, 1)


def test_the_default_committee_is_safe_and_finishes() -> None:
    members, corrupt, away = default_committee()
    assert (members, corrupt, away) == (248, 35, 28)
    numbers = numbers_of(None)
    assert numbers == CommitteeNumbers(248, 35, 35, 80, 142)
    # Five in a hundred on average, and far more in one of 2^40 picks.
    assert corrupt > 2 * 0.05 * members


def test_a_committee_with_too_many_corrupt_members_is_refused() -> None:
    with pytest.raises(ParameterError, match="9 members, 2 of them corrupt"):
        numbers_of((9, 2, 2))


@pytest.mark.slow
def test_a_mask_is_compared_with_the_bare_transforms() -> None:
    figures = run_json(
        *("bench", "mask", "--scheme", "one-shot", "--dim", "5000", "--bits", "16"),
        *("--clients", "50", "--repeats", "1", *COMMITTEE),
    )
    ratio = figures["seconds"] / figures["transforms_seconds"]
    assert figures["ratio_to_transforms"] == pytest.approx(ratio)
    assert figures["elements_per_second"] == pytest.approx(5000 / figures["seconds"])
    assert (figures["dim"], figures["clients"], figures["bits"]) == (5000, 50, 16)
    assert {"degree", "limbs", "rounding_bits", "blocks"} <= set(figures)


def test_the_bare_transforms_are_one_forward_and_one_back_for_each_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    kernels = one_shot_mask._ring_kernels
    for name in ("forward", "inverse"):
        original = getattr(kernels, name)

        def counting(*given: Any, name: str = name, original: Any = original) -> None:
            assert given[0].shape == (1, 2, 64)
            done.append(name)
            original(*given)

        monkeypatch.setattr(kernels, name, counting)
    bare_transforms(Ring(64, 2), 3)()
    assert done == ["forward", "inverse", "inverse", "inverse"]


@pytest.mark.slow
def test_a_round_is_correct_and_its_parts_add_up() -> None:
    figures = run_json(*ROUND, "--scheme", "one-shot")
    assert figures["correct"] is True
    assert figures["dropped"] == 2
    assert figures["round_trips"] == {"client": 1, "member": 4}
    assert (figures["members"], figures["corrupt_members"], figures["quorum"]) == (9, 1, 6)
    assert (figures["randomness"], figures["per_polynomial"]) == (1, 4)
    parts = ("vector", "seals", "seeds", "header", "announcement")
    assert figures["bytes_per_client"] == sum(figures[f"bytes_{part}"] for part in parts)
    assert figures["floor_bytes_per_client"] == 2700
    assert figures["bytes_ratio"] == figures["bytes_per_client"] / 2700
    down = figures["member_bytes_down"]
    assert figures["member_bytes_down_per_upload"] == down / 10
    # A member is sent its share of each upload's seals, and the headers.
    assert down > 10 * figures["bytes_seals"] / 9
    assert 0 < figures["member_bytes_up"] < down
    for party in ("server", "client", "member"):
        name = f"{party}_seconds" + ("" if party == "server" else "_median")
        assert figures[name] > 0
        assert figures[name.replace("_seconds", "_cpu_seconds")] > 0
    assert figures["announcement_seconds"] > 0
    assert figures["peak_rss_bytes"] > 1 << 20


def test_the_server_works_as_often_as_told_on_the_same_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[int, ...]] = []
    made: list[int] = []
    original_open = one_shot_round.OneShotServer.open
    original_upload = one_shot_round._Round._upload

    def opening(server: Any) -> Any:
        result = original_open(server)
        opened.append(result.survivors)
        return result

    def uploading(round_: Any, index: int, proof: bytes) -> bytes:
        made.append(index)
        return original_upload(round_, index, proof)

    monkeypatch.setattr(one_shot_round.OneShotServer, "open", opening)
    monkeypatch.setattr(one_shot_round._Round, "_upload", uploading)
    figures = bench_one_shot_round(6, 10, 0.2, 16, NUMBERS, repeats=3)
    assert figures["correct"] is True
    warm_up = (0, 1, 2, 3)
    assert opened == [warm_up, *3 * [(1, 2, 3, 4, 5)]]
    assert made == [0, 1, 2, 3, 1, 2, 3, 4, 5]


def test_a_wrong_sum_is_seen_and_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = one_shot_round.centre

    def off_by_one(vector: Any) -> Any:
        values = np.array(honest(vector))
        values[-1] += values.size == 900
        return values

    monkeypatch.setattr(one_shot_round, "centre", off_by_one)
    assert invoke(*ROUND, "--scheme", "one-shot").exit_code == 1


def test_a_round_that_warms_up_wrongly_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_shot_round, "centre", lambda vector: np.zeros(len(vector)))
    with pytest.raises(RuntimeError, match="warm-up"):
        bench_one_shot_round(5, 10, 0.0, 16, NUMBERS)


@pytest.mark.parametrize(("mode", "exchanges"), [("active", 5), ("semi_honest", 4)])
def test_both_protocols_are_compared(mode: str, exchanges: int) -> None:
    figures = run_json(*ROUND, "--scheme", "both", "--mode", mode)
    pairwise, one_shot = figures["pairwise"], figures["one-shot"]
    assert pairwise["correct"] is one_shot["correct"] is True
    assert pairwise["round_trips"] == {"client": exchanges}
    assert {"server_seconds", "server_cpu_seconds", "bytes_per_client"} < set(figures["ratio"])
    for name, ratio in figures["ratio"].items():
        assert ratio == pytest.approx(pairwise[name] / one_shot[name])


def test_both_masks_are_compared_in_tables_for_people() -> None:
    result = invoke("bench", "mask", "--dim", "100", "--repeats", "1", "--scheme", "both")
    assert result.exit_code == 0
    for text in ("mask, pairwise", "ratio_to_keystream", "mask, one-shot", "ratio_to_transforms"):
        assert text in result.stdout
    assert "mask, ratio" in result.stdout


@pytest.fixture
def small_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SIZES", (8, 12))
    monkeypatch.setattr(growth, "ONE_SHOT_SIZES", (8, 12, 16, 300))


GROWTH = ("bench", "growth", "--dim", "200", *COMMITTEE, "--largest", "250")


@pytest.mark.usefixtures("small_series")
def test_growth_stops_at_the_largest_and_compares_with_the_first() -> None:
    figures = run_json(*GROWTH, "--scheme", "one-shot")
    assert list(figures) == ["8", "12", "16"]
    first = figures["8"]["server_cpu_seconds_per_client"]
    for clients, each in figures.items():
        assert each["correct"] is True
        assert each["server_seconds_per_client"] == each["server_seconds"] / int(clients)
        cpu = each["server_cpu_seconds_per_client"]
        assert cpu == each["server_cpu_seconds"] / int(clients)
        assert each["ratio_to_first"] == pytest.approx(cpu / first)
        assert each["peak_rss_bytes"] > 1 << 20


@pytest.mark.usefixtures("small_series")
def test_growth_of_both_protocols() -> None:
    figures = run_json(*GROWTH, "--scheme", "both")
    assert list(figures["pairwise"]) == ["8", "12"]
    assert list(figures["one-shot"]) == ["8", "12", "16"]
    assert "degree" in figures["pairwise"]["8"]
    shown = invoke(*GROWTH, "--scheme", "both").stdout
    assert "growth, pairwise" in shown and "growth, one-shot" in shown


def test_the_plot_is_of_pairwise_rounds() -> None:
    result = invoke(*GROWTH, "--scheme", "one-shot", "--plot", "growth.png")
    assert result.exit_code == 2
    assert "pairwise rounds only" in result.stderr


def test_growth_has_one_committee_for_all_sizes() -> None:
    told: list[int] = []
    results = bench_one_shot_growth(
        [6, 9], 50, 0.1, NUMBERS, lambda figures: told.append(figures["clients"])
    )
    assert told == [6, 9]
    assert {figures["members"] for figures in results} == {9}
