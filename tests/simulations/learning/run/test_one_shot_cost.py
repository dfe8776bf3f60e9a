"""What a real one-shot round is said to take is what its parts take, times how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from one_shot_worlds import DIMENSION, plan_of, update

from protocol.planning.deployment import plan_deployment
from protocol.schemes import Validated
from protocol.schemes.committee import Named
from protocol.schemes.one_shot import local_committee, one_shot_setup
from protocol.training.local import local_aggregator
from secagg import Identity
from secagg.framing import FRAME_BYTES
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.spool import IN_MEMORY_BYTES, Spool
from secagg.oneshot.states import Checked
from simulations.learning.run import one_shot_cost as module
from simulations.learning.run.one_shot_cost import OneShotCost, one_shot_cost
from sketch import SketchSpec

COST = OneShotCost(
    members=40,
    client_seconds=0.01,
    member_seconds=0.0002,
    delivery_seconds=0.5,
    ciphertext_bytes=30_000,
    seals_bytes=20_000,
    share_bytes=800,
    header_bytes=700,
    delivery_bytes=600,
)


def test_a_million_clients_on_one_rank_and_on_many() -> None:
    """Added up by hand: clients, then members; what fits into memory is on no disk."""
    alone = COST.of_rank(1_000_000, 1)
    assert alone.seconds == pytest.approx(10_000 + 40 * (0.5 + 200))
    spooled = 2 * IN_MEMORY_BYTES
    assert alone.disk == 50_000 * 1_000_000 - spooled
    assert alone.memory == 1_000_000 * (700 + 40 * 800 + 3 * 600) + spooled
    # Three ranks: 333,334 clients and 14 members for the one that has most.
    three = COST.of_rank(1_000_000, 3)
    assert three.seconds == pytest.approx(3_333.34 + 14 * 200.5)
    assert three.disk == 50_000 * 333_334 - spooled
    assert three.memory == 1_000_000 * (700 + 14 * 800 + 3 * 600) + spooled
    # More ranks than members: one member each, and headers everywhere.
    many = COST.of_rank(1_000_000, 1000)
    assert many.seconds == pytest.approx(10 + 200.5)
    assert many.disk == 0
    assert many.memory == 1_000_000 * (700 + 800 + 1800) + 1000 * 50_000


VALIDATED = Validated(committee=Named(size=8, corrupt=1, away=1))
PLANS = {
    **{str(kind.value): plan_of(kind) for kind in CommitteeKind},
    "validated": plan_of(CommitteeKind.NAMED, scheme=VALIDATED),
}


@pytest.fixture(scope="module", params=PLANS.values(), ids=list(PLANS))
def cost(request: pytest.FixtureRequest) -> Iterator[tuple[Any, OneShotCost]]:
    plan = request.param
    deployment = plan_deployment(plan, SketchSpec.identity(DIMENSION))
    yield plan, one_shot_cost(plan, deployment.parameters, update(0))


def test_bytes_are_those_of_a_round(
    cost: tuple[Any, OneShotCost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round with nobody lost: what is in its files, and what its members keep."""
    plan, each = cost
    written: list[int] = []
    clear = Spool.clear

    def cleared(self: Spool) -> None:
        written.append(self._end)
        clear(self)

    kept: list[int] = []
    receive = OneShotMember.receive_bytes

    def receives(self: OneShotMember, data: bytes) -> bytes:
        answer = receive(self, data)
        if isinstance(state := self._state, Checked):
            assert len(data) <= plan.cohort * (each.delivery_bytes + 1) + FRAME_BYTES
            kept.append(state.shares.nbytes + sum(map(module._held, state.headers)))
        return answer

    monkeypatch.setattr(Spool, "clear", cleared)
    monkeypatch.setattr(OneShotMember, "receive_bytes", receives)
    monkeypatch.setattr(Spool.__init__, "__defaults__", (None, 0))
    identities = [Identity.generate() for _ in range(plan.cohort)]
    committee = local_committee(plan, identities)
    aggregator = local_aggregator(plan, identities, DIMENSION, committee=committee)
    keys, session = [identity.public for identity in identities], bytes(16)
    setup = one_shot_setup(
        plan,
        plan_deployment(plan, SketchSpec.identity(DIMENSION)).parameters,
        keys,
        committee.members(session, keys, 0),
        session,
        0,
    )
    aggregator.run(setup, update, {})
    assert written[:2] == [plan.cohort * each.ciphertext_bytes, plan.cohort * each.seals_bytes]
    assert kept == [plan.cohort * each.share_bytes] * each.members
    monkeypatch.setattr(module, "IN_MEMORY_BYTES", 0)
    assert each.of_rank(plan.cohort, 1).disk == sum(written[:2])


def test_seconds_are_measured(cost: tuple[Any, OneShotCost]) -> None:
    _, each = cost
    assert each.client_seconds > 0 and each.delivery_seconds > 0 and each.member_seconds >= 0
    assert np.isfinite(each.of_rank(10, 1).seconds)
