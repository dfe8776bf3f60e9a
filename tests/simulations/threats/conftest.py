"""The quick run of each attack, once for all tests that look at it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from simulations.audits.base import Check
from simulations.threats.catalogue import CATALOGUE, Effort


@pytest.fixture(scope="session")
def quick_check() -> Callable[[str], Check]:
    """The check of an attack by its id."""
    by_id = {attack.id: attack for attack in CATALOGUE}
    return cache(lambda name: by_id[name].check(Effort.QUICK, 1))
