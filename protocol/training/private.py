"""Many rounds: the controller sizes the sketch, the accountant counts, the ledger remembers.

Every round is a charged sum (`protocol.training.charged_sums`), decoded and measured. The
controller sees released values only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dp import BinomialMechanism, FourEpsilons, Ledger, NoiseSeed
from protocol.allocation import Allocation, Hiding, most_coins
from protocol.checks import of_kind
from protocol.errors import ConfigurationError
from protocol.exchange.aggregators import Aggregator, UpdateSource, own_updates
from protocol.exchange.stages import RoundOutcome
from protocol.goal import PrivacyGoal
from protocol.planning.training_plan import TrainingPlan
from protocol.round.losses import NOBODY, Dropouts
from protocol.round.pipeline import MeanRelease, Pipeline
from protocol.round.rings import UnixClock
from protocol.round.setup import RoundEncoding
from protocol.schemes import OneShot, Pairwise, Validated
from protocol.schemes.committee import Drawn
from protocol.training.charged_sums import ChargedSums
from protocol.training.records import Notes
from secagg import ParameterError, TooFewSurvivorsError
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.terms import SESSION_ID_BYTES
from sketch.controllers import Controller, Decision, Rationale, ReleasedStats
from sketch.controllers.release import released_stats


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """One finished round.

    Attributes:
        number: of finished rounds before it; rounds that failed are not counted.
        release: the private mean.
        setup: the public parameters.
        outcome: survivors and bytes.
        rationale: why the sketch had its size.
        epsilons: spent so far by the client that spent most, against four adversaries; its
            `guaranteed` is what holds wherever the rounds stop.
    """

    number: int
    release: MeanRelease
    setup: RoundEncoding
    outcome: RoundOutcome
    rationale: Rationale
    epsilons: FourEpsilons


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Where a run stands between two rounds: public, of the size of a model.

    Attributes:
        session_id: of every round.
        number: rounds finished.
        attempts: rounds announced.
        decision: the shape of the next sketch, and what the controller remembers.
        previous: float64[d], the update that was released last; None before the first.
        opened: number of the last announced round whose sum was opened; None for the very last, as
            after every finished round.
    """

    session_id: bytes
    number: int
    attempts: int
    decision: Decision
    previous: NDArray[np.float64] | None = field(default=None, compare=False)
    opened: int | None = None


