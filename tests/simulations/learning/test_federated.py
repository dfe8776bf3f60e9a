"""The engine: schedule, dropouts, and two sources of the mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp import Ledger
from protocol.exchange.aggregators import IdealAggregator
from protocol.planning.configuration import build_plan
from protocol.round.losses import Stage
from protocol.training.private import PrivateTraining
from secagg import Identity
from simulations.learning import federated
from simulations.learning.configuration import demo_config
from simulations.learning.data import Dataset, load_digits_dataset
from simulations.learning.federated import Federation, StageSeconds, model_digest
from simulations.learning.models import Evaluation
from simulations.learning.run.overrides import changed
from simulations.learning.sources import PlainMean, PrivateMean


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load_digits_dataset()


@pytest.fixture(scope="module")
def plain(data: Dataset) -> list[federated.Trained]:
    return list(Federation(demo_config(), data).run(PlainMean()))


def test_nobody_is_invited_more_often_than_the_plan_pays_for(
    plain: list[federated.Trained],
) -> None:
    invited = Counter(client for trained in plain for client in trained.invitation.clients)
    assert max(invited.values()) == demo_config().participations
    assert len(invited) == demo_config().task.population


def test_cohorts_have_no_repeats(plain: list[federated.Trained]) -> None:
    assert all(len(set(t.invitation.clients)) == 64 for t in plain)


def test_the_same_number_is_lost_every_round_and_every_stage_occurs(
    plain: list[federated.Trained],
) -> None:
    assert {len(trained.invitation.dropouts) for trained in plain} == {6}
    stages = Counter(stage for t in plain for stage in t.invitation.dropouts.values())
    assert set(stages) == set(Stage) - {Stage.RECOVER}
    assert max(stages.values()) - min(stages.values()) <= 1


def test_everything_but_secrets_repeats(data: Dataset, plain: list[federated.Trained]) -> None:
    repeated = islice(Federation(demo_config(), data).run(PlainMean()), 3)
    for again, first in zip(repeated, plain[:3], strict=True):
        assert np.array_equal(again.model, first.model)
        assert again.invitation.dropouts == first.invitation.dropouts


def test_another_seed_is_another_run(data: Dataset, plain: list[federated.Trained]) -> None:
    config = demo_config().model_copy(update={"seed": 2, "rounds": 1})
    other = next(iter(Federation(config, data).run(PlainMean())))
    assert other.invitation.clients != plain[0].invitation.clients


def test_the_baseline_learns(plain: list[federated.Trained]) -> None:
    assert plain[-1].tested.accuracy > 0.9


@pytest.mark.slow
def test_a_private_run_learns_within_its_budget(data: Dataset, tmp_path: Path) -> None:
    """The whole private path with the ideal aggregator: the sum is the same, bit for bit."""
    config = demo_config()
    federation = Federation(config, data)
    people = [Identity.generate() for _ in range(config.task.population)]
    plan = build_plan(config, config.participations)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        training = PrivateTraining(
            plan,
            federation.task.dimension,
            config.sketch.build(config.rounds),
            IdealAggregator(),
            ledger,
        )
        source = PrivateMean(training, people)
        *_, last = federation.run(source)
    # Secrets are fresh, so accuracy varies: 0.89 +- 0.012 over 8 runs; 0.75 is 11 deviations off.
    assert last.tested.accuracy > 0.75
    assert source.last.epsilons.outsider < source.last.epsilons.server <= config.privacy.epsilon


def test_the_model_digest_sees_every_parameter() -> None:
    model = np.zeros(10, np.float32)
    digests = {model_digest(model)}
    for i in range(10):
        other = model.copy()
        other[i] = 1e-30
        digests.add(model_digest(other))
    assert len(digests) == 11


def test_the_time_of_a_round_goes_to_its_stages(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only the stages move: 3 s for every chunk, 5 s to add up, 7 s to test."""
    clock = {"now": 0.0}
    monkeypatch.setattr(federated.time, "perf_counter", lambda: clock["now"])

    def takes(seconds: float, work: Callable[..., Any]) -> Callable[..., np.ndarray | Evaluation]:
        def slow(*arguments: Any, **options: Any) -> np.ndarray | Evaluation:
            clock["now"] += seconds
            return work(*arguments, **options)

        return slow

    def chunks(*arguments: Any, **options: Any) -> Iterator[np.ndarray | None]:
        for chunk in federated_updates(*arguments, **options):
            clock["now"] += 3.0
            yield chunk

    federated_updates = federated.local_updates
    monkeypatch.setattr(federated, "local_updates", chunks)
    config = changed(demo_config(), [("engine.chunk", 16), ("engine.evaluate_every", 2)])
    federation, source = Federation(config, data), PlainMean()
    kind = type(federation.task)
    monkeypatch.setattr(kind, "evaluate", takes(7.0, kind.evaluate))
    monkeypatch.setattr(source, "mean", takes(5.0, source.mean))
    first = federation.round(source, federation.initial(), 0)
    assert first.seconds == StageSeconds(training=4 * 3.0, aggregation=5.0, test=0.0)
    assert federation.round(source, first.state, 1).seconds.test == 7.0
