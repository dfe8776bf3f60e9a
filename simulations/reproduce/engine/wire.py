"""What a client of the real protocol sends and receives, for runs that only imagined its messages.

Either as a deployment plans it, from public parameters, or counted in a real round that adds up
zeros: there nothing is left out, whatever a client does in it. A one-shot client whose committee is
everyone is a member as well, which a plan of uploads does not know.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from dp import Ledger
from protocol.planning.configuration import OneShotTable, PairwiseTable, PlanTables, build_plan
from protocol.planning.deployment import DeploymentPlan, plan_deployment
from protocol.training.local import local_aggregator
from protocol.training.private import PrivateTraining
from secagg import Identity
from simulations.learning.configuration import RunConfig
from sketch import SketchSpec, spec_for_size
from sketch.controllers import FixedRate

Protocol = Literal["pairwise", "one-shot"]


def speaking(config: RunConfig, protocol: Protocol) -> RunConfig:
    """Return a configuration with another protocol."""
    tables = {"pairwise": PairwiseTable, "one-shot": OneShotTable}
    return config.model_copy(update={"scheme": tables[protocol]()})


def deployed(config: RunConfig, spec: SketchSpec, sums: int = 1) -> DeploymentPlan:
    """Return the deployment of a configuration in which nobody is lost; each sum is charged."""
    return _planned(_tables(config), sums * config.participations, spec)


def _tables(config: RunConfig) -> PlanTables:
    """Return what a plan depends on, and nothing else: it is remembered by that."""
    return PlanTables(**{name: getattr(config, name) for name in PlanTables.model_fields})


@lru_cache(maxsize=1024)
def _planned(tables: PlanTables, sums: int, spec: SketchSpec) -> DeploymentPlan:
    """Return the deployment that nobody is lost in; each may take half a second to calibrate."""
    return plan_deployment(build_plan(tables, sums), spec, 0)


def mean_bytes(
    config: RunConfig, protocol: Protocol, dimension: int, sizes: Sequence[int]
) -> float:
    """Return what a client sends and receives in a round, averaged over rounds of given sizes.

    All messages of both directions in rounds that lose nobody, the announcement among them; not the
    model. Sizes are those of sketches of d numbers with the configuration's rows, uncompressed at
    d. Counted at powers of two and interpolated between them, which is off by less than a bit for
    each number that is sent.
    """
    planned, rows = speaking(config, protocol), config.sketch.rows
    powers = {1 << size.bit_length() for size in sizes} | {
        1 << size.bit_length() - 1 for size in sizes
    }
    lengths = {spec_for_size(dimension, min(max(n, rows), dimension), rows).size for n in powers}
    counted = [
        _counted(_tables(planned), planned.participations, length) for length in sorted(lengths)
    ]
    return float(np.mean(np.interp(sizes, sorted(lengths), counted)))


@lru_cache(maxsize=1024)
def _counted(tables: PlanTables, sums: int, length: int) -> float:
    """Return the bytes of a client in a real round, the first of a plan, of vectors this long."""
    plan = build_plan(tables, sums)
    people = [Identity.generate() for _ in range(plan.cohort)]
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        aggregator = local_aggregator(plan, people, length)
        training = PrivateTraining(plan, length, FixedRate(1.0), aggregator, ledger)
        keys, nothing = [person.public for person in people], np.zeros(length)
        outcome = training.run_round(keys, bytes(32), lambda _: nothing).outcome
    return outcome.bytes_per_survivor()
