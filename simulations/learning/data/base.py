"""What a data set is to the simulator: labelled examples, some of them with a natural owner.

May use numpy only; must not know files, torch, models or the protocol.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Inputs = NDArray[np.float32] | NDArray[np.int64]
"""float32[m, ...] numbers or int64[m, length] tokens, one row per example."""

Labels = NDArray[np.int64]
"""int64[m]: the right answer of each example; int64[m, n] of 0 and 1 where n of them may apply."""

Owners = NDArray[np.int64]
"""int64[m]: equal numbers mean one natural client, such as a writer or a speaker."""


class DataKind(enum.Enum):
    """What the inputs are, and so which models fit."""

    IMAGE = "image"
    """float32[m, ...], every value in [0, 1]."""

    TEXT = "text"
    """int64[m, length], every token in [0, vocabulary)."""

    TABULAR = "tabular"
    """float32[m, features], standardised numbers and 0/1 indicators."""

    NUMBERS = "numbers"
    """float32[m, ...], whatever a model of one's own takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Labelled examples; all arrays are made read-only.

    Raises:
        TypeError: a dtype is not one of the above.
        ValueError: shapes disagree, there is no example, or a value is not finite.
    """

    inputs: Inputs  # float32[m, ...], finite, or int64[m, length], not negative
    labels: Labels  # int64[m], or int64[m, n] of 0 and 1
    # int64[m], the natural client of each example; None if there are no such clients
    owners: Owners | None = None

    def __post_init__(self) -> None:
        """Check dtypes, shapes and values, then forbid writing."""
        self._check_dtypes()
        self._check_shapes()
        self._check_values()
        for array in (self.inputs, self.labels, self.owners):
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        """Return the number of examples m."""
        return len(self.labels)

    def _check_dtypes(self) -> None:
        """Refuse every other number type, so that models need not convert."""
        if self.inputs.dtype not in (np.float32, np.int64):
            raise TypeError(f"inputs must be float32 or int64, got {self.inputs.dtype}")
        if self.labels.dtype != np.int64:
            raise TypeError(f"labels must be int64, got {self.labels.dtype}")
        if self.owners is not None and self.owners.dtype != np.int64:
            raise TypeError(f"owners must be int64, got {self.owners.dtype}")

    def _check_shapes(self) -> None:
        """See that there is one label, and one owner if any, per example."""
        alike = self.labels.shape[:1] == self.inputs.shape[:1] and self.labels.ndim in (1, 2)
        if self.inputs.ndim < 2 or not alike:
            raise ValueError(
                f"inputs must be [m, ...] with at least two axes and labels [m] or [m, n], "
                f"got {self.inputs.shape} and {self.labels.shape}"
            )
        if self.owners is not None and self.owners.shape != self.labels.shape[:1]:
            raise ValueError(
                f"owners must be [m] like labels, got {self.owners.shape} and {self.labels.shape}"
            )
        if self.inputs.dtype == np.int64 and self.inputs.ndim != 2:
            raise ValueError(f"tokens must be [m, length], got {self.inputs.shape}")
        if self.inputs.size == 0:
            raise ValueError("a split needs at least one example with at least one value")

    def _check_values(self) -> None:
        """Refuse what no reader should ever produce."""
        # Both extremes are NaN if any value is, and neither needs a copy of the array.
        low, high = self.inputs.min(), self.inputs.max()
        if self.inputs.dtype == np.int64 and low < 0:
            raise ValueError(f"tokens must not be negative, got {low}")
        if not (np.isfinite(low) and np.isfinite(high)):
            raise ValueError("inputs must be finite")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Dataset:
    """Training and test examples of one classification problem.

    Raises:
        ValueError: fewer than two classes, a label or an input out of range, or splits of
            different shapes.
    """

    name: str  # what reports call it
    kind: DataKind  # what the inputs are; every split keeps to it
    classes: int  # number of labels
    train: Split  # what clients share out among themselves
    test: Split  # what the server measures accuracy on; no client holds any of it
    vocabulary: int | None = None  # number of token values; of text only

    def __post_init__(self) -> None:
        """Check that the splits describe the same problem."""
        if self.classes < 2:
            raise ValueError(f"classes must be at least 2, got {self.classes}")
        if (self.vocabulary is not None) != (self.kind is DataKind.TEXT):
            raise ValueError("vocabulary must be given for text, and only for text")
        for split in (self.train, self.test):
            if split.labels.min() < 0 or split.labels.max() >= self.classes:
                raise ValueError(f"labels must lie in [0, {self.classes})")
            self._check_inputs(split.inputs)
        if self.train.labels.shape[1:] != self.test.labels.shape[1:]:
            raise ValueError(
                f"train and test examples differ in how many labels they have: "
                f"{self.train.labels.shape[1:]} and {self.test.labels.shape[1:]}"
            )
        if self.train.inputs.shape[1:] != self.test.inputs.shape[1:]:
            raise ValueError(
                f"train and test inputs differ in their features: "
                f"{self.train.inputs.shape[1:]} and {self.test.inputs.shape[1:]}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one example's input."""
        return tuple(self.train.inputs.shape[1:])

    @property
    def features(self) -> int:
        """Return the number of values (or tokens) per example."""
        return math.prod(self.shape)

    def _check_inputs(self, inputs: Inputs) -> None:
        """Make sure that the inputs are what their kind promises."""
        if (inputs.dtype == np.int64) != (self.kind is DataKind.TEXT):
            raise ValueError(f"{self.kind.value} inputs cannot be {inputs.dtype}")
        if self.vocabulary is not None and inputs.max() >= self.vocabulary:
            raise ValueError(f"tokens must lie in [0, {self.vocabulary})")
        if self.kind is DataKind.TABULAR and inputs.ndim != 2:
            raise ValueError(f"tabular inputs must be [m, features], got {inputs.shape}")
        if self.kind is DataKind.IMAGE and not (inputs.min() >= 0.0 and inputs.max() <= 1.0):
            raise ValueError("pixels must lie in [0, 1]")
