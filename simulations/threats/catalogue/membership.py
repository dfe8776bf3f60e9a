"""A24: who took part, from a sum and from a model; see docs/attacks-on-updates.md."""

from __future__ import annotations

from typing import Final

from simulations.threats.attack import Attack, Effort, Findings


def _membership(effort: Effort, seed: int) -> Findings:
    # torch load when it runs.
    from simulations.threats.membership.attack import membership

    return membership(effort, seed)


ATTACKS: Final = (
    Attack(
        id="A24",
        promise="P6",
        name="membership inference",
        title="Nobody can tell who took part better than epsilon permits: the audited epsilon "
        "stays below the accounted one, on the sum and on the model",
        says="infers from the sum and the model who took part",
        stopped_by="noise; the audited epsilon is below the accounted one",
        run=_membership,
    ),
)
