"""From released vectors to the scalars that a controller may see."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.controllers.base import ReleasedProbe, ReleasedStats
from sketch.hashing import PublicSeed
from sketch.spec import SketchSpec

Floats = NDArray[np.float64]


def released_stats(
    spec: SketchSpec,
    seed: PublicSeed,
    mean_sent: Floats,
    update: Floats,
    *,
    previous: Floats | None,
    round_number: int,
    noise_variance: float,
    survivors: int,
) -> ReleasedStats:
    """Measure a release.

    Args:
        mean_sent: float64[spec.size], the released noisy mean of what clients sent.
        update: float64[d], what it was decoded to.
        previous: float64[d], the same of the release before; None in the first round.
        noise_variance: total variance per coordinate of `mean_sent` that is not signal.
    """
    main, second = spec.split(mean_sent)
    decoded = _checks.vector("update", update, spec.dimension)
    inner = None
    if previous is not None:
        inner = _dot(decoded, _checks.vector("previous", previous, spec.dimension))
    probe = None
    if spec.probe is not None and second is not None:
        missed = spec.probe.build(spec.dimension, seed).encode(decoded) - second
        probe = ReleasedProbe(
            size=spec.probe.size,
            norm_squared=_dot(second, second),
            noise_variance=noise_variance / spec.probe.weight**2,
            error_squared=_dot(missed, missed),
        )
    return ReleasedStats(
        round_number=round_number,
        dimension=spec.dimension,
        size=spec.main_size,
        sketch_norm_squared=_dot(main, main),
        noise_variance=noise_variance / spec.main_weight**2,
        survivors=survivors,
        update_norm_squared=_dot(decoded, decoded),
        previous_inner=inner,
        probe=probe,
    )


def _dot(left: Floats, right: Floats) -> float:
    """The inner product, added up in one order whatever the machine.

    A run that goes on elsewhere has to decide on the same sizes.
    """
    return float(np.einsum("i,i->", left, right))
