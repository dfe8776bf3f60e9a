"""A Flower network for each test, made of the doubles in `flower_doubles`."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.allocation import Allocation
from protocol.goal import PrivacyGoal
from protocol.planning.configuration import named_members
from protocol.training.private import hiding_plan
from secagg import Mode
from tests.doubles.plans import plan_of_words

if importlib.util.find_spec("flwr") is not None:
    with warnings.catch_warnings():
        # Flower's own imports warn; ours, below, may not.
        warnings.simplefilter("ignore")
        importlib.import_module("flwr.serverapp.strategy")

    from flower_doubles import (
        FIRST_NODE,
        RUN_ID,
        FakeGrid,
        FakeTime,
        N,
        Node,
        World,
        flat,
        make_app,
        model,
        shift_of,
        shifted,
        step_of,
    )
    from flwr.clientapp import ClientApp
    from flwr.supercore.task_identity import TaskIdentity

    from protocol.adapters.flower.folders import new_network, rules_of
    from protocol.adapters.flower.home import SIMULATION_VARIABLE


@pytest.fixture
def make_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Builds a world; every part of the plan may be overridden by name."""
    # A ServerApp's process has these; messages are made with them.
    for name, value in (("_run_id", RUN_ID), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)
    # All of it is a simulation, and no engine of Flower's plays it.
    monkeypatch.setenv(SIMULATION_VARIABLE, "1")
    worlds = []

    def make(
        clients: int = N,
        app: ClientApp | None = None,
        nodes: int | None = None,
        allow_evaluation_in_the_clear: bool = False,
        evaluations: Collection[str] = (),
        allocation: Allocation | None = None,
        **overrides: Any,
    ) -> World:
        values = {
            "goal": PrivacyGoal(200.0, 1e-5, 8),
            "cohort": N,
            "tolerated_dropouts": 2,
            "tolerated_colluders": 0,
            "clip_l2": 1.0,
            "mode": Mode.ACTIVE,
        }
        plan = plan_of_words({**values, **overrides})
        block = None
        if allocation is not None:
            plan, clients = hiding_plan(plan, allocation), allocation.population
            block = allocation.block
        rules = rules_of(
            plan,
            block=block,
            allow_evaluation_in_the_clear=allow_evaluation_in_the_clear,
            evaluations=list(evaluations),
        )
        made_network = new_network(tmp_path / str(RUN_ID), clients, rules, named_members(plan))
        run_config = {"veilsum.simulation-dir": str(tmp_path), "lr": 0.1}
        made = [
            Node(FIRST_NODE + i, {"partition-id": i, "num-partitions": clients}, dict(run_config))
            for i in range(clients if nodes is None else nodes)
        ]
        grid = FakeGrid(made, app or make_app())
        world = World(tmp_path, plan, made_network.registry, FakeTime(), grid, run_config)
        world.committee, world.allocation = made_network.committee, allocation
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        for ledger in world.opened:
            ledger.close()


@pytest.fixture
def parts() -> SimpleNamespace:
    """The helpers above, for test modules, which cannot import this one."""
    return SimpleNamespace(
        model=model,
        shifted=shifted,
        flat=flat,
        shift_of=shift_of,
        make_app=make_app,
        step_of=step_of,
        N=N,
        RUN_ID=RUN_ID,
        FIRST_NODE=FIRST_NODE,
    )
