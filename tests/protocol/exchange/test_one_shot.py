"""One-shot rounds: real protocol and ideal functionality agree, and lose the same clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from one_shot_rounds import identity
from one_shot_worlds import DIMENSION, World, ideal, plan_of, update

from protocol.errors import PolicyError
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.stages import RoundOutcome
from protocol.planning.policies import client_policy
from protocol.round.losses import Stage
from protocol.round.pipeline import Pipeline
from protocol.schemes import Pairwise
from secagg import ParameterError, TooFewSurvivorsError
from secagg.oneshot.committee import CommitteeKind


def outcome_of(run: Any, *args: Any) -> RoundOutcome | tuple[type, str]:
    """What a round gives, or how it fails."""
    try:
        result: RoundOutcome = run(*args)
    except TooFewSurvivorsError as error:
        return type(error), str(error.needed)
    return result


@pytest.mark.parametrize("kind", list(CommitteeKind))
@pytest.mark.parametrize(
    "dropouts",
    [
        {},
        {3: Stage.INPUT},
        {0: Stage.ADVERTISE, 9: Stage.SHARE},
        {1: Stage.CONFIRM, 2: Stage.UNMASK},
        {1: Stage.INPUT, 2: Stage.INPUT, 3: Stage.INPUT},
        {i: Stage.UNMASK for i in range(8)},
    ],
    ids=["nobody", "one", "two early", "two members", "too many", "most members"],
)
def test_both_ways_give_the_same_sum(kind: CommitteeKind, dropouts: dict[int, Stage]) -> None:
    world = World(plan_of(kind))
    setup = world.setup()
    told: list[Sequence[int]] = []
    got = outcome_of(lambda: world.real.run(setup, update, dropouts, before_release=told.append))
    expected = outcome_of(lambda: ideal(setup).run(setup, update, dropouts))
    if isinstance(expected, tuple):
        assert got == expected
        return
    assert told == [expected.total.survivors]
    assert got.total.survivors == expected.total.survivors
    assert np.array_equal(got.total.vector.elements, expected.total.vector.elements)
    assert got.total.removed == expected.total.removed
    release = Pipeline(setup).decode(got.total)
    assert release.survivors == len(got.total.survivors)
    assert set(got.bytes_up) == set(got.total.survivors)
    assert len(got.member_bytes_down) == setup.context.committee.size


def test_a_bad_update_costs_its_client_only() -> None:
    world = World(plan_of(CommitteeKind.EVERYONE))
    setup = world.setup()

    def updates(index: int) -> np.ndarray[Any, Any]:
        return update(index) * (np.nan if index == 4 else 1.0)

    got = world.real.run(setup, updates, {})
    expected = ideal(setup).run(setup, updates, {})
    assert got.total.survivors == expected.total.survivors == (0, 1, 2, 3, 5, 6, 7, 8, 9)
    assert "NaN" in got.refused[4] or "finite" in got.refused[4]
    assert np.array_equal(got.total.vector.elements, expected.total.vector.elements)


def test_lost_members_of_a_named_committee() -> None:
    lost = {i: MemberStage.OPEN for i in range(7)}
    world = World(plan_of(CommitteeKind.NAMED), absences=lambda _: lost)
    paid: list[Sequence[int]] = []
    with pytest.raises(TooFewSurvivorsError, match="open"):
        world.real.run(world.setup(), update, {}, before_release=paid.append)
    # Who signed may know the sum: the round is paid although it failed.
    assert len(paid) == 1
    lost = {i: MemberStage.CHECK for i in range(7)}
    world = World(plan_of(CommitteeKind.NAMED), absences=lambda _: lost)
    with pytest.raises(TooFewSurvivorsError, match="check"):
        world.real.run(world.setup(), update, {}, before_release=paid.append)
    assert len(paid) == 1


def test_a_round_is_answered_once() -> None:
    world = World(plan_of(CommitteeKind.NAMED))
    world.real.run(world.setup(), update, {})
    with pytest.raises(TooFewSurvivorsError) as raised:
        world.real.run(world.setup(), update, {})
    assert any("answered before" in note for note in raised.value.__notes__)


def test_a_committee_of_strangers_is_refused() -> None:
    world = World(plan_of(CommitteeKind.NAMED))
    policy = client_policy(world.plan, DIMENSION, [identity("other", i).public for i in range(8)])
    with pytest.raises(PolicyError, match="strangers"):
        policy.check(world.setup())
    pairwise = plan_of(CommitteeKind.EVERYONE, scheme=Pairwise())
    with pytest.raises(PolicyError, match="pairwise only"):
        client_policy(pairwise, DIMENSION).check(world.setup())
    with pytest.raises(PolicyError, match="everyone only"):
        client_policy(plan_of(CommitteeKind.EVERYONE), DIMENSION).check(world.setup())


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"scheme": "two-shot"}, "scheme"),
        ({"committee": "two"}, "committee"),
        ({"tolerated_dropouts": 5}, "tolerated_dropouts"),
        ({"cohort": 4, "tolerated_dropouts": 1}, "committee"),
    ],
)
def test_infeasible_plans_name_the_argument(changes: dict[str, Any], argument: str) -> None:
    with pytest.raises(ParameterError) as raised:
        plan_of(CommitteeKind.EVERYONE, **changes)
    assert raised.value.argument == argument
