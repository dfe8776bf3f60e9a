"""What a round of ours must cost at least, done bare in this process: masks, noise, copies."""

from __future__ import annotations

import os
import secrets

import numpy as np

from dp import NoiseSeed
from dp.dropouts import removed_noise
from protocol.round.pipeline import Pipeline
from protocol.round.setup import RoundSetup
from protocol.schemes.pairwise import pairwise_setup
from secagg import Identity
from secagg.pairwise.prg import MASK_KEY_BYTES, accumulate_masks
from simulations.bench.flower.order import FlowerOrder
from simulations.bench.limits import bare_keystream
from simulations.bench.timing import Figures, interleaved_seconds
from sketch import PublicSeed
from sketch.controllers import FixedRate
from sketch.hashing import SEED_BYTES

REPEATS = 3


def floor_figures(order: FlowerOrder, cores: int) -> Figures:
    """Our parts on one core, and the limits, both without Flower.

    `bits`, `degree`, `threshold` of a round; seconds of one client's encoding and masks, and of the
    server's work on removed noise; `limit_...`: keystream of all masks that clients and server
    expand in a round, keystream of all noise, and one copy of every vector that is sent or
    received, in seconds on all cores.
    """
    setup = _setup(order)
    context, field = setup.context, setup.context.field
    degree = context.degree or order.clients - 1
    keys = [os.urandom(MASK_KEY_BYTES) for _ in range(degree + 1)]
    masked, update = field.zeros(context.length), np.full(order.dim, order.shift(0), np.float32)
    packed = np.zeros(field.packed_bytes(context.length), np.uint8)
    pipeline, batches = Pipeline(setup), _batches(setup)
    mask_bytes = context.length * field.dtype.itemsize
    word_bytes = context.length * np.dtype(np.int64).itemsize

    def encode() -> None:
        removable = [NoiseSeed.fresh() for _ in range(context.seeds)]
        pipeline.encode(update, NoiseSeed.fresh(), removable)

    taken = interleaved_seconds(
        {
            "encode": encode,
            "mask": lambda: accumulate_masks(masked, field, keys, [False] * len(keys)),
            "removal": lambda: _remove(setup, order),
            "mask_keystream": lambda: bare_keystream(keys, mask_bytes),
            "noise_keystream": lambda: bare_keystream(keys[:1], word_bytes),
            "copies": lambda: (update.copy(), packed.copy()),
        },
        REPEATS,
    )
    # The survivors' own masks, and those that the lost ones left behind.
    removed_masks = (order.survivors + order.lost * degree) / len(keys)
    removed = len(setup.schedule.removed(order.lost)) if setup.schedule else 0
    drawn = order.clients * batches + order.survivors * removed
    return {
        "bits": context.bits,
        "degree": degree,
        "threshold": context.threshold,
        "client_encode_seconds": taken["encode"],
        "client_mask_seconds": taken["mask"],
        "server_noise_seconds": taken["removal"] * order.survivors,
        "limit_masks_seconds": taken["mask_keystream"] * (order.clients + removed_masks) / cores,
        "limit_noise_seconds": taken["noise_keystream"] * drawn / cores,
        # Each vector is written by one side and read by the other.
        "limit_copies_seconds": 2 * taken["copies"] * order.clients / cores,
    }


def _setup(order: FlowerOrder) -> RoundSetup:
    """A round of the order's plan, as `SecureGrid` announces it."""
    plan = order.plan()
    sketch = FixedRate(1.0).initial(order.dim).spec
    parameters = plan.calibrate(sketch, bytes(32), PublicSeed(secrets.token_bytes(SEED_BYTES)))
    cohort = [Identity.generate().public for _ in range(order.clients)]
    return pairwise_setup(plan, parameters, cohort, secrets.token_bytes(16), 0)


def _batches(setup: RoundSetup) -> int:
    """Noise vectors that a client draws."""
    return len(setup.schedule.batches) if setup.schedule else 1


def _remove(setup: RoundSetup, order: FlowerOrder) -> None:
    """The noise of one survivor that the server takes off."""
    if setup.schedule is not None:
        seeds = {batch: NoiseSeed.fresh() for batch in setup.schedule.removed(order.lost)}
        removed_noise(seeds, setup.schedule, order.lost, setup.context.length)
