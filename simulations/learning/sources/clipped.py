"""The whole protocol with a clip that follows released norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp.minimal_clip import ClipState
from protocol.exchange.ranks import ALONE, Ranks
from protocol.statistics.private import PlannedSurvey, RandOf
from protocol.training.adaptive_clip import AdaptiveClipTraining, ClippedResult, ClippingState
from protocol.training.records import Notes
from secagg import Identity
from simulations.learning.federated import Invitation, model_digest
from simulations.learning.records import Facts
from simulations.learning.sources.base import Arrays, Floats
from simulations.learning.sources.error_budget import ErrorMeter, private_parts
from simulations.learning.sources.private import PrivateMean

_CLIP, _MEMORY = "clip", "clip memory"


class ClippedMean(PrivateMean):
    """The released mean of a round whose clip was chosen from the rounds before.

    Args:
        before: told the number of attempts before each round, which fixes a run's secrets.
    """

    def __init__(
        self,
        training: AdaptiveClipTraining,
        identities: Sequence[Identity],
        before: Callable[[int], None] = lambda _: None,
        ranks: Ranks = ALONE,
        notes: Notes | None = None,
        survey: PlannedSurvey | None = None,
        tokens: RandOf | None = None,
    ) -> None:
        super().__init__(training.training, identities, before, ranks, notes, survey, tokens)
        self._clipping = training
        self._clipped: ClippedResult | None = None

    @property
    def arrays(self) -> Arrays:
        """Where the clip stands."""
        return stored(self._clipping.state)

    def mean(self, invitation: Invitation) -> Floats:
        """The released mean update."""
        self._before(self.state.attempts)
        self._asked = None
        meter = ErrorMeter(invitation.updates, self._clipping.state.clip.clip, self._ranks)
        result = self._clipping.run_round(
            [self._identities[client].public for client in invitation.clients],
            model_digest(invitation.model),
            meter,
            invitation.dropouts,
            self._notes,
        )
        self._clipped, self.last = result, result.inner
        release, update = result.inner.release, result.update
        measured = meter.measure(update, release.survivors)
        # The votes' coordinate is in the sketch too, as it was released.
        voted = float(release.update[-1]) ** 2
        parameters = result.inner.setup.parameters
        parts = private_parts(parameters, release, measured, update.size, voted)
        self._error = measured.parts(**parts)
        return update

    def facts(self, invitation: Invitation) -> Facts:
        """Those of the round, and what moved the clip."""
        result = self._clipped
        if result is None:
            raise RuntimeError("no round was run")
        facts = super().facts(invitation)
        # The votes' coordinate is no part of the update.
        length = facts["released_norm_squared"] - float(result.inner.release.update[-1]) ** 2
        return facts | {
            "released_norm_squared": max(length, 0.0),
            "clip_of_an_update": result.before.clip.clip,
            "threshold": result.before.threshold,
            "share_below": result.below,
            "clipping": dict(result.decision.numbers),
        }


def stored(state: ClippingState) -> Arrays:
    """A state as arrays."""
    return {
        _CLIP: np.array([state.clip.clip, state.threshold]),
        _MEMORY: np.array(state.clip.memory),
    }


def restored(arrays: Mapping[str, NDArray[Any]]) -> ClippingState:
    """The state that `stored` wrote."""
    clip, threshold = arrays[_CLIP].tolist()
    return ClippingState(ClipState(clip, tuple(arrays[_MEMORY].tolist())), threshold)
