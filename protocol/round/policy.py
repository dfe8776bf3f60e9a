"""What a client insists on, whatever the server says: held against every announcement."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dp import BinomialMechanism
from dp.coins import MAX_COINS
from dp.mechanisms import MECHANISMS
from dp.sampling.laws import MAX_VARIANCE
from protocol.checks import RANGES
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.clauses import Clauses, PairwiseClauses, ReturnedClauses
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.draw_policy import DrawPolicy
from protocol.round.history import ClientHistory
from protocol.round.released import multiplier
from protocol.round.rings import UnixClock
from protocol.round.setup import RoundEncoding
from secagg import ParameterError
from secagg.checks import require_int
from secagg.terms import MAX_COHORT


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """What this client insists on, whatever the server says.

    Figures of noise count that of the fewest honest survivors only. Limits of size are checked
    before anything of that size is allocated. Which of these hold against an active adversary is
    in docs/security.md: all of them, since a client that refuses has sent nothing.

    Args:
        minimum_noise_multiplier: smallest ratio of aggregate noise to sensitivity. There is no
            default: 0.0 accepts rounds without any privacy beyond the sum, and has to be said.
        goal: rounds like this one, `goal.rounds` of them together, must stay within the goal. The
            multiplier alone does not notice noise that is too coarse; this does. None looks at the
            multiplier only. The rounds that really take place are added up by the `ClientHistory`
            with this goal that every client with a goal must have.
        minimum_survivors: smallest sum it will be part of.
        largest_clip_l2: largest clip bound, in the units of the update.
        smallest_cohort: fewest clients that a round invites.
        largest_cohort: most of them; what a client sends, holds and checks grows with them.
        registry_colluders: most clients of the whole registry that may work for the server. It
            picks the cohort, so all of them may be in it: a round whose thresholds and noise
            tolerate fewer is refused, however few of them a random cohort would hold.
        minimum_own_noise_multiplier: smallest ratio to the sensitivity of this client's own noise,
            as far as nobody else can take it off. It is all that hides the client among made-up
            ones.
        dimension: d, length of this client's update; None accepts any up to `largest_length`.
        largest_length: longest update or vector.
        largest_bits: largest field.
        mechanisms: names of those whose noise it adds; binomial only if left out.
        largest_coins: most coins of one client per coordinate.
        largest_variance: most variance of one client's noise per coordinate, in squared integer
            units; the table that it is drawn from grows with the square root.
        largest_linf_bound: largest integer coordinate; it decides what accounting costs.
        largest_rows: most rows of a sketch, over all copies; each is a pass over the update.
        largest_lifetime_seconds: longest time from a round's announcement to its end; rounds that
            never expire are refused, too, and `RoundClient` needs a clock. None takes part in any
            round, and a client with a clock keeps to its expiry if it has one.
        equal_rounds: hold every round against the goal as if all `goal.rounds` were like it. Where
            rounds take unequal shares of a goal, only `ClientHistory`, which adds them up, can
            tell; then the multiplier must be that of the largest share.
        schemes: what it insists on about each scheme that it takes part in, one entry for each;
            pairwise rounds only if left out. A round of any other scheme is refused.
        returned: what it insists on where a part of the noise comes back; None takes part in no
            such run.
        integers: what it insists on in its place in rounds of integers, such as surveys: the same
            but for clip and dimension. None insists on the same in all rounds.

    Raises:
        ParameterError: a multiplier, a size of cohorts or the number of colluders is no bound; no
            scheme is named, or one twice; or draws of committees may fail with more than the goal
            sets aside.
    """

    minimum_noise_multiplier: float
    goal: PrivacyGoal | None = None
    minimum_survivors: int = 2
    largest_clip_l2: float = math.inf
    smallest_cohort: int = 2
    largest_cohort: int = MAX_COHORT
    registry_colluders: int = 0
    minimum_own_noise_multiplier: float = 0.0
    dimension: int | None = None
    largest_length: int = 1 << 28
    largest_bits: int = 62
    mechanisms: Collection[str] = (BinomialMechanism.name,)
    largest_coins: int = MAX_COINS
    largest_variance: float = MAX_VARIANCE
    largest_linf_bound: int = 1 << 16
    largest_rows: int = 256
    largest_lifetime_seconds: int | None = None
    equal_rounds: bool = True
    schemes: Sequence[Clauses] = (PairwiseClauses(),)
    returned: ReturnedClauses | None = None
    integers: ClientPolicy | None = None

    def __post_init__(self) -> None:
        for name in ("minimum_noise_multiplier", "minimum_own_noise_multiplier"):
            if not getattr(self, name) >= 0.0:
                raise ParameterError(name, getattr(self, name), "at least 0")
        RANGES["cohort"].require("smallest_cohort", self.smallest_cohort)
        require_int("largest_cohort", self.largest_cohort, self.smallest_cohort, MAX_COHORT)
        RANGES["tolerated_colluders"].require("registry_colluders", self.registry_colluders)
        # A plain str is a collection of its letters.
        names = () if isinstance(self.mechanisms, str) else tuple(self.mechanisms)
        if not names or any(name not in MECHANISMS for name in names):
            valid = f"at least one of {', '.join(MECHANISMS)}, in a tuple"
            raise ParameterError("mechanisms", self.mechanisms, valid)
        kinds = [each.KIND for each in self.schemes]
        if not kinds or len(set(kinds)) < len(kinds):
            raise ParameterError("schemes", kinds, "the clauses of one scheme or more, once each")
        for each in self.schemes:
            if self.goal is not None:
                each.require_goal(self.goal)
        self._check_integers()

    def _check_integers(self) -> None:
        other = self.integers
        if other is None:
            return
        if isinstance(other, ClientPolicy):
            clip, dimension = self.largest_clip_l2, self.dimension
            if replace(other, largest_clip_l2=clip, dimension=dimension) == replace(
                self, integers=None
            ):
                return
        valid = "a policy that differs in largest_clip_l2 and dimension alone"
        raise ParameterError("integers", other, valid)

    def clauses(self, kind: str) -> Clauses:
        """What it insists on about the rounds of a scheme.

        Raises:
            PolicyError: it takes part in none.
        """
        for each in self.schemes:
            if each.KIND == kind:
                return each
        raise PolicyError("scheme", kind, f"{' or '.join(each.KIND for each in self.schemes)} only")

    @property
    def committee(self) -> CommitteePolicy | None:
        """Whose committees it entrusts a sum to; None takes part in no one-shot round."""
        return next((each for each in self.schemes if isinstance(each, CommitteePolicy)), None)

    def check(self, setup: RoundEncoding, *, keeps_time: bool = False) -> None:
        """Accept a setup or refuse it.

        Args:
            keeps_time: whether this client has a clock, and so an end to every round with a
                lifetime.

        Raises:
            PolicyError: names the parameter, what was announced and what would be accepted.
        """
        context, parameters = setup.context, setup.parameters
        if self.integers is not None and parameters.integers:
            self.integers.check(setup, keeps_time=keeps_time)
            return
        dimension = parameters.sketch.dimension
        if self.dimension not in (None, dimension):
            raise PolicyError("dimension", dimension, f"{self.dimension} only")
        mechanism = parameters.mechanism
        if mechanism.name not in self.mechanisms:
            raise PolicyError("mechanism", mechanism.name, f"{' or '.join(self.mechanisms)} only")
        at_least = {
            "minimum_survivors": (context.minimum_survivors, self.minimum_survivors),
            "cohort_size": (context.invited, self.smallest_cohort),
            "noise_multiplier": (setup.released.noise_multiplier, self.minimum_noise_multiplier),
        }
        for name, (announced, lowest) in at_least.items():
            if not announced >= lowest:
                raise PolicyError(name, announced, f"at least {lowest}")
        self._check_peers(setup)
        at_most = {
            "cohort_size": (context.invited, self.largest_cohort),
            "clip_l2": (parameters.clip_l2, self.largest_clip_l2),
            "bits": (context.bits, self.largest_bits),
            "length": (max(context.length, dimension), self.largest_length),
            "coins": (getattr(mechanism, "coins", 0), self.largest_coins),
            "variance": (mechanism.variance, self.largest_variance),
            "linf_bound": (parameters.linf_bound, self.largest_linf_bound),
            "sketch_rows": (parameters.sketch.total_rows, self.largest_rows),
        }
        for name, (announced, highest) in at_most.items():
            if not announced <= highest:
                raise PolicyError(name, announced, f"at most {highest}")
        self._check_lifetime(context.lifetime_seconds)
        self.clauses(setup.KIND).check(setup)
        if self.goal is not None:
            setup.check_failure(self.goal, keeps_time=keeps_time)
        if parameters.returned is not None:
            if self.returned is None:
                raise PolicyError("returns", "noise that members take back", "noise that stays")
            self.returned.check(setup, self.largest_variance)
        if self.goal is not None and self.equal_rounds:
            epsilon = setup.released.epsilon_of_rounds(self.goal, self.apart)
            if not epsilon <= self.goal.epsilon:
                rounds = f"{self.goal.rounds} such rounds"
                raise PolicyError(
                    "epsilon",
                    f"{epsilon:.6g} for {rounds}",
                    f"at most {self.goal.epsilon:.6g} for {rounds}",
                )

    @property
    def apart(self) -> int:
        """Minimum number of rounds between participations."""
        return self.returned.apart if self.returned else 1

    @property
    def draw(self) -> DrawPolicy | None:
        """What it insists on in draws, if it takes drawn committees."""
        return self.committee.draw if self.committee else None

    def _check_peers(self, setup: RoundEncoding) -> None:
        """What is left of this client's privacy if others of the cohort are the server's."""
        tolerated, bound = setup.context.tolerated_colluders, self.registry_colluders
        if tolerated < bound:
            raise PolicyError(
                "tolerated_colluders",
                tolerated,
                f"at least {bound}, because that many clients of the registry may work for the "
                f"server and all be in one cohort: plan for {bound}, with larger cohorts",
            )
        own, lowest = own_noise_multiplier(setup), self.minimum_own_noise_multiplier
        if not own >= lowest:
            raise PolicyError(
                "own_noise_multiplier",
                f"{own:.6g}",
                f"at least {lowest:.6g}: more noise of each client, or fewer dropouts whose noise "
                "can be removed",
            )

    def _check_lifetime(self, lifetime: int) -> None:
        longest = self.largest_lifetime_seconds
        if longest is not None and not 0 < lifetime <= longest:
            raise PolicyError("lifetime_seconds", lifetime, f"1 .. {longest}")


def require_means(
    policy: ClientPolicy, history: ClientHistory | None, clock: UnixClock | None
) -> None:
    """See that a client has what its policy takes: a history that counts, a clock."""
    if policy.largest_lifetime_seconds is not None and clock is None:
        raise ParameterError("clock", None, "a clock: the policy wants rounds that expire")
    # A policy looks at one round at a time: without a count its goal would bound nothing.
    if policy.goal is not None and (history is None or history.goal != policy.goal):
        raise ParameterError(
            "history",
            None if history is None else f"one that counts against {history.goal}",
            f"one that counts against the policy's goal, {policy.goal}: a ClientHistory or "
            "StoredHistory made with it, the same for all rounds of this identity",
        )
    if history is not None and history.earlier and not policy.equal_rounds:
        valid = "no rounds spent elsewhere, or a policy of equal_rounds: only those can be counted"
        raise ParameterError("history", f"one with {history.earlier} rounds earlier", valid)


def own_noise_multiplier(setup: RoundEncoding) -> float:
    """Deviation of one client's noise over the sensitivity, as far as nobody can take it off."""
    return multiplier(setup.parameters, setup.own_noise.variance)
