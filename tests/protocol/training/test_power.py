"""PowerSGD by two secure sums: what comes out, what it costs, and what ties the sums together."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_doubles import COHORT, KEYS, MODEL, Killed9Error, KilledIn, N, Secrets, plan_of

from dp import (
    BudgetExceededError,
    DominationAccountant,
    Ledger,
    NonFiniteUpdateError,
    replay,
)
from protocol import TrainingPlan
from protocol.exchange.aggregators import Aggregator, IdealAggregator, RealAggregator
from protocol.goal import PrivacyGoal
from protocol.planning.policies import client_policy
from protocol.round.losses import Stage
from protocol.training.power import PowerState, PowerTraining, bases_digest, factors_of
from secagg import ParameterError, TooFewSurvivorsError
from sketch import PublicSeed
from sketch.factors import Factors, FactorShapes
from sketch.layers import LayerShapes
from sketch.power_factors import LeftFactorMap

RANK = 2
SHAPES = FactorShapes(LayerShapes((("a", (20, 15)), ("bias", (7,)), ("c", (12, 10)))), RANK)
D = SHAPES.layers.dimension
CROWD = 300
PEOPLE = [hashlib.sha256(b"c%d" % i).digest() for i in range(CROWD)]
LOOSE = {"epsilon": 400.0, "error_share": 1.0, "cohort": CROWD}
"""Next to no noise in the mean."""


def plan(rounds: int = 2, **overrides: Any) -> TrainingPlan:
    return plan_of(2 * rounds, **overrides)


def low_rank(seed: int) -> np.ndarray:
    """float64[d] whose matrices have the rank that is sent, so that nothing of it is lost."""
    rng = np.random.default_rng(seed)
    parts = [
        rng.normal(size=(20, RANK)) @ rng.normal(size=(RANK, 15)),
        rng.normal(size=7),
        rng.normal(size=(12, RANK)) @ rng.normal(size=(RANK, 10)),
    ]
    vector = np.concatenate([part.reshape(-1) for part in parts])
    return vector * (0.9 / np.linalg.norm(vector))


SIGNAL = low_rank(1)


def same(_: int) -> np.ndarray:
    return SIGNAL


def training(
    ledger: Ledger,
    made: TrainingPlan,
    inner: Aggregator | None = None,
    secrets: Secrets | None = None,
    state: PowerState | None = None,
) -> PowerTraining:
    extra = {} if secrets is None else {"rand": secrets.public, "before_sum": secrets.begin}
    return PowerTraining(made, SHAPES, inner or IdealAggregator(), ledger, state, **extra)


def test_a_mean_of_low_rank_comes_back_whole(ledger: Ledger) -> None:
    secrets = Secrets()
    inner = secrets.aggregator()
    run = training(ledger, plan(**LOOSE), inner, secrets)
    result = run.run_round(PEOPLE, MODEL, same)
    assert np.linalg.norm(result.update - SIGNAL) < 0.1 * np.linalg.norm(SIGNAL)
    sizes = [part.setup.parameters.length for part in (result.first, result.second)]
    assert sizes == [SHAPES.first_size, SHAPES.second_size]
    assert sum(sizes) < 0.4 * D


def test_bases_of_a_round_begin_the_next(ledger: Ledger) -> None:
    """Power iteration over rounds: what is kept nears the largest directions."""
    secrets = Secrets()
    inner = secrets.aggregator()
    run = training(ledger, plan(rounds=6, **LOOSE), inner, secrets)
    rng = np.random.default_rng(5)
    parts = []
    for rows, columns in ((20, 15), (12, 10)):
        left = np.linalg.qr(rng.normal(size=(rows, columns)))[0]
        right = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
        parts.append((left * 0.75 ** np.arange(columns) @ right).reshape(-1))
    vector = np.concatenate([parts[0], np.zeros(7), parts[1]])
    vector *= 0.9 / np.linalg.norm(vector)
    errors = [
        float(np.linalg.norm(run.run_round(PEOPLE, MODEL, lambda _: vector).update - vector))
        for _ in range(6)
    ]
    best = 0.0
    for (start, stop), shape in zip(SHAPES.layers.bounds, SHAPES.factored, strict=True):
        if shape is not None:
            spectrum = np.linalg.svd(vector[start:stop].reshape(shape), compute_uv=False)
            best += float((spectrum[RANK:] ** 2).sum())
    assert errors[0] > 1.1 * np.sqrt(best)
    assert errors[-1] < 1.05 * np.sqrt(best)


def test_the_real_protocol_sums_the_same_integers(tmp_path: Path) -> None:
    lost = {2: Stage.INPUT, 5: Stage.UNMASK}
    updates = [low_rank(i) for i in range(N)]
    results = []
    for kind in ("ideal", "real"):
        made, secrets = plan(exact_noise=False), Secrets()
        with Ledger.open(tmp_path / f"{kind}.jsonl") as ledger:
            run = training(
                ledger, made, secrets.aggregator(kind, COHORT, client_policy(made, None)), secrets
            )
            results.append(run.run_round(KEYS, MODEL, updates.__getitem__, lost))
    ideal, real = results
    assert np.array_equal(ideal.update, real.update)
    assert real.first.outcome.total.survivors == tuple(i for i in range(N) if i != 2)
    # Whoever failed at any stage of the first sum is away in the second.
    assert real.second.outcome.total.survivors == tuple(i for i in range(N) if i not in lost)
    assert real.bytes_per_survivor() == sum(
        part.outcome.bytes_per_survivor() for part in (real.first, real.second)
    )


def test_a_round_is_two_releases(ledger: Ledger) -> None:
    run = training(ledger, made := plan(rounds=2))
    result = run.run_round(KEYS, MODEL, same)
    events = [entry.event for entry in ledger.entries()]
    assert [event.dimension for event in events] == [SHAPES.first_size, SHAPES.second_size]
    both = replay(events, DominationAccountant(made.goal.reserve)).epsilon(1e-5)
    one = replay(events[:1], DominationAccountant(made.goal.reserve)).epsilon(1e-5)
    assert result.epsilons.server == pytest.approx(both)
    assert both > 1.2 * one
    last = run.run_round(KEYS, MODEL, same)
    assert 0.9 * 8.0 < last.epsilons.server <= 8.0
    with pytest.raises(BudgetExceededError):
        run.run_round(KEYS, MODEL, same)
    assert len(ledger.entries()) == 4


def test_the_sums_have_noise_of_their_own(ledger: Ledger) -> None:
    """With one and the same noise in both sums, their difference would be free of it."""
    secrets, used = Secrets(), []
    inner = IdealAggregator(secrets.removable, lambda i: used.append(secrets.noise(i)) or used[-1])
    run = training(ledger, plan(), inner, secrets)
    run.run_round(KEYS, MODEL, same)
    seeds = {seed.material for seed in used}
    assert len(seeds) == len(used) == 2 * N
    first, second = (entry.metadata["context"] for entry in ledger.entries())
    assert first != second


@pytest.mark.parametrize("last", [1, 2])
def test_an_interrupted_round_is_paid_for_once(tmp_path: Path, last: int) -> None:
    made, secrets = plan(), Secrets()
    with Ledger.open(tmp_path / "whole.jsonl") as ledger:
        inner = secrets.aggregator()
        expected = training(ledger, made, inner, secrets).run_round(KEYS, MODEL, same)
    secrets = Secrets()
    with Ledger.open(tmp_path / "cut.jsonl") as ledger:
        inner = secrets.aggregator()
        run = training(ledger, made, KilledIn(inner, last), secrets)
        state = run.state
        with pytest.raises(Killed9Error):
            run.run_round(KEYS, MODEL, same)
        assert len(ledger.entries()) == last
    with Ledger.open(tmp_path / "cut.jsonl") as ledger:
        again = training(ledger, made, inner, secrets, state)
        result = again.run_round(KEYS, MODEL, same)
        assert len(ledger.entries()) == 2
    assert np.array_equal(result.update, expected.update)
    assert result.epsilons == expected.epsilons


def test_clients_bind_the_bases_that_they_were_given(ledger: Ledger) -> None:
    run = training(ledger, plan())
    right = run.state.right
    result = run.run_round(KEYS, MODEL, same)
    left = LeftFactorMap(SHAPES, right).left(result.first.release.update)
    bound = [part.setup.parameters.model_digest for part in (result.first, result.second)]
    assert bound == [bases_digest(MODEL, right), bases_digest(MODEL, left)]
    others = {
        bases_digest(bytes(31) + b"1", right),
        bases_digest(MODEL, run.state.right),
        bases_digest(MODEL, Factors(right.bases[::-1])),
        bases_digest(MODEL, Factors(right.bases[:1])),
    }
    assert len(others | {bound[0]}) == 5


def test_factors_are_no_longer_than_the_clip() -> None:
    mapping = LeftFactorMap(SHAPES, SHAPES.initial_right(PublicSeed(bytes(32))))
    long, short = 50.0 * SIGNAL, 0.5 * SIGNAL
    assert np.linalg.norm(factors_of(long, mapping, 1.0)) <= 1.0 + 1e-12
    assert np.array_equal(factors_of(short, mapping, 1.0), mapping.encode(short))
    with pytest.raises(NonFiniteUpdateError):
        factors_of(np.where(np.arange(D) == 3, np.nan, SIGNAL), mapping, 1.0)


def test_a_client_with_a_bad_update_is_lost_and_the_others_go_on(ledger: Ledger) -> None:
    broken = np.full(D, np.inf)
    run = training(ledger, plan())
    result = run.run_round(KEYS, MODEL, lambda i: broken if i == 4 else SIGNAL)
    for part in (result.first, result.second):
        assert set(part.outcome.refused) == {4}
        assert 4 not in part.outcome.total.survivors


def test_a_round_that_fails_changes_nothing_but_the_books(ledger: Ledger) -> None:
    run = training(ledger, plan())
    state = run.state
    with pytest.raises(TooFewSurvivorsError):
        run.run_round(KEYS, MODEL, same, dict.fromkeys(range(4), Stage.INPUT))
    assert (run.state.number, run.state.attempts, len(ledger.entries())) == (0, 1, 0)
    assert run.state.right is state.right
    assert run.run_round(KEYS, MODEL, same).number == 0


def test_a_goal_of_an_odd_number_of_sums_is_refused(ledger: Ledger) -> None:
    made = plan(goal=PrivacyGoal(8.0, 1e-5, 3))
    with pytest.raises(ParameterError, match=r"goal\.rounds"):
        training(ledger, made)


def test_clients_that_know_one_length_refuse_the_other(ledger: Ledger) -> None:
    made = plan()
    inner = RealAggregator(COHORT, client_policy(made, SHAPES.first_size))
    run = training(ledger, made, inner)
    with pytest.raises(TooFewSurvivorsError, match="0 clients answered"):
        run.run_round(KEYS, MODEL, same)
    # The first sum was released and is paid for.
    assert len(ledger.entries()) == 1
