"""What stays the same over all rounds of a run: the promise, the cohort, who may fail or turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dp import CoinSchedule
from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND
from protocol.calibration import ERROR_SHARE, PrivacyGoal, calibrate, sharpest
from protocol.capacity import WRAP_PROBABILITY, bits_for
from protocol.client import ClientPolicy
from protocol.parameters import RoundParameters
from protocol.plan import default_graph
from protocol.setup import RoundSetup, coin_schedule, removal_table
from secagg import (
    Mode,
    ParameterError,
    SessionContext,
    fewest_survivors,
    lowest_threshold,
)
from sketch import PublicSeed, SketchSpec


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

    def sharpened(self, sketch: SketchSpec) -> TrainingPlan:
        """This plan with the better of the two bounds for its rounds; see `calibration.sharpest`.

        Call it before the first round: the bound is part of the goal that policies, histories and
        ledgers agree on.

        Args:
            sketch: of the first round.
        """
        goal = sharpest(
            self.goal,
            fewest_honest=self.fewest_honest,
            bound=self.clip_l2,
            length=sketch.size,
            error_share=self.error_share,
        )
        return replace(self, goal=goal)

    def schedule(self, coins: int) -> CoinSchedule | None:
        """The batches of so many coins of a client; None if there is nothing to take off."""
        if not self.exact_noise:
            return None
        return coin_schedule(coins, self.cohort, self.minimum_survivors, self.tolerated_colluders)

    def calibrate(
        self,
        sketch: SketchSpec,
        model_digest: bytes,
        public_seed: PublicSeed,
        *,
        goal: PrivacyGoal | None = None,
        clip_l2: float | None = None,
        sketch_clip_l2: float | None = None,
    ) -> RoundParameters:
        """Parameters of a round of this plan.

        Args:
            goal: of the round, where rounds take unequal shares; the plan's if left out.
            clip_l2: of the round; the plan's if left out.
            sketch_clip_l2: see `protocol.calibration.calibrate`, which this raises as, too.
        """
        return calibrate(
            goal or self.goal,
            fewest_honest=self.fewest_honest,
            sketch=sketch,
            clip_l2=self.clip_l2 if clip_l2 is None else clip_l2,
            tolerated_dropouts=self.tolerated_dropouts,
            model_digest=model_digest,
            public_seed=public_seed,
            error_share=self.error_share,
            wrap_probability=self.wrap_probability,
            sketch_clip_l2=sketch_clip_l2,
        )

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

    def client_policy(self, dimension: int | None) -> ClientPolicy:
        """The policy of clients who want what this plan promises and accept nothing less.

        A client that gets the plan from the server gains nothing by it: plan and policy have to
        come from somebody that the client trusts.

        Args:
            dimension: d, length of what a client sums; None where sums of a round differ in it.
        """
        return ClientPolicy(
            minimum_noise_multiplier=self.goal.noise_multiplier,
            goal=self.goal,
            minimum_survivors=self.minimum_survivors,
            minimum_colluders=self.tolerated_colluders,
            largest_clip_l2=self.clip_l2,
            dimension=dimension,
            allow_semi_honest=self.mode is Mode.SEMI_HONEST,
        )
