"""Benchmarks of noise: what they report, beside what."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from command_line import invoke, run_json

from simulations.bench.sampler import SampledLaw, bench_sampler


@pytest.mark.parametrize("law", [law.value for law in SampledLaw])
def test_samplers_report_their_rates_beside_numpy_and_the_keystream(law: str) -> None:
    figures = run_json("bench", "sampler", "--law", law, "--samples", "5000", "--repeats", "1")
    ours = figures["samples_per_second"]
    assert ours == pytest.approx(5000 / figures["seconds"])
    assert figures["ratio"] == pytest.approx(ours / figures["numpy_samples_per_second"])
    limit = figures["keystream_samples_per_second"]
    assert figures["ratio_to_keystream"] == pytest.approx(ours / limit)
    assert ("table_seconds" in figures) == (law != "binomial")
    assert ("coins" in figures) == (law == "binomial")


@pytest.mark.parametrize(("coins", "octets"), [(1, 1), (9, 2), (64, 8), (65, 16), (5000, 4)])
def test_the_keystream_is_that_of_the_layout(coins: int, octets: int) -> None:
    figures = bench_sampler(SampledLaw.BINOMIAL, coins, 1.0, 1000, 1)
    assert figures["keystream_bytes_per_sample"] == octets
    assert ("table_entries" in figures) == (coins == 5000)


def test_opendp_is_measured_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def draw(zeros: list[int]) -> list[int]:
        asked.append(len(zeros))
        return zeros

    package, fake = ModuleType("opendp"), ModuleType("opendp.prelude")
    fake.enable_features = lambda *names: None
    fake.vector_domain = fake.atom_domain = fake.l2_distance = lambda *_, **__: None
    fake.m = SimpleNamespace(make_gaussian=lambda domain, metric, scale: draw)
    monkeypatch.setitem(sys.modules, "opendp", package)
    monkeypatch.setitem(sys.modules, "opendp.prelude", fake)
    figures = bench_sampler(SampledLaw.DISCRETE_GAUSSIAN, 64, 100.0, 6400, 2)
    assert asked == [100] * 3
    assert figures["ratio_to_opendp"] == pytest.approx(
        figures["samples_per_second"] / figures["opendp_samples_per_second"]
    )


@pytest.mark.parametrize("arguments", [("--coins", "0"), ("--variance", "0"), ("--law", "other")])
def test_bad_arguments_are_refused_by_name(arguments: tuple[str, str]) -> None:
    result = invoke("bench", "sampler", *arguments)
    assert result.exit_code == 2


@pytest.mark.parametrize("rotate", [False, True])
def test_encode_reports_every_stage_and_its_share(rotate: bool) -> None:
    flag = () if rotate else ("--no-rotate",)
    figures = run_json("bench", "encode", "--dim", "3000", "--repeats", "1", *flag)
    stages = ["clip", *(["rotation"] if rotate else []), "rounding", "coins", "lift"]
    assert sum(figures[f"{stage}_share"] for stage in stages) == pytest.approx(1.0)
    assert ("rotation_seconds" in figures) == rotate
    assert figures["ratio_to_copy"] == pytest.approx(figures["seconds"] / figures["copy_seconds"])
    rates = [figures[f"{name}_per_core_second"] for name in ("needed", "clients")]
    assert figures["ratio_to_needed"] == pytest.approx(rates[0] / rates[1])
