"""What stays the same over all rounds of a run: the promise, its noise and its scheme."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dp import CoinSchedule
from dp.mechanisms import DistributedMechanism
from protocol.checks import require, require_number
from protocol.goal import PrivacyGoal
from protocol.noise.calibration import ERROR_SHARE, sharpest
from protocol.noise.noise import Independent, Noise, OfRound
from protocol.promise import Promise
from protocol.round.field_size import WRAP_PROBABILITY
from protocol.round.parameters import RoundParameters
from protocol.round.setup import coin_schedule
from protocol.schemes import Pairwise, Scheme
from secagg import ParameterError
from secagg.checks import whole
from sketch import PublicSeed, SketchSpec
from sketch.controllers import Prior


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan(Promise):
    """What stays the same over all rounds of a run.

    Args:
        goal: (epsilon, delta) of any one client over all the rounds it takes part in, against the
            server.
        cohort: n, clients invited to each round; fixed, so that noise does not depend on it.
        tolerated_dropouts: clients that may vanish from a round without the noise falling short.
        tolerated_colluders: clients of a cohort that may work for the server. Whoever cannot trust
            the server to draw cohorts at random counts those of all clients there are.
        clip_l2: C, in the units of an update.
        noise: `Independent` of round to round, or `Returned`: a part of it comes back.
        scheme: the way to the sum: `Pairwise`, in which every client answers in every stage;
            `OneShot`, in which a client uploads once and a committee opens the sum; or `Validated`,
            whose committee also leaves out vectors that are too long.
        error_share: how much more variance the noise may have than that of the Gaussian mechanism
            at the same epsilon; lower values need more bits.
        wrap_probability: accepted chance that a round's sum does not fit its field and is lost; 0
            costs several bits more, and is possible with coins only.
        lifetime_seconds: whole seconds from a round's announcement to its end, which clients with
            a clock enforce; 0 for rounds that never expire. The shorter, the fewer rings a server
            can try.

    Raises:
        ParameterError: a figure is of the wrong kind or out of range, or the figures leave nobody
            to hide among.
    """

    noise: Noise = field(default_factory=Independent)
    scheme: Scheme = field(default_factory=Pairwise)
    error_share: float = ERROR_SHARE
    wrap_probability: float = WRAP_PROBABILITY
    lifetime_seconds: int = 0

    def __post_init__(self) -> None:
        for name, kind, valid in (
            ("goal", PrivacyGoal, "a PrivacyGoal"),
            ("noise", Noise, "an Independent or a Returned"),
            ("scheme", Scheme, "a Pairwise, a OneShot or a Validated"),
        ):
            if not isinstance(getattr(self, name), kind):
                raise ParameterError(name, getattr(self, name), valid)
        require(self, "cohort", "tolerated_dropouts", "tolerated_colluders", "clip_l2")
        require(self, "error_share", "lifetime_seconds")
        if type(self.clip_l2) not in (int, float):
            # NumPy's floats are taken, as medians of norms are; what is announced has Python's.
            object.__setattr__(self, "clip_l2", float(self.clip_l2))
        require_number("wrap_probability", self.wrap_probability)
        self.scheme.check(self)
        self.noise.check(self)

    @property
    def prior(self) -> Prior:
        """What a controller may know before the first release.

        The noise is that of the Gaussian mechanism, below which the clients' integers do not come.

        Raises:
            ParameterError: the goal only counts; see `PrivacyGoal`.
        """
        deviation = self.goal.noise_multiplier * self.clip_l2 / self.cohort
        return Prior(norm_squared=self.clip_l2**2, noise_variance=deviation**2)

    def of_cohort(self, clients: int) -> TrainingPlan:
        """The plan of a round with fewer clients: as many survivors have to be left, all told.

        Args:
            clients: at most the plan's cohort; noise and scale do not depend on it.
        """
        valid = whole(self.minimum_survivors, self.cohort)
        valid.require("cohort", clients, " clients")
        return replace(self, cohort=clients, tolerated_dropouts=clients - self.minimum_survivors)

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
            mechanism=self.noise.mechanism,
            errors=self.scheme.ERROR_VARIANCE,
        )
        return replace(self, goal=goal)

    def schedule(self, mechanism: DistributedMechanism) -> CoinSchedule | None:
        """As `Promise.schedule` says."""
        if self.noise.exact is False or not self.scheme.REMOVES:
            return None
        survivors, colluders = self.minimum_survivors, self.tolerated_colluders
        return coin_schedule(mechanism, self.cohort, survivors, colluders)

    def calibrate(
        self,
        sketch: SketchSpec,
        model_digest: bytes,
        public_seed: PublicSeed,
        *,
        goal: PrivacyGoal | None = None,
        clip_l2: float | None = None,
        sketch_clip_l2: float | None = None,
        linf_bound: int | None = None,
    ) -> RoundParameters:
        """Parameters of a round of this plan; arguments as of `OfRound`, raises as `calibrate`."""
        of_round = OfRound(
            model_digest=model_digest,
            public_seed=public_seed,
            goal=goal,
            clip_l2=clip_l2,
            sketch_clip_l2=sketch_clip_l2,
            linf_bound=linf_bound,
        )
        return self.noise.calibrate(self, sketch, of_round)
