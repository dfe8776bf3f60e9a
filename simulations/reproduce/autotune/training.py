"""One run of the campaign, apart from the plans: a new plan leaves finished runs what they are.

Must not know what a plan varies.
"""

from __future__ import annotations

from typing import Any

from simulations.campaigns.federated import Ran, data_of, run_of
from simulations.learning.configuration import RunConfig
from simulations.learning.records import ErrorParts, average_rate, second_half


def run(name: str, config: RunConfig) -> dict[str, Any]:
    """Run one point, in a folder that stays.

    Returns its course; shares, the expected squared error of each round's sketch over that of its
    noise; seconds of all rounds.
    """
    ran = run_of(config, data_of(config), name)
    return {
        **course(ran),
        "shares": [_share(r["error"]) for r in ran.records],
        "seconds": sum(float(r["seconds"]) for r in ran.records),
    }


def course(ran: Ran) -> dict[str, Any]:
    """Return how a run went.

    The final accuracy; tests, pairs of a round and its accuracy; harmonic means of the rate over
    the run and its second half; the size sent in each round.
    """
    records = ran.records
    return {
        "accuracy": ran.accuracy,
        "tests": [[r["round"], r["accuracy"]] for r in records if r["accuracy"] is not None],
        "rate": average_rate(records),
        "late_rate": average_rate(second_half(records)),
        "sizes": [int(r["sketch_size"]) for r in records],
    }


def _share(parts: ErrorParts) -> float:
    """The expected squared error of a sketch over that of its noise, to three digits."""
    sketch, noise = parts.get("sketch"), parts.get("noise")
    return float(f"{(sketch or 0.0) / noise:.3g}") if noise else 0.0
