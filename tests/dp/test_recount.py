"""A short recount of all claims; `python tests/dp/recount.py` makes the long one."""

from __future__ import annotations

import pytest
import recount
from recount import FAMILIES, ROUNDING, Family, main


@pytest.mark.parametrize("name", FAMILIES)
def test_no_claim_is_below_the_truth_and_a_little_less_would_be(name: str) -> None:
    family = FAMILIES[name]
    assert min(family.ratios(quick=True)) >= 1.0 - ROUNDING
    assert min(family.ratios(quick=True, twin=True)) < 1.0 - ROUNDING


@pytest.mark.parametrize(
    ("claim", "twin", "status"), [(1.0, 1.01, 0), (0.99, 1.01, 1), (1.0, 1, 1)]
)
def test_it_fails_if_a_claim_is_below_or_a_twin_is_not(
    monkeypatch: pytest.MonkeyPatch, claim: float, twin: float, status: int
) -> None:
    family = Family(lambda rng, case, overrated: (claim / overrated, 1.0), 3, 1, twin)
    monkeypatch.setattr(recount, "FAMILIES", {"one": family})
    assert main() == status


@pytest.mark.slow
def test_the_whole_recount() -> None:
    assert main() == 0
