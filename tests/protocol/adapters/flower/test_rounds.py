"""Stock strategies over a network that loses clients: the mean comes out, and nothing else."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx, FedYogi

from protocol.adapters.flower.record import KEY, Step
from protocol.calibration import PrivacyGoal
from protocol.conduct import Stage
from secagg import Mode, TooFewSurvivorsError
from sketch.controllers import AdaptNorm


def start(secure, strategy, arrays, rounds=1):
    return strategy.start(grid=secure, initial_arrays=arrays, num_rounds=rounds)


def noise_of(report, world):
    """Largest standard deviation of a coordinate of the mean update, by the plan's error share."""
    goal = world.plan.goal
    return 1.02 * goal.noise_multiplier * world.plan.clip_l2 / report.survivors


def test_fedavg_gets_the_mean(make_world, parts):
    world = make_world()
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model()
    with world.secure(strategy) as secure:
        result = start(secure, strategy, before)
        (report,) = secure.reports
    moved = parts.flat(result.arrays) - parts.flat(before)
    mean = np.mean([parts.shift_of(i) for i in range(parts.N)])
    # Shifts are below the clip, so only noise is left: 6.5 deviations for 40 coordinates.
    assert np.abs(moved - mean).max() < 6.5 * noise_of(report, world)
    assert report.survivors == parts.N and report.lost == {}
    # Who they are, and the five stages.
    assert report.exchanges == 6
    metrics = result.train_metrics_clientapp[1]
    assert metrics["survivors"] == parts.N
    assert 0 < metrics["epsilon"] == report.epsilons.server < world.plan.goal.epsilon


STRATEGIES = {
    "FedAvgM": lambda: FedAvgM(server_momentum=0.9, fraction_evaluate=0.0),
    "FedAdam": lambda: FedAdam(eta=0.1, fraction_evaluate=0.0),
    "FedYogi": lambda: FedYogi(eta=0.1, fraction_evaluate=0.0),
    "FedProx": lambda: FedProx(proximal_mu=0.1, fraction_evaluate=0.0),
    "FedAvg": lambda: FedAvg(weighted_by_key="weight", fraction_evaluate=0.0),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_run_several_rounds_unchanged(make_world, parts, name):
    world = make_world()
    strategy = STRATEGIES[name]()
    with world.secure(strategy) as secure:
        result = start(secure, strategy, parts.model(), rounds=3)
        # Nobody is asked who it is a second time.
        assert [report.exchanges for report in secure.reports] == [6, 5, 5]
    assert len(result.train_metrics_clientapp) == 3
    moved = parts.flat(result.arrays) - parts.flat(parts.model())
    assert np.isfinite(moved).all() and np.abs(moved).max() > 0
    # Counters have no mean; a strategy hands them on as floats, and they must not be trained on.
    assert result.arrays["count"].numpy() == 3
    assert {report.dimension for report in secure.reports} == {40}


def test_federated_evaluation_passes_through_if_both_sides_allow_it(make_world, parts):
    world = make_world(allow_evaluation_in_the_clear=True)
    strategy = FedAvg()
    with world.secure(strategy, allow_evaluation_in_the_clear=True) as secure:
        result = start(secure, strategy, parts.model())
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.5)


def test_clients_that_do_not_allow_it_evaluate_for_no_server(make_world, parts, caplog):
    """The server's own permission does not count for them."""
    world = make_world()
    strategy = FedAvg()
    with (
        caplog.at_level(logging.WARNING, "veilsum"),
        world.secure(strategy, allow_evaluation_in_the_clear=True) as secure,
    ):
        result = start(secure, strategy, parts.model())
        assert secure.reports[0].survivors == parts.N
    assert not result.evaluate_metrics_clientapp
    assert "allow_evaluation_in_the_clear = true" in caplog.text


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("stage", Stage)
def test_a_client_lost_at_any_stage_does_not_lose_the_round(make_world, parts, stage, mode):
    """In the last stage clients are asked only if somebody else is lost one stage before."""
    world = make_world(mode=mode)
    lost = {parts.FIRST_NODE: stage}
    if stage is Stage.RECOVER:
        lost[parts.FIRST_NODE + 1] = Stage.UNMASK
    steps = list(Step)

    def drops(node, step):
        first = lost.get(node)
        return first is not None and steps.index(Step(step)) >= steps.index(Step.of(first))

    world.grid.drops = drops
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model()
    with world.secure(strategy) as secure:
        result = start(secure, strategy, before)
        (report,) = secure.reports
    skipped = stage is Stage.CONFIRM and mode is Mode.SEMI_HONEST
    survivors = [i for i in range(parts.N) if i != 0 or stage > Stage.INPUT]
    assert report.survivors == len(survivors)
    told = [reason.split(":")[0] for reason in report.lost.values()]
    assert told == ["unmask" if skipped else str(each) for each in sorted(set(lost.values()))]
    moved = parts.flat(result.arrays) - parts.flat(before)
    mean = np.mean([parts.shift_of(i) for i in survivors])
    assert np.abs(moved - mean).max() < 6.5 * noise_of(report, world)
    # The wait is bounded by the stages' own limits.
    assert world.time.seconds < 600.0 + 2 * 60.0 + 1.0


def test_a_client_that_never_says_who_it_is_counts_as_lost(make_world, parts):
    world = make_world()
    world.grid.drops = lambda node, step: node == parts.FIRST_NODE
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        start(secure, strategy, parts.model())
        (report,) = secure.reports
    assert report.survivors == parts.N - 1 and report.cohort == parts.N
    assert report.lost == {parts.FIRST_NODE: "did not say in time who it is"}


