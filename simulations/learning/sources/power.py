"""Secure PowerSGD as a source of means: two private sums a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.exchange.ranks import ALONE, Ranks
from protocol.training.power import PowerResult, PowerState, PowerTraining
from protocol.training.records import Notes
from secagg import Identity
from simulations.learning.federated import Invitation, model_digest
from simulations.learning.records import ErrorParts, Facts, epsilons_of, with_noise
from simulations.learning.sources.base import Arrays, Floats, PrivateRate, lost_clients
from simulations.learning.sources.error_budget import ErrorMeter, rounding_variance
from sketch.factors import Factors

_NUMBERS, _SESSION, _BASIS = "numbers", "session", "basis"


class PowerMean(PrivateRate):
    """The mean update as far as its factors tell. `last` is the result of the last round.

    The updates of a cohort are kept for the second sum: memory is clients times dimension, on the
    machine that simulates all of them.
    """

    state: None = None

    def __init__(
        self,
        training: PowerTraining,
        identities: Sequence[Identity],
        clip_l2: float,
        whole: int,
        ranks: Ranks = ALONE,
        notes: Notes | None = None,
    ) -> None:
        self._ranks = ranks
        self._notes = notes
        self._training = training
        self._identities = identities
        self._clip = clip_l2
        self._whole = whole
        self.last: PowerResult | None = None
        self._error: ErrorParts = {}

    @property
    def arrays(self) -> Arrays:
        """Where the training stands."""
        return stored(self._training.state)

    def mean(self, invitation: Invitation) -> Floats:
        """The released mean update."""
        updates = _Kept(invitation.updates)
        self.last = self._training.run_round(
            [self._identities[client].public for client in invitation.clients],
            model_digest(invitation.model),
            updates,
            invitation.dropouts,
            self._notes,
        )
        update, survivors = self.last.update, self.last.second.outcome.total.survivors
        # Of those in both sums; who was lost between them is in the first alone.
        meter = ErrorMeter(updates, self._clip, self._ranks)
        for index in filter(self._ranks.owns, survivors):
            meter(index)
        measured = meter.measure(update, len(survivors))
        self._error = measured.parts(**_parts(self.last, self._whole))
        return update

    def facts(self, invitation: Invitation) -> Facts:
        """Sizes, bytes, noise and epsilons of the last round."""
        result = self.last
        if result is None:
            raise RuntimeError("no round was run")
        parts = (result.first, result.second)
        survivors = parts[1].outcome.total.survivors
        size, dimension = sum(part.setup.parameters.length for part in parts), result.update.size
        lost, lost_later = lost_clients(invitation, survivors)
        facts: Facts = {
            "survivors": len(survivors),
            "sketch_size": size,
            "dimension": dimension,
            "compression": dimension / size,
            "bits": max(part.setup.context.bits for part in parts),
            "bytes_per_client": result.bytes_per_survivor(),
            "scale": [part.setup.parameters.scale for part in parts],
            "noise_variance": [part.release.noise_variance for part in parts],
            "epsilons": epsilons_of(result.epsilons),
            "lost": lost,
            "lost_later": lost_later,
            "refused": len(parts[1].outcome.refused),
            "error": self._error,
        }
        return with_noise(facts, *(part.setup.parameters.mechanism for part in parts))


class _Kept:
    """Updates that may be asked for again."""

    def __init__(self, updates: Callable[[int], NDArray[np.float32]]) -> None:
        self._updates = updates
        self._seen: dict[int, NDArray[np.float32]] = {}

    def __call__(self, index: int) -> NDArray[np.float32]:
        if index not in self._seen:
            self._seen[index] = self._updates(index).copy()
        return self._seen[index]


def _parts(result: PowerResult, whole: int) -> dict[str, float]:
    """Expected error from noise and rounding where it stays as it was added.

    That is in the layers that are sent whole, and in the right factors, as the left ones are
    orthonormal.

    What low rank leaves out, and what noise does to the left factors, has no closed form.
    """
    noise = rounding = 0.0
    for part, size in (
        (result.first, whole),
        (result.second, result.second.setup.parameters.length),
    ):
        variance = part.release.noise_variance
        rounded = rounding_variance(part.setup.parameters.scale, part.release.survivors)
        rounding += size * rounded
        noise += size * (variance - rounded)
    return {"noise": noise, "rounding": rounding}


def stored(state: PowerState) -> Arrays:
    """A state as arrays."""
    bases = {f"{_BASIS}{number}": basis for number, basis in enumerate(state.right.bases)}
    return {
        _NUMBERS: np.array([state.number, state.attempts]),
        _SESSION: np.frombuffer(state.session_id, np.uint8),
        **bases,
    }


def restored(arrays: Mapping[str, NDArray[Any]]) -> PowerState:
    """The state that `stored` wrote."""
    number, attempts = (int(value) for value in arrays[_NUMBERS])
    bases = [arrays[f"{_BASIS}{number}"] for number in range(len(arrays) - 2)]
    return PowerState(arrays[_SESSION].tobytes(), number, attempts, Factors(tuple(bases)))
