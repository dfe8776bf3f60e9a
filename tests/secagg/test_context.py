"""The public parameters: every infeasible one is refused, every one is in the hash."""

from __future__ import annotations

import dataclasses
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from secagg import (
    SERVER,
    CapacityError,
    ClientSession,
    LocalProtocolError,
    Mode,
    ParameterError,
    ProtocolError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
    SessionContext,
    TooFewSurvivorsError,
    lowest_threshold,
)
from secagg.context import MAX_COHORT, MAX_LENGTH


def keys(n: int) -> tuple[bytes, ...]:
    return tuple(i.to_bytes(32, "big") for i in range(n))


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("session_id", {"session_id": bytes(15)}),
        ("session_id", {"session_id": "0123456789abcdef"}),
        ("session_id", {"session_id": bytearray(16)}),
        ("application_digest", {"application_digest": bytes(33)}),
        ("application_digest", {"application_digest": bytearray(32)}),
        ("round_number", {"round_number": -1}),
        ("round_number", {"round_number": 1 << 63}),
        ("round_number", {"round_number": 1.0}),
        ("cohort", {"cohort": keys(1)}),
        ("cohort", {"cohort": ()}),
        ("cohort", {"cohort": list(keys(4))}),
        ("cohort", {"cohort": (*keys(3), bytes(31))}),
        ("cohort", {"cohort": (*keys(3), bytearray(32))}),
        ("cohort", {"cohort": (*keys(3), keys(1)[0])}),
        ("length", {"length": 0}),
        ("length", {"length": MAX_LENGTH + 1}),
        ("length", {"length": True}),
        ("bits", {"bits": 7}),
        ("bits", {"bits": 63}),
        ("bits", {"bits": None}),
        ("mode", {"mode": "active"}),
        ("tolerated_colluders", {"tolerated_colluders": -1, "threshold": 3}),
        ("tolerated_colluders", {"tolerated_colluders": 4, "threshold": 4}),
        ("threshold", {"threshold": 2}),
        ("threshold", {"threshold": 5}),
        ("threshold", {"threshold": 3.0}),
        ("threshold", {"threshold": 3, "tolerated_colluders": 2, "minimum_survivors": 4}),
        ("threshold", {"threshold": 1, "mode": Mode.SEMI_HONEST}),
        ("minimum_survivors", {"minimum_survivors": 2}),
        ("minimum_survivors", {"minimum_survivors": 5}),
    ],
)
def test_infeasible_parameters_are_named(
    secagg_kit: SimpleNamespace, argument: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(ParameterError) as raised:
        secagg_kit.context(4, **changes)
    assert raised.value.argument == argument


def test_cohort_is_bounded(secagg_kit: SimpleNamespace) -> None:
    with pytest.raises(ParameterError, match="cohort"):
        secagg_kit.context(4, cohort=(bytes(32),) * (MAX_COHORT + 1))


CHANGES: dict[str, Any] = {
    "session_id": bytes(16),
    "round_number": 4,
    "cohort": keys(6),
    "threshold": 5,
    "minimum_survivors": 6,
    "mode": Mode.SEMI_HONEST,
    "tolerated_colluders": 1,
    "bits": 17,
    "length": 6,
    "application_digest": bytes(32),
}


def test_hash_covers_every_parameter(secagg_kit: SimpleNamespace) -> None:
    base = secagg_kit.context(6, minimum_survivors=5)
    names = {field.name for field in dataclasses.fields(base)} - {"hash"}
    assert names == set(CHANGES)
    hashes = {base.hash, *(dataclasses.replace(base, **{n: CHANGES[n]}).hash for n in names)}
    assert len(hashes) == len(names) + 1
    assert dataclasses.replace(base).hash == base.hash


def test_hash_covers_the_order_of_the_cohort(secagg_kit: SimpleNamespace) -> None:
    base = secagg_kit.context(4)
    assert dataclasses.replace(base, cohort=base.cohort[::-1]).hash != base.hash


def test_context_is_frozen(secagg_kit: SimpleNamespace) -> None:
    context = secagg_kit.context(4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.threshold = 1


@pytest.mark.parametrize("n", range(2, 30))
def test_lowest_threshold(n: int) -> None:
    for colluders in range(n):
        active = lowest_threshold(n, colluders, Mode.ACTIVE)
        assert 2 * active > n + colluders >= 2 * (active - 1)
        semi_honest = lowest_threshold(n, colluders, Mode.SEMI_HONEST)
        assert semi_honest == max(2, colluders + 1)


@pytest.mark.parametrize("index", [-1, 4])
def test_client_outside_the_cohort(secagg_kit: SimpleNamespace, index: int) -> None:
    with pytest.raises(ParameterError, match="index"):
        ClientSession(secagg_kit.context(4), index, secagg_kit.identity(0))


def test_client_with_another_identity(secagg_kit: SimpleNamespace) -> None:
    identity = secagg_kit.identity(1)
    with pytest.raises(ParameterError, match="identity") as raised:
        ClientSession(secagg_kit.context(4), 0, identity)
    assert identity.private_bytes().hex() not in str(raised.value)
    assert raised.value.value is not identity


ERRORS = [
    LocalProtocolError("misuse"),
    ParameterError("bits", 7, "at least 8"),
    SessionAbortedError("over"),
    TooFewSurvivorsError("share", 2, 5),
    RemoteProtocolError(3, Reason.BAD_SEAL, "detail"),
    RemoteProtocolError(SERVER, Reason.MALFORMED),
    CapacityError(20, 16),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: ProtocolError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_error_texts() -> None:
    assert str(ERRORS[4]) == "client 3: a sealed message does not open (detail)"
    assert str(ERRORS[5]).startswith("server: ")
    assert "3 missing" in str(ERRORS[3])
    assert isinstance(ERRORS[1], ValueError)


def test_the_base_of_errors_is_abstract() -> None:
    with pytest.raises(TypeError, match="instead"):
        ProtocolError("x")


def test_context_takes_no_positional_arguments() -> None:
    with pytest.raises(TypeError):
        SessionContext(bytes(16))  # type: ignore[call-arg, misc]
