"""What a client of the real protocol sends and receives, for runs that only imagined its messages.

All of it follows from public parameters: keys, shares, confirmations, the masked vector, unmasking.
The model that a server sends is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from protocol.planning.configuration import Cohort, Privacy, build_plan
from protocol.planning.deployment import DeploymentPlan, plan_deployment
from simulations.learning.configuration import RunConfig
from sketch import SketchSpec, spec_for_size

Protocol = Literal["pairwise", "one-shot"]


def deployed(config: RunConfig, spec: SketchSpec, sums: int = 1) -> DeploymentPlan:
    """Return the deployment of a configuration in which nobody is lost.

    Args:
        config: of the run; its noise is independent.
        spec: of the compression.
        sums: secure sums of a round, each of which is charged.

    Raises:
        ConfigurationError, ParameterError: it cannot be run.
    """
    return _planned(config.privacy, config.cohort, sums * config.participations, spec)


@lru_cache(maxsize=1024)
def _planned(privacy: Privacy, cohort: Cohort, sums: int, spec: SketchSpec) -> DeploymentPlan:
    """Return the deployment that nobody is lost in; each may take half a second to calibrate."""
    return plan_deployment(build_plan(privacy, cohort, sums), spec, 0)


def mean_bytes(
    config: RunConfig, protocol: Protocol, dimension: int, sizes: Sequence[int]
) -> float:
    """Return what a client sends and receives in a round, averaged over rounds of given sizes.

    Planned at powers of two and interpolated between them, which is off by less than a bit for each
    number that is sent: calibrating every size of a long run would take minutes.

    Args:
        config: of the run; its rows are those of all sketches.
        protocol: in place of the configuration's.
        dimension: d; sizes of as much are uncompressed.
        sizes: L of every round, 1 .. d.

    Raises:
        ConfigurationError, ParameterError: it cannot be run.
    """
    cohort = config.cohort.model_copy(update={"protocol": protocol})
    planned = config.model_copy(update={"cohort": cohort})
    rows = config.sketch.rows
    powers = {1 << size.bit_length() for size in sizes} | {
        1 << size.bit_length() - 1 for size in sizes
    }
    specs = {spec_for_size(dimension, min(max(power, rows), dimension), rows) for power in powers}
    costs = {spec.size: deployed(planned, spec).bytes_per_client for spec in specs}
    grid = sorted(costs)
    return float(np.mean(np.interp(sizes, grid, [costs[size] for size in grid])))
