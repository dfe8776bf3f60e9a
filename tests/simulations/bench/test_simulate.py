"""The benchmark of simulated training: the same work on both sides, and what it reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import invoke, run_json
from rank_doubles import on_ranks

from protocol.errors import ConfigurationError
from simulations.bench.simulate import measure, peers, ranks
from simulations.bench.simulate.order import Order, SimulatedModel
from simulations.bench.simulate.workload import plain_module, workload

pytestmark = pytest.mark.usefixtures("one_thread")

KEYS = set(
    "updates_per_second updates_per_second_one_thread sequential_updates_per_second "
    "flower_updates_per_second pfl_updates_per_second ratio_to_sequential encode_share "
    "largest_difference peak_rss_bytes".split()
)
RATES = ("updates_per_second", "bare_updates_per_second", "ratio_to_bare")


@pytest.mark.parametrize("model", list(SimulatedModel))
def test_module_and_task_are_one_model(model: SimulatedModel) -> None:
    work = workload(Order(model=model, clients=2, steps=1, batch=3))
    inputs, _ = work.client_batches(0)[0]
    parameters = work.task.layout.unflatten(torch.tensor(work.start))
    module = plain_module(model, work.classes)
    module.load_state_dict(parameters)
    mine = work.task.scores(parameters, (inputs + 1) / 2)
    if model is SimulatedModel.CNN:
        assert work.task.dimension == 1_018_174
    torch.testing.assert_close(mine, module(inputs), rtol=1e-4, atol=1e-5)


def test_json_has_the_promised_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_installed", lambda *_: False)
    arguments = ["bench", "simulate", "--model", "mlp", "--clients", "6", "--steps", "2"]
    figures = run_json(*arguments, "--batch", "4", "--workers", "1", "--repeats", "1")
    assert set(figures) >= KEYS
    assert figures["flower_updates_per_second"] is figures["pfl_updates_per_second"] is None
    assert figures["strategy"] == "vmap"
    assert figures["largest_difference"] < 1e-4
    assert min(figures["updates_per_second"], figures["encode_share"]) > 0


def test_ranks_release_one_sum_whatever_their_number() -> None:
    order = Order(model=SimulatedModel.TINY, clients=9, steps=2, batch=2)
    digests = set()
    for size in (1, 2, 4):
        told = on_ranks(size, lambda each: ranks.play(each, order, "loop", 1))
        digests |= {figures["digest"] for figures in told}
        assert {figures["ranks"] for figures in told} == {size}
        assert min(told[0][name] for name in RATES) > 0
    assert len(digests) == 1
    other = Order(model=SimulatedModel.TINY, clients=9, steps=1, batch=2)
    (figures,) = on_ranks(1, lambda each: ranks.play(each, other, "loop", 1))
    assert figures["digest"] not in digests


@pytest.mark.slow
def test_ranks_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_installed", lambda *_: False)
    arguments = ["bench", "simulate", "--model", "tiny", "--clients", "6", "--steps", "1"]
    figures = run_json(*arguments, "--batch", "2", "--ranks", "2,1", "--repeats", "1")
    assert [run["ranks"] for run in figures["runs"]] == [1, 2]
    assert figures["correct"] and len({run["digest"] for run in figures["runs"]}) == 1
    first, last = figures["runs"]
    assert figures["bare_updates_per_second"] == first["bare_updates_per_second"]
    ratio = last["updates_per_second"] / first["updates_per_second"]
    assert figures["speedup"] == pytest.approx(ratio)
    assert figures["flower_updates_per_second"] is figures["pfl_updates_per_second"] is None


def test_sums_that_differ_are_told_by_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(order: Order, count: int, *_: object) -> dict[str, object]:
        return {"ranks": count, "digest": str(count), **dict.fromkeys(RATES, 1.0)}

    monkeypatch.setattr(ranks, "_run", differs)
    command = ["bench", "simulate", "--model", "tiny", "--no-peers", "--ranks"]
    assert invoke(*command, "1,2").exit_code == 1
    assert invoke(*command, "2").exit_code == 0


@pytest.mark.parametrize("bad", ["", "0", "1,x", "2,-1", "65"])
def test_numbers_of_ranks_that_are_none(bad: str) -> None:
    result = invoke("bench", "simulate", "--model", "tiny", "--ranks", bad)
    assert isinstance(result.exception, ConfigurationError)
    assert "numbers from 1 to 64 with commas between, such as 1,2" in str(result.exception)


@pytest.mark.slow
def test_two_threads_do_the_same_work() -> None:
    order = Order(model=SimulatedModel.TINY, clients=8, steps=2, batch=2)
    figures = measure.bench_simulate(order, workers=2, repeats=1, peers=False)
    assert figures["workers"] == 2
    assert float(figures["largest_difference"] or 0) < 1e-4


def test_the_sum_of_the_private_round_is_near_the_plain_one() -> None:
    work = workload(Order(model=SimulatedModel.LOGISTIC, clients=6, steps=1, batch=2))
    setup = measure.round_setup(work.task.dimension, 6)
    rows = np.stack(list(measure._rows(work, "auto")))
    outcome = measure.IdealAggregator().run(setup, lambda index: rows[index], {})
    release = measure.Pipeline(setup).decode(outcome.total)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    clipped = rows * np.minimum(1.0, setup.parameters.clip_l2 / norms)
    # Six standard deviations of the noise that the round states, in each of 7,850 coordinates.
    bound = 6.0 * np.sqrt(release.noise_variance)
    assert np.abs(release.update - clipped.mean(axis=0)).max() < bound


def test_real_digits(data_dir: Path) -> None:  # type: ignore[no-untyped-def]
    order = Order(
        model=SimulatedModel.LOGISTIC, clients=2, steps=1, batch=2, data_dir=str(data_dir)
    )
    assert workload(order).classes == 10
    assert len(workload(order).split) == 4
