"""What tests of the fault campaigns share: a defence is taken away, and the campaign says so."""

from __future__ import annotations

from simulations.threats.faults import run_campaign


def reports(name: str, what: str, schedules: int = 200) -> bool:
    """Whether a campaign of one behaviour finds a failure with these words in it."""
    for first in range(0, schedules, 5):
        found = run_campaign(5, 7, 0.04, names=[name], first=first)
        if any(what in problem for problem in found.failures.values()):
            return True
    return False
