"""The whole protocol: what the project is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocol.checks import of_kind
from protocol.exchange.ranks import ALONE, Ranks
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.pipeline import noise_of_sums
from protocol.statistics.private import PlannedSurvey, RandOf, Surveyed, SurveySum
from protocol.training.private import PrivateTraining, RoundResult, TrainingState
from protocol.training.records import Notes
from secagg import Identity
from simulations.learning.client_evaluation import Judged, said
from simulations.learning.federated import Invitation, model_digest
from simulations.learning.records import ErrorParts, Facts, epsilons_of, with_noise
from simulations.learning.sources.base import (
    NOTHING,
    Arrays,
    Floats,
    PrivateRate,
    lost_clients,
    squared,
)
from simulations.learning.sources.error_budget import ErrorMeter, private_parts


class PrivateMean(PrivateRate):
    """The whole protocol. `last` is the result of the last round.

    Args:
        training: drives the rounds.
        identities: of the whole population.
        before: told the number of attempts before each round, which fixes a run's secrets.
        ranks: which share the cohorts, also in the training's aggregator.
        notes: public remarks that the ledger gets with every round.
        survey: that evaluations ask, if there are any.
        tokens: of a client by its index, secret: draw the predictions that stand for it.
    """

    def __init__(
        self,
        training: PrivateTraining,
        identities: Sequence[Identity],
        before: Callable[[int], None] = lambda _: None,
        ranks: Ranks = ALONE,
        notes: Notes | None = None,
        survey: PlannedSurvey | None = None,
        tokens: RandOf | None = None,
    ) -> None:
        self._survey, self._tokens = survey, tokens
        self._asked: Surveyed | None = None
        self._training = training
        self._ranks = ranks
        self._identities = identities
        self._before = before
        self._notes = notes
        self.last: RoundResult | None = None
        self._error: ErrorParts = {}

    @property
    def arrays(self) -> Arrays:
        """Nothing beside that."""
        return NOTHING

    @property
    def state(self) -> TrainingState:
        """The state of the training."""
        return self._training.state

    def mean(self, invitation: Invitation) -> Floats:
        """The released mean update."""
        self._before(self._training.state.attempts)
        self._asked = None
        meter = ErrorMeter(invitation.updates, self._training.clip_l2, self._ranks)
        self.last = self._training.run_round(
            [self._identities[client].public for client in invitation.clients],
            model_digest(invitation.model),
            meter,
            invitation.dropouts,
            self._notes,
        )
        release, parameters = self.last.release, self.last.setup.parameters
        measured = meter.measure(release.update, release.survivors)
        parts = private_parts(parameters, release, measured, release.update.size)
        self._error = measured.parts(**parts)
        return release.update

    def evaluate(self, invitation: Invitation, judged: Callable[[int], Judged]) -> None:
        """As `EvaluatedSource.evaluate` says."""
        if self._survey is None or self._tokens is None:
            raise RuntimeError("no evaluation was planned")
        self._before(self._training.state.attempts)
        self._asked = SurveySum(self._survey, self._training.sums).ask(
            [self._identities[client].public for client in invitation.clients],
            judged,
            invitation.dropouts,
            self._tokens,
            self._notes,
        )

    def facts(self, invitation: Invitation) -> Facts:
        """Sizes, bytes, noise and epsilons of the last round."""
        result = self.last
        if result is None:
            raise RuntimeError("no round was run")
        parameters, survivors = result.setup.parameters, result.outcome.total.survivors
        lost, lost_later = lost_clients(invitation, survivors)
        facts: Facts = {
            "survivors": len(survivors),
            "sketch_size": parameters.length,
            "dimension": parameters.sketch.dimension,
            "compression": parameters.sketch.rate,
            "bits": result.setup.context.bits,
            "bytes_per_client": result.outcome.bytes_per_survivor(),
            "scale": parameters.scale,
            "clip_l2": parameters.clip_l2,
            "noise_variance": result.release.noise_variance,
            "released_norm_squared": squared(result.release.mean_sketch),
            "epsilons": epsilons_of(result.epsilons),
            "rationale": result.rationale.words,
            "figures": dict(result.rationale.numbers),
            "lost": lost,
            "lost_later": lost_later,
            "refused": len(result.outcome.refused),
            "error": self._error,
        }
        self._tell_of_returns(result, facts)
        if self._asked is not None:
            facts["by_clients"] = said(self._asked.answers)
            facts["epsilons"] = epsilons_of(self._asked.epsilons)
            facts["bytes_per_client"] += self._asked.outcome.bytes_per_survivor()
        return with_noise(facts, parameters.mechanism)

    def _tell_of_returns(self, result: RoundResult, facts: Facts) -> None:
        """Add the noise in the sum of all means so far, where a part of it comes back.

        Beside it, what independent noise would have been by now for the same promise.
        """
        setup, record = result.setup, result.outcome.record
        if record is None:
            return
        setup, parameters = of_kind("setup", setup, OneShotSetup), setup.parameters
        records = (*setup.context.records, record)
        divisor = parameters.returned.divisor if parameters.returned else 1
        sigma = self._training.goal.noise_multiplier * parameters.sketch_clip_l2 / divisor
        facts["sum_noise_variance"] = noise_of_sums(setup, records)
        facts["sum_independent_variance"] = len(records) * sigma**2
        facts["members"] = len(record.entered)
        facts["members_returning"] = len(record.returned)
