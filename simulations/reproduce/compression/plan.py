"""What `veilsum reproduce compression` trains: tasks, ways to send a gradient, what is varied.

Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep Learning",
a thesis, chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dp.minimal_clip import least_error_clip
from simulations.campaigns.study import dataset
from simulations.learning.data import Dataset
from simulations.learning.example_level.channel import Compressed, Denoised, Opening
from simulations.learning.example_level.training import Noising, Setting
from simulations.learning.models import BlockCnnTask, LstmClassifierTask, MlpTask, Task
from simulations.learning.models.convolutional import image_sides
from sketch import LayerShapes
from sketch.compressors import (
    Compressor,
    DeepGradientCompression,
    Denoise,
    ErrorFeedback,
    NoCompression,
    PowerSgd,
    TopK,
)
from sketch.hashing import PublicSeed

# Letters kept of a surname: 0.16 % have more, and every letter costs a step of the network
NAME_LENGTH = 14

MOMENTUM = 0.9  # of Denoise's average; the thesis does not name it
# Of Denoise, which the thesis does not name either. With 1 the change that is told is that from
# what the receiver has. With less, what a change loses is forgotten by the sender and missing at
# the receiver for good: after one epoch of Surnames at noise 0.4 and rate 16, 0.9 gives 14 % and 1
# gives 62 %.
RESIDUAL_DECAY = 1.0

LAST = 10  # epochs at the end whose accuracies are averaged, as in the thesis; at most half of all


@dataclass(frozen=True, slots=True)
class Arm:
    """One way from a noised gradient to what moves the model."""

    # "none", "dgc" (layer-wise top-k), "powersgd", "denoise" (model-wise top-k inside), "slow"
    # (nothing is compressed; see `Plan.setting`); "printed" and "printed_slow" are those two with
    # noise on each gradient, and "printed" has its second clip there; "printed_average" is
    # "printed_slow" with Denoise's average behind it; "shared" is "printed" with the noise of the
    # sum shared out, and "shared_slow" has its short steps alone; "least" has the clip of the
    # least error
    kind: str
    value: int = 1  # rate or rank; 1 means no compression, except for a rank
    feedback: bool = True  # whether what a message loses is added to the next gradient

    @property
    def name(self) -> str:
        """Of its row and of its files."""
        if self.kind in ("none", "least") or self.is_short:
            return self.kind
        return f"{self.kind}-{self.value}" + ("" if self.feedback else "-forgetful")

    @property
    def title(self) -> str:
        """What people call it."""
        titles = {
            "none": "no compression",
            "slow": "no compression, steps as short as Denoise's",
            "dgc": f"DGC, rate {self.value}",
            "powersgd": f"PowerSGD, rank {self.value}",
            "denoise": f"Denoise, noise on the sum, rate {self.value}",
            "printed": f"Denoise as printed, rate {self.value}",
            "printed_slow": "no compression, noise and steps as Denoise's as printed",
            "printed_average": "the same, with Denoise's average",
            "shared": f"Denoise as printed, the sum's noise shared out, rate {self.value}",
            "shared_slow": "no compression, steps as its second clip makes them",
            "least": "no compression, the clip of the least error",
        }
        return titles[self.kind] + ("" if self.feedback else ", losses forgotten")

    @property
    def noising(self) -> Noising:
        """Where its noise goes."""
        own = {"printed": Noising.CLIPPED, "shared": Noising.SHARED}
        own |= dict.fromkeys(("printed_slow", "printed_average"), Noising.EACH)
        return own.get(self.kind, Noising.SUM)

    @property
    def needs_noise(self) -> bool:
        """Whether it is a way of its own only where there is noise."""
        return self.is_short or self.kind in ("printed", "shared", "least")

    @property
    def is_short(self) -> bool:
        """Whether its steps are as short as a second clip makes them."""
        return self.kind.endswith(("slow", "average"))


# DGC at rate 1 is "none"
ARMS = (
    Arm("none"),
    *(
        Arm(kind, value, feedback)
        for feedback in (True, False)
        for kind, value in (("dgc", 16), ("dgc", 256), ("powersgd", 16), ("powersgd", 1))
    ),
    *(Arm("denoise", rate) for rate in (1, 16, 256)),
    Arm("slow"),
    *(Arm("printed", rate) for rate in (1, 16, 256)),
    Arm("printed_slow"),
    Arm("printed_average"),
    Arm("least"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A task, and what is varied."""

    task: str  # "names", "fashion-mnist", "cifar10" or "digits"
    # learning_rate, batch, clip, delta: as in the thesis; "digits" is ours
    learning_rate: float
    batch: int
    clip: float
    delta: float
    epochs: int  # the thesis has 100
    noise: tuple[float, ...] = (0.0, 0.4, 0.8)  # noise multipliers
    arms: tuple[Arm, ...] = ARMS  # ways to send a gradient
    seeds: int = 1  # runs of everything, each with first parameters, batches and noise of its own
    repeats: int = 100  # of each gradient error

    @property
    def averaged(self) -> int:
        """Return the number of epochs whose accuracies are averaged."""
        return min(LAST, max(1, self.epochs // 2))

    def points(self) -> Iterator[tuple[float, Arm]]:
        """Yield noise and arm of all networks of a seed."""
        for noise in self.noise:
            for arm in self.arms:
                # Without noise a second clip shortens nothing, and the best clip is none.
                if noise > 0.0 or not arm.needs_noise:
                    yield noise, arm

    def setting(self, noise: float, arm: Arm, dimension: int) -> Setting:
        """Return how a network of so many parameters is trained.

        Noise makes the mean gradient sqrt(d) z C / B long, or each gradient sqrt(d) z C, which
        Denoise's second clip brings back to C. A short arm steps by as much less. What Denoise
        gains beyond a slow one is due to its average, or to what its clip does beside that.
        """
        clip = self.clip
        if arm.kind == "least":
            # Equation 3.7; the clips of the thesis are the median norms of gradients.
            clip = least_error_clip(clip, dimension, noise / self.batch)
        rate = self.learning_rate
        if arm.is_short:
            averaged = {"slow": self.batch, "shared_slow": math.sqrt(self.batch)}.get(arm.kind, 1)
            rate *= min(1.0, averaged / (noise * math.sqrt(dimension)))
        return Setting(
            learning_rate=rate,
            batch=self.batch,
            clip=clip,
            noise_multiplier=noise,
            epochs=self.epochs,
            noising=arm.noising,
        )


def opening_of(arm: Arm, shapes: LayerShapes, clip: float) -> Opening:
    """Return what makes the channels of an arm."""
    if arm.kind in ("denoise", "printed", "printed_average", "shared"):
        inner: Compressor[Any] = _sparse(LayerShapes.flat(shapes.dimension), arm.value)
        # As printed, what comes here has been clipped a second time already.
        again = clip if arm.kind == "denoise" else None
        denoise = Denoise(inner, momentum=MOMENTUM, residual_decay=RESIDUAL_DECAY, clip_l2=again)
        return lambda: Denoised(denoise)
    compressor = _compressor(arm, shapes)
    return lambda: Compressed(compressor)


def _compressor(arm: Arm, shapes: LayerShapes) -> Compressor[Any]:
    """Return the compressor of an arm without Denoise."""
    if arm.kind == "powersgd":
        factors: Compressor[Any] = PowerSgd(shapes, arm.value, PublicSeed(bytes(32)))
        return ErrorFeedback(factors) if arm.feedback else factors
    if arm.kind == "dgc" and arm.feedback:
        return DeepGradientCompression(shapes, arm.value)
    return _sparse(shapes, arm.value)


def _sparse(shapes: LayerShapes, rate: int) -> Compressor[Any]:
    """Return top-k of a rate; nothing at all at rate 1."""
    return TopK(shapes, rate) if rate > 1 else NoCompression(shapes.dimension)


NAMES = Plan(task="names", learning_rate=2.0, batch=32, clip=3.0, delta=8e-5, epochs=15)

PRESETS = {
    "names": NAMES,
    "names-shared": replace(
        NAMES,
        noise=(0.0, 0.4),
        arms=(Arm("none"), Arm("denoise", 1), Arm("shared"), Arm("shared_slow")),
    ),
    "fashion-mnist": Plan(
        task="fashion-mnist", learning_rate=0.1, batch=128, clip=5.0, delta=1e-5, epochs=4
    ),
    "cifar10": Plan(task="cifar10", learning_rate=0.1, batch=128, clip=5.0, delta=1e-5, epochs=10),
    "quick": Plan(
        task="digits",
        learning_rate=1.0,
        batch=64,
        clip=1.0,
        delta=1e-3,
        epochs=4,
        noise=(0.0, 0.8),
        repeats=10,
    ),
}


def load(task: str) -> tuple[Task, Dataset]:
    """Return the model and the data of a task."""
    if task == "names":
        # With the repetitions of the files, as the thesis's traffic and epsilon tell.
        data = dataset("names", length=NAME_LENGTH, distinct=False)
        return LstmClassifierTask(), data
    data = dataset(task)
    if task == "digits":
        return MlpTask(features=data.features), data
    channels, height, width = image_sides(data.shape)
    return BlockCnnTask(channels=channels, height=height, width=width), data