def test_nodes_that_are_gone_are_no_reason_to_stop(make_world, parts):
    world = make_world()
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        arrays = start(secure, strategy, parts.model()).arrays
        del world.grid.nodes[parts.FIRST_NODE]
        waited = world.time.seconds
        start(secure, strategy, arrays)
    assert [report.survivors for report in secure.reports] == [parts.N, parts.N - 1]
    # Somebody who left may not come back: later rounds do not wait for a whole cohort.
    assert world.time.seconds == waited


def test_a_lost_round_is_skipped_and_the_model_stays(make_world, parts, caplog):
    world = make_world()
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        arrays = start(secure, strategy, parts.model()).arrays
        world.grid.drops = lambda node, step: step == "input" and node < parts.FIRST_NODE + 3
        with caplog.at_level(logging.WARNING, "veilsum"):
            result = start(secure, strategy, arrays)
        assert not result.arrays and not result.train_metrics_clientapp
        assert "lost a round" in caplog.text and "input: no answer" in caplog.text
        world.grid.drops = lambda node, step: False
        assert start(secure, strategy, arrays).arrays is not None
    assert len(secure.reports) == 2


def test_the_first_round_lost_is_an_error_that_says_why(make_world, parts):
    world = make_world()
    world.grid.drops = lambda node, step: step == "share" and node < parts.FIRST_NODE + 3
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure, pytest.raises(TooFewSurvivorsError) as caught:
        start(secure, strategy, parts.model())
    assert any("share: no answer" in note for note in caught.value.__notes__)


def test_rounds_lost_in_a_row_end_the_run(make_world, parts):
    world = make_world()
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        arrays = start(secure, strategy, parts.model()).arrays
        world.grid.drops = lambda node, step: step == "advertise"
        with pytest.raises(TooFewSurvivorsError):
            start(secure, strategy, arrays, rounds=5)
    announced = sum(step == "advertise" for _, step in world.grid.seen)
    assert announced == parts.N * (1 + 3)


def test_the_sketch_may_change_from_round_to_round(make_world, parts):
    # Noise that drowns the update: the controller compresses.
    world = make_world(goal=PrivacyGoal(10.0, 1e-5, 8))
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model(4000)
    with world.secure(strategy, AdaptNorm()) as secure:
        start(secure, strategy, before, rounds=3)
        sizes = [report.sketch_size for report in secure.reports]
        reasons = {report.why for report in secure.reports}
    assert len(set(sizes)) > 1 and max(sizes) <= 4000
    assert all(reasons)


def test_more_nodes_than_a_cohort_are_thinned_out(make_world, parts):
    world = make_world(clients=parts.N + 4)
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        start(secure, strategy, parts.model(), rounds=2)
    for report in secure.reports:
        assert report.survivors == report.cohort == parts.N
    announced = [node for node, step in world.grid.seen if step == "advertise"]
    assert len(announced) == 2 * parts.N and len(set(announced)) > parts.N


def test_only_masked_updates_and_signatures_leave_a_client(make_world, parts):
    """What comes back in training is one record of ours, with one byte string in it."""
    world = make_world()
    leaked = []

    def look(reply):
        if KEY in reply.content:
            leaked.append((sorted(reply.content), sorted(reply.content[KEY])))
        return reply

    world.grid.answers = look
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        start(secure, strategy, parts.model())
    assert len(leaked) == parts.N * 6
    assert all(each == ([KEY], ["answer", "version"]) for each in leaked)


def test_the_model_travels_once_and_to_those_who_are_still_there(make_world, parts):
    world = make_world()
    world.grid.drops = lambda node, step: node == parts.FIRST_NODE and step == "share"
    sent = []

    def look(message):
        sent.append((parts.step_of(message), sorted(message.content)))
        return message

    world.grid.spoil = look
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        start(secure, strategy, parts.model())
    with_model = [step for step, names in sent if names != [KEY]]
    assert with_model == ["input"] * (parts.N - 1)


def test_training_may_change_the_model_that_it_was_given(make_world, parts):
    def train(message, context):
        for name, array in parts.shifted(message.content["arrays"], 0.1).items():
            message.content["arrays"][name] = array
        return Message(message.content, reply_to=message)

    world = make_world(app=parts.make_app(train))
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model()
    with world.secure(strategy) as secure:
        result = start(secure, strategy, before)
        (report,) = secure.reports
    moved = parts.flat(result.arrays) - parts.flat(before)
    # The mean over 40 coordinates has the noise of one over the root of 40; an update of 0 fails.
    tolerance = 6.5 * noise_of(report, world) / np.sqrt(40)
    assert abs(moved.mean() - 0.1) < tolerance < 0.05


def test_what_flower_stores_of_a_round_does_not_grow_with_the_model(make_world, parts):
    world = make_world()
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model(30_000)
    with world.secure(strategy) as secure:
        start(secure, strategy, before)
    for node in world.grid.nodes.values():
        assert 0 < len(node.state) < 20_000 < sum(len(array.data) for array in before.values())


def test_a_model_needs_a_name_for_each_array_and_nothing_else(parts):
    from protocol.adapters.flower.arrays import Layout

    before = parts.model()
    layout = Layout.of(before)
    update = layout.difference(parts.shifted(before, 0.5), before)
    assert update.dtype == np.float32 and update.shape == (40,)
    np.testing.assert_allclose(update, 0.5, atol=1e-6)
    after = layout.moved(before, update)
    np.testing.assert_allclose(parts.flat(after), parts.flat(before) + 0.5, atol=1e-6)
    assert list(after) == list(before)
    backwards = ArrayRecord({name: before[name] for name in reversed(list(before))})
    np.testing.assert_array_equal(layout.difference(parts.shifted(backwards, 0.5), before), update)
