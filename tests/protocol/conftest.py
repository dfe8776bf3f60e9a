"""Cohorts with everything that a round needs; and the helpers beside the tests, importable."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp import BinomialMechanism, DiscreteGaussianMechanism, Ledger, NoiseSeed, SkellamMechanism
from dp.mechanisms import DistributedMechanism
from protocol.round.field_size import bits_for
from protocol.round.parameters import RoundParameters
from protocol.round.setup import RoundSetup, coin_schedule, removal_table
from secagg import Identity, Mode, SessionContext, lowest_threshold
from sketch import PublicSeed, SketchSpec, spec_for_size

# Tests are collected in importlib mode, where a folder of tests is not on the path by itself.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

DIMENSION = 200
COHORT = 6

SetupMaker = Callable[..., RoundSetup]


@pytest.fixture(scope="session")
def identities() -> list[Identity]:
    """Fixed identities, so that runs repeat."""
    raw = [hashlib.sha256(b"identity %d" % i).digest() for i in range(COHORT)]
    return [Identity.from_private_bytes(key) for key in raw]


@pytest.fixture
def registry(identities: list[Identity]) -> frozenset[bytes]:
    """All of their public keys."""
    return frozenset(identity.public for identity in identities)


@pytest.fixture(scope="session")
def cohort() -> list[Identity]:
    """Twelve clients, for runs of many rounds: see `training_doubles`."""
    return [Identity.from_private_bytes(hashlib.sha256(b"t%d" % i).digest()) for i in range(12)]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger that is open and empty."""
    with Ledger.open(tmp_path / "ledger.jsonl") as opened:
        yield opened


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
        coins: int | None = None,
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
            "mechanism": BinomialMechanism(101),
            "tolerated_dropouts": 2,
        }
        if coins is not None:
            values["mechanism"] = BinomialMechanism(coins)
        values |= overrides
        if isinstance(values["mechanism"], SkellamMechanism | DiscreteGaussianMechanism):
            values.setdefault("wrap_probability", 1e-9)
        parameters = RoundParameters(**values)
        threshold = lowest_threshold(COHORT, 0, mode)
        least = minimum_survivors or max(threshold, COHORT - 2)
        schedule = coin_schedule(parameters.mechanism, COHORT, least, 0) if removable else None
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


@pytest.fixture(
    params=[BinomialMechanism(101), SkellamMechanism(25.25), DiscreteGaussianMechanism(25.25)],
    ids=lambda mechanism: mechanism.name,
)
def mechanism(request: pytest.FixtureRequest) -> DistributedMechanism:
    """Every kind of noise, all of one variance: that of `make_setup` is the first."""
    return request.param


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
