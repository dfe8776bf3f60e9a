"""The quick run of the whole catalogue: every attack fails on the product, and not without it."""

from __future__ import annotations

from collections.abc import Callable

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

# What stops the attack on the product. Others are stopped by noise, masks or numbers.
REFUSALS = {
    "A3": "RemoteProtocolError MISSING_SIGNATURES",
    "A5": "RemoteProtocolError BAD_SIGNATURE",
    "A7": "RemoteProtocolError BAD_SIGNATURE",
    "A8": "SessionAbortedError",
    "A13": "RemoteProtocolError SET_TOO_SMALL",
    "A32": "RemoteProtocolError BAD_KEY",
    "A33": "RemoteProtocolError SET_NOT_NESTED",
    "A34": "RemoteProtocolError MISSING_SIGNATURES",
    "A35": "RemoteProtocolError SET_TOO_SMALL",
    "A36": "SessionAbortedError",
    "A37": "RemoteProtocolError SET_NOT_NESTED",
    "A38": "RemoteProtocolError SET_TOO_SMALL",
    "A41": "RemoteProtocolError SET_NOT_NESTED",
    "A42": "OpeningFailedError",
    "A43": "OpeningFailedError",
    "A45": "ParameterError ring",
    "A47": "ParameterError sealing_key",
    "A48": "PolicyError committee",
    "A49": "PolicyError round_number",
    "A50": "PolicyError committee",
    "A51": "PolicyError registry_root",
    "A52": "PolicyError odds",
    "A53": "ParameterError members",
    "A54": "PolicyError corrupt",
    "A55": "PolicyError round_number",
    "A56": "PolicyError records",
    "A57": "PolicyError records",
    "A59": "RemoteProtocolError SET_TOO_SMALL",
    "A61": "PolicyError records",
    "A62": "PolicyError epsilon",
    "A63": "PolicyError apart",
    "A64": "PolicyError records",
}


def test_the_catalogue_is_whole_and_in_order() -> None:
    numbers = [int(attack.id[1:]) for attack in CATALOGUE]
    assert numbers == sorted(set(numbers)) and set(range(1, 65)) <= set(numbers)
    assert all(attack.title and attack.stopped_by for attack in CATALOGUE)


@pytest.mark.parametrize("attack", CATALOGUE, ids=lambda attack: attack.id)
def test_an_attack_fails_and_succeeds_where_its_defence_is_missing(
    attack: Attack, quick_check: Callable[[str], Check]
) -> None:
    check = quick_check(attack.id)
    assert check.with_defence["succeeded"] is False, check.with_defence
    assert check.without_defence["succeeded"] is True, check.without_defence
    assert check.held
    if attack.id in REFUSALS:
        assert check.with_defence["refused_with"] == REFUSALS[attack.id]


@pytest.mark.parametrize(("real", "twin"), [(True, True), (False, False), (True, False)])
def test_a_check_does_not_hold_if_either_side_is_not_as_it_must_be(real: bool, twin: bool) -> None:
    found = Findings({"succeeded": real}, {"succeeded": twin})
    attack = Attack(id="A0", title="t", stopped_by="s", run=lambda effort, seed: found)
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
