"""Bytes of a client: counted in a real round, said by an ideal one, and planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp import Ledger
from protocol.exchange.aggregators import Aggregator, IdealAggregator
from protocol.goal import PrivacyGoal
from protocol.noise.noise import Independent
from protocol.planning.deployment import plan_deployment
from protocol.planning.training_plan import TrainingPlan
from protocol.round.losses import Stage
from protocol.schemes import OneShot, Pairwise, Scheme
from protocol.schemes.committee import Named
from protocol.training.local import local_aggregator
from protocol.training.private import PrivateTraining
from secagg import Identity, Mode
from sketch import spec_for_size
from sketch.controllers import FixedRate

NAMED = Named(size=20, corrupt=2, away=1)


@pytest.mark.parametrize(
    ("scheme", "cohort", "length", "exact", "lost"),
    [
        (Pairwise(mode=Mode.SEMI_HONEST), 12, 300, False, 0),
        (Pairwise(mode=Mode.ACTIVE), 24, 300, True, 0),
        (Pairwise(mode=Mode.ACTIVE), 12, 300, True, 2),
        (Pairwise(mode=Mode.ACTIVE, degree=36), 60, 20_000, False, 0),
        (OneShot(), 12, 300, True, 0),
        (OneShot(), 12, 300, True, 2),
        (OneShot(), 24, 300, False, 0),
        (OneShot(committee=NAMED), 40, 5000, False, 2),
    ],
)
def test_a_plan_and_an_ideal_round_say_what_a_real_one_sends(
    tmp_path: Path, scheme: Scheme, cohort: int, length: int, exact: bool, lost: int
) -> None:
    plan = TrainingPlan(
        goal=PrivacyGoal(2.0, 1e-5, 3),
        cohort=cohort,
        tolerated_dropouts=2,
        tolerated_colluders=1,
        clip_l2=1.0,
        noise=Independent(exact=exact),
        scheme=scheme,
    )
    people = [Identity.generate() for _ in range(cohort)]
    real = local_aggregator(plan, people, length)
    committee: Any = real if scheme.SEATS else None

    def sent(aggregator: Aggregator, name: str) -> tuple[float, float]:
        """Mean bytes of a survivor, up and down."""
        with Ledger.open(tmp_path / name) as ledger:
            training = PrivateTraining(plan, length, FixedRate(1.0), aggregator, ledger)
            keys = [each.public for each in people]
            gone = dict.fromkeys(range(lost), Stage.INPUT)
            found = training.run_round(keys, bytes(32), lambda _: np.zeros(length), gone).outcome
        up, down = (
            np.mean([given.get(who, 0) for who in found.total.survivors])
            for given in (found.bytes_up, found.bytes_down)
        )
        return float(up), float(down)

    counted = sent(real, "real")
    # Proofs have a length of their own for each place.
    ideal = sent(IdealAggregator(committee=committee), "ideal")
    assert ideal == pytest.approx(counted, rel=0.002, abs=32.0)
    planned = plan_deployment(plan, spec_for_size(length, length, 1), 0).bytes_per_client
    if not lost:
        assert planned == pytest.approx(sum(counted), rel=0.002, abs=32.0)
