"""Planning a graph: the choice, and the bytes it predicts against those of a real round."""

from __future__ import annotations

import pytest

from protocol.plan import COMPLETE_UP_TO, plan_graph
from secagg import ParameterError
from secagg.graph_parameters import Adversary


@pytest.mark.parametrize("adversary", list(Adversary))
def test_small_cohorts_get_the_complete_graph(adversary):
    plan = plan_graph(100, 0.05, 0.1, adversary)
    assert plan.degree == 0
    assert (plan.colluders, plan.minimum_survivors) == (5, 90)
    assert plan.threshold == (53 if adversary is Adversary.SEMI_MALICIOUS else 6)


def test_large_cohorts_get_a_sparse_one():
    plan = plan_graph(1000, 0.05, 0.05, Adversary.SEMI_MALICIOUS)
    assert (plan.degree, plan.threshold) == (52, 37)
    assert plan_graph(COMPLETE_UP_TO + 1, 0.05, 0.05, Adversary.SEMI_HONEST).degree > 0


def test_the_choice_can_be_forced():
    assert plan_graph(100, 0.05, 0.05, Adversary.SEMI_HONEST, sparse=True).degree == 12
    assert plan_graph(1000, 0.05, 0.05, Adversary.SEMI_HONEST, sparse=False).degree == 0


@pytest.mark.parametrize("arguments", [(1000, 0.5, 0.5), (1000, 0.05, 0.5), (2, 0.0, 0.0)])
def test_infeasible_requests_say_what_to_change(arguments):
    with pytest.raises(ParameterError, match=r"must be"):
        plan_graph(*arguments, Adversary.SEMI_MALICIOUS, sparse=True)
