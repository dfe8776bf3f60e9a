"""One-shot rounds on Flower: one upload with the training reply, short exchanges with members."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import World
from flwr.serverapp.strategy import FedAvg

ONE_SHOT: dict[str, Any] = {"protocol": "one-shot"}


def test_fedavg_gets_the_mean(make_world: Callable[..., World], parts: SimpleNamespace) -> None:
    world = make_world(**ONE_SHOT)
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model()
    with world.secure(strategy) as secure:
        result = strategy.start(grid=secure, initial_arrays=before, num_rounds=3)
        print(secure.reports)
    assert [report.exchanges for report in secure.reports] == [5, 4, 4]
