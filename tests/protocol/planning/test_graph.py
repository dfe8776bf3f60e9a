"""Planning a graph: the choice, and the bytes it predicts against those of a real round."""

from __future__ import annotations

import hashlib

import pytest

from protocol.schemes.graph import COMPLETE_UP_TO, default_graph, plan_graph
from secagg import Mode, ParameterError, SessionContext


@pytest.mark.parametrize("mode", list(Mode))
def test_small_cohorts_get_the_complete_graph(mode: Mode) -> None:
    plan = plan_graph(100, 0.05, 0.1, mode)
    assert plan.degree == 0
    assert (plan.colluders, plan.minimum_survivors) == (5, 90)
    assert plan.threshold == (53 if mode is Mode.ACTIVE else 6)


def test_large_cohorts_get_a_sparse_one() -> None:
    plan = plan_graph(1000, 0.05, 0.05, Mode.ACTIVE)
    assert (plan.degree, plan.threshold) == (66, 49)
    published = plan_graph(1000, 0.05, 0.05, Mode.ACTIVE, security_bits=40)
    assert (published.degree, published.threshold) == (52, 37)
    assert plan_graph(COMPLETE_UP_TO + 1, 0.05, 0.05, Mode.SEMI_HONEST).degree > 0


def test_the_choice_can_be_forced() -> None:
    shares = (100, 0.05, 0.05, Mode.SEMI_HONEST)
    assert plan_graph(*shares, sparse=True, security_bits=40).degree == 12
    assert plan_graph(1000, 0.05, 0.05, Mode.SEMI_HONEST, sparse=False).degree == 0


@pytest.mark.parametrize("arguments", [(1000, 0.5, 0.5), (1000, 0.05, 0.5), (2, 0.0, 0.0)])
def test_infeasible_requests_say_what_to_change(arguments: tuple[int, float, float]) -> None:
    with pytest.raises(ParameterError, match=r"must be"):
        plan_graph(*arguments, Mode.ACTIVE, sparse=True)


def context(
    size: int, degree: int, threshold: int, survivors: int, colluders: int, mode: Mode
) -> SessionContext:
    """A round with this graph, or the refusal of any client."""
    return SessionContext(
        session_id=bytes(16),
        round_number=0,
        cohort=tuple(hashlib.sha256(b"%d" % i).digest() for i in range(size)),
        threshold=threshold,
        minimum_survivors=survivors,
        mode=mode,
        tolerated_colluders=colluders,
        degree=degree,
        bits=16,
        length=1,
        application_digest=bytes(32),
    )


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("clients", [50, 201, pytest.param(500, marks=pytest.mark.slow)])
def test_what_is_planned_is_accepted_by_clients(clients: int, sparse: bool, mode: Mode) -> None:
    """Whatever the shares: either the plan is refused, or every client accepts it."""
    accepted = 0
    for corrupt in (0.0, 0.1, 0.3, 0.45):
        for dropout in (0.0, 0.1, 0.3, 0.4):
            try:
                plan = plan_graph(clients, corrupt, dropout, mode, sparse=sparse)
            except ParameterError:
                continue
            context(
                clients,
                plan.degree,
                plan.threshold,
                plan.minimum_survivors,
                plan.colluders,
                mode,
            )
            accepted += 1
    assert accepted >= 5


def test_too_many_dropouts_for_a_sparse_graph_say_how_many_are_allowed() -> None:
    with pytest.raises(ParameterError, match=r"dropout = 0.3: must be smaller.*272 of 300"):
        plan_graph(300, 0.3, 0.3, Mode.ACTIVE)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_default_graph_of_a_cohort(mode: Mode) -> None:
    assert default_graph(COMPLETE_UP_TO, 5, 20, mode)[0] == 0
    degree, threshold = default_graph(400, 20, 40, mode)
    assert 0 < degree < 399
    context(400, degree, threshold, 360, 20, mode)


def test_large_cohorts_that_no_sparse_graph_fits_use_the_complete_one() -> None:
    degree, threshold = default_graph(300, 90, 90, Mode.ACTIVE)
    assert (degree, threshold) == (0, 196)
    context(300, degree, threshold, 210, 90, Mode.ACTIVE)
