"""Many rounds: the controller sizes the sketch, the accountant counts, the ledger remembers.

The order inside a round is the promise: check everything that can be checked before anyone is
asked, aggregate, write the event to the ledger as soon as the survivors are decided and before any
of them hears it, and only then open, decode and release the sum. So a round that fails may be
over-counted, never under-counted. The controller sees released values only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dp import CoinSchedule, FourEpsilons, Ledger, noise_multiplier_for_epsilon
from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND
from protocol.adapters.memory import NOBODY, Dropouts
from protocol.aggregators import Aggregator, UpdateSource
from protocol.calibration import ERROR_SHARE, PrivacyGoal, calibrate
from protocol.capacity import WRAP_PROBABILITY, bits_for
from protocol.client import ClientPolicy
from protocol.conduct import RoundOutcome
from protocol.pipeline import MeanRelease, Pipeline
from protocol.plan import default_graph
from protocol.records import Notes, Records
from protocol.remote import own_updates
from protocol.setup import RoundParameters, RoundSetup, coin_schedule, removal_table
from secagg import (
    Mode,
    ParameterError,
    SessionContext,
    fewest_survivors,
    lowest_threshold,
)
from secagg.context import SESSION_ID_BYTES
from secagg.keys import os_random
from secagg.shamir import Rand
from sketch import PublicSeed
from sketch.controllers import (
    Controller,
    Decision,
    Rationale,
    ReleasedStats,
    released_stats,
)
from sketch.hashing import SEED_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What stays the same over all rounds of a run.

    Args:
        goal: (epsilon, delta) of any one client over all the rounds it takes part in, against the
            server.
        cohort: n, clients invited to each round; fixed, so that noise does not depend on it.
        tolerated_dropouts: clients that may vanish from a round without the noise falling short.
        tolerated_colluders: clients that may work for the server.
        clip_l2: C, in the units of an update.
        mode: what the server is trusted with.
        degree: k of a sparse graph, 0 for the complete one; left out together with the threshold,
            both are chosen for the cohort: the complete graph for up to 200 clients.
        threshold: t; the smallest safe one if left out.
        exact_noise: take surplus noise off when fewer clients vanish than tolerated, at the price
            of a few more shares for each pair of clients; otherwise it stays in the sum.
        error_share: how much more variance the noise may have than that of the Gaussian mechanism
            at the same epsilon; less costs bits.
        wrap_probability: accepted chance that a round's sum does not fit its field and is lost; 0
            costs several bits more.

    Raises:
        ParameterError: the figures leave nobody to hide among.
    """

    goal: PrivacyGoal
    cohort: int
    tolerated_dropouts: int
    tolerated_colluders: int
    clip_l2: float
    mode: Mode = Mode.ACTIVE
    degree: int | None = None
    threshold: int | None = None
    exact_noise: bool = True
    error_share: float = ERROR_SHARE
    wrap_probability: float = WRAP_PROBABILITY

    def __post_init__(self) -> None:
        if self.tolerated_dropouts < 0 or self.tolerated_colluders < 0:
            raise ParameterError(
                "tolerated_dropouts, tolerated_colluders",
                (self.tolerated_dropouts, self.tolerated_colluders),
                "at least 0",
            )
        # Written so that NaN fails the test.
        if not MIN_L2_BOUND <= self.clip_l2 <= MAX_L2_BOUND:
            valid = f"in {MIN_L2_BOUND:g} .. {MAX_L2_BOUND:g}"
            raise ParameterError("clip_l2", self.clip_l2, valid)
        degree, threshold = self.graph
        fewest = fewest_survivors(threshold, self.tolerated_colluders, degree)
        if self.minimum_survivors < fewest:
            raise ParameterError(
                "tolerated_dropouts",
                self.tolerated_dropouts,
                f"at most {self.cohort - fewest}: with {self.cohort} clients and "
                f"{self.tolerated_colluders} colluders, {fewest} must survive",
            )

    @property
    def graph(self) -> tuple[int, int]:
        """(k, t): as given, or what the cohort needs."""
        degree = self.degree
        if degree is None and self.threshold is None:
            return default_graph(
                self.cohort, self.tolerated_colluders, self.tolerated_dropouts, self.mode
            )
        degree = degree or 0
        if self.threshold is not None:
            return degree, self.threshold
        return degree, lowest_threshold(self.cohort, self.tolerated_colluders, self.mode, degree)

    @property
    def minimum_survivors(self) -> int:
        """Fewer survivors would thin the noise below its target, so no such sum is released."""
        return self.cohort - self.tolerated_dropouts

    @property
    def fewest_honest(self) -> int:
        """Survivors whose coins count: colluders take off their own."""
        return self.minimum_survivors - self.tolerated_colluders

    def schedule(self, coins: int) -> CoinSchedule | None:
        """The batches of so many coins of a client; None if there is nothing to take off."""
        if not self.exact_noise:
            return None
        return coin_schedule(coins, self.cohort, self.minimum_survivors, self.tolerated_colluders)

    def setup(
        self,
        parameters: RoundParameters,
        cohort: Sequence[bytes],
        session_id: bytes,
        round_number: int,
    ) -> RoundSetup:
        """A round of this plan.

        Args:
            parameters: calibrated for the plan.
            cohort: identity keys, as many as planned.
        """
        removal = removal_table(self.schedule(parameters.coins))
        degree, threshold = self.graph
        context = SessionContext(
            session_id=session_id,
            round_number=round_number,
            cohort=tuple(cohort),
            threshold=threshold,
            degree=degree,
            minimum_survivors=self.minimum_survivors,
            mode=self.mode,
            tolerated_colluders=self.tolerated_colluders,
            removal=removal,
            bits=bits_for(parameters, self.cohort, max(removal, default=0).bit_length()),
            length=parameters.length,
            application_digest=parameters.digest(),
        )
        return RoundSetup(context, parameters)

    def client_policy(self, dimension: int) -> ClientPolicy:
        """The policy of clients who want what this plan promises and accept nothing less.

        A client that gets the plan from the server gains nothing by it: plan and policy have to
        come from somebody that the client trusts.

        Args:
            dimension: d, length of an update.
        """
        goal = self.goal
        return ClientPolicy(
            minimum_noise_multiplier=noise_multiplier_for_epsilon(
                goal.epsilon, goal.delta, goal.rounds
            ),
            goal=goal,
            minimum_survivors=self.minimum_survivors,
            minimum_colluders=self.tolerated_colluders,
            largest_clip_l2=self.clip_l2,
            dimension=dimension,
            allow_semi_honest=self.mode is Mode.SEMI_HONEST,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """One finished round.

    Attributes:
        number: of finished rounds before it; rounds that failed are not counted.
        release: the private mean.
        setup: the public parameters.
        outcome: survivors and bytes.
        rationale: why the sketch had its size.
        epsilons: spent so far by the client that spent most, against four adversaries.
    """

    number: int
    release: MeanRelease
    setup: RoundSetup
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
    """

    session_id: bytes
    number: int
    attempts: int
    decision: Decision
    previous: NDArray[np.float64] | None = field(default=None, compare=False)


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

    Raises:
        ParameterError: the ledger belongs to a run with another goal.
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
    ) -> None:
        self._plan = plan
        self._controller = controller
        self._aggregator = aggregator
        self._records = Records(ledger, plan.goal)
        self._rand = rand
        if state is None:
            state = TrainingState(rand(SESSION_ID_BYTES), 0, 0, controller.initial(dimension))
        self._session_id = state.session_id
        self._decision: Decision = state.decision
        self._previous = state.previous
        self._number = state.number
        self._attempts = state.attempts

    @property
    def state(self) -> TrainingState:
        """Where the run stands."""
        return TrainingState(
            self._session_id, self._number, self._attempts, self._decision, self._previous
        )

    def run_round(
        self,
        cohort: Sequence[bytes],
        model_digest: bytes,
        updates: UpdateSource = own_updates,
        dropouts: Dropouts = NOBODY,
        notes: Notes | None = None,
    ) -> RoundResult:
        """One round, from calibration to release.

        Args:
            cohort: the clients' identity keys (`Identity.public`), in the order of their indices.
            model_digest: 32-byte hash of the model that was sent to the cohort.
            updates: gives a party's update when its turn comes; left out for clients elsewhere.
            dropouts: who gets lost, and when; nobody but those who really do if left out.
            notes: public remarks for the ledger.

        Raises:
            BudgetExceededError, ParameterError: before any client is asked; costs nothing.
            TooFewSurvivorsError: nothing is released. It costs nothing if it came before the
                survivors were decided, and the whole round afterwards, when clients may have given
                up what opens the sum.
            LedgerError: the event could not be made durable; the round ended before any client
                gave anything up.
        """
        setup = self.next_setup(cohort, model_digest)
        return self.run_setup(setup, updates, dropouts, notes)

    def run_setup(
        self,
        setup: RoundSetup,
        updates: UpdateSource = own_updates,
        dropouts: Dropouts = NOBODY,
        notes: Notes | None = None,
    ) -> RoundResult:
        """The round of a setup that `next_setup` made; see `run_round`.

        Raises:
            ParameterError: another round has been announced since, or it is of another run.
        """
        turn = (setup.context.session_id, setup.context.round_number)
        if turn != (self._session_id, self._attempts):
            valid = f"that of the next round, number {self._attempts} of this session"
            raise ParameterError("setup", f"round number {turn[1]}", valid)
        charge = self._records.prepare(setup, self._number, notes)
        # A number that was announced is used up, or a client would answer one round twice.
        self._attempts += 1
        outcome = self._aggregator.run(setup, updates, dropouts, before_release=charge)
        charge.settle(len(outcome.total.survivors))
        return self._release(setup, outcome)

    def next_setup(self, cohort: Sequence[bytes], model_digest: bytes) -> RoundSetup:
        """The next round, with a public seed of its own; nothing is announced or charged yet.

        Args:
            cohort: identity keys, in the order of their indices.
            model_digest: 32-byte hash of the model that is sent to the cohort.

        Raises:
            ParameterError: another number of clients than planned.
        """
        plan = self._plan
        if len(cohort) != plan.cohort:
            raise ParameterError("cohort", f"{len(cohort)} clients", f"{plan.cohort}, as planned")
        parameters = calibrate(
            plan.goal,
            fewest_honest=plan.fewest_honest,
            sketch=self._decision.spec,
            clip_l2=plan.clip_l2,
            tolerated_dropouts=plan.tolerated_dropouts,
            model_digest=model_digest,
            # Drawn after the size is fixed, or whoever draws could choose collisions.
            public_seed=PublicSeed(self._rand(SEED_BYTES)),
            error_share=plan.error_share,
            wrap_probability=plan.wrap_probability,
        )
        return plan.setup(parameters, cohort, self._session_id, self._attempts)

    def _release(self, setup: RoundSetup, outcome: RoundOutcome) -> RoundResult:
        release = Pipeline(setup).decode(outcome.total)
        number, rationale = self._number, self._decision.rationale
        stats = measure(setup, release, number, self._previous)
        self._decision = self._controller.step(self._decision.state, stats)
        self._previous = release.update
        self._number += 1
        return RoundResult(
            number=number,
            release=release,
            setup=setup,
            outcome=outcome,
            rationale=rationale,
            epsilons=self._records.epsilons(self._plan.tolerated_colluders),
        )


def measure(
    setup: RoundSetup,
    release: MeanRelease,
    number: int,
    previous: NDArray[np.float64] | None,
) -> ReleasedStats:
    """What a controller may know of a round.

    Args:
        number: of the round, from 0.
        previous: float64[d], the update that was released before; None in the first round.
    """
    return released_stats(
        setup.parameters.sketch,
        setup.parameters.public_seed,
        release.mean_sketch,
        release.update,
        previous=previous,
        round_number=number,
        noise_variance=release.noise_variance,
        survivors=release.survivors,
    )
