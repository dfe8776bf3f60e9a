"""The fault campaign, short, and its control: without signatures it must find wrong sums."""

from __future__ import annotations

import pytest

from secagg import server
from simulations.bench.faults import FAULTS, Campaign, run_campaign, run_schedule


def test_without_faults_every_sum_is_exact():
    campaign = run_campaign(40, 1, 0.0)
    assert campaign.outcomes == {"exact sum": 40}
    assert not campaign.refusals
    assert not campaign.failures


@pytest.mark.parametrize("rate", [0.02, 0.1])
def test_with_faults_sums_are_exact_or_rounds_end_in_typed_errors(rate):
    campaign = run_campaign(250, 7, rate)
    assert campaign.failures == {}
    assert set(campaign.outcomes) <= {
        "exact sum",
        "TooFewSurvivorsError",
        "RemoteProtocolError",
    }
    assert campaign.outcomes["exact sum"] > 20
    # Every kind of fault was tried, and many kinds of refusal seen.
    assert set(campaign.faults) == set(FAULTS)
    assert len(campaign.refusals) >= 8


def test_a_schedule_repeats():
    first, second = Campaign(), Campaign()
    assert run_schedule(3, 7, 0.1, first) == run_schedule(3, 7, 0.1, second)
    assert first == second


def test_without_signatures_the_campaign_finds_wrong_sums(monkeypatch):
    """The control: take the defence away and the damage shows."""
    monkeypatch.setattr(server, "signature_is_valid", lambda *_: True)
    campaign = run_campaign(250, 7, 0.1)
    assert campaign.outcomes["wrong sum"] > 0
    assert campaign.failures


def test_progress_is_reported():
    calls = []
    run_campaign(3, 1, 0.0, lambda: calls.append(1))
    assert len(calls) == 3