class PrivateTraining:
    """Runs rounds until the caller stops or the budget is spent.

    Args:
        plan: what stays the same.
        dimension: d, length of an update.
        controller: chooses the sketch from released values.
        aggregator: real, remote or ideal.
        ledger: open; events already in it are counted.
        state: of an interrupted run, to go on from; a new run if left out. A round that the ledger
            shows as charged, and that never came to its end, may be run again at no cost if it
            releases the very same event under the same number: see `Records`.
        rand: source of public seeds; leave it alone except to run an interrupted round again.
        clock: tells unix seconds; needed if the plan's rounds expire, and only then.
        together: sums between two states that are kept: a round, and a survey behind it.
        session_id: of a new run, 16 bytes, where somebody has signed for it; else it is drawn.
        allocation: who comes when, if cohorts are hidden; `hiding_plan` makes the plan for it.
        hiding: source of the secret seed of the coins that hide a round's cohort; leave it alone
            except to run an interrupted round again.

    Raises:
        ParameterError: the ledger belongs to a run with another goal, or a clock is missing; or a
            run that goes on is given another session; or cohorts are hidden in a run whose ledger
            has sums of another, or whose noise cannot be made the same for all of them.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        dimension: int,
        controller: Controller,
        aggregator: Aggregator,
        ledger: Ledger,
        state: TrainingState | None = None,
        rand: Rand = os_random,
        clock: UnixClock | None = None,
        together: int = 1,
        session_id: bytes | None = None,
        allocation: Allocation | None = None,
        hiding: Callable[[], NoiseSeed] = NoiseSeed.fresh,
    ) -> None:
        self._controller = controller
        self._clip_l2 = plan.clip_l2
        self._goal = plan.goal
        if state is None:
            first = controller.initial(dimension, plan.prior)
            state = TrainingState(session_id or rand(SESSION_ID_BYTES), 0, 0, first)
        elif session_id not in (None, state.session_id):
            raise ParameterError("session_id", session_id, "left out, as the state has one")
        self._sums = ChargedSums(
            plan,
            aggregator,
            ledger,
            state.session_id,
            state.attempts,
            rand,
            together,
            clock=clock,
            opened=state.opened,
            varying=allocation is not None,
        )
        self._allocation, self._plan, self._hiding_seed = allocation, plan, hiding
        if allocation is not None:
            require_hidden(plan, allocation, ledger, state.session_id)
        self._decision: Decision = state.decision
        self._previous = state.previous
        self._number = state.number

    @property
    def goal(self) -> PrivacyGoal:
        """What every client is promised."""
        return self._goal

    @property
    def sums(self) -> ChargedSums:
        """Of the session: others, such as surveys, may come between two rounds."""
        return self._sums

    @property
    def clip_l2(self) -> float:
        """The plan's clip: the largest that a round can have."""
        return self._clip_l2

    @property
    def state(self) -> TrainingState:
        """Everything that the next round depends on."""
        return TrainingState(
            self._sums.session_id,
            self._number,
            self._sums.attempts,
            self._decision,
            self._previous,
            self._sums.opened,
        )

    def run_round(
        self,
        cohort: Sequence[bytes],
        model_digest: bytes,
        updates: UpdateSource = own_updates,
        dropouts: Dropouts = NOBODY,
        notes: Notes | None = None,
        clip_l2: float | None = None,
    ) -> RoundResult:
        """One round, from calibration to release.

        Args:
            cohort: the clients' identity keys (`Identity.public`), in the order of their indices.
            model_digest: 32-byte hash of the model that was sent to the cohort.
            updates: gives a party's update when its turn comes; left out for clients elsewhere.
            dropouts: who gets lost, and when; nobody but those who really do if left out.
            notes: public remarks for the ledger.
            clip_l2: of this round, at most the plan's; the plan's if left out. It must follow from
                public or released values.

        Raises:
            BudgetExceededError, ParameterError: before any client is asked; costs nothing.
            TooFewSurvivorsError: nothing is released. It costs nothing if it came before the
                survivors were decided, and the whole round afterwards, when clients may have given
                up what opens the sum.
            LedgerError: the event could not be made durable; the round ended before any client
                gave anything up.
        """
        setup = self.next_setup(cohort, model_digest, clip_l2)
        return self.run_setup(setup, updates, dropouts, notes)

    def run_setup(
        self,
        setup: RoundEncoding,
        updates: UpdateSource = own_updates,
        dropouts: Dropouts = NOBODY,
        notes: Notes | None = None,
    ) -> RoundResult:
        """The round of a setup that `next_setup` made; see `run_round`.

        Raises:
            ParameterError: another round has been announced since, or it is of another run.
            TooFewSurvivorsError: as for `run_round`; of a hidden cohort also with more losses than
                its allocation tolerates, and then the sum is charged and kept back.
        """
        outcome = self._sums.run(setup, self._number, updates, dropouts, notes)
        if self._allocation is not None:
            # With more losses, whether enough are left would follow how many came.
            left = len(outcome.total.survivors)
            needed = setup.context.invited - self._allocation.tolerated
            if left < needed:
                raise TooFewSurvivorsError("release", left, needed)
        return self._release(setup, outcome)

    def next_setup(
        self, cohort: Sequence[bytes], model_digest: bytes, clip_l2: float | None = None
    ) -> RoundEncoding:
        """The next round, with a public seed of its own; nothing is announced or charged yet.

        Args:
            cohort: identity keys, in the order of their indices.
            model_digest: 32-byte hash of the model that is sent to the cohort.
            clip_l2: see `run_round`.

        Raises:
            ParameterError: another number of clients than planned, or a clip beyond the plan's; or
                hidden cohorts had all their rounds, or one that failed or was called off, as this
                one is if too few or too many came.
            TooFewSurvivorsError: too few candidates for a drawn committee, many times in a row.
        """
        done, allocation = self._sums.attempts, self._allocation
        if allocation is not None and not done == self._number < allocation.rounds:
            # Coins follow what was announced, epsilon what was finished: they must be the same.
            valid = f"fewer than {allocation.rounds}, all finished: one out of bounds ends the run"
            raise ParameterError("rounds", f"{done} announced, {self._number} finished", valid)
        if allocation is not None and not allocation.fewest <= len(cohort) <= allocation.most:
            self._sums.call_off()
            valid = f"{allocation.fewest} .. {allocation.most}: it is called off, and the run over"
            raise ParameterError("cohort", f"{len(cohort)} clients", valid)
        return self._sums.setup(self._decision.spec, cohort, model_digest, clip_l2)

    def _release(self, setup: RoundEncoding, outcome: RoundOutcome) -> RoundResult:
        hiding, epsilons = self._hiding(setup), self._sums.epsilons()
        release = Pipeline(setup).decode(outcome.total, outcome.surplus, outcome.record, hiding)
        number, rationale = self._number, self._decision.rationale
        if self._allocation is not None:
            told = self._allocation.epsilon(self._goal, number + 1, integers=True)
            epsilons = replace(epsilons, hidden_cohorts=told)
        stats = measure(setup, release, number, self._previous, hiding)
        self._decision = self._controller.step(self._decision.state, stats)
        self._previous = release.update
        self._number += 1
        return RoundResult(
            number=number,
            release=release,
            setup=setup,
            outcome=outcome,
            rationale=rationale,
            epsilons=epsilons,
        )

    def _hiding(self, setup: RoundEncoding) -> Hiding | None:
        """What hides the cohort of a round; None if it is not hidden."""
        if self._allocation is None:
            return None
        plan, mechanism = self._plan, setup.parameters.mechanism
        each = of_kind("mechanism", mechanism, BinomialMechanism).coins
        colluders = plan.tolerated_colluders
        coins = most_coins(each, plan.minimum_survivors, plan.cohort, colluders)
        # Never of `rand`, whose bytes are announced.
        return Hiding(self._allocation.divisor, coins, self._hiding_seed())


