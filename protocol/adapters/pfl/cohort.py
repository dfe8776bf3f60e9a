"""One simulated cohort: users come one after the other, and who is missing is known at the end.

pfl draws users while it goes along, so a round's public parameters are fixed before its cohort is
known. Users encode with seats as cohort; the records are then written with those who sat there. A
user without an id is taken for the same person in every round that its seat is used, which counts
too much and never too little. An empty seat is nobody that anybody meets again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from dp import NoiseSeed
from protocol.exchange.aggregators import (
    NoiseSource,
    RemovableSource,
    UpdateSource,
    ideal_outcome,
)
from protocol.exchange.stages import PEER_ERRORS, ReleaseHook, RoundOutcome, explained, no_hook
from protocol.round.losses import Dropouts, Stage
from protocol.round.pipeline import Pipeline
from protocol.round.setup import RoundEncoding, RoundSetup
from secagg import FieldVector, LocalProtocolError, ParameterError

_USER = b"veilsum/pfl/user/1"
_SEAT = b"veilsum/pfl/seat/1"
_EMPTY = b"veilsum/pfl/empty/1"


def seats(count: int) -> list[bytes]:
    """Keys of a cohort of which nobody is known yet."""
    return [_key(_SEAT, index) for index in range(count)]


def _key(label: bytes, *parts: object) -> bytes:
    return hashlib.sha256(b"/".join([label, *(str(part).encode() for part in parts)])).digest()


class Cohort:
    """The users of one round."""

    def __init__(self, setup: RoundSetup, noise: NoiseSource, removable: RemovableSource) -> None:
        self._setup = setup
        self._pipeline = Pipeline(setup)
        self._noise, self._removable = noise, removable
        self._keys: list[bytes] = []
        self._seeds: dict[int, tuple[NoiseSeed, ...]] = {}
        self._refused: dict[int, str] = {}

    def __len__(self) -> int:
        """Users so far, refused ones included."""
        return len(self._keys)

    def encode(self, user_id: object, update: NDArray[Any]) -> FieldVector:
        """A user's half of the round; zero if its update is refused, and the user is lost.

        Args:
            user_id: None if users have none.
            update: float32|float64[d].
        """
        index, context = len(self._keys), self._setup.context
        if index == context.size:
            raise ParameterError(
                "cohort",
                f"more than {context.size} users",
                f"at most {context.size}, as planned; plan for max_overshoot_fraction as well",
            )
        key = context.cohort[index] if user_id is None else _key(_USER, user_id)
        repeated = key in self._keys
        # Who was invited pays, whatever becomes of its update.
        self._keys.append(self._empty(index) if repeated else key)
        try:
            if repeated:
                # Twice in one sum, a user could change it by twice the bound.
                raise LocalProtocolError("the cohort was drawn twice for the same round")
            seeds = tuple(self._removable(index, context.seeds))
            vector = self._pipeline.encode(update, self._noise(index), seeds)
        except PEER_ERRORS as error:
            self._refused[index] = str(error)
            return FieldVector(context.field, context.field.zeros(context.length))
        self._seeds[index] = seeds
        return vector

    def named(self) -> RoundSetup:
        """The setup with those in it who came."""
        size = self._setup.context.size
        keys = (*self._keys, *(self._empty(index) for index in range(len(self), size)))
        return RoundSetup(replace(self._setup.context, cohort=keys), self._setup.parameters)

    def _empty(self, index: int) -> bytes:
        return _key(_EMPTY, self._setup.context.hash.hex(), index)

    @property
    def refused(self) -> Mapping[int, str]:
        """Seats whose update was refused, and why."""
        return self._refused

    @property
    def dropouts(self) -> Dropouts:
        """Seats whose update is not in the sum."""
        absent = range(len(self), self._setup.context.size)
        return {
            **dict.fromkeys(self._refused, Stage.INPUT),
            **dict.fromkeys(absent, Stage.ADVERTISE),
        }

    def outcome(self, total: FieldVector) -> RoundOutcome:
        """The sum with what survivors give up to take surplus coins off it."""
        return ideal_outcome(self._setup, total, self._seeds, self._refused)


class CollectedSums:
    """An `Aggregator` that asks nobody: it hands over a sum that pfl has added up already."""

    def __init__(self) -> None:
        self._collected: tuple[Cohort, FieldVector] | None = None

    def collect(self, cohort: Cohort, total: FieldVector) -> None:
        """Keep a sum for the `run` that follows."""
        self._collected = cohort, total

    def run(
        self,
        setup: RoundEncoding,
        updates: UpdateSource,
        dropouts: Dropouts,
        *,
        before_release: ReleaseHook = no_hook,
    ) -> RoundOutcome:
        """See `Aggregator.run`; `updates` were used when users encoded."""
        collected, self._collected = self._collected, None
        if collected is None:
            raise LocalProtocolError("collect a sum first")
        cohort, total = collected
        with explained(cohort.refused):
            setup.require_left(Stage.INPUT, dropouts)
        outcome = cohort.outcome(total)
        before_release(outcome.total.survivors)
        return outcome
