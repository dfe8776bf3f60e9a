"""The pfl `Postprocessor`: both halves of a private round around pfl's own aggregation.

Simulation only: quantisation, wrap and coins are real, masks are not. pfl adds the users' encoded
vectors in plain sight, as the ideal functionality of secure aggregation would; whoever runs the
simulation sees every one of them, and every user's training besides.
"""

from __future__ import annotations

from typing import NoReturn

from pfl.context import CentralContext, UserContext
from pfl.metrics import Metrics, StringMetricName
from pfl.postprocessor import Postprocessor
from pfl.stats import MappedVectorStatistics

from dp import Ledger
from protocol.adapters.pfl.cohort import Cohort, CollectedSums, seats
from protocol.adapters.pfl.layout import Layout, flatten, require_uniform
from protocol.adapters.pfl.statistics import FieldStatistics
from protocol.exchange.aggregators import NoiseSource, RemovableSource, fresh_noise, fresh_seeds
from protocol.planning.training_plan import TrainingPlan
from protocol.round.parameters import DIGEST_BYTES
from protocol.round.setup import pairwise
from protocol.training.private import PrivateTraining, RoundResult, TrainingState
from secagg import LocalProtocolError, ParameterError
from secagg.keys import os_random
from secagg.shamir import Rand
from sketch.controllers import Controller

NO_MODEL = bytes(DIGEST_BYTES)
"""pfl shows a postprocessor no model, and no user checks one: the digest stands for none."""


class PrivateMean(Postprocessor):
    """Replaces the sum of a cohort's updates by their private mean, round after round.

    On a user's side it clips, sketches, rotates, quantises and adds coins. On the server's side it
    charges the round, takes surplus coins off, decodes, and lets the controller choose the next
    sketch. Make it the *last* postprocessor: what runs before it on the user's side works on
    floats, and on the server's side on the private mean. In the records a user is its pfl user id.

    Simulation only: masks are the identity. pfl's own metrics (losses, data points) are as they
    were: exact, and not private.

    Args:
        plan: goal, clip and noise of every round. `plan.cohort` is the most users that may come;
            when fewer come, the others count as dropouts.
        dimension: d, parameters of the model.
        controller: chooses the sketch from released values.
        ledger: open; events already in it are counted.
        state: of an interrupted run, to go on from; a new run if left out.
        rand: source of public seeds; leave it alone except to run the same rounds twice.
        noise: likewise, secret seeds of rounding and of the coins that stay.
        removable: likewise, those of the coins that may be taken off.

    Raises:
        ParameterError: the ledger belongs to a run with another goal.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        dimension: int,
        controller: Controller,
        ledger: Ledger,
        *,
        state: TrainingState | None = None,
        rand: Rand = os_random,
        noise: NoiseSource = fresh_noise,
        removable: RemovableSource = fresh_seeds,
    ) -> None:
        self._plan = plan
        self._dimension = dimension
        self._sums = CollectedSums()
        self._training = PrivateTraining(
            plan, dimension, controller, self._sums, ledger, state, rand
        )
        self._noise, self._removable = noise, removable
        self._cohort: Cohort | None = None
        self._layout: Layout | None = None
        self._last: RoundResult | None = None

    @property
    def state(self) -> TrainingState:
        """Where the run stands; pfl's checkpoints do not include it."""
        return self._training.state

    @property
    def last(self) -> RoundResult | None:
        """The round that was released last."""
        return self._last

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> tuple[FieldStatistics, Metrics]:
        """Encode a user's update.

        An update that is not finite, or a user that is drawn twice for one round, is refused: the
        user counts as one that vanished.

        Raises:
            ParameterError: a weight other than 1, an update of another shape, or more users than
                planned. The round is given up.
        """
        # Put back only after success: a round that was cut short must not go on with others.
        cohort, self._cohort = self._cohort, None
        layout = self._check(require_uniform(stats))
        if cohort is None:
            setup = pairwise(self._training.next_setup(seats(self._plan.cohort), NO_MODEL))
            cohort = Cohort(setup, self._noise, self._removable)
        vector = cohort.encode(user_context.user_id, flatten(stats))
        self._cohort, self._layout = cohort, layout
        return FieldStatistics(vector, 1), Metrics()

    def _check(self, stats: MappedVectorStatistics) -> Layout:
        layout = Layout.of(stats)
        if self._layout not in (None, layout):
            raise ParameterError("stats", layout, f"the same as before, {self._layout}")
        if stats.num_parameters != self._dimension:
            valid = f"{self._dimension}, the dimension that PrivateMean was made for"
            raise ParameterError("stats.num_parameters", int(stats.num_parameters), valid)
        return layout

    def postprocess_server(
        self, *, stats: FieldStatistics, central_context: CentralContext, aggregate_metrics: Metrics
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Charge the round, decode the sum, and let the controller see the mean.

        Raises:
            BudgetExceededError: the round would take some user beyond the goal; nothing is
                released or charged, and the run ends.
            TooFewSurvivorsError: fewer updates than the noise was made for; likewise.
            LocalProtocolError: the sum is not over the users that were encoded here.
        """
        cohort, self._cohort = self._cohort, None
        if not isinstance(stats, FieldStatistics):
            valid = "the sum of what PrivateMean returned; make it the last postprocessor"
            raise ParameterError("stats", type(stats).__name__, valid)
        if cohort is None or self._layout is None or stats.users != len(cohort):
            raise LocalProtocolError(
                f"a sum over {stats.users} users, of {len(cohort) if cohort else 0} encoded here: "
                "the round was cut short, the aggregator is of another kind, or there are several "
                "processes"
            )
        self._sums.collect(cohort, stats.vector)
        self._last = self._training.run_setup(cohort.named(), dropouts=cohort.dropouts)
        return self._layout.join(self._last.release.update), round_metrics(self._last)

    def postprocess_server_live(
        self, *, stats: FieldStatistics, central_context: CentralContext, aggregate_metrics: Metrics
    ) -> NoReturn:
        """Refused: without masks there is nothing to deploy.

        Raises:
            LocalProtocolError: always.
        """
        raise LocalProtocolError("PrivateMean is for simulation only: its masks are the identity")


def round_metrics(result: RoundResult) -> Metrics:
    """What a round cost and what it was made of; all of it is public.

    The epsilons are those of the user that has spent most: what it has spent over all rounds so
    far, and what is guaranteed wherever they stop.
    """
    context, parameters = result.setup.context, result.setup.parameters
    dimension, survivors = parameters.sketch.dimension, result.release.survivors
    figures: dict[str, float] = {
        "epsilon guaranteed against the server": result.epsilons.guaranteed,
        "epsilon spent against the server": result.epsilons.server,
        "epsilon spent against an outsider": result.epsilons.outsider,
        "epsilon spent against a server with sybils": result.epsilons.sybil,
        "sketch size": context.length,
        "compression": dimension / context.length,
        "bits per element": context.bits,
        "bits per parameter": context.bits * context.length / dimension,
        "noise standard deviation": result.release.noise_variance**0.5,
        "survivors": survivors,
        "lost users": context.invited - survivors,
        "refused users": len(result.outcome.refused),
    }
    return Metrics([(StringMetricName(f"veilsum | {name}"), v) for name, v in figures.items()])
