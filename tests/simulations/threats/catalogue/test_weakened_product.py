"""With one defence taken from the product itself, the attack that it stops is seen to succeed.

The twins of the catalogue weaken a client. Here the product's own code loses a check that no twin
lacks, or lacks it in another place, which says that the run against the product would notice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from protocol import ClientHistory
from protocol.round.clauses import PairwiseClauses
from protocol.round.round_time import RoundTime
from secagg import sealing
from secagg import server as serving
from secagg.keys import Identity, signature_is_valid
from secagg.pairwise import client, masks, messages, roster
from secagg.pairwise.client_states import Confirmed, Party, Shared, Step
from secagg.pairwise.transitions import ClientPhase, Local
from secagg.tags import Usage, derive, tagged
from simulations.threats.catalogue import CATALOGUE, Effort
from simulations.threats.game import adversary
from simulations.threats.game.weak_clients import weakened

pytestmark = pytest.mark.slow

BY_ID = {attack.id: attack for attack in CATALOGUE}
ROUNDS = 4


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Effort, "choose", lambda self, quick, full: min(quick, ROUNDS))


def succeeds(attack: str) -> bool:
    return BY_ID[attack].run(Effort.QUICK, 1).real["succeeded"]


def handle(
    monkeypatch: pytest.MonkeyPatch,
    event: tuple[ClientPhase, type[messages.Message] | Local],
    changed: Callable[..., Any],
) -> None:
    """Put a changed handler in the place of the product's."""
    right = client.HANDLERS[event]
    monkeypatch.setitem(client.HANDLERS, event, lambda *arguments: changed(right, *arguments))


LACKING = [
    ("A5", roster, "check_advertisement"),
    ("A29", RoundTime, "check"),
    ("A29", PairwiseClauses, "check"),
    ("A29", ClientHistory, "_check_failures"),
]


@pytest.mark.parametrize(("attack", "owner", "name"), LACKING)
def test_without_a_check_of_the_product_the_attack_succeeds(
    monkeypatch: pytest.MonkeyPatch, attack: str, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, lambda *_, **__: None)
    assert succeeds(attack)


def test_confirmations_that_are_verified_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(
        right: Callable[..., Any], party: Party, state: Confirmed, message: messages.ConfirmationSet
    ) -> Step:
        one = dataclasses.replace(state.masked.roster.committee, quorum=1)
        lax = dataclasses.replace(state.masked.roster, committee=one)
        masked = dataclasses.replace(state.masked, roster=lax)
        return right(party, dataclasses.replace(state, masked=masked), message)

    handle(monkeypatch, (ClientPhase.CONFIRMED, messages.ConfirmationSet), changed)
    assert succeeds("A3")


@pytest.mark.parametrize(
    "usage", [Usage.ADVERTISE, Usage.SHARE, Usage.INPUT, Usage.CONFIRM, Usage.UNMASK, Usage.RECOVER]
)
def test_signatures_that_leave_the_round_out(monkeypatch: pytest.MonkeyPatch, usage: Usage) -> None:
    sign = Identity.sign

    def bound(made_for: Usage, parts: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return parts[1:] if made_for is usage else parts

    monkeypatch.setattr(Identity, "sign", lambda self, use, *p: sign(self, use, *bound(use, p)))
    for module in (client, roster, serving, adversary):
        monkeypatch.setattr(
            module,
            "signature_is_valid",
            lambda public, made, use, *p: signature_is_valid(public, made, use, *bound(use, p)),
        )
    assert succeeds("A7")


def test_seals_that_leave_the_round_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "derive", lambda key, use, n, _, *rest: derive(key, use, n, *rest))
    monkeypatch.setattr(sealing, "tagged", lambda use, _, *rest: tagged(use, *rest))
    assert succeeds("A7")


def test_pairwise_masks_that_leave_the_round_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_round(shared: bytes, usage: Usage, size: int, *parts: bytes) -> bytes:
        return derive(shared, usage, size, *parts[usage is Usage.PAIR_MASK :])

    monkeypatch.setattr(masks, "derive", without_round)
    assert succeeds("A9")


@pytest.mark.parametrize(
    "event",
    [(ClientPhase.SHARED, messages.DeliveredShares), (ClientPhase.MASKED, messages.SurvivorSet)],
)
def test_no_minimum_for_one_of_the_sets(
    monkeypatch: pytest.MonkeyPatch, event: tuple[ClientPhase, type[messages.Message]]
) -> None:
    def changed(
        right: Callable[..., Any], party: Party, state: Shared, message: messages.DeliveredShares
    ) -> Step:
        lax = weakened(party.context, minimum_survivors=1)
        return right(dataclasses.replace(party, context=lax), state, message)

    handle(monkeypatch, event, changed)
    assert succeeds("A13")
