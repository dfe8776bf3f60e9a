"""A fault campaign: thousands of rounds with hostile parties, and what became of each.

Pairwise rounds are played here, one-shot and validated ones in `one_shot`. Families of behaviours
take turns. On a hostile *wire* every message, in both directions, may be lost, doubled, delayed by
a stage, changed, cut, extended or exchanged for an older one, and all arrive in random order.
*Encoded* rounds do the same to clients that encode real updates, whose sum is decoded. *Clients*
lie with valid signatures, and so do *members* of a committee. *Servers* tell them different things,
and some of them work for the server.

With an honest server a round must end in the exact sum over the survivors it names, or in a typed
error: never in a wrong sum, another exception, or not at all. A hostile server must never get both
secrets of an honest client, and honest parties must never give up shares for two stories. A
schedule is fixed by its number, the seed and the choice of behaviours, so that a failure can be run
again by itself.
"""

from simulations.threats.faults.behaviours import FAULTS
from simulations.threats.faults.campaign import (
    FAMILIES,
    PLAYS,
    Campaign,
    behaviours_named,
    run_campaign,
    run_schedule,
)

__all__ = [
    "FAMILIES",
    "FAULTS",
    "PLAYS",
    "Campaign",
    "behaviours_named",
    "run_campaign",
    "run_schedule",
]
