"""With one defence taken from the product itself, the attack that it stops is seen to succeed.

The twins of the catalogue weaken a client. Here the product's own code loses a check, which says
that the run against the product would notice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from protocol import ClientHistory, ClientPolicy
from protocol.round.round_time import RoundTime
from secagg import FieldVector, PrimeField, sealing
from secagg import server as serving
from secagg.keys import Identity, signature_is_valid
from secagg.pairwise import client, masks, messages, roster, server
from secagg.pairwise.client_states import Confirmed, Party, Ready, Shared, Step
from secagg.pairwise.transitions import ClientPhase, Local
from secagg.tags import Usage, derive, tagged
from simulations.threats.catalogue import CATALOGUE, Effort
from simulations.threats.game import adversary
from simulations.threats.game.weak_clients import weakened

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


@pytest.mark.parametrize("attack", ["A2", "A3", "A4", "A5", "A7", "A9", "A13", "A14", "A17"])
def test_with_all_defences_no_attack_succeeds(attack: str) -> None:
    assert not succeeds(attack)


def test_clients_that_do_not_look_at_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not succeeds("A29")
    monkeypatch.setattr(RoundTime, "check", lambda *_: None)
    assert succeeds("A29")


def test_policies_that_do_not_look_at_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientPolicy, "_check_pairwise", lambda *_: None)
    assert succeeds("A29")


def test_histories_that_count_updates_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientHistory, "_check_failures", lambda *_: None)
    assert succeeds("A29")


def test_holders_that_forget_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    forgets_seeds = lambda state, **_: dataclasses.replace(state, removable=())  # noqa: E731
    monkeypatch.setattr(client, "replace", forgets_seeds)
    assert succeeds("A2")
    assert succeeds("A14")


def test_confirmations_that_are_counted_and_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "signature_is_valid", lambda *_: True)
    assert succeeds("A3")


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


def test_no_self_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(right: Callable[..., Any], party: Party, state: Ready, vector: FieldVector) -> Step:
        with patched(client, "accumulate_masks", without_self):
            return right(party, state, vector)

    add = client.accumulate_masks

    def without_self(
        total: np.ndarray, field: PrimeField, keys: list[bytes], subtract: list[bool]
    ) -> None:
        add(total, field, keys[1:], subtract[1:])

    handle(monkeypatch, (ClientPhase.READY, Local.INPUT), changed)
    assert succeeds("A4")


def test_advertisements_that_nobody_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "check_advertisement", lambda *_: None)
    assert succeeds("A5")


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


def test_rebuilt_secrets_that_nobody_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.ServerSession, "_is_committed", lambda *_: True)
    assert succeeds("A17")


@contextmanager
def patched(module: ModuleType, name: str, value: Callable[..., Any]) -> Iterator[None]:
    """Only while an input is masked: the server uses the same function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, value)
        yield
