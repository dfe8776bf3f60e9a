"""The fault campaign of validated rounds, and its controls: without a defence it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import campaigns
import pytest
from campaigns import lacks

from secagg.oneshot import server as one_shot
from secagg.sealing import unseal
from secagg.validated import member, server
from simulations.threats.faults import FAMILIES, run_campaign

VALIDATED = FAMILIES["validated"]
NAMES = {name for plays in VALIDATED.values() for name in plays}


def test_without_faults_nothing_is_refused() -> None:
    found = run_campaign(6, 1, 0.0, names=["validated wire: faults only"])
    assert found.outcomes == {"exact sum": 6}
    assert not found.refusals and not found.failures


@pytest.mark.slow
def test_no_promise_is_broken() -> None:
    found = run_campaign(84, 3, 0.05, protocols=["validated"])
    assert found.failures == {}
    assert set(found.behaviours) == NAMES
    # Both kinds of ends occur: a campaign in which nothing succeeds would test little.
    assert min(found.outcomes["exact sum"], found.outcomes["TooFewSurvivorsError"]) > 20


def everybody_must_agree(p: Any, answers: Any) -> Any:
    found = server_decide(p, answers)
    return found if found == frozenset(answers) else None


def opens_or_crashes(*given: Any) -> bytes:
    try:
        return unseal(*given)
    except ValueError as error:
        raise KeyError(str(error)) from None


server_decide = server.decide
CONTROLS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "validated wire: faults only": (
        lacks(server, "decode_message", lambda decoder, data, *_: decoder.decode(data[1:])),
        "DecodeError",
    ),
    "validated wire: parties leave": (
        lacks(server, "require", lambda stage, *_: one_shot.require(stage, 0, 1)),
        "ended the round",
    ),
    "validated client: sends a vector beyond the bound": (
        lacks(server, "decide", lambda _, answers: frozenset(answers)),
        "wrong sum",
    ),
    "validated client: spoils seals": (
        lacks(member, "unseal", opens_or_crashes),
        "KeyError",
    ),
    "validated member: answers wrongly on uploads": (
        lacks(server, "decide", everybody_must_agree),
        "honest clients",
    ),
    "validated member: complains about all uploads": (
        lacks(
            one_shot,
            "left_out",
            lambda bad, *_, **__: (frozenset().union(*bad.values()), frozenset()),
        ),
        "honest clients",
    ),
    "validated member: answers wrongly at the opening": (
        lacks(server, "wrong_shares", lambda *_: ()),
        "ended the round",
    ),
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_without_the_defence_the_campaign_reports_a_failure(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disable, what = CONTROLS[name]
    disable(monkeypatch)
    assert campaigns.reports(name, what)
