"""Every model: exact sizes, agreeing kernels, padding, closed forms, learning, evaluation."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from protocol.errors import ConfigurationError
from simulations.learning.data import DataKind, Split, load_digits_dataset
from simulations.learning.models import (
    MODELS,
    BlockCnnTask,
    CnnTask,
    DataShape,
    Lenet5Task,
    LogisticTask,
    LstmClassifierTask,
    LstmTask,
    MlpTask,
    ModelOptions,
    NgramTask,
    ReluMlpTask,
    SvmTask,
    Task,
    TinyCnnTask,
    build_task,
)
from simulations.learning.models.convolutional import image_sides

pytestmark = pytest.mark.usefixtures("one_thread")

TABLE = DataShape(kind=DataKind.TABULAR, shape=(5,), classes=2)
PICTURE = DataShape(kind=DataKind.IMAGE, shape=(8, 8), classes=3)
WIDE = DataShape(kind=DataKind.IMAGE, shape=(16, 16), classes=3)
LARGE = DataShape(kind=DataKind.IMAGE, shape=(22, 22), classes=3)
TEXT = DataShape(kind=DataKind.TEXT, shape=(6,), classes=7, vocabulary=7)
NAME = DataShape(kind=DataKind.TEXT, shape=(6,), classes=3, vocabulary=7)
SHAPES = {
    "mlp": PICTURE,
    "mlp60": PICTURE,
    "logistic": PICTURE,
    "svm": PICTURE,
    "cnn": PICTURE,
    "cnn3": LARGE,
    "lenet5": WIDE,
    "tiny": PICTURE,
    "ngram": TEXT,
    "lstm": TEXT,
    "lstm_classifier": NAME,
}
CASES = [
    *((name, shape) for name, shape in SHAPES.items()),
    ("ngram", NAME),
    ("logistic", TABLE),
    ("svm", TABLE),
    ("mlp", TABLE),
]


def seeded(seed: int = 0) -> torch.Generator:
    """Return a torch generator."""
    return torch.Generator().manual_seed(seed)


def examples(shape: DataShape, count: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Draw inputs and labels that depend on each other, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, shape.classes, count)
    if shape.vocabulary is not None:
        tokens = rng.integers(1, shape.vocabulary, (count, *shape.shape))
        tokens[:, -2:] = labels[:, None]
        return torch.tensor(tokens), torch.tensor(labels)
    labels = rng.integers(0, shape.classes, count)
    inputs = 0.2 * rng.random((count, shape.features), dtype=np.float32)
    inputs[np.arange(count), labels] = 1.0
    return torch.tensor(inputs.reshape(count, *shape.shape)), torch.tensor(labels)


def nonzero_start(task: Task) -> Tensor:
    """Return parameters without zero layers, so that every gradient matters."""
    return torch.tensor(task.initial(seeded())) + 0.05 * torch.randn(
        task.dimension, generator=seeded(2)
    )


@pytest.mark.parametrize(
    ("task", "dimension"),
    [
        (CnnTask(), 1_018_174),
        (CnnTask(classes=10), 1_018_174 - 52 * 129),
        (BlockCnnTask(), 361_290),
        (LstmTask(), 820_522),
        (NgramTask(), 4418),
        (Lenet5Task(), 119_850),
        (ReluMlpTask(), 784 * 60 + 60 + 60 * 60 + 60 + 60 * 10 + 10),
        (ReluMlpTask(layers=1), 784 * 60 + 60 + 60 * 10 + 10),
        (ReluMlpTask(layers=3), 51_370 + 60 * 61),
        (TinyCnnTask(), 8 * 10 + 9 * 8 * 10 + 10),
        (LogisticTask(features=123), 124),
        (SvmTask(features=784, classes=10), 7850),
        (MlpTask(features=64, hidden=64), 4810),
        (LstmClassifierTask(), 256 * 64 + 512 * (64 + 128 + 1) + 18 * 129),
    ],
)
def test_parameter_counts(task: Task, dimension: int) -> None:
    assert task.dimension == task.layout.dimension == dimension


def test_paper_models_have_the_papers_layers() -> None:
    cnn = dict(zip(CnnTask().layout.names, CnnTask().layout.sizes, strict=True))
    layers = {
        name: cnn[f"{name}.weight"] + cnn[f"{name}.bias"]
        for name in ("conv1", "conv2", "dense", "output")
    }
    assert layers == {"conv1": 320, "conv2": 18_496, "dense": 991_360, "output": 7998}
    lstm = dict(zip(LstmTask().layout.names, LstmTask().layout.sizes, strict=True))
    totals = [
        sum(size for name, size in lstm.items() if name.startswith(f"lstm{i}")) for i in (0, 1)
    ]
    assert (lstm["embedding"], *totals) == (720, 271_360, 525_312)
    assert lstm["output.weight"] + lstm["output.bias"] == 23_130


def test_every_name_is_covered_here() -> None:
    assert set(SHAPES) == set(MODELS)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_first_parameters_depend_on_the_generator_alone(name: str, shape: DataShape) -> None:
    """And a task that has travelled draws the same."""
    task, state = build_task(name, shape), torch.get_rng_state()
    copy = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own bytes
    assert copy == task and copy.layout == task.layout
    first = task.initial(seeded(1))
    assert first.shape == (task.dimension,) and first.dtype == np.float32
    assert np.array_equal(first, copy.initial(seeded(1)))
    assert torch.equal(state, torch.get_rng_state())
    if name not in ("svm", "logistic"):
        assert not np.array_equal(first, task.initial(seeded(2)))


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_both_kernels_have_one_gradient(name: str, shape: DataShape) -> None:
    task, (inputs, labels) = build_task(name, shape), examples(shape, 6)
    vector, weights = nonzero_start(task), torch.tensor([1.0, 2.0, 1.0, 0.5, 1.0, 0.0])
    stacked = vmap(grad(task.loss))(
        vector.repeat(2, 1),
        inputs.repeat(2, *[1] * inputs.dim()).reshape(2, *inputs.shape),
        labels.repeat(2, 1),
        weights.repeat(2, 1),
    )
    leaves = {
        name: value.clone().requires_grad_()
        for name, value in task.layout.unflatten(vector).items()
    }
    loss = task.loss_of(leaves, inputs, labels, weights)
    slopes = torch.autograd.grad(loss, list(leaves.values()))
    alone = task.layout.flatten(dict(zip(leaves, slopes, strict=True)))
    assert np.abs(alone).max() > 0
    for row in stacked:
        np.testing.assert_allclose(row.numpy(), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_padding_has_no_say(name: str, shape: DataShape) -> None:
    task, (inputs, labels) = build_task(name, shape), examples(shape, 5)
    vector, ones = nonzero_start(task), torch.ones(3)
    short = task.loss(vector, inputs[:3], labels[:3], ones)
    padded = task.loss(vector, inputs, labels, torch.cat([ones, torch.zeros(2)]))
    torch.testing.assert_close(padded, short)
    nothing = grad(task.loss)(vector, inputs, labels, torch.zeros(5))
    assert torch.equal(nothing, torch.zeros_like(vector))


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_descent_lowers_the_loss(name: str, shape: DataShape) -> None:
    task, (inputs, labels) = build_task(name, shape), examples(shape, 24)
    vector, weights = torch.tensor(task.initial(seeded())), torch.ones(24)
    rate = {"lstm": 1.0, "lstm_classifier": 1.0, "lenet5": 0.2}.get(name, 0.05)
    first = task.loss(vector, inputs, labels, weights)
    for _ in range(30):
        vector = vector - rate * grad(task.loss)(vector, inputs, labels, weights)
    assert task.loss(vector, inputs, labels, weights) < 0.95 * first


@pytest.mark.parametrize(
    ("name", "shape"), [("mlp", PICTURE), ("svm", PICTURE), ("svm", TABLE), ("lstm", TEXT)]
)
def test_evaluation_does_not_depend_on_the_batch(name: str, shape: DataShape) -> None:
    """Whichever way losses are averaged and labels predicted."""
    task, (inputs, labels) = build_task(name, shape), examples(shape, 23)
    vector, split = nonzero_start(task).numpy(), Split(inputs.numpy(), labels.numpy())
    whole = task.evaluate(vector, split)
    for batch in (1, 5, 23):
        parts = task.evaluate(vector, split, batch)
        assert parts.accuracy == whole.accuracy
        assert parts.loss == pytest.approx(whole.loss, rel=1e-5)
    with pytest.raises(ValueError, match="batch"):
        task.evaluate(vector, split, 0)


def test_binary_gradients_have_closed_forms() -> None:
    inputs, labels = examples(TABLE, 9)
    vector, l2 = torch.randn(6, generator=seeded(3)), 0.3
    features = torch.cat([torch.ones(9, 1), inputs], dim=1).double()
    signs = 2.0 * labels.double() - 1.0
    margins = signs * (features @ vector.double())
    penalty = l2 * torch.cat([torch.zeros(1), vector[1:]]).double()
    slopes = {
        LogisticTask(features=5, l2=l2): -torch.sigmoid(-margins),
        SvmTask(features=5, l2=l2): -(margins < 1).double(),
        SvmTask(features=5, l2=l2, squared=True): -2 * (1 - margins).clamp(min=0),
    }
    for task, slope in slopes.items():
        # The layout puts the bias before the weights.
        assert task.layout.names == ("output.bias", "output.weight")
        expected = (slope * signs) @ features / 9 + penalty
        found = grad(task.loss)(vector, inputs, labels, torch.ones(9))
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_many_class_gradients_have_closed_forms() -> None:
    shape = replace(TABLE, classes=4)
    inputs, labels = examples(shape, 9)
    weight, bias = torch.randn(4, 5, generator=seeded(4)), torch.randn(4, generator=seeded(5))
    scores, chosen = inputs @ weight.T + bias, nn.functional.one_hot(labels, 4).float()
    rivals = scores.masked_fill(chosen.bool(), -torch.inf)
    short = 1 - (scores * chosen).sum(1) + rivals.amax(1) > 0
    rival = nn.functional.one_hot(rivals.argmax(1), 4).float()
    expected = {
        LogisticTask(features=5, classes=4, l2=0.0): scores.softmax(1) - chosen,
        SvmTask(features=5, classes=4, l2=0.0): short[:, None] * (rival - chosen),
    }
    for task, errors in expected.items():
        vector = torch.tensor(task.layout.flatten({"output.weight": weight, "output.bias": bias}))
        found = task.layout.unflatten(grad(task.loss)(vector, inputs, labels, torch.ones(9)))
        torch.testing.assert_close(found["output.weight"], errors.T @ inputs / 9)
        torch.testing.assert_close(found["output.bias"], errors.mean(0))


PIXELS = torch.rand(3, 28, 28, generator=torch.Generator().manual_seed(6))
TOKENS = torch.randint(0, 7, (9, 3), generator=torch.Generator().manual_seed(8))
CNN_LAYERS = (nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2))
CNN_LAYERS += (nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(7744, 128), nn.ReLU())


@pytest.mark.parametrize(
    ("task", "plain", "layers", "inputs"),
    [
        (
            CnnTask(),
            nn.Sequential(*CNN_LAYERS, nn.Linear(128, 62)),
            {1: "conv1", 4: "conv2", 7: "dense", 9: "output"},
            PIXELS,
        ),
        (
            MlpTask(features=784, hidden=5),
            nn.Sequential(nn.Linear(784, 5), nn.Tanh(), nn.Linear(5, 10)),
            {0: "hidden", 2: "output"},
            PIXELS,
        ),
        (
            NgramTask(vocabulary=7, length=3, embedded=2, hidden=5, classes=4),
            nn.Sequential(
                nn.Embedding(7, 2), nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)
            ),
            {2: "hidden", 4: "output"},
            TOKENS,
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_scores_are_those_of_plain_modules(
    task: Task, plain: nn.Sequential, layers: dict[int, str], inputs: Tensor
) -> None:
    parameters = task.layout.unflatten(nonzero_start(task))
    for index, layer in layers.items():
        plain[index].load_state_dict(
            {part: parameters[f"{layer}.{part}"] for part in ("weight", "bias")}
        )
    if inputs is TOKENS:
        plain[0].load_state_dict({"weight": parameters["embedding"]})
    with torch.no_grad():
        expected = plain(inputs if inputs is TOKENS else 2 * inputs.flatten(1) - 1)
        torch.testing.assert_close(task.scores(parameters, inputs), expected)
        torch.testing.assert_close(task.scores(parameters, inputs.flatten(1)), expected)


def test_lstm_equals_the_plain_module() -> None:
    task = LstmTask(vocabulary=7, embedded=3, hidden=5)
    parameters = task.layout.unflatten(nonzero_start(task))
    plain = nn.LSTM(3, 5, num_layers=2, batch_first=True)
    zero = torch.zeros(20)
    plain.load_state_dict(
        {
            f"{kind}_l{layer}": parameters[f"lstm{layer}.{name}"] if name else zero
            for layer in (0, 1)
            for kind, name in (
                ("weight_ih", "input"), ("weight_hh", "recurrent"), ("bias_ih", "bias"),
                ("bias_hh", ""),
            )
        }
    )  # fmt: skip
    tokens = torch.randint(0, 7, (4, 6), generator=seeded(7))
    with torch.no_grad():
        outputs, _ = plain(parameters["embedding"][tokens])
        expected = outputs @ parameters["output.weight"].T + parameters["output.bias"]
        torch.testing.assert_close(task.scores(parameters, tokens), expected)
        torch.testing.assert_close(task.stackable_scores(parameters, tokens), expected)


def test_lstm_predicts_every_character_but_padding() -> None:
    task = LstmTask(vocabulary=7, embedded=3, hidden=5)
    tokens = torch.tensor([[0, 0, 3, 4], [1, 2, 3, 4]])
    targets = task.targets(tokens, torch.tensor([5, 6]))
    assert targets.tolist() == [[-100, 3, 4, 5], [2, 3, 4, 6]]
    always_three = np.zeros(task.dimension, dtype=np.float32)
    task.layout.unflatten(torch.from_numpy(always_three))["output.bias"][3] = 1.0
    evaluation = task.evaluate(always_three, Split(tokens.numpy(), np.array([5, 6])))
    assert evaluation.accuracy == pytest.approx(2 / 7)
    every = math.log(6 + math.e)
    assert evaluation.loss == pytest.approx((2 * (every - 1) + 5 * every) / 7, rel=1e-6)


def test_nothing_to_predict_is_refused() -> None:
    task = LstmTask(vocabulary=7, embedded=3, hidden=5)
    split = Split(np.zeros((2, 3), dtype=np.int64), np.zeros(2, dtype=np.int64))
    with pytest.raises(ValueError, match="nothing to predict"):
        task.evaluate(task.initial(seeded()), split)


def test_registry_reads_a_data_set() -> None:
    data = load_digits_dataset()
    shape = DataShape.of(data)
    task = build_task("mlp", shape, ModelOptions(hidden=64))
    assert task == MlpTask(features=64, hidden=64, classes=10)
    assert build_task("tiny", shape).dimension == 810


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("resnet", PICTURE, "one of mlp"),
        ("cnn", TABLE, "cnn for tabular data"),
        ("mlp", TEXT, "mlp for text data"),
        ("lstm", PICTURE, "lstm for image data"),
        ("ngram", PICTURE, "ngram for image data"),
        ("ngram", replace(TEXT, vocabulary=None), "text without a vocabulary"),
        ("lstm", NAME, "lstm_classifier"),
        ("lenet5", PICTURE, "too small"),
        ("cnn", replace(PICTURE, shape=(63,)), "not the shape"),
    ],
)
def test_models_that_do_not_fit_are_refused(name: str, shape: DataShape, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_task(name, shape)


@pytest.mark.parametrize(
    ("shape", "sides"), [((64,), (1, 8, 8)), ((28, 20), (1, 28, 20)), ((3, 32, 16), (3, 32, 16))]
)
def test_image_sides(shape: tuple[int, ...], sides: tuple[int, int, int]) -> None:
    assert image_sides(shape) == sides


def test_bad_numbers_are_refused() -> None:
    for build in (
        *(lambda width=width: MlpTask(**{width: 0}) for width in ("features", "hidden")),
        lambda: MlpTask(classes=1),
        lambda: ReluMlpTask(layers=0),
        lambda: ReluMlpTask(layers=10),
        lambda: LstmTask(layers=0),
        lambda: LstmTask(vocabulary=1),
        lambda: LogisticTask(features=3, l2=-1.0),
        lambda: SvmTask(features=3, l2=math.nan),
        lambda: SvmTask(features=0),
        lambda: CnnTask(height=7),
        lambda: LstmClassifierTask(classes=1),
        lambda: NgramTask(vocabulary=1),
        lambda: NgramTask(length=0),
        lambda: NgramTask(hidden=0),
    ):
        with pytest.raises(ValueError):
            build()
