"""`veilsum reproduce statistics`: sums are those of surveys, and verdicts follow from rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dp import Ledger, noise_multiplier_for_epsilon
from protocol.exchange.aggregators import IdealAggregator
from protocol.statistics.private import ask
from protocol.statistics.questions import Histogram
from protocol.statistics.survey import Survey
from protocol.training.local import named_identities
from simulations.campaigns.claims import NOT_REPRODUCED, REPRODUCED
from simulations.campaigns.rows import where
from simulations.studies.statistics.campaign import CAMPAIGN, PRESETS, claims
from simulations.studies.statistics.measured import BINS, planned

ALPHA = 1e-6


@pytest.fixture(scope="module")
def figures(written: Callable[..., Any]) -> dict[str, Any]:
    """Made columns and words."""
    return written(CAMPAIGN, PRESETS["quick"])[0]


def test_arms_have_the_noise_of_their_formulas(figures: dict[str, Any]) -> None:
    """Each mean of forty root mean squares over sixteen bins, to five standard errors."""
    sigma = 2**0.5 * noise_multiplier_for_epsilon(1.0, 1e-6, 1)
    # Of a survey besides: who might be lost or collude, integers, and the known total.
    ours = sigma * np.sqrt(1.0 / 0.85 * (1.0 - 1.0 / (BINS + 3)))
    expected = {"survey": ours, "central Gaussian": sigma, "central Laplace": 8**0.5}
    rows = where(figures["histograms"], clients=500)
    for way, error in expected.items():
        (row,) = where(rows, way=way)
        assert row["error"] == pytest.approx(error, rel=5 * 0.35 / np.sqrt(40)), way
    assert len(rows) == 4


@pytest.mark.statistical
def test_what_is_added_is_the_noise_of_a_round(tmp_path: Path) -> None:
    """The sums of the ideal functionality have that variance, by chi-square at alpha = 1e-6."""
    survey = Survey(questions=(Histogram(name="x", bins=64, range=(0.0, 64.0)),))
    chosen = planned(survey, 40, 4.0)
    keys = [person.public for person in named_identities([str(i) for i in range(40)])]
    found: list[float] = []
    for number in range(8):
        with Ledger.open(tmp_path / f"{number}.jsonl") as ledger:
            done = ask(chosen, IdealAggregator(), ledger, keys, lambda index: {"x": index})
        (answer,) = done.answers
        found.extend((answer.value - (np.arange(64) < 40)) / answer.standard_error)
        # Noise for clients that might have been lost was taken off, to 2 % of it.
        assert answer.standard_error[0] < chosen.predicted()[0].standard_error[0]
    square = float(np.sum(np.square(found)))
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], len(found))
    assert low < square < high
    assert square * 4.0 > high  # of errors that were told half as large


def test_verdicts_follow_the_rows(figures: dict[str, Any]) -> None:
    def verdicts(scale: float) -> list[str]:
        changed = json.loads(json.dumps(figures))
        for row in where(changed["histograms"], way="survey"):
            row["of_seeds"] = [scale * each for each in row["of_seeds"]]
        return [claim.verdict for claim in claims(changed)][:3]

    assert verdicts(1.0)[1:] == [REPRODUCED, REPRODUCED]
    assert verdicts(100.0) == [NOT_REPRODUCED, REPRODUCED, NOT_REPRODUCED]
    assert verdicts(0.01) == [REPRODUCED, NOT_REPRODUCED, REPRODUCED]
