"""What a client of either protocol would send and receive, as a deployment plans it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from protocol.planning.configuration import OneShotTable, PairwiseTable, PlanTables, build_plan
from protocol.planning.deployment import DeploymentPlan, plan_deployment
from simulations.learning.configuration import RunConfig
from sketch import SketchSpec, spec_for_size

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
    d. Planned for powers of two and interpolated between them, which is off by less than a bit for
    each number that is sent.
    """
    planned, rows = speaking(config, protocol), config.sketch.rows
    powers = {1 << size.bit_length() - less for size in sizes for less in (0, 1)}
    lengths = {spec_for_size(dimension, min(max(n, rows), dimension), rows).size for n in powers}
    counted = [
        deployed(planned, spec_for_size(dimension, length, rows)).bytes_per_client
        for length in sorted(lengths)
    ]
    return float(np.mean(np.interp(sizes, sorted(lengths), counted)))
