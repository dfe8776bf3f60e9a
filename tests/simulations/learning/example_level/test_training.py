"""DP-SGD with channels: plain SGD where nothing is added, and noise of its law."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from simulations.learning.data import Dataset, load_dataset
from simulations.learning.example_level.accounting import Sampling, batches
from simulations.learning.example_level.channel import Compressed, Denoised
from simulations.learning.example_level.clipped import gradients_of
from simulations.learning.example_level.training import (
    Examples,
    Noising,
    Setting,
    Training,
    noised_mean,
    released_mean,
    train,
)
from simulations.learning.models import MlpTask
from sketch import LayerShapes
from sketch.compressors import Denoise, ErrorFeedback, NoCompression, TopK

pytestmark = pytest.mark.usefixtures("one_thread")

ALPHA = 1e-6
TASK = MlpTask(hidden=8)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """The embedded digits."""
    return load_dataset("digits")


def setting(**changes: object) -> Setting:
    """A short run, changed."""
    usual: dict[str, object] = {
        "learning_rate": 0.5,
        "batch": 100,
        "clip": 1.0,
        "noise_multiplier": 0.0,
        "epochs": 1,
    }
    return Setting(**(usual | changes))  # type: ignore[arg-type]


def exact() -> Compressed:
    """A channel that loses nothing."""
    return Compressed(NoCompression(TASK.dimension, 64))


class Recording:
    """A channel that keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[NDArray[np.float32]] = []

    def send(self, released: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """Lose nothing; see `Channel`."""
        self.seen.append(released)
        return released.astype(np.float64), 1


@pytest.mark.parametrize("sampling", Sampling)
def test_without_clip_and_noise_it_is_plain_sgd(digits: Dataset, sampling: Sampling) -> None:
    how = setting(clip=1e9, sampling=sampling)
    training = Training(TASK, digits, how, exact, 3)
    model = training.model.clone()
    drawn = batches(how.account(len(digits.train), 0.5), np.random.default_rng([3, 2]))
    for _ in range(4):
        training.step()
        places = next(drawn)
        vector = model.clone().requires_grad_()
        inputs = torch.tensor(digits.train.inputs[places])
        labels = torch.tensor(digits.train.labels[places])
        loss = TASK.loss(vector, inputs, labels, torch.ones(len(places)))
        # A mean over the expected size, not over the size that came out.
        (slope,) = torch.autograd.grad(loss * len(places) / how.batch, vector)
        model -= how.learning_rate * slope
    torch.testing.assert_close(training.model, model, rtol=1e-4, atol=1e-5)


def test_workers_share_a_batch(digits: Dataset) -> None:
    models = []
    for workers in (1, 3):
        training = Training(TASK, digits, setting(workers=workers), exact, 3)
        training.step()
        training.step()
        models.append(training.model)
    torch.testing.assert_close(models[0], models[1])


def noise_is_right(mean: NDArray[np.float32], deviation: float) -> bool:
    """Whether a vector is independent noise of this standard deviation, by its sum of squares."""
    statistic = float(np.sum((mean.astype(np.float64) / deviation) ** 2))
    low, high = stats.chi2.ppf([ALPHA / 2.0, 1.0 - ALPHA / 2.0], mean.size)
    return bool(low < statistic < high)


@pytest.mark.statistical
def test_noise_has_the_stated_size() -> None:
    generator, total = torch.Generator().manual_seed(1), torch.zeros(20_000)
    mean = noised_mean(total, 3.0, 0.4, 32, generator)
    assert noise_is_right(mean, 0.4 * 3.0 / 32)
    assert not total.any()


def test_noise_on_each_gradient_adds_up(digits: Dataset) -> None:
    inputs, labels = Examples(digits).part(np.arange(25))
    gradients, model = gradients_of(TASK), torch.tensor(TASK.initial(torch.Generator()))
    total = gradients.clipped_sum(model, inputs, labels, 1.0).total
    for noising, multiplier in ((Noising.SUM, 0.4), (Noising.EACH, 0.4 * 5.0)):
        how = setting(noising=noising, batch=32, noise_multiplier=0.4)
        generators = [torch.Generator().manual_seed(3) for _ in range(2)]
        found, _ = released_mean(gradients, model, inputs, labels, how, generators[0])
        expected = noised_mean(total, 1.0, multiplier, 32, generators[1])
        np.testing.assert_array_equal(found, expected)
    # Shared out, it is the noise of the sum before each gradient is clipped again.
    for noising, multiplier in ((Noising.CLIPPED, 0.4), (Noising.SHARED, 0.4 / 32**0.5)):
        how = setting(noising=noising, batch=32, noise_multiplier=0.4)
        generators = [torch.Generator().manual_seed(3) for _ in range(2)]
        found, _ = released_mean(gradients, model, inputs, labels, how, generators[0])
        again = gradients.noised_sum(model, inputs, labels, 1.0, multiplier, generators[1])
        np.testing.assert_array_equal(found, (again.total / 32).numpy())


def test_all_channels_meet_the_same_batches_and_noise(digits: Dataset) -> None:
    def first(channel: Recording) -> NDArray[np.float32]:
        Training(TASK, digits, setting(noise_multiplier=1.0), lambda: channel, 7).step()
        return channel.seen[0]

    once, again = first(Recording()), first(Recording())
    np.testing.assert_array_equal(once, again)
    other = Recording()
    Training(TASK, digits, setting(noise_multiplier=1.0), lambda: other, 8).step()
    assert not np.array_equal(once, other.seen[0])


def test_networks_learn_through_every_channel(digits: Dataset) -> None:
    shapes = LayerShapes(TASK.layout.shapes)
    flat = TopK(LayerShapes.flat(TASK.dimension), 4)
    denoise = Denoise(flat, momentum=0.5, residual_decay=0.9, clip_l2=1.0)
    openings = {
        "exact": exact,
        "feedback": lambda: Compressed(ErrorFeedback(TopK(shapes, 16))),
        "denoise": lambda: Denoised(denoise),
        "printed": lambda: Denoised(denoise),
    }
    sent = {}
    for name, opening in openings.items():
        calls: list[None] = []
        how = setting(noise_multiplier=0.5, epochs=4, learning_rate=2.0)
        if name == "printed":
            # Each gradient alone is mostly noise, and its second clip shortens steps.
            how = replace(how, noising=Noising.CLIPPED, noise_multiplier=0.1, learning_rate=5.0)
        records = train(TASK, digits, how, opening, 1, lambda calls=calls: calls.append(None))
        assert len(calls) == len(records) == 4
        # 360 pictures: chance would be a tenth of them.
        assert records[-1].accuracy > 0.6, name
        assert records[0].bytes_per_worker * 4 == records[-1].bytes_per_worker
        assert 0.0 <= records[-1].clipped <= 1.0
        sent[name] = records[-1].bytes_per_worker
    assert sent["feedback"] < sent["denoise"] < sent["exact"]


def test_denoise_uses_what_the_receiver_has() -> None:
    denoise = Denoise(NoCompression(3, 64), momentum=0.5, residual_decay=0.0, clip_l2=1.0)
    channel = Denoised(denoise)
    used, sent = channel.send(np.array([3.0, 0.0, 4.0], np.float32))
    np.testing.assert_allclose(used, [0.3, 0.0, 0.4])
    assert sent == 1 + 2 + 24
    used, _ = channel.send(np.zeros(3, np.float32))
    np.testing.assert_allclose(used, [0.15, 0.0, 0.2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("clip", -1.0),
        ("clip", math.inf),
        ("batch", 0),
        ("epochs", 0),
        ("workers", 0),
        ("noise_multiplier", math.nan),
        ("noise_multiplier", -1.0),
    ],
)
def test_bad_settings_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must .*, got {value}"):
        setting(**{name: value})


def test_a_batch_larger_than_the_data_is_refused(digits: Dataset) -> None:
    with pytest.raises(ValueError, match="batch must lie in"):
        Training(TASK, digits, setting(batch=5000), exact, 1)
