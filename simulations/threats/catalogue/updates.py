"""A23, A24: what updates and models say of the data behind them; docs/attacks-on-updates.md."""

from __future__ import annotations

from typing import Final

from simulations.threats.attack import Attack, Effort, Findings

# torch and matplotlib load when an attack is run.


def _gradient_inversion(effort: Effort, seed: int) -> Findings:
    from simulations.threats.inversion.attack import gradient_inversion

    return gradient_inversion(effort, seed)


def _membership(effort: Effort, seed: int) -> Findings:
    from simulations.threats.membership.attack import membership

    return membership(effort, seed)


ATTACKS: Final = (
    Attack(
        id="A23",
        promise="P9",
        name="gradient inversion",
        title="Private pictures cannot be rebuilt from what a round releases, nor labels read off",
        says="rebuilds pictures and labels from plain, summed and noised updates",
        stopped_by="clipping, the sum and noise; the sum alone does not stop a malicious model",
        see=("attacks-on-updates.md",),
        run=_gradient_inversion,
    ),
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
