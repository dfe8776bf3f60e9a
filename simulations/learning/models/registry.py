"""Models by name, fitted to a data set.

May use torch; must not know clients or the protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocol.errors import ConfigurationError
from simulations.learning.data import DataKind, Dataset
from simulations.learning.models.convolutional import (
    BlockCnnTask,
    CnnTask,
    ImageTask,
    Lenet5Task,
    TinyCnnTask,
    image_sides,
)
from simulations.learning.models.dense import MlpTask, NgramTask, ReluMlpTask
from simulations.learning.models.linear import L2, LogisticTask, SvmTask
from simulations.learning.models.recurrent import LstmClassifierTask, LstmTask
from simulations.learning.models.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class DataShape:
    """What a model has to know of a data set; all of it is public."""

    kind: DataKind  # what the inputs are
    shape: tuple[int, ...]  # of one input
    classes: int  # number of labels
    vocabulary: int | None = None  # number of token values; of text only

    @classmethod
    def of(cls, data: Dataset) -> DataShape:
        """Read the shape of a data set."""
        return cls(
            kind=data.kind, shape=data.shape, classes=data.classes, vocabulary=data.vocabulary
        )

    @property
    def features(self) -> int:
        """Return the number of values of one input."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What may be chosen beside the name."""

    # tanh units of `mlp` and `ngram`; other models have the sizes of their sources
    hidden: int = 32
    l2: float = L2  # penalty of `logistic` and `svm`
    squared: bool = False  # square the hinge of `svm`


DEFAULT_OPTIONS = ModelOptions()

Builder = Callable[[DataShape, ModelOptions], Task]


def build_task(name: str, data: DataShape, options: ModelOptions = DEFAULT_OPTIONS) -> Task:
    """Build a model for a data set.

    Args:
        name: one of `MODELS`.
        data: what the data set looks like.
        options: the model's own settings; those of other models are ignored.

    Raises:
        ConfigurationError: no model has this name, or it does not fit the data.
        ValueError: an option is out of range.
    """
    if name not in _BUILDERS:
        raise ConfigurationError("task.model", f"value {name!r}", f"one of {', '.join(MODELS)}")
    kinds, build = _BUILDERS[name]
    if data.kind not in kinds:
        valid = " or ".join(kind.value for kind in kinds)
        raise ConfigurationError("task.model", f"{name} for {data.kind.value} data", valid)
    return build(data, options)


def _of_numbers(model: Callable[..., Task], *names: str) -> Builder:
    """Return the builder of a model of numbers that takes these options."""

    def build(data: DataShape, options: ModelOptions) -> Task:
        chosen = {name: getattr(options, name) for name in names}
        return model(features=data.features, classes=data.classes, kind=data.kind, **chosen)

    return build


def _image(model: type[ImageTask]) -> Builder:
    """Return the builder of an image model."""

    def build(data: DataShape, options: ModelOptions) -> Task:
        del options
        try:
            channels, height, width = image_sides(data.shape)
            return model(channels=channels, height=height, width=width, classes=data.classes)
        except ValueError as error:
            raise ConfigurationError("task.model", str(error), "a model that fits") from None

    return build


def _vocabulary(data: DataShape) -> int:
    if data.vocabulary is None:
        raise ConfigurationError("task.model", "text without a vocabulary", "its size")
    return data.vocabulary


def _ngram(data: DataShape, options: ModelOptions) -> Task:
    return NgramTask(
        vocabulary=_vocabulary(data),
        length=data.features,
        hidden=options.hidden,
        classes=data.classes,
    )


def _lstm(data: DataShape, options: ModelOptions) -> Task:
    del options
    if data.vocabulary is None or data.classes != data.vocabulary:
        raise ConfigurationError(
            "task.model", "lstm for labels that are not tokens", "lstm_classifier"
        )
    return LstmTask(vocabulary=data.vocabulary)


def _lstm_classifier(data: DataShape, options: ModelOptions) -> Task:
    del options
    return LstmClassifierTask(vocabulary=_vocabulary(data), classes=data.classes)


_NUMBERS = (DataKind.IMAGE, DataKind.TABULAR)
_IMAGES = (DataKind.IMAGE,)
_TEXTS = (DataKind.TEXT,)

_BUILDERS: Mapping[str, tuple[tuple[DataKind, ...], Builder]] = {
    "mlp": (_NUMBERS, _of_numbers(MlpTask, "hidden")),
    "mlp60": (_NUMBERS, _of_numbers(ReluMlpTask)),
    "logistic": (_NUMBERS, _of_numbers(LogisticTask, "l2")),
    "svm": (_NUMBERS, _of_numbers(SvmTask, "l2", "squared")),
    "cnn": (_IMAGES, _image(CnnTask)),
    "cnn3": (_IMAGES, _image(BlockCnnTask)),
    "lenet5": (_IMAGES, _image(Lenet5Task)),
    "tiny": (_IMAGES, _image(TinyCnnTask)),
    "ngram": (_TEXTS, _ngram),
    "lstm": (_TEXTS, _lstm),
    "lstm_classifier": (_TEXTS, _lstm_classifier),
}

MODELS = tuple(_BUILDERS)
"""Names of all models."""
