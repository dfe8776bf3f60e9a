"""An open ledger, every kind of noise; and the helpers beside the tests, importable."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dp import BinomialMechanism, DiscreteGaussianMechanism, Ledger, SkellamMechanism
from dp.mechanisms import DistributedMechanism
from secagg.storage import TokenFolder

# Tests are collected in importlib mode, where a folder of tests is not on the path by itself.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger that is open and empty."""
    with Ledger.open(tmp_path / "ledger.jsonl") as opened:
        yield opened


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFolder:
    """The keys of one party's stored states."""
    return TokenFolder(tmp_path / "tokens")


@pytest.fixture(
    params=[BinomialMechanism(101), SkellamMechanism(25.25), DiscreteGaussianMechanism(25.25)],
    ids=lambda mechanism: mechanism.name,
)
def mechanism(request: pytest.FixtureRequest) -> DistributedMechanism:
    """Every kind of noise, all of one variance: that of `round_kit.make_setup` is the first."""
    return request.param


@pytest.fixture(scope="module", autouse=True)
def nobody_waits_for_a_disk() -> Iterator[None]:
    """No test outlives its host: a file is synced only as far as its descriptor is looked at."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)
        yield
