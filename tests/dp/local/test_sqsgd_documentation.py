"""docs/local-dp-sqsgd.md: its tables are what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dp.local import ReconstructionProtection, best_priv_quant
from dp.local.agreement import AgreementSums
from dp.local.calibration import printed_priv_quant, share_of_kappa

PAGE = (Path(__file__).parents[3] / "docs" / "local-dp-sqsgd.md").read_text()


def test_the_cost_of_kappa_zero() -> None:
    found = re.findall(r"^\| d = ([\d,]+) .*?((?:\| [\d.,]+ )+)\|$", PAGE, flags=re.MULTILINE)
    assert len(found) == 2
    for dimension, cells in found:
        d = int(dimension.replace(",", ""))
        printed = [float(cell.replace(",", "")) for cell in cells.split("|")[1:]]
        costs = [AgreementSums(d, levels, (d + 2) // 2).log_ratio for levels in (2, 8, 16, 32)]
        assert printed == pytest.approx(costs, abs=0.06)


def test_the_table_of_settings() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (-?\d+) \| (.*) \|$", PAGE, flags=re.MULTILINE)
    assert len(rows) == 8
    for levels, epsilon, kappa, cells in rows:
        settings = 599, int(levels), 1.0, float(epsilon)
        printed, best = printed_priv_quant(*settings), best_priv_quant(*settings)
        assert printed.kappa == int(kappa)
        variances = [float(each.variance(np.zeros(1))[0]) for each in (printed, best)]
        expected = [printed.factor, variances[0], share_of_kappa(best), best.factor, variances[1]]
        assert [float(cell) for cell in cells.split("|")] == pytest.approx(expected, abs=6e-4)


def test_the_figures_of_reconstruction() -> None:
    assert "831 numbers" in PAGE and "3,320 for a = 1/2" in PAGE
    for fewest, closeness in ((831, 1.0), (3320, 0.5)):
        assert ReconstructionProtection(fewest, 400.0).breach(closeness) <= 1e-6
        assert ReconstructionProtection(fewest - 1, 400.0).breach(closeness) > 1e-6
    whole = ReconstructionProtection(119_850, 400.0).closeness_for(1e-6)
    assert "from a = 0.083 on" in PAGE and whole == pytest.approx(0.083, abs=5e-4)


def test_the_rule_of_thumb_for_many_coordinates() -> None:
    for levels, thumb, exact in ((2, 1250, 1285), (8, 3750, 3738), (16, 7083, 6995)):
        assert f"{thumb:,}" in PAGE and f"{exact:,}" in PAGE
        assert thumb == round((levels + 1) / 3 * 10**6 / 800)
        found = best_priv_quant(10**6, levels, 1.0, 400.0).variance(np.zeros(1))[0]
        assert found == pytest.approx(exact, abs=0.5)
