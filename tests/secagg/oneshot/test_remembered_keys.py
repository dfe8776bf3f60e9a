"""A member's signed key is verified once; another entry, or session, is verified for itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from one_shot_rounds import SESSION, identity, sealing

from secagg.oneshot import committee
from secagg.oneshot.committee import Member


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The identities whose signatures were verified, from an empty memory on."""
    found: list[bytes] = []
    original = committee.signature_is_valid

    def counting(public: bytes, *rest: Any) -> bool:
        found.append(public)
        return original(public, *rest)

    monkeypatch.setattr(committee, "signature_is_valid", counting)
    committee.entry_is_signed.cache_clear()
    return found


def entry() -> Member:
    return Member.sign(identity("member", 0), SESSION, sealing("member", 0).public, 0, 9)


def test_the_same_entry_is_verified_once(verified: list[bytes]) -> None:
    assert [entry().is_signed(SESSION) for _ in range(3)] == [True] * 3
    assert verified == [identity("member", 0).public]


def test_another_session_is_not_remembered(verified: list[bytes]) -> None:
    assert entry().is_signed(SESSION)
    assert not entry().is_signed(bytes(16))
    assert len(verified) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"identity": identity("member", 1).public},
        {"sealing_key": sealing("member", 1).public},
        {"first_round": 1},
        {"last_round": 10},
        {"signature": bytes(64)},
    ],
)
def test_an_entry_with_any_change_is_not_remembered(
    verified: list[bytes], change: dict[str, Any]
) -> None:
    assert entry().is_signed(SESSION)
    assert not dataclasses.replace(entry(), **change).is_signed(SESSION)
    assert len(verified) == 2
