"""A23: private pictures and labels from what clients send; see docs/attacks-on-updates.md."""

from __future__ import annotations

from typing import Final

from simulations.threats.attack import Attack, Effort, Findings


def _gradient_inversion(effort: Effort, seed: int) -> Findings:
    # torch and matplotlib load when it runs.
    from simulations.threats.inversion.attack import gradient_inversion

    return gradient_inversion(effort, seed)


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
)