def measure(
    setup: RoundEncoding,
    release: MeanRelease,
    number: int,
    previous: NDArray[np.float64] | None,
    hiding: Hiding | None = None,
) -> ReleasedStats:
    """What a controller may know of a round.

    Args:
        previous: float64[d], the update that was released before; None in the first round.
        hiding: of a round whose cohort is hidden: then not even how many there were.
    """
    return released_stats(
        setup.parameters.sketch,
        setup.parameters.public_seed,
        release.mean_sketch,
        release.update,
        previous=previous,
        round_number=number,
        noise_variance=release.noise_variance,
        survivors=release.survivors if hiding is None else hiding.divisor,
    )


def hiding_plan(plan: TrainingPlan, allocation: Allocation) -> TrainingPlan:
    """The plan of a run whose cohorts are hidden: of its largest cohort, with the fewest survivors.

    Raises:
        ParameterError: the scheme cannot add up cohorts that differ as much, or its graph is
            sparse, or another noise than coins that are taken off.
    """
    fewest = allocation.fewest - allocation.tolerated
    if not isinstance(plan.scheme, Pairwise | OneShot) or isinstance(plan.scheme, Validated):
        raise ParameterError("scheme", plan.scheme.KIND, "pairwise or one-shot, without a bound")
    if isinstance(plan.scheme, OneShot) and isinstance(plan.scheme.committee, Drawn):
        raise ParameterError("committee", "drawn", "named, or everyone: no draw follows a cohort")
    if plan.noise.mechanism != BinomialMechanism.name or plan.noise.exact is False:
        raise ParameterError("mechanism", plan.noise.mechanism, "binomial, and taken off exactly")
    dropouts = max(allocation.most - fewest, 0)
    largest = replace(plan, cohort=allocation.most, tolerated_dropouts=dropouts)
    if isinstance(largest.scheme, Pairwise) and largest.scheme.graph(largest)[0]:
        # Its rounds may fail by who comes, more often than is taken off delta.
        raise ParameterError("degree", largest.scheme.graph(largest)[0], "0, the complete graph")
    return largest


def configured_hiding(plan: TrainingPlan, allocation: Allocation, otherwise: str) -> TrainingPlan:
    """The same for a configuration; pairwise rounds get the complete graph.

    Args:
        otherwise: what else would do, in words.

    Raises:
        ConfigurationError: as `hiding_plan`.
    """
    if isinstance(plan.scheme, Pairwise) and plan.scheme.degree is None:
        plan = replace(plan, scheme=replace(plan.scheme, degree=0))
    try:
        return hiding_plan(plan, allocation)
    except ParameterError as error:
        raise ConfigurationError(
            "cohort.choice",
            f"value 'allocation', with cohorts of {allocation.fewest} to {allocation.most} clients "
            f"and {allocation.tolerated} of them lost: {error.argument} {error.value!r}",
            f"{error.valid}; larger cohorts differ less; or {otherwise}",
        ) from None


def require_hidden(
    plan: TrainingPlan, allocation: Allocation, ledger: Ledger, session_id: bytes
) -> None:
    """See that a plan is one of `hiding_plan`, and that one run alone is counted."""
    if plan != hiding_plan(plan, allocation):
        raise ParameterError("plan", "another than that of the allocation", "what hiding_plan made")
    sessions = {entry.metadata.get("session") for entry in ledger.entries()}
    if sessions - {session_id.hex()}:
        valid = "one of its own: hidden cohorts are counted for one run"
        raise ParameterError("ledger", "with sums of another run", valid)
