"""Stock strategies over a network that loses clients: the mean comes out, and nothing else."""

from __future__ import annotations

import io
import logging
import pickle
import re
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import World
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx, FedYogi, Result

from dp.mechanisms import MECHANISMS, MechanismName
from protocol import PrivateTraining, RoundSetup
from protocol.adapters import named_arrays, stage_times
from protocol.adapters.flower import Patience, RoundLostError, RoundReport, SecureGrid
from protocol.adapters.flower.errors import MOST_REASONS, by_reason
from protocol.adapters.flower.home import read_identity
from protocol.adapters.flower.record import KEY, Step
from protocol.goal import PrivacyGoal
from protocol.round.losses import Stage
from secagg import Mode, ParameterError, Reason, RemoteProtocolError, TooFewSurvivorsError
from sketch.controllers import AdaptNorm

N = 6


def start(
    secure: SecureGrid, strategy: FedAvg | FedAvgM, arrays: ArrayRecord, rounds: int = 1
) -> Result:
    return strategy.start(grid=secure, initial_arrays=arrays, num_rounds=rounds)


def noise_of(report: RoundReport, world: World) -> float:
    """Largest standard deviation of a coordinate of the mean update, by the plan's error share."""
    goal = world.plan.goal
    return 1.02 * goal.noise_multiplier * world.plan.clip_l2 / report.survivors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_fedavg_gets_the_mean(
    make_world: Callable[..., World], parts: SimpleNamespace, mechanism: MechanismName
) -> None:
    world = make_world(mechanism=mechanism)
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model()
    with world.secure(strategy) as secure:
        result = start(secure, strategy, before)
        (report,) = secure.reports
    moved = parts.flat(result.arrays) - parts.flat(before)
    mean = np.mean([parts.shift_of(i) for i in range(parts.N)])
    # Shifts are below the clip, so only noise is left: 6.5 deviations for 40 coordinates.
    # Noise that comes as a whole is that of all six, made for four.
    surplus = 1.0 if mechanism == "binomial" else np.sqrt(parts.N / world.plan.minimum_survivors)
    assert np.abs(moved - mean).max() < 6.5 * noise_of(report, world) * surplus
    assert report.survivors == parts.N and report.lost == {}
    # Who they are, and the five stages.
    assert report.exchanges == 6
    metrics = result.train_metrics_clientapp[1]
    assert metrics["survivors"] == parts.N
    assert 0 < metrics["epsilon-spent"] == report.epsilons.server < world.plan.goal.epsilon
    assert metrics["epsilon"] == world.plan.goal.epsilon


