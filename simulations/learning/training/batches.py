"""What a client does locally, and on which examples: decided before anything runs.

May use numpy only; must not know torch, models or the protocol.

Source: McMahan et al. 2017 (arXiv 1602.05629), Algorithm 1, for FedSGD and FedAvg.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulations.learning.partition import Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraining:
    """Plain SGD on one client: so many steps, or so many passes over its examples.

    Raises:
        ValueError: a value is out of range, or not exactly one of steps and epochs is given.
    """

    learning_rate: float  # positive and finite
    # how many SGD steps, at least 1, the same for every client; None with `epochs`
    steps: int | None = None
    # how many passes, at least 1, so rich clients make more steps; None with `steps`
    epochs: int | None = None
    # examples per step, at least 1; a client with fewer uses all it has, and None is all examples
    # in every step
    batch_size: int | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0.0):
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(
                f"exactly one of steps and epochs must be given, got {self.steps} and {self.epochs}"
            )
        for name in ("steps", "epochs", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @classmethod
    def fed_sgd(cls, batch_size: int | None = None) -> LocalTraining:
        """One step of length one: the update is minus the gradient, exactly.

        Args:
            batch_size: examples of the gradient; None for all.
        """
        return cls(learning_rate=1.0, steps=1, batch_size=batch_size)

    @classmethod
    def fed_avg(
        cls, learning_rate: float, *, epochs: int = 1, batch_size: int | None = None
    ) -> LocalTraining:
        """Passes over the client's examples."""
        return cls(learning_rate=learning_rate, epochs=epochs, batch_size=batch_size)

    def batch_of(self, examples: int) -> int:
        """Return how many examples a client that has so many uses in a step."""
        return examples if self.batch_size is None else min(self.batch_size, examples)

    def steps_of(self, examples: int) -> int:
        """Return how many steps a client that has so many examples makes."""
        if self.epochs is None:
            return self.steps or 0
        return self.epochs * -(-examples // self.batch_of(examples))


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Which examples every client uses in every step, padded to one width and length."""

    # int64[clients, steps, width], positions in the training split; padding repeats an example of
    # the client's own, so that no client's numbers reach another
    indices: NDArray[np.int64]
    # float32[clients, steps, width], 1 for an example and 0 for padding. A client's examples come
    # first in a step, and its steps come first
    weights: NDArray[np.float32]

    def sizes(self) -> NDArray[np.int64]:
        """Return how many examples every client uses in every step, int64[clients, steps]."""
        sizes: NDArray[np.int64] = (self.weights > 0).sum(axis=2)
        return sizes


class ClientStreams:
    """A stream of random numbers for every client of a cohort, whoever asks for it, and when.

    So a process that trains some of the clients draws for these alone.

    Args:
        rng: fixes all of them by one key that is taken from it.

    Source: counter-based generators, Salmon et al. 2011 (Philox).
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._bits = np.random.Philox(key=rng.integers(0, 1 << 64, 2, dtype=np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._start = self._bits.state

    def __call__(self, index: int) -> np.random.Generator:
        """The stream of client `index`, from its beginning; valid until another is asked for."""
        # Counters of different clients never meet: each has 2^192 blocks of its own.
        self._start["state"]["counter"][3] = index
        self._bits.state = self._start
        return self._generator


def draw_batches(
    members: Sequence[Indices], training: LocalTraining, streams: ClientStreams, first: int = 0
) -> Batches:
    """Draw the batches of some clients, each from a stream of its own.

    With steps, each client walks through fresh permutations of its examples, ``batch_size`` at a
    time; a batch may cross from one permutation into the next. With epochs it never does, and the
    last batch of a pass may be smaller.

    Args:
        members: one index array for each of them.
        training: how they train.
        streams: of the cohort.
        first: index in the cohort of the first of them; the others follow.

    Raises:
        ValueError: no client, or a client without examples.
    """
    require_examples(members)
    width = max(training.batch_of(len(part)) for part in members)
    length = max(training.steps_of(len(part)) for part in members)
    shape = (len(members), length, width)
    if length == 1 and all(len(part) == 1 for part in members):
        # One example each leaves nothing to draw.
        return Batches(np.concatenate(members).reshape(shape), np.ones(shape, dtype=np.float32))
    batches = Batches(np.empty(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32))
    for client, part in enumerate(members):
        batches.indices[client] = part[0]
        for step, chosen in enumerate(_draw(part, training, streams(first + client))):
            batches.indices[client, step, : len(chosen)] = chosen
            batches.weights[client, step, : len(chosen)] = 1.0
    return batches


def require_examples(members: Sequence[Indices]) -> None:
    """Raise `ValueError` unless there is a client, and each has an example."""
    if not members or any(len(part) == 0 for part in members):
        raise ValueError("there must be at least one client, and each needs an example to train on")


def _draw(part: Indices, training: LocalTraining, rng: np.random.Generator) -> Iterator[Indices]:
    """Yield one client's batches."""
    size = training.batch_of(len(part))
    if training.epochs is not None:
        for _ in range(training.epochs):
            order = rng.permutation(part)
            for first in range(0, len(part), size):
                yield order[first : first + size]
        return
    needed = training.steps_of(len(part)) * size
    passes = [rng.permutation(part) for _ in range(-(-needed // len(part)))]
    yield from np.concatenate(passes)[:needed].reshape(-1, size)
