"""One call each: what they give is what the parts behind them give, and wrong words are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import veilsum
from dp import Ledger, RoundsUsedUpError
from protocol.errors import ConfigurationError
from protocol.noise.noise import Independent
from protocol.round.losses import Stage
from protocol.training.records import listed_cohort
from secagg import ParameterError
from veilsum import OneShot
from veilsum.extras import install_command

ALPHA = 1e-6
VECTORS = np.random.default_rng(0).normal(0.5, 0.1, size=(40, 100))


def mean(**others: Any) -> Any:
    return veilsum.private_mean(VECTORS, epsilon=8.0, clip_l2=6.0, **others)


@pytest.mark.statistical
def test_the_error_of_a_mean_is_what_it_says() -> None:
    found = mean()
    errors = found.mean - VECTORS.mean(axis=0)
    square = float((errors**2).sum()) / found.noise**2
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], 100)
    assert low < square < high
    # Were the noise said to be half of what it is, it would be noticed.
    assert 4 * square > high
    assert found.survivors == 40 and found.shortened == 0 and found.epsilon <= 8.0
    assert str(found).startswith("mean of 40 vectors of length 100, each coordinate with noise 0.1")
    assert found.bytes_sent > 100


def test_a_plan_may_be_named_in_part() -> None:
    found = mean(
        tolerated_dropouts=3, noise=Independent(mechanism="skellam"), dropouts={1: Stage.INPUT}
    )
    assert found.survivors == 39
    with pytest.raises(ParameterError, match="tolerated_dropouts"):
        mean(tolerated_dropouts=-1)
    with pytest.raises(ParameterError, match=r"compression = 0\.5: must be at least 1"):
        mean(compression=0.5)
    with pytest.raises(TypeError, match="colour"):
        mean(colour="red")


PEOPLE = [f"person {number}" for number in range(40)]


def test_all_calls_on_one_ledger_keep_one_promise(tmp_path: Path) -> None:
    """Every call made new identities: twelve said epsilon 1 each, and their average told all."""
    given = {"ledger": tmp_path / "ledger.jsonl", "rounds": 2}
    first = mean(names=PEOPLE, **given)
    # The same people in another order, and some of them replaced.
    second = mean(names=[*PEOPLE[20:], *(f"new {name}" for name in PEOPLE[:20])], **given)
    assert first.epsilon == second.epsilon == 8.0
    assert first.noise > 1.3 * mean().noise
    with pytest.raises(RoundsUsedUpError):
        mean(names=[*(f"newer {name}" for name in PEOPLE[1:]), PEOPLE[39]], **given)
    mean(names=[f"newer {name}" for name in PEOPLE], **given)
    with Ledger.open(given["ledger"]) as ledger:
        cohorts = [set(listed_cohort(entry.metadata)) for entry in ledger.entries()]
    assert [len(cohorts[0] & cohort) for cohort in cohorts] == [40, 20, 0]


def test_a_ledger_is_refused_without_the_names_that_it_counts_by(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    with pytest.raises(ParameterError, match="ledger = 'given without names': must be given with"):
        mean(ledger=ledger)
    wrong: list[tuple[Any, str]] = [
        (PEOPLE[1:], "names = '39 of them': must be 40"),
        ("a" * 40, "must be 40"),
        ([*PEOPLE[1:], PEOPLE[1]], "with 'person 1' more than once"),
        ([*PEOPLE[1:], ""], "empty or no str"),
        (list(range(40)), "empty or no str"),
    ]
    for names, said in wrong:
        with pytest.raises(ParameterError, match=said):
            mean(ledger=ledger, names=names)
    with pytest.raises(ParameterError, match="names = 'given without a ledger'"):
        mean(names=PEOPLE)
    assert not ledger.exists()


@pytest.mark.parametrize("scheme", ["pairwise", "one-shot", OneShot()])
def test_every_scheme_gives_a_mean(scheme: Any) -> None:
    assert np.abs(mean(scheme=scheme).mean - 0.5).max() < 1.0


@pytest.mark.parametrize("kind", ["frame", "tensor", "tensors", "values"])
def test_frames_and_tensors_are_taken_row_by_row(kind: str) -> None:
    rows: Any = np.arange(10.0).reshape(5, 2) / 100
    if kind == "frame":
        given = pytest.importorskip("pandas").DataFrame(rows)
    elif kind == "values":
        given = dict(enumerate(rows)).values()
    else:
        whole = pytest.importorskip("torch").tensor(rows, requires_grad=True)
        given = whole if kind == "tensor" else list(whole)
    found = veilsum.private_mean(given, epsilon=50.0)
    assert found.mean.shape == (2,) and found.survivors == 5


def test_a_clip_may_be_a_float_of_numpys() -> None:
    clip = np.median(np.linalg.norm(VECTORS, axis=1)) + 1.0
    assert veilsum.private_mean(VECTORS, epsilon=8.0, clip_l2=clip).shortened == 0


def test_few_clients_are_warned() -> None:
    with pytest.warns(UserWarning, match="3 clients: with so few"):
        veilsum.private_mean(np.zeros((3, 2)), epsilon=50.0)


def test_long_vectors_are_told() -> None:
    with pytest.warns(UserWarning, match="3 of 4 vectors were longer than clip_l2 = 1 "):
        found = veilsum.private_mean([[0.5, 0.0], [2.0, 0.0], [0.0, 3.0], [1.5, 0.0]], epsilon=50.0)
    assert found.shortened == 3


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([], "of shape"),
        ([1.0, 2.0], "of shape"),
        ([[1.0], [1.0, 2.0]], "n vectors of one length"),
        ([["a"], ["b"]], "n vectors of one length"),
        ([[1.0], [float("nan")], [float("inf")]], r"vectors\[1\]"),
        ([[1.0 + 2.0j], [1.0]], "vectors = 'complex'"),
        (np.ones((2, 1)) * 1j, "vectors = 'complex'"),
        (dict(enumerate(VECTORS)), r"such as list\(vectors.values\(\)\)"),
        (np.ma.masked_equal([[1.0], [2.0]], 2.0), "vectors = 'masked'"),
    ],
)
def test_what_are_no_vectors(vectors: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        veilsum.private_mean(vectors, epsilon=8.0)


def test_without_torch_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import veilsum\n"
        "veilsum.private_training(None, [], epsilon=1.0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)  # noqa: S603
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: private_training needs torch, which comes with the extra sim: "
        + install_command("sim")
    )


class TestTraining:
    """Two classes that a line tells apart, thirty clients."""

    def clients(self, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(seed)
        labels = [rng.integers(0, 2, 20) for _ in range(30)]
        return [
            (rng.normal(size=(20, 3)) + np.outer(2 * y - 1, [2.0, 0.0, 0.0]), y) for y in labels
        ]

    def model(self) -> Any:
        torch = pytest.importorskip("torch")
        torch.manual_seed(0)
        return torch.nn.Linear(3, 2)

    def train(self, **others: Any) -> Any:
        given = {"epsilon": 20.0, "rounds": 3, "progress": False, **others}
        return veilsum.private_training(self.model(), self.clients(), **given)

    def test_it_learns(self) -> None:
        import torch

        threads = torch.get_num_threads()
        run = self.train(rounds=6)
        assert torch.get_num_threads() == threads
        assert run.accuracy > 0.9 and run.epsilon <= 20.0 and run.folder is None
        assert len(run.records) == 6 and run.summary["accuracy"] == run.accuracy
        inputs, labels = (np.concatenate(each) for each in zip(*self.clients(1), strict=True))
        scores = run.model(torch.tensor(inputs, dtype=torch.float32))
        assert float((scores.argmax(1).numpy() == labels).mean()) > 0.9
        assert str(run).endswith("after 6 rounds, at epsilon 20, delta 1e-06")

    def test_a_folder_is_kept_and_taken_up_again(self, tmp_path: Path) -> None:
        first = self.train(folder=tmp_path / "run")
        again = self.train(folder=tmp_path / "run")
        assert again.records == first.records and again.folder == tmp_path / "run"
        for name, value in first.model.state_dict().items():
            assert (again.model.state_dict()[name] == value).all()
        ledger = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()
        assert len(json.loads(ledger[0])) and len(ledger) >= 3
        with pytest.raises(ConfigurationError):
            self.train(folder=tmp_path / "run", epsilon=10.0)
        other = self.model()
        other.bias.data += 1.0
        with pytest.raises(ConfigurationError):
            veilsum.private_training(
                other, self.clients(), epsilon=20.0, rounds=3, progress=False,
                folder=tmp_path / "run",
            )  # fmt: skip
        with pytest.raises(ConfigurationError):
            veilsum.private_training(
                self.model(), self.clients(2), epsilon=20.0, rounds=3, progress=False,
                folder=tmp_path / "run",
            )  # fmt: skip

    def test_clients_say_how_good_it_is(self) -> None:
        run = self.train(rounds=4, evaluate_every=2)
        assert list(run.evaluations) == [2, 4]
        said = run.evaluations[4]
        assert abs(said["accuracy"] - run.accuracy) < 0.3 and 0.0 < said["accuracy_error"] < 0.1
        assert run.epsilon <= 20.0 and self.train().evaluations == {}

    def test_callbacks_are_told(self, tmp_path: Path) -> None:
        from simulations.learning.run import RunCallback

        class Told(RunCallback):
            def __init__(self) -> None:
                self.rounds: list[int] = []
                self.summary: Any = None

            def round(self, record: Any) -> None:
                self.rounds.append(record["round"])

            def end(self, summary: Any) -> None:
                self.summary = summary

        told, again = Told(), Told()
        run = self.train(folder=tmp_path, callbacks=[told])
        assert told.rounds == [1, 2, 3] and told.summary == run.summary
        self.train(folder=tmp_path, callbacks=[again])
        assert again.rounds == [] and again.summary is None

    def test_every_key_of_a_configuration_may_be_set(self) -> None:
        run = self.train(settings={"engine.aggregator": "plain", "cohort.tolerated_dropouts": 1})
        assert run.epsilon is None and "no promise" in str(run)
        with pytest.raises(ConfigurationError, match=r"engine\.colour"):
            self.train(settings={"engine.colour": "red"})

    def test_cohorts_take_turns(self) -> None:
        run = self.train(cohort=10)
        assert run.records[0]["cohort"] == 10

    def test_a_data_set_of_the_package(self) -> None:
        from simulations.learning.data.own import own_dataset

        data = own_dataset(self.clients())
        run = veilsum.private_training(self.model(), data, epsilon=20.0, rounds=1, progress=False)
        assert len(run.records) == 1
        with pytest.raises(ConfigurationError, match="test: given with a Dataset"):
            veilsum.private_training(self.model(), data, epsilon=20.0, test=self.clients()[0])

    def test_a_data_set_without_owners(self) -> None:
        from simulations.learning.data import load_digits_dataset

        with pytest.raises(ConfigurationError, match="without owners"):
            veilsum.private_training(self.model(), load_digits_dataset(), epsilon=20.0)

    @pytest.mark.parametrize("own_loss", [False, True])
    def test_it_learns_several_labels_of_an_example(self, own_loss: bool) -> None:
        torch = pytest.importorskip("torch")
        binary = torch.nn.functional.binary_cross_entropy_with_logits

        def loss(scores: Any, labels: Any) -> Any:
            return binary(scores, labels.float(), reduction="none").mean(dim=1)

        clients = [(x, (x[:, :2] > 0).astype(float)) for x, _ in self.clients()]
        run = veilsum.private_training(
            self.model(), clients, epsilon=20.0, rounds=6, progress=False, learning_rate=1.0,
            loss=loss if own_loss else None,
        )  # fmt: skip
        # A quarter is guessed, as both have to be right.
        assert run.accuracy > 0.8
        with pytest.raises(ConfigurationError, match="2 scores for 3 labels; valid: a score for"):
            three = [(x, (x > 0).astype(int)) for x, _ in clients]
            veilsum.private_training(self.model(), three, epsilon=20.0)
        with pytest.raises(ConfigurationError, match=r"shards, which divides by label.* or iid"):
            veilsum.private_training(
                self.model(), clients, epsilon=20.0, settings={"task.clients": "shards"}
            )

    def test_labels_that_the_model_does_not_have(self) -> None:
        clients = [(x, y + 4 * (x[:, 0] > 2.5)) for x, y in self.clients()]
        with pytest.raises(ConfigurationError, match="a label"):
            veilsum.private_training(self.model(), clients, epsilon=20.0)
