"""Deadlines, orders of arrival and disturbances, from the server's side.

What it refuses is in the corpus: test_refusals.py.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pairwise_rounds as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from secagg import (
    LocalProtocolError,
    Mode,
    Reason,
    RemoteProtocolError,
    ServerSession,
    TooFewSurvivorsError,
)
from secagg.field import pack
from secagg.pairwise.messages import decode_from_client
from secagg.pairwise.reference import Stage
from secagg.pairwise.transitions import ServerPhase

N = 5


def at(stage: Stage, mode: Mode = Mode.ACTIVE, **options: Any) -> Any:
    """A cohort of five before a stage, and what its clients are about to send; t = 3."""
    cohort = kit.before(stage, mode, **options)
    cohort.outgoing = cohort.answers(stage, cohort.pending)
    return cohort


def finish(cohort: Any, stage: Stage) -> Any:
    """Deliver what is outstanding and run the round to its end."""
    for u, data in cohort.outgoing.items():
        if u not in cohort.server.answered:
            cohort.server.receive_bytes(u, data)
    for following in [s for s in cohort.stages if s > stage]:
        down = dict(cohort.server.close_round_bytes())
        for u, data in cohort.answers(following, down).items():
            cohort.server.receive_bytes(u, data)
    return cohort.server.unmask()


def test_vectors_at_the_top_of_the_field() -> None:
    for bits in (16, 31, 32, 62):
        cohort = kit.Cohort(kit.context(N, bits=bits))
        cohort.inputs[:] = cohort.context.field.modulus - 1
        total = cohort.run()
        assert total.vector.elements.tolist() == cohort.expected(range(N))


@pytest.mark.parametrize("stage", list(Stage))
def test_a_message_of_a_stranger_is_refused_without_its_bytes(stage: Stage) -> None:
    cohort = at(stage)
    message = decode_from_client(cohort.outgoing[1], 1, len(cohort.outgoing[1]))
    for sender in (N, 1 << 40):
        with pytest.raises(RemoteProtocolError) as raised:
            cohort.server.receive(replace(message, sender=sender))
        assert raised.value.reason is Reason.UNKNOWN_SENDER
    finish(cohort, stage)


# -- deadlines --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "name", "needed"),
    [
        (Stage.ADVERTISE, "advertise", 4),
        (Stage.SHARE, "share", 4),
        (Stage.MASK, "masked input", 4),
        (Stage.CONFIRM, "confirm", 3),
        (Stage.UNMASK, "unmask", 3),
    ],
)
def test_too_few_clients_end_the_round(stage: Stage, name: str, needed: int) -> None:
    context = kit.context(N, threshold=3, minimum_survivors=4)
    enough = kit.Cohort(context, drops=dict.fromkeys(range(N - needed), stage))
    assert enough.run() is not None
    cohort = kit.Cohort(context, drops=dict.fromkeys(range(N - needed + 1), stage))
    with pytest.raises(TooFewSurvivorsError) as raised:
        cohort.run()
    error = raised.value
    assert (error.stage, error.survivors, error.needed) == (name, needed - 1, needed)
    assert cohort.server.phase is ServerPhase.ABORTED


def test_deadline_after_the_last_stage() -> None:
    cohort = at(Stage.RECOVER)
    with pytest.raises(LocalProtocolError, match="ends with unmask"):
        cohort.server.close_round()
    finish(cohort, Stage.RECOVER)


@pytest.mark.parametrize("stage", list(Stage)[: Stage.UNMASK])
def test_unmask_before_its_time(stage: Stage) -> None:
    cohort = at(stage)
    with pytest.raises(LocalProtocolError, match="cannot unmask"):
        cohort.server.unmask()
    finish(cohort, stage)


def test_sets_are_public_as_they_are_decided() -> None:
    server = ServerSession(kit.context(N, threshold=3))
    assert (server.participants, server.survivors, server.answered) == ((), (), ())
    cohort = at(Stage.UNMASK, drops={0: Stage.SHARE, 2: Stage.MASK})
    assert cohort.server.participants == (1, 2, 3, 4)
    assert cohort.server.survivors == (1, 3, 4)


# -- everything at once -----------------------------------------------------------------------


@st.composite
def disturbances(draw: st.DrawFn) -> tuple[Mode, Stage, bool, int, str, int]:
    return (
        draw(st.sampled_from(Mode)),
        draw(st.sampled_from(Stage)),
        draw(st.booleans()),
        draw(st.integers(0, N - 1)),
        draw(st.sampled_from(["lost", "twice", "corrupt", "cut", "longer"])),
        draw(st.integers(0, 400)),
    )


@pytest.mark.parametrize("examples", [30, pytest.param(150, marks=pytest.mark.slow)])
def test_any_disturbance_gives_the_exact_sum_or_a_typed_abort(examples: int) -> None:
    """Lost, repeated and corrupted messages in both directions; nine clients are a sparse graph."""

    @settings(max_examples=examples)
    @given(
        faults=st.lists(disturbances(), min_size=1, max_size=3),
        mode=st.sampled_from(Mode),
        n=st.sampled_from([N, 9]),
        seeds=st.booleans(),
    )
    def check(faults: list[Any], mode: Mode, n: int, seeds: bool) -> None:
        tampers = {}
        for _, stage, up, victim, kind, at_byte in faults:
            direction = kit.Direction.UP if up else kit.Direction.DOWN
            tampers[stage, direction] = disturb(victim, kind, at_byte)
        context = kit.context(
            n,
            mode,
            threshold=3 if n == N else 4,
            minimum_survivors=3 if n == N else 6,
            degree=0 if n == N else 6,
            removal=(0b11, 0b01, 0b10, 0b01) if seeds else (),
        )
        drops = {4: Stage.UNMASK} if seeds else {}
        cohort = kit.Cohort(context, drops, tampers=tampers)
        try:
            total = cohort.run()
        except (TooFewSurvivorsError, RemoteProtocolError):
            assert cohort.server.phase is ServerPhase.ABORTED
        else:
            assert len(total.survivors) >= context.minimum_survivors
            assert total.vector.elements.tolist() == cohort.expected(total.survivors)
            removed = context.removed_seeds(len(total.survivors))
            assert total.removed == {
                u: tuple(cohort.removable_seeds(u)[which] for which in removed)
                for u in total.survivors
                if removed
            }

    check()


def disturb(victim: int, kind: str, at_byte: int) -> Callable[[int, bytes], list[bytes]]:
    def hook(u: int, data: bytes) -> list[bytes]:
        if u != victim:
            return [data]
        i = at_byte % len(data)
        return {
            "lost": [],
            "twice": [data, data],
            "corrupt": [data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :]],
            "cut": [data[:i]],
            "longer": [data + b"\0"],
        }[kind]

    return hook


def test_any_order_of_arrival_gives_the_same_sum() -> None:
    sums = []
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        cohort = kit.Cohort(kit.context(N))
        down: dict[int, bytes | None] = dict.fromkeys(range(N))
        for stage in cohort.stages:
            sent = cohort.answers(stage, down)
            for u in order if sent else []:
                cohort.server.receive_bytes(u, sent[u])
            if stage is not Stage.RECOVER:
                down = dict(cohort.server.close_round_bytes())
        sums.append(pack(cohort.server.unmask().vector))
    assert len(set(sums)) == 1


def test_uploads_are_streamed() -> None:
    """Memory does not grow with the number of masked vectors."""
    length = 200_000
    cohort = kit.Cohort(kit.context(6, bits=24, length=length))
    cohort.run(until=Stage.MASK)
    sent = cohort.answers(Stage.MASK, cohort.pending)
    cohort.server.receive_bytes(0, sent.pop(0))
    tracemalloc.start()
    for u, data in sent.items():
        cohort.server.receive_bytes(u, data)
    grown, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    vector_bytes = 4 * length
    assert grown < vector_bytes / 10
    assert peak < 3 * vector_bytes
