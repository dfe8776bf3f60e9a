"""Planned figures against what rounds really do."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from training_doubles import keys, plan_of

from dp import Ledger, epsilons
from dp.mechanisms import MECHANISMS, MechanismName
from protocol import TrainingPlan
from protocol.exchange.aggregators import IdealAggregator, RealAggregator
from protocol.goal import PrivacyGoal
from protocol.planning.deployment import plan_deployment
from protocol.planning.policies import client_policy
from protocol.round.losses import Stage
from protocol.training.private import PrivateTraining
from secagg import Identity, ParameterError
from sketch import SketchSpec, spec_for_size
from sketch.controllers import FixedRate

N, D, LOST = 20, 3000, 3
COHORT = [Identity.from_private_bytes(hashlib.sha256(b"d%d" % i).digest()) for i in range(N)]
KEYS = keys(COHORT)
ALPHA = 1e-6


@pytest.fixture(autouse=True)
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins from a fixed seed: the tolerances below hold for all seeds but few."""
    source = np.random.default_rng(20261121)
    monkeypatch.setattr("secrets.token_bytes", source.bytes)


def plan(**overrides: Any) -> TrainingPlan:
    values = {"cohort": N, "tolerated_dropouts": LOST, "clip_l2": 0.5}
    return plan_of(12, 6.0, **{**values, **overrides})


def update(index: int) -> np.ndarray:
    """Inside the clip bound, so that clipping moves nothing; all clients lean the same way."""
    rng = np.random.default_rng(index)
    vector = rng.standard_normal(D) + 1.0
    return 0.4 * vector / np.linalg.norm(vector)


def errors(
    tmp_path: Path, chosen: TrainingPlan, rate: float, lost: int, rounds: int = 12
) -> tuple[np.ndarray, float]:
    """Squared errors of the mean update in simulated rounds, and the squared length of the mean."""
    true = np.mean([update(i) for i in range(lost, N)], axis=0)
    found = []
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        run = PrivateTraining(
            plan=chosen,
            dimension=D,
            ledger=ledger,
            aggregator=IdealAggregator(),
            controller=FixedRate(rate),
            rand=np.random.default_rng(20261129).bytes,
        )
        gone = dict.fromkeys(range(lost), Stage.INPUT)
        for _ in range(rounds):
            result = run.run_round(KEYS, bytes(32), update, gone)
            found.append(float(np.sum((result.release.update - true) ** 2)))
    return np.array(found), float(true @ true)


@pytest.mark.parametrize("lost", [0, LOST])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_predicted_noise_is_the_noise(
    tmp_path: Path, lost: int, mechanism: MechanismName
) -> None:
    """The sum of squares of D Gaussians, twelve times: chi-square with 12 D degrees."""
    chosen = plan(mechanism=mechanism)
    predicted = plan_deployment(chosen, SketchSpec.identity(D), lost).error
    assert predicted.compression == 0.0
    found, _ = errors(tmp_path, chosen, 1.0, lost)
    degrees = D * found.size
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], degrees) / degrees
    # Rounding is stated to within the error share (docs/accounting.md).
    slack = chosen.error_share
    assert low - slack < found.mean() / predicted.noise < high + slack
    # Noise for one client more or less would be noticed.
    assert not low - slack < found.mean() / predicted.noise * N / (N - 2) < high + slack


