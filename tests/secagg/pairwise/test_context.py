"""The public parameters: every infeasible one is refused, every one is in the hash."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pairwise_rounds as kit
import pytest
from scipy.stats import hypergeom

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
    WrongSharesError,
    lowest_threshold,
)
from secagg.grinding import LARGEST_LIFETIME_SECONDS
from secagg.terms import MAX_COHORT, MAX_LENGTH


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
        ("threshold", {"threshold": 3.0, "minimum_survivors": 3}),
        ("threshold", {"threshold": 3, "tolerated_colluders": 2, "minimum_survivors": 4}),
        ("threshold", {"threshold": 1, "mode": Mode.SEMI_HONEST}),
        ("minimum_survivors", {"minimum_survivors": 2}),
        ("minimum_survivors", {"minimum_survivors": 5}),
        ("degree", {"degree": 1}),
        ("degree", {"degree": 3}),
        ("degree", {"degree": -2}),
        ("degree", {"degree": 4}),
        ("degree", {"degree": 2.0}),
        ("degree", {"degree": True}),
        ("removal", {"removal": [0, 1]}),
        ("removal", {"removal": (0, 1.0)}),
        ("removal", {"removal": (0, True)}),
        ("removal", {"removal": (0, -1)}),
        ("removal", {"removal": (0, 1 << 63)}),
        ("removal", {"removal": (0,)}),
        ("removal", {"removal": (1,)}),
        ("lifetime_seconds", {"lifetime_seconds": -1}),
        ("lifetime_seconds", {"lifetime_seconds": LARGEST_LIFETIME_SECONDS + 1, "opened_at": 9}),
        ("lifetime_seconds", {"lifetime_seconds": 60.0, "opened_at": 9}),
        ("opened_at", {"lifetime_seconds": 60}),
        ("opened_at", {"lifetime_seconds": 60, "opened_at": -9}),
        ("opened_at", {"lifetime_seconds": 60, "opened_at": 1 << 63}),
        ("opened_at", {"lifetime_seconds": 60, "opened_at": 9.0}),
        ("opened_at", {"opened_at": 9}),
    ],
)
def test_infeasible_parameters_are_named(argument: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ParameterError) as raised:
        kit.context(4, **changes)
    assert raised.value.argument == argument


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        # 2 t > k + c, and c may be as many as there are colluders.
        ("threshold", {"threshold": 4}),
        ("threshold", {"threshold": 5, "tolerated_colluders": 1, "degree": 10}),
        ("threshold", {"threshold": 9}),
        ("threshold", {"threshold": 1, "mode": Mode.SEMI_HONEST}),
        (
            "threshold",
            {"threshold": 3, "mode": Mode.SEMI_HONEST, "tolerated_colluders": 3},
        ),
        # t honest survivors, and nobody holds a share of its own.
        ("minimum_survivors", {"minimum_survivors": 5}),
        ("minimum_survivors", {"threshold": 7, "tolerated_colluders": 3, "minimum_survivors": 9}),
        ("minimum_survivors", {"minimum_survivors": 13}),
        # Eight of twelve lost, on a ring with k = 8, may stand in the way of the others.
        ("degree", {"mode": Mode.SEMI_HONEST, "threshold": 3, "minimum_survivors": 4}),
        (
            "degree",
            {
                "mode": Mode.SEMI_HONEST,
                "threshold": 4,
                "minimum_survivors": 7,
                "tolerated_colluders": 3,
            },
        ),
        ("degree", {"degree": 11}),
        ("degree", {"degree": 12}),
        ("removal", {"removal": (1,) * 3}),
    ],
)
def test_unsafe_sparse_graphs_are_refused(argument: str, changes: dict[str, Any]) -> None:
    """Around a feasible context: twelve clients, k = 8, t = 5, at most three lost."""
    feasible = {"degree": 8, "threshold": 5, "minimum_survivors": 9, "removal": (1,) * 4}
    assert kit.context(12, **feasible).degree == 8
    if "minimum_survivors" in changes:
        feasible["removal"] = (1,) * 13
    with pytest.raises(ParameterError) as raised:
        kit.context(12, **{**feasible, **changes})
    assert raised.value.argument == argument
    assert str(raised.value.value)


def test_a_large_ring_is_refused_only_where_it_may_break() -> None:
    """More may be lost than a client has neighbours, as long as they hardly stand together."""
    common = {
        "threshold": 17,
        "tolerated_colluders": 50,
        "mode": Mode.SEMI_HONEST,
        "security_bits": 40,
    }
    context = kit.context(1_000, degree=30, minimum_survivors=950, **common)
    assert context.degree == 30
    with pytest.raises(ParameterError, match="raise minimum_survivors") as raised:
        kit.context(1_000, degree=30, minimum_survivors=500, **common)
    assert raised.value.argument == "degree"


def test_seeds_of_the_table() -> None:
    context = kit.context(5, threshold=3, removal=(0b100, 0, 0b11, 1 << 62))
    assert context.seeds == 63
    assert [context.removed_seeds(survivors) for survivors in (5, 4, 3)] == [(2,), (), (0, 1)]
    none = kit.context(5, threshold=3)
    assert none.seeds == 0
    assert [none.removed_seeds(survivors) for survivors in (5, 4, 3)] == [(), (), ()]


def test_hash_covers_every_entry_of_the_table() -> None:
    tables = [(), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0, 0), (2, 0, 0)]
    contexts = [kit.context(5, threshold=3, removal=table) for table in tables]
    assert len({context.hash for context in contexts}) == len(tables)


def test_cohort_is_bounded() -> None:
    with pytest.raises(ParameterError, match="cohort"):
        kit.context(4, cohort=(bytes(32),) * (MAX_COHORT + 1))


CHANGES: dict[str, Any] = {
    "session_id": bytes(16),
    "round_number": 4,
    "cohort": keys(8),
    "threshold": 6,
    "minimum_survivors": 7,
    "mode": Mode.SEMI_HONEST,
    "tolerated_colluders": 1,
    "degree": 6,
    "removal": (0b1, 0b1, 0b0),
    "bits": 17,
    "length": 6,
    "application_digest": bytes(32),
    "security_bits": 81,
    "opened_at": 1_750_000_001,
    "lifetime_seconds": 3601,
}


def test_hash_covers_every_parameter() -> None:
    base = kit.context(
        8,
        threshold=5,
        minimum_survivors=6,
        removal=(0b1, 0b0, 0b0),
        opened_at=1_750_000_000,
        lifetime_seconds=3600,
    )
    names = {field.name for field in dataclasses.fields(base)} - {"hash"}
    assert names == set(CHANGES)
    hashes = {base.hash, *(dataclasses.replace(base, **{n: CHANGES[n]}).hash for n in names)}
    assert len(hashes) == len(names) + 1
    assert dataclasses.replace(base).hash == base.hash


def test_hash_covers_the_order_of_the_cohort() -> None:
    base = kit.context(4)
    assert dataclasses.replace(base, cohort=base.cohort[::-1]).hash != base.hash


def test_context_is_frozen() -> None:
    context = kit.context(4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        context.threshold = 1


@pytest.mark.parametrize("n", range(2, 30))
def test_lowest_threshold(n: int) -> None:
    for colluders in range(n):
        active = lowest_threshold(n, colluders, Mode.ACTIVE)
        assert 2 * active > n + colluders >= 2 * (active - 1)
        semi_honest = lowest_threshold(n, colluders, Mode.SEMI_HONEST)
        assert semi_honest == max(2, colluders + 1)
        for degree in range(2, n - 1, 2):
            # In so small a cohort all colluders may be neighbours of one client.
            corrupt = min(colluders, degree)
            active = lowest_threshold(n, colluders, Mode.ACTIVE, degree)
            assert active == 2 or 2 * active > degree + corrupt >= 2 * (active - 1)
            semi_honest = lowest_threshold(n, colluders, Mode.SEMI_HONEST, degree)
            assert semi_honest == max(2, corrupt + 1)


@pytest.mark.parametrize("index", [-1, 4])
def test_client_outside_the_cohort(index: int) -> None:
    with pytest.raises(ParameterError, match="index"):
        ClientSession(kit.context(4), index, kit.identity(0))


def test_client_with_another_identity() -> None:
    identity = kit.identity(1)
    with pytest.raises(ParameterError, match="identity") as raised:
        ClientSession(kit.context(4), 0, identity)
    assert identity.private_bytes().hex() not in str(raised.value)
    assert raised.value.value is not identity


def test_corrupt_holders() -> None:
    """All colluders on the complete graph; on a ring of 200 fewer than that.

    On the ring it is also fewer than the secrets are protected against.
    """
    assert kit.context(9, tolerated_colluders=3).corrupt_holders(7) == 3
    ring = kit.context(
        200,
        Mode.SEMI_HONEST,
        degree=40,
        threshold=21,
        minimum_survivors=180,
        tolerated_colluders=20,
    )
    assert ring.corrupt_holders(41) == 20
    holders = ring.corrupt_holders(200)
    assert 0 < holders < 20
    # By hand: of 200 clients 20 are corrupt, and 40 hold shares of each.
    more = hypergeom.sf([holders - 1, holders], 200, 20, 40)
    assert more[1] <= 2.0**-21 / 200 < more[0]


ERRORS = [
    LocalProtocolError("misuse"),
    ParameterError("bits", 7, "at least 8"),
    SessionAbortedError("over"),
    TooFewSurvivorsError("share", 2, 5),
    RemoteProtocolError(3, Reason.BAD_SEAL, "detail"),
    RemoteProtocolError(SERVER, Reason.MALFORMED),
    CapacityError(20, 16),
    WrongSharesError(4, 9, 5),
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
    assert "client 4 committed to: either it dealt wrong ones, or more than 2 of" in str(ERRORS[7])
    assert isinstance(ERRORS[1], ValueError)


def test_the_base_of_errors_is_abstract() -> None:
    with pytest.raises(TypeError, match="instead"):
        ProtocolError("x")


def test_context_takes_no_positional_arguments() -> None:
    with pytest.raises(TypeError):
        SessionContext(bytes(16))  # type: ignore[call-arg, misc]
