"""The benchmark of simulated training: the same work on both sides, and what it reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import run_json

from simulations.bench.simulate import measure, peers
from simulations.bench.simulate.order import Order, SimulatedModel
from simulations.bench.simulate.workload import plain_module, workload

pytestmark = pytest.mark.usefixtures("one_thread")

KEYS = {
    "updates_per_second",
    "updates_per_second_one_thread",
    "sequential_updates_per_second",
    "flower_updates_per_second",
    "pfl_updates_per_second",
    "ratio_to_sequential",
    "encode_share",
    "largest_difference",
    "peak_rss_bytes",
}


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


@pytest.mark.slow
def test_two_threads_do_the_same_work() -> None:
    order = Order(model=SimulatedModel.TINY, clients=8, steps=2, batch=2)
    figures = measure.bench_simulate(order, workers=2, repeats=1, peers=False)
    assert figures["workers"] == 2
    assert float(figures["largest_difference"] or 0) < 1e-4


def test_the_sum_of_the_private_round_is_near_the_plain_one() -> None:
    work = workload(Order(model=SimulatedModel.LOGISTIC, clients=6, steps=1, batch=2))
    setup = measure._setup(work.task.dimension, 6)
    rows = np.stack(list(measure._rows(work, "auto")))
    outcome = measure.IdealAggregator().run(setup, lambda index: rows[index], {})
    release = measure.Pipeline(setup).decode(outcome.total)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    clipped = rows * np.minimum(1.0, measure._CLIP / norms)
    # Six standard deviations of the noise that the round states, in each of 7,850 coordinates.
    bound = 6.0 * np.sqrt(release.noise_variance)
    assert np.abs(release.update - clipped.mean(axis=0)).max() < bound


def test_real_digits(data_dir: Path) -> None:  # type: ignore[no-untyped-def]
    order = Order(
        model=SimulatedModel.LOGISTIC, clients=2, steps=1, batch=2, data_dir=str(data_dir)
    )
    assert workload(order).classes == 10
    assert len(workload(order).split) == 4
