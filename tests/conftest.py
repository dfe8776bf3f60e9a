"""Settings for the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Shared machines stall: a deadline would make timing, not behaviour, the subject of a test.
settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets, or a skip that says how to get one."""
    candidates = [os.environ.get("VEILSUM_DATA_DIR"), Path(__file__).parents[2] / "shared" / "data"]
    for candidate in candidates:
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("no data sets: set VEILSUM_DATA_DIR to the folder that holds them")