def test_the_predicted_compression_error_is_the_one(tmp_path: Path) -> None:
    chosen = plan(goal=PrivacyGoal(200.0, 1e-5, 12))
    sketch = spec_for_size(D, D // 6)
    predicted = plan_deployment(chosen, sketch, 0).error
    found, squared_length = errors(tmp_path, chosen, 6.0, 0)
    compression = predicted.compression * squared_length / chosen.clip_l2**2
    expected = predicted.noise + compression
    # Both parts count: without either the mean would be far off.
    assert min(predicted.noise, compression) > 0.05 * expected
    spread = stats.t.isf(ALPHA / 2, found.size - 1) * found.std(ddof=1) / math.sqrt(found.size)
    assert spread < 0.3 * expected
    assert abs(found.mean() - expected) < spread


@pytest.mark.parametrize(
    ("mechanism", "exact_noise"),
    [("binomial", False), ("binomial", True), ("skellam", None), ("discrete-gaussian", None)],
)
def test_the_planned_epsilons_are_those_of_the_books(
    ledger: Ledger, mechanism: MechanismName, exact_noise: bool | None
) -> None:
    """With every round at its fewest survivors, the part of delta for failures and all."""
    chosen = plan(mechanism=mechanism, exact_noise=exact_noise)
    planned = plan_deployment(chosen, SketchSpec.identity(D)).epsilons
    run = PrivateTraining(chosen, D, FixedRate(1.0), IdealAggregator(), ledger)
    gone = dict.fromkeys(range(LOST), Stage.INPUT)
    for _ in range(chosen.goal.rounds):
        booked = run.run_round(KEYS, bytes(32), update, gone).epsilons
    for name in ("server", "outsider", "sybil"):
        assert getattr(planned, name) == getattr(booked, name), name
    assert planned.server <= chosen.goal.epsilon
    # With the best split of delta, known only afterwards, it would be another figure.
    event = run.next_setup(KEYS, bytes(32)).events(N - LOST).server
    assert planned.server > epsilons([(event, chosen.goal.rounds)], chosen.goal.delta).epsilon


def test_the_plan_is_what_rounds_announce(tmp_path: Path) -> None:
    chosen = plan()
    deployment = plan_deployment(chosen, SketchSpec.identity(D))
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        run = PrivateTraining(
            plan=chosen,
            dimension=D,
            ledger=ledger,
            aggregator=RealAggregator(COHORT, client_policy(chosen, D)),
            controller=FixedRate(1.0),
        )
        result = run.run_round(KEYS, bytes(32), update, {})
    setup = result.setup
    placeholder = {
        "model_digest": deployment.parameters.model_digest,
        "public_seed": deployment.parameters.public_seed,
    }
    assert replace(setup.parameters, **placeholder) == deployment.parameters
    assert setup.context.bits == deployment.bits <= deployment.bits_exact
    assert setup.context.seeds == deployment.seeds
    assert (setup.context.degree, setup.context.threshold) == (
        deployment.priced.degree,
        deployment.priced.threshold,
    )
    assert deployment.seeds == len(setup.context.removed_seeds(len(KEYS)))
    assert deployment.bytes_per_client == pytest.approx(
        result.outcome.bytes_per_survivor(), rel=3e-3
    )


def test_a_deployment_states_epsilons_of_the_fewest_survivors_and_the_excess_of_its_noise() -> None:
    """The goal is met, the others are ordered, and secure aggregation alone promises nothing."""
    chosen = plan()
    deployment = plan_deployment(chosen, SketchSpec.identity(D))
    epsilons = deployment.epsilons
    assert 0.98 * 6.0 < epsilons.server <= 6.0
    assert epsilons.outsider < epsilons.server < epsilons.sybil < epsilons.secagg_alone == math.inf
    # Noise beyond the Gaussian is that of colluders and the share.
    colluders = (N - LOST) / (N - LOST - 1) - 1.0
    most = (1 + colluders) * (1 + chosen.error_share) - 1.0
    assert colluders < deployment.error.excess <= most


def test_noise_that_stays_when_nobody_is_lost() -> None:
    """Without removable noise, clients that do not vanish add too much."""
    exact = plan_deployment(plan(), SketchSpec.identity(D), 0).error
    pessimistic = plan_deployment(plan(exact_noise=False), SketchSpec.identity(D), 0).error
    assert pessimistic.noise / exact.noise == pytest.approx(N / (N - LOST), rel=0.02)


@pytest.mark.parametrize("lost", [-1, LOST + 1])
def test_more_dropouts_than_tolerated_are_refused(lost: int) -> None:
    with pytest.raises(ParameterError, match="expected_dropouts"):
        plan_deployment(plan(), SketchSpec.identity(D), lost)
