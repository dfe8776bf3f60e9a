"""What a sketch does to noise that comes back: with the same hashes it cancels, with others not."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from dp.correlated.planning import Schedule, plan_noise
from sketch import PublicSeed
from sketch.controllers import FixedRate
from sketch.hashing import SEED_BYTES
from sketch.linear import LinearSketch

ROUNDS, DIMENSION = 60, 4000
SCHEDULE = Schedule(ROUNDS, participations=12, apart=5)


def sketch_of(rate: float, number: int) -> LinearSketch:
    seed = PublicSeed(hashlib.sha256(b"%d" % number).digest()[:SEED_BYTES])
    return FixedRate(rate).initial(DIMENSION).spec.build(seed)


def noise_in_model(rate: float, *, returned: bool, fresh: bool) -> float:
    """Root mean square over the rounds of the noise in the sum of all updates, at equal privacy."""
    plan, rng = plan_noise(SCHEDULE), np.random.default_rng(1)
    size = FixedRate(rate).initial(DIMENSION).spec.size
    share, variance = (plan.returned_share, plan.fresh_ratio) if returned else (0.0, 1.0)
    model, taken, squares = np.zeros(DIMENSION), np.zeros(size), []
    for number in range(ROUNDS):
        kept, added = (
            np.sqrt(part * variance) * rng.standard_normal(size) for part in (1.0 - share, share)
        )
        model += sketch_of(rate, number if fresh else 0).decode(kept + added - taken)
        taken = added
        squares.append(float(model @ model))
    return float(np.sqrt(np.mean(squares)))


@pytest.mark.parametrize("rate", [4.0, 16.0])
def test_noise_cancels_in_one_sketch_and_grows_in_sketches_of_other_hashes(rate: float) -> None:
    independent = noise_in_model(rate, returned=False, fresh=True)
    same = noise_in_model(rate, returned=True, fresh=False)
    other = noise_in_model(rate, returned=True, fresh=True)
    gain = plan_noise(SCHEDULE).gain
    # Some hundred to a thousand independent numbers: within six standard deviations.
    assert independent / same == pytest.approx(gain, rel=0.2)
    assert other > 1.6 * independent


def test_the_error_of_one_sketch_adds_up_and_that_of_many_does_not() -> None:
    """What is won by returned noise has to be weighed against this; no sketch has neither."""
    rng = np.random.default_rng(2)
    direction = rng.standard_normal(DIMENSION) / np.sqrt(DIMENSION)
    whole, errors = np.zeros(DIMENSION), {True: np.zeros(DIMENSION), False: np.zeros(DIMENSION)}
    for number in range(ROUNDS):
        update = direction + rng.standard_normal(DIMENSION) / np.sqrt(DIMENSION)
        whole += update
        for fresh, error in errors.items():
            sketch = sketch_of(4.0, number if fresh else 0)
            error += sketch.decode(sketch.encode(update)) - update
    same, other = (float(np.linalg.norm(errors[fresh])) for fresh in (False, True))
    assert same > 2.0 * other
