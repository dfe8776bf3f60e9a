"""The cells of the campaign: runs of the federated engine with the ideal sum.

The ideal sum adds the integers of the real protocol, without its messages.
"""

from __future__ import annotations

from typing import Any

from simulations.learning.configuration import RunConfig
from simulations.reproduce.engine.federated import data_of, run_of


def run(config: RunConfig) -> dict[str, Any]:
    """Run a configuration; return what the campaign compares."""
    ran = run_of(config, data_of(config))
    spent: dict[str, Any] = ran.last.get("epsilons", {})
    return {
        "accuracy": ran.accuracy,
        "diverged": ran.diverged,
        "bytes": ran.last.get("bytes_per_client"),
        # Where a run ends depends on what it released, if only by diverging: its goal, then.
        "epsilon": spent.get("guaranteed", spent.get("server")),
        "last_clip": ran.last.get("clip_of_an_update"),
    }
