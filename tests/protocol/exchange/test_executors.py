"""Unmasking elsewhere: worker processes and a Dask cluster give the sum that the server gives."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from round_kit import IDENTITIES, make_setup, noise, updates

from protocol.exchange.aggregators import RealAggregator
from protocol.round.losses import Stage
from protocol.round.policy import ClientPolicy
from secagg.pairwise import unmask
from secagg.pairwise.unmask import executor_width

OPEN_POLICY = ClientPolicy(minimum_noise_multiplier=0.0)
LOST = {1: Stage.INPUT, 4: Stage.INPUT}


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.fixture(scope="module")
def dask() -> Iterator[Executor]:
    distributed = pytest.importorskip("dask.distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        yield executor


@pytest.fixture(params=["pool", pytest.param("dask", marks=pytest.mark.slow)])
def executor(request: pytest.FixtureRequest) -> Executor:
    chosen: Executor = request.getfixturevalue(request.param)
    return chosen


class Counted(Executor):
    """Passes tasks on and remembers which."""

    def __init__(self, inner: Executor) -> None:
        self.inner, self.tasks = inner, []
        self._max_workers = getattr(inner, "_max_workers", None)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks.append(fn.__name__)
        return self.inner.submit(fn, *args, **kwargs)


def test_the_sum_is_the_same(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agreement on keys and masks by coordinate range both run elsewhere."""
    monkeypatch.setattr(unmask, "MIN_RANGE", 20)
    setup, counted = make_setup(), Counted(executor)
    plain = RealAggregator(IDENTITIES, OPEN_POLICY, noise=noise).run(setup, updates, LOST).total
    spread = RealAggregator(IDENTITIES, OPEN_POLICY, counted, noise=noise)
    total = spread.run(setup, updates, LOST).total
    assert total.survivors == plain.survivors == (0, 2, 3, 5)
    assert np.array_equal(total.vector.elements, plain.vector.elements)
    ranges = executor_width(executor)
    assert counted.tasks == ["_pair_masks"] * len(LOST) + ["_partial_masks"] * ranges
    assert executor.submit(os.getpid).result(60) != os.getpid()


def test_the_example_sums_right(executor: Executor) -> None:
    path = Path(__file__).parents[3] / "examples" / "dask_unmasking.py"
    pytest.importorskip("dask.distributed")
    spec = importlib.util.spec_from_file_location("dask_unmasking", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    seconds, right = example.unmask_seconds(6, 2, 1 << 18, executor)
    assert right and seconds > 0


def test_a_task_that_fails_elsewhere_releases_nothing(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of a wrong length never leave this process in earnest: the workers refuse them."""
    setup = make_setup()
    monkeypatch.setattr(unmask, "self_key", lambda *_: b"short")
    with pytest.raises(ValueError, match="key"):
        RealAggregator(IDENTITIES, OPEN_POLICY, executor=executor).run(setup, updates, {})