STRATEGIES = {
    "FedAvgM": lambda: FedAvgM(server_momentum=0.9, fraction_evaluate=0.0),
    "FedAdam": lambda: FedAdam(eta=0.1, fraction_evaluate=0.0),
    "FedYogi": lambda: FedYogi(eta=0.1, fraction_evaluate=0.0),
    "FedProx": lambda: FedProx(proximal_mu=0.1, fraction_evaluate=0.0),
    "FedAvg": lambda: FedAvg(weighted_by_key="weight", fraction_evaluate=0.0),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_run_several_rounds_unchanged(
    make_world: Callable[..., World], parts: SimpleNamespace, name: str
) -> None:
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


def test_federated_evaluation_passes_through_if_both_sides_allow_it(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world(allow_evaluation_in_the_clear=True)
    strategy = FedAvg()
    with world.secure(strategy, allow_evaluation_in_the_clear=True) as secure:
        result = start(secure, strategy, parts.model())
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.5)


def test_clients_that_do_not_allow_it_evaluate_for_no_server(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
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


def mixed_network(norm: str) -> Any:
    """A layer of everything: a normalisation, a GroupNorm, tied weights, float16, a counter."""
    torch = pytest.importorskip("torch")

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.norm = torch.nn.BatchNorm1d(4) if norm == "batch" else torch.nn.GroupNorm(1, 4)
            self.group = torch.nn.GroupNorm(2, 4)
            self.scale = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
            self.register_buffer("count", torch.tensor(3))

        def forward(self, values: Any) -> Any:
            return self.second(self.group(self.norm(self.first(values)))) * self.scale.float()

    return Mixed()


def sent_of(network: Any, remedy: str) -> ArrayRecord:
    if remedy == "leave out":
        return ArrayRecord({**dict(network.named_parameters()), "count": network.count})
    return ArrayRecord(network.state_dict())


@pytest.mark.parametrize(
    ("norm", "remedy"), [("batch", "none"), ("batch", "leave out"), ("group", "GroupNorm")]
)
def test_batch_norm_is_refused_by_name_and_both_remedies_train(
    make_world: Callable[..., World], parts: SimpleNamespace, norm: str, remedy: str
) -> None:
    """What is averaged keeps its type, float16 too; a counter stays; tied weights train once."""
    first, received = mixed_network(norm), []

    def train(message: Message, context: Context) -> Message:
        (arrays,) = message.content.array_records.values()
        network, shift = mixed_network(norm), parts.shift_of(context.node_config["partition-id"])
        network.load_state_dict(arrays.to_torch_state_dict(), strict=False)
        network(network.first.weight.detach())  # its own statistics move, and stay here
        received.append({name: array.numpy() for name, array in arrays.items()})
        for parameter in network.parameters():
            parameter.data += shift
        network.count += 1
        return Message(RecordDict({"arrays": sent_of(network, remedy)}), reply_to=message)

    world, strategy = make_world(app=parts.make_app(train)), FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        if remedy == "none":
            with pytest.raises(ParameterError, match=r"'norm\.running_mean'.*GroupNorm"):
                start(secure, strategy, sent_of(first, remedy))
            assert world.grid.seen == []
            return
        result = start(secure, strategy, sent_of(first, remedy), rounds=2)
        first.load_state_dict(result.arrays.to_torch_state_dict(), strict=False)
        reports = secure.reports
    assert [report.survivors for report in reports] == [parts.N] * 2
    assert len(received) == 2 * parts.N
    for arrays in received:
        assert (arrays["scale"].dtype, arrays["count"].dtype) == (np.float16, np.int64)
        assert arrays["count"] == 3
    for mode in (first.eval(), first.train()):
        assert mode(first.first.weight.detach()).isfinite().all()
    moved = result.arrays["norm.weight"].numpy() - 1.0
    mean = np.mean([parts.shift_of(i) for i in range(parts.N)])
    # Two rounds of noise, 6.5 deviations each.
    assert np.abs(moved - 2 * mean).max() < sum(6.5 * noise_of(each, world) for each in reports)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("stage", Stage)
def test_a_client_lost_at_any_stage_does_not_lose_the_round(
    make_world: Callable[..., World], parts: SimpleNamespace, stage: Stage, mode: Mode
) -> None:
    """In the last stage clients are asked only if somebody else is lost one stage before."""
    world = make_world(mode=mode)
    lost = {parts.FIRST_NODE: stage}
    if stage is Stage.RECOVER:
        lost[parts.FIRST_NODE + 1] = Stage.UNMASK
    steps = list(Step)

    def drops(node: int, step: str) -> bool:
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


def test_a_client_that_never_says_who_it_is_counts_as_lost(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    world.grid.drops = lambda node, step: node == parts.FIRST_NODE
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        start(secure, strategy, parts.model())
        (report,) = secure.reports
    assert report.survivors == parts.N - 1 and report.cohort == parts.N
    assert report.lost == {parts.FIRST_NODE: "did not say in time who it is"}


def test_nodes_that_are_gone_are_no_reason_to_stop(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
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


def test_a_lost_round_is_skipped_and_the_model_stays(
    make_world: Callable[..., World], parts: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_a_lost_round_says_of_every_node_why(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    world.grid.drops = lambda node, step: step == "share" and node < parts.FIRST_NODE + 3
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure, pytest.raises(TooFewSurvivorsError) as caught:
        start(secure, strategy, parts.model(), rounds=3)
    first = range(parts.FIRST_NODE, parts.FIRST_NODE + 3)
    assert caught.value.lost == dict.fromkeys(first, "share: no answer in 60 s")
    assert caught.value.away == 0
    assert str(caught.value).startswith("stage share: 3 clients answered, 4 are needed")
    named = re.search(r"; nodes ([\d, ]+): share: no answer in 60 s$", str(caught.value))
    assert named and sorted(map(int, named[1].split(", "))) == list(first)


def spoiling(
    world: World,
    parts: SimpleNamespace,
    changes: dict[int, Callable[..., Any]],
    step: str = "advertise",
) -> None:
    """Changes what nodes answer at a step, each in its own way."""
    at = []

    def spoil(message: Message) -> Message:
        at[:] = [parts.step_of(message)]
        return message

    def answers(reply: Message) -> Message:
        change = changes.get(reply.metadata.src_node_id - parts.FIRST_NODE)
        return change(reply) if change and at == [step] else reply

    world.grid.spoil, world.grid.answers = spoil, answers


def saying(data: bytes) -> Callable[..., Message]:
    def change(reply: Message) -> Message:
        reply.content[KEY]["answer"] = data
        return reply

    return change


def of_another_type(reply: Message) -> Message:
    reply.content[KEY]["answer"] = 17
    return reply


def without_our_record(reply: Message) -> Message:
    del reply.content[KEY]
    return reply


def an_error(reply: Message) -> Message:
    metadata = reply.metadata
    metadata.__dict__["_message_type"] = "train"
    return Message(Error(8, "exit code\n137"), metadata=metadata)


def test_a_stage_that_fails_says_of_every_node_why(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """Every way to fail is told apart, with its node and its stage.

    Silence, a reply of another kind, bytes that are no message, a refusal, Flower's own error.
    """
    world = make_world(nodes=parts.N - 1, tolerated_dropouts=1)
    policy = world.home(3) / "policy.toml"
    policy.write_text(policy.read_text().replace("clip_l2 = 1.0", "clip_l2 = 0.5"))
    world.grid.drops = lambda node, step: (node, step) == (parts.FIRST_NODE, "advertise")
    spoiling(world, parts, {1: without_our_record, 2: saying(b"\0nonsense"), 4: an_error})
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure, pytest.raises(RoundLostError) as caught:
        start(secure, strategy, parts.model(), rounds=3)
    lost = {node - parts.FIRST_NODE: reason for node, reason in caught.value.lost.items()}
    malformed = lost.pop(2)
    assert lost == {
        0: "advertise: no answer in 60 s",
        1: "advertise: no answer of ours in its reply: is secure_mod in the app's mods?",
        3: "advertise: PolicyError",
        4: "advertise: its app crashed: see its own log (error 8: exit code 137)",
    }
    assert malformed.startswith("advertise: its message was refused: the bytes are not a message")
    assert (caught.value.stage, caught.value.survivors, caught.value.needed) == ("advertise", 0, 5)
    assert "; 1 of its cohort had no node" in str(caught.value)
    for node, reason in caught.value.lost.items():
        assert f"; node {node}: {reason}" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert str(again) == str(caught.value) and again.lost == caught.value.lost


@pytest.mark.parametrize("step", ["advertise", "share", "input", "confirm", "unmask"])
def test_who_was_not_understood_is_named_though_the_round_goes_on(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    caplog: pytest.LogCaptureFixture,
    step: str,
) -> None:
    world = make_world()
    spoiling(world, parts, {0: saying(b"\0nonsense"), 1: of_another_type}, step)
    strategy = FedAvg(fraction_evaluate=0.0)
    with caplog.at_level(logging.WARNING, "veilsum"), world.secure(strategy) as secure:
        start(secure, strategy, parts.model())
        (report,) = secure.reports
    assert sorted(report.lost) == [parts.FIRST_NODE, parts.FIRST_NODE + 1]
    assert report.lost[parts.FIRST_NODE].startswith(f"{step}: its message was refused: the bytes")
    assert report.lost[parts.FIRST_NODE + 1].startswith(f"{step}: no answer of ours")
    assert "round 0 went on without some nodes; node" in caplog.text
    assert all(f"node {node}: {reason}" in caplog.text for node, reason in report.lost.items())


@pytest.mark.parametrize("party", range(N))
def test_a_sum_that_cannot_be_opened_names_a_node(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    party: int,
) -> None:
    """Of the client that is blamed, by its number in the cohort; one of the six has no node."""
    world, blamed = make_world(nodes=parts.N - 1), []

    def run_setup(training: PrivateTraining, setup: RoundSetup, notes: dict[str, str]) -> NoReturn:
        blamed.append(setup.context.cohort[party])
        raise RemoteProtocolError(party, Reason.BAD_SHARE)

    monkeypatch.setattr("protocol.training.private.PrivateTraining.run_setup", run_setup)
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure, pytest.raises(RemoteProtocolError) as caught:
        start(secure, strategy, parts.model(), rounds=3)
    keys = {read_identity(world.home(i) / "identity.key").public: i for i in range(parts.N)}
    number = keys[blamed[-1]]
    node = parts.FIRST_NODE + number if number < parts.N - 1 else None
    named, lost = caught.value.__notes__
    assert named == f"client {party} of the cohort is node {node}"
    assert lost == "lost before: nobody"


def test_many_nodes_are_told_in_few_words() -> None:
    same = dict.fromkeys(range(100, 112), "share: no answer in 60 s")
    assert by_reason(same) == "; nodes 100, 101, 102, 103, 104 and 7 more: share: no answer in 60 s"
    assert by_reason({7: "left"}) == "; node 7: left" and by_reason({}) == ""
    different = {node: f"reason {node}" for node in range(20)}
    words = by_reason(different)
    assert words.count("; node ") == MOST_REASONS and words.endswith(
        "; and 12 more, for other reasons"
    )


@pytest.mark.parametrize("worked", [0, 1])
@pytest.mark.parametrize(("planned", "most"), [(8, 3), (2, 2)])
def test_the_third_lost_round_in_a_row_ends_the_run_or_the_last_of_the_plan(
    make_world: Callable[..., World], parts: SimpleNamespace, worked: int, planned: int, most: int
) -> None:
    """The first round is one like any other."""
    world = make_world(goal=PrivacyGoal(200.0, 1e-5, planned))
    strategy, arrays = FedAvg(fraction_evaluate=0.0), parts.model()
    with world.secure(strategy) as secure:
        if worked:
            arrays = start(secure, strategy, arrays).arrays
        world.grid.drops = lambda node, step: step == "advertise"
        with pytest.raises(TooFewSurvivorsError):
            start(secure, strategy, arrays, rounds=5)
    announced = sum(step == "advertise" for _, step in world.grid.seen)
    assert announced == parts.N * (worked + most)


def test_waits_follow_the_first_trip_and_what_a_stage_sends(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """Whoever is asked who it is answers after 20 s: four such trips are enough for a stage."""
    world = make_world(nodes=parts.N - 1)
    world.grid.drops = lambda node, step: (node, step) == (parts.FIRST_NODE, "share")
    pull = world.grid.pull_messages
    world.grid.pull_messages = lambda ids: pull(ids) if world.time.seconds >= late[0] else []
    late, strategy = [0.0], FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy, patience=Patience(training=600.0)) as secure:
        late[0] = 30.0 + 20.0  # after the wait for the sixth node
        start(secure, strategy, parts.model())
    (reason,) = secure.reports[0].lost.values()
    # 20 s, and up to a second more until somebody looked.
    assert re.fullmatch(r"share: no answer in 8[0-4] s", reason)


def test_the_sketch_may_change_from_round_to_round(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    # Noise that drowns the update: the controller compresses.
    world = make_world(goal=PrivacyGoal(10.0, 1e-5, 8))
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model(4000)
    with world.secure(strategy, AdaptNorm(first_rate=2.0)) as secure:
        start(secure, strategy, before, rounds=3)
        sizes = [report.sketch_size for report in secure.reports]
        reasons = {report.why for report in secure.reports}
    assert len(set(sizes)) > 1 and max(sizes) <= 4000
    assert all(reasons)


def test_more_nodes_than_a_cohort_are_thinned_out(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """Cohorts come of the system's coins: three of 6 in 14 are the same once in 9 million."""
    world = make_world(clients=parts.N + 8)
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        start(secure, strategy, parts.model(), rounds=3)
    for report in secure.reports:
        assert report.survivors == report.cohort == parts.N
    announced = [node for node, step in world.grid.seen if step == "advertise"]
    assert len(announced) == 3 * parts.N and len(set(announced)) > parts.N


def test_only_masked_updates_and_signatures_leave_a_client(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    """What comes back in training is one record of ours, with one byte string in it."""
    world = make_world()
    leaked = []

    def look(reply: Message) -> Message:
        if KEY in reply.content:
            leaked.append((sorted(reply.content), sorted(reply.content[KEY])))
        return reply

    world.grid.answers = look
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        start(secure, strategy, parts.model())
    assert len(leaked) == parts.N * 6
    assert all(each == ([KEY], ["answer", "version"]) for each in leaked)


def test_the_model_travels_once_and_to_those_who_are_still_there(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    world.grid.drops = lambda node, step: node == parts.FIRST_NODE and step == "share"
    sent = []

    def look(message: Message) -> Message:
        sent.append((parts.step_of(message), sorted(message.content)))
        return message

    world.grid.spoil = look
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        start(secure, strategy, parts.model())
    with_model = [step for step, names in sent if names != [KEY]]
    assert with_model == ["input"] * (parts.N - 1)


def test_training_may_change_the_model_that_it_was_given(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    def train(message: Message, context: Context) -> Message:
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


def test_what_flower_stores_of_a_round_does_not_grow_with_the_model(
    make_world: Callable[..., World], parts: SimpleNamespace
) -> None:
    world = make_world()
    strategy, before = FedAvg(fraction_evaluate=0.0), parts.model(30_000)
    with world.secure(strategy) as secure:
        start(secure, strategy, before)
    for node in world.grid.nodes.values():
        assert 0 < len(node.state) < 20_000 < sum(len(array.data) for array in before.values())


def test_a_model_needs_a_name_for_each_array_and_nothing_else(parts: SimpleNamespace) -> None:
    from protocol.adapters.flower.arrays import Layout

    before = parts.model()
    layout = Layout.of(before)
    update = layout.difference(parts.shifted(before, 0.5), before)
    assert update.dtype == np.float64 and update.shape == (40,)
    np.testing.assert_allclose(update, 0.5, atol=1e-6)
    after = layout.moved(before, update)
    np.testing.assert_allclose(parts.flat(after), parts.flat(before) + 0.5, atol=1e-6)
    assert list(after) == list(before)
    backwards = ArrayRecord({name: before[name] for name in reversed(list(before))})
    np.testing.assert_array_equal(layout.difference(parts.shifted(backwards, 0.5), before), update)


def archive() -> bytes:
    """Several arrays in one file, as NumPy stores them."""
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3), b=np.ones(3))
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"patient 17",
        archive(),
        archive()[:-5],
        b"\x93NUMPY\x09\x00",
        b"\x93NUMPY\x01\x00\x10\x00{'descr': lambda",
    ],
    ids=["nothing", "words", "archive", "torn archive", "version", "header"],
)
def test_bytes_that_are_no_array_are_named(parts: SimpleNamespace, data: bytes) -> None:
    """Whatever NumPy raises for them, or makes of them."""
    from protocol.adapters.flower.arrays import Layout

    odd = ArrayRecord({**parts.model(), "bias": Array("float32", (4,), "numpy.ndarray", data)})
    for look in (Layout.of, lambda odd: Layout.of(parts.model()).difference(odd, parts.model())):
        with pytest.raises(ParameterError, match=r"'bias', which .* float32: .*arrays of numbers"):
            look(odd)


@pytest.mark.parametrize(
    ("bias", "said"),
    [
        (np.zeros(4, np.complex64), r"'bias' = dtype\('complex64'\)"),
        (np.array(["a"] * 4), r"'bias' = dtype\('<U1'\)"),
        (np.zeros((4, 1), np.float16), r"'bias': float16 of shape \(4, 1\)"),
    ],
)
def test_an_array_that_does_not_do_is_named_with_its_type(
    make_world: Callable[..., World], parts: SimpleNamespace, bias: np.ndarray, said: str
) -> None:
    strategy = FedAvg(fraction_evaluate=0.0)
    with make_world().secure(strategy) as secure:
        if bias.dtype == np.float16:
            start(secure, strategy, parts.model())
        with pytest.raises(ParameterError, match=said):
            start(secure, strategy, ArrayRecord({**parts.model(), "bias": Array(bias)}))


@pytest.mark.parametrize(
    ("module", "limit", "value", "said"),
    [
        (named_arrays, "LARGEST_DIMENSION", 39, r"averaged = 40: must be 1 \.\. 39"),
        (stage_times, "LARGEST_VECTOR_BYTES", 50, r"40 numbers of \d+ bits in \d+ bytes.*sketch"),
    ],
)
def test_a_model_that_is_too_large_is_refused_before_anybody_trains(
    make_world: Callable[..., World],
    parts: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    limit: str,
    value: int,
    said: str,
) -> None:
    monkeypatch.setattr(module, limit, value)
    world, strategy = make_world(), FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure, pytest.raises(ParameterError, match=said):
        start(secure, strategy, parts.model())
    assert {step for _, step in world.grid.seen} <= {"hello"}
