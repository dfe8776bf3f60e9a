"""A short recount of all claims; `python tests/dp/recount.py` makes the long one."""

from __future__ import annotations

import pytest
from recount import FAMILIES, ROUNDING, main


@pytest.mark.parametrize("name", FAMILIES)
def test_no_claim_is_below_the_truth_and_a_little_less_would_be(name: str) -> None:
    family = FAMILIES[name]
    assert min(family.ratios(quick=True)) >= 1.0 - ROUNDING
    assert min(family.ratios(quick=True, twin=True)) < 1.0 - ROUNDING


@pytest.mark.slow
def test_the_whole_recount(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    assert len(capsys.readouterr().out.splitlines()) == len(FAMILIES)
