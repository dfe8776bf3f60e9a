"""Training whose clip follows released norms, so that noise and clipping together cost least.

Each client's vector has one more coordinate: a vote on whether its update was no longer than a
public threshold T. Update and vote share the clip of the round, so their sensitivity is joint and
one sum pays for both: with a share r of the square, an update is clipped to C, a vote is
+-C sqrt(r / (1 - r)), and the whole is no longer than C / sqrt(1 - r). The mean vote is released
with the noise of any coordinate. It moves T towards a quantile of the norms, and T with the norm of
the released mean gives the next clip (`dp.minimal_clip`). Clip and threshold of a round are
functions of earlier releases, so they spend nothing.

Clients bind clip and threshold into the round: they have to be told both.

Source: Andrew, Thakkar, McMahan and Ramaswamy 2021 (arXiv 1905.03871), for the vote;
docs/clipping.md.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp import clip_l2
from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND
from dp.minimal_clip import (
    LARGEST_RATE,
    ClipController,
    ClipDecision,
    ClipState,
    ReleasedMean,
    next_threshold,
)
from protocol.checks import FRACTION, RANGES
from protocol.exchange.aggregators import UpdateSource
from protocol.round.losses import NOBODY, Dropouts
from protocol.training.private import PrivateTraining, RoundResult
from protocol.training.records import Notes
from secagg import ParameterError
from secagg.checks import Range

VOTE_SHARE: Final = 0.01
"""Of the squared clip: an update has half a percent more noise, and a vote is heard among some
dozens of clients."""

RATE: Final = Range(0, LARGEST_RATE, "(]")

_LABEL: Final = b"veilsum/clip/1"
_FIGURES: Final = struct.Struct("<ddd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """How votes are cast and counted.

    Args:
        share: r, of the squared clip, in (0, 1).
        quantile: of the norms, that the threshold follows, in (0, 1).
    """

    share: float = VOTE_SHARE
    quantile: float = 0.5
    rate: float = 0.2

    def __post_init__(self) -> None:
        for name in ("share", "quantile"):
            FRACTION.require(name, getattr(self, name))
        RATE.require("rate", self.rate)

    @property
    def whole(self) -> float:
        """Clip of update and vote together, over the clip of an update."""
        return 1.0 / math.sqrt(1.0 - self.share)

    @property
    def weight(self) -> float:
        """Of a vote, over the clip of an update."""
        return math.sqrt(self.share / (1.0 - self.share))

    def cast(self, update: NDArray[Any], clip: float, threshold: float) -> NDArray[np.float64]:
        """What a client contributes: float64[d + 1], no longer than `whole` times the clip.

        Args:
            update: float32|float64[d].
        """
        clipped = clip_l2(update, clip).values
        with np.errstate(over="ignore"):
            agrees = bool(np.linalg.norm(np.asarray(update, np.float64)) <= threshold)
        return np.append(clipped, self.weight * clip * (1.0 if agrees else -1.0))

    def counted(self, mean: float, clip: float) -> float:
        """The share of clients at or below the threshold that a released mean of votes says."""
        return 0.5 * (1.0 + mean / (self.weight * clip))


@dataclass(frozen=True, slots=True)
class ClippingState:
    """Where the clip stands between two rounds: public.

    Attributes:
        clip: of an update, with what its controller remembers.
        threshold: T of the next vote.
    """

    clip: ClipState
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClippedResult:
    """One finished round.

    Attributes:
        update: float64[d], the released mean.
        inner: the round, of d + 1 coordinates.
        before: clip and threshold of this round.
        below: released share of updates no longer than the threshold; noise included.
        decision: on the next clip.
    """

    update: NDArray[np.float64]
    inner: RoundResult
    before: ClippingState
    below: float
    decision: ClipDecision


class AdaptiveClipTraining:
    """Rounds of a `PrivateTraining` of d + 1 coordinates, each with a clip of its own."""

    def __init__(
        self,
        training: PrivateTraining,
        controller: ClipController,
        state: ClippingState,
        vote: Vote | None = None,
    ) -> None:
        self._training = training
        self._controller = controller
        self._vote = vote or Vote()
        self._state = state
        most = training.clip_l2 / self._vote.whole
        if controller.largest > most:
            raise ParameterError(
                "controller.largest",
                controller.largest,
                f"at most {most:.6g}: the plan's clip also covers the vote",
            )
        RANGES["clip_l2"].require("state.threshold", state.threshold)

    @property
    def training(self) -> PrivateTraining:
        """The training that runs the sums."""
        return self._training

    @property
    def state(self) -> ClippingState:
        """Everything that the next round's clip depends on."""
        return self._state

    def run_round(
        self,
        cohort: Sequence[bytes],
        model_digest: bytes,
        updates: UpdateSource,
        dropouts: Dropouts = NOBODY,
        notes: Notes | None = None,
    ) -> ClippedResult:
        """One round; see `PrivateTraining.run_round`.

        Args:
            updates: gives a party's update, float32|float64[d].
        """
        before, vote = self._state, self._vote
        clip = before.clip.clip
        result = self._training.run_round(
            cohort,
            clip_digest(model_digest, clip, before.threshold, vote.share),
            lambda index: vote.cast(updates(index), clip, before.threshold),
            dropouts,
            notes,
            # The largest clip times the whole may be the plan's clip, and a rounding more.
            clip_l2=min(clip * vote.whole, self._training.clip_l2),
        )
        below = vote.counted(float(result.release.update[-1]), clip)
        threshold = next_threshold(before.threshold, below, quantile=vote.quantile, rate=vote.rate)
        threshold = min(max(threshold, MIN_L2_BOUND), MAX_L2_BOUND)
        update = result.release.update[:-1]
        decision = self._controller.step(
            before.clip, _released(result, clip), threshold, update.size
        )
        self._state = ClippingState(decision.state, threshold)
        return ClippedResult(
            update=update, inner=result, before=before, below=below, decision=decision
        )


def _released(result: RoundResult, clip: float) -> ReleasedMean:
    """What a round tells of the length of its mean update, without the vote."""
    release = result.release
    main, _ = result.setup.parameters.sketch.split(release.mean_sketch)
    variance = release.noise_variance / result.setup.parameters.sketch.main_weight**2
    # The vote is in the norm as well; its square has the noise of one coordinate too much.
    voted = max(0.0, float(release.update[-1]) ** 2 - variance)
    return ReleasedMean(
        clip=clip,
        norm_squared=max(0.0, float(main @ main) - voted),
        noise_ratio=math.sqrt(variance) / clip,
        dimension=main.size,
    )


def clip_digest(model_digest: bytes, clip: float, threshold: float, share: float) -> bytes:
    """SHA-256 of a model's digest and what a vote depends on: what clients bind into a round.

    After a label, the digest; then clip, threshold and share as little-endian doubles.
    """
    figures = _FIGURES.pack(clip, threshold, share)
    return hashlib.sha256(_LABEL + model_digest + figures).digest()


def starting(
    controller: ClipController, clip: float, threshold: float | None = None
) -> ClippingState:
    """The state before the first round."""
    return ClippingState(controller.initial(clip), clip if threshold is None else threshold)
