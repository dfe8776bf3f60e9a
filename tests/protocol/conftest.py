"""A small cohort with everything that a round needs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dp import NoiseSeed
from protocol.setup import (
    RoundParameters,
    RoundSetup,
    bits_for,
    coin_schedule,
    removal_table,
)
from secagg import Identity, Mode, SessionContext, lowest_threshold
from sketch import PublicSeed, SketchSpec, spec_for_size

DIMENSION = 200
COHORT = 6

SetupMaker = Callable[..., RoundSetup]


@pytest.fixture(scope="session")
def identities() -> list[Identity]:
    """Fixed identities, so that runs repeat."""
    raw = [hashlib.sha256(b"identity %d" % i).digest() for i in range(COHORT)]
    return [Identity.from_private_bytes(key) for key in raw]


@pytest.fixture
def make_setup(identities: list[Identity]) -> SetupMaker:
    """Builds a setup; any parameter or context field may be overridden by name."""

    def make(
        mode: Mode = Mode.ACTIVE,
        size: int | None = None,
        bits: int | None = None,
        minimum_survivors: int | None = None,
        round_number: int = 3,
        removable: bool = False,
        **overrides: Any,
    ) -> RoundSetup:
        spec = SketchSpec.identity(DIMENSION) if size is None else spec_for_size(DIMENSION, size, 5)
        values: dict[str, Any] = {
            "model_digest": bytes(32),
            "clip_l2": 2.0,
            "sketch": spec,
            "sketch_clip_l2": 2.5,
            "public_seed": PublicSeed(bytes(range(32))),
            "scale": 64.0,
            "linf_bound": 100,
            "coins": 101,
            "tolerated_dropouts": 2,
        }
        parameters = RoundParameters(**{**values, **overrides})
        threshold = lowest_threshold(COHORT, 0, mode)
        least = minimum_survivors or max(threshold, COHORT - 2)
        schedule = coin_schedule(parameters.coins, COHORT, least, 0) if removable else None
        removal = removal_table(schedule)
        context = SessionContext(
            session_id=bytes(16),
            round_number=round_number,
            cohort=tuple(identity.public for identity in identities),
            threshold=threshold,
            minimum_survivors=least,
            removal=removal,
            mode=mode,
            tolerated_colluders=0,
            bits=bits or bits_for(parameters, COHORT, max(removal, default=0).bit_length()),
            length=parameters.length,
            application_digest=parameters.digest(),
        )
        return RoundSetup(context, parameters)

    return make


@pytest.fixture
def updates() -> Callable[[int], np.ndarray]:
    """A different update for every party, some longer than the clip."""
    generator = np.random.default_rng(7)
    table = generator.normal(size=(COHORT, DIMENSION)).astype(np.float32)
    table *= (np.arange(1, COHORT + 1) / 25)[:, None]
    return lambda index: table[index]


@pytest.fixture
def noise() -> Callable[[int], NoiseSeed]:
    """Noise seeds that repeat, to compare two aggregators."""
    return lambda index: NoiseSeed(hashlib.sha256(b"noise %d" % index).digest())
