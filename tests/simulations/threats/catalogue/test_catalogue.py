"""The quick run of the whole catalogue: every attack fails on the product, and not without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dp.keystream import NoiseSeed
from protocol import RoundClient
from secagg import ParameterError
from simulations.audits.base import Check
from simulations.threats.catalogue import CATALOGUE, Attack, Effort, Findings
from simulations.threats.catalogue.aborts import edge_traffic
from simulations.threats.catalogue.lies import _LIES
from simulations.threats.faults.lies import LIES

LONG = {"A1", "A2", "A3", "A8", "A13", "A14", "A17", "A20", "A23", "A51", "A55", "A56"}
"""Attacks that take seconds each even when they are quick."""


def test_the_catalogue_is_whole_and_in_order() -> None:
    assert [attack.id for attack in CATALOGUE] == [f"A{n + 1}" for n in range(len(CATALOGUE))]
    described = [(a.name, a.title, a.says, a.stopped_by) for a in CATALOGUE]
    assert all(all(words) for words in described)
    assert sum(bool(attack.refused_with) for attack in CATALOGUE) == 40


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(each, id=each.id, marks=pytest.mark.slow if each.id in LONG else ())
        for each in CATALOGUE
    ],
)
def test_an_attack_fails_and_succeeds_where_its_defence_is_missing(
    attack: Attack, quick_check: Callable[[str], Check]
) -> None:
    check = quick_check(attack.id)
    assert check.with_defence["succeeded"] is False, check.with_defence
    assert check.without_defence["succeeded"] is True, check.without_defence
    assert check.held
    if attack.refused_with:
        assert check.with_defence["refused_with"] == attack.refused_with


@pytest.mark.parametrize(("real", "twin"), [(True, True), (False, False), (True, False)])
def test_a_check_does_not_hold_if_either_side_is_not_as_it_must_be(real: bool, twin: bool) -> None:
    found = Findings({"succeeded": real}, {"succeeded": twin})
    attack = replace(CATALOGUE[0], run=lambda effort, seed: found)
    assert not attack.check(Effort.QUICK, 1).held


def test_findings_say_on_both_sides_whether_the_attack_succeeded() -> None:
    with pytest.raises(ParameterError, match="succeeded = None"):
        Findings({"succeeded": True}, {})


def test_the_lies_about_shares_are_those_of_the_fault_campaign() -> None:
    assert set(_LIES) <= set(LIES)


def test_a_client_whose_upload_says_how_large_its_update_is_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = RoundClient.submit

    def honest_about_zero(
        self: RoundClient, update: np.ndarray, noise: NoiseSeed | None = None
    ) -> bytes:
        data = original(self, update, noise)
        return data if update.any() else data[:-1]

    assert len(edge_traffic(1)) == 1
    monkeypatch.setattr(RoundClient, "submit", honest_about_zero)
    assert len(edge_traffic(1)) == 2
