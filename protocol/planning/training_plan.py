"""What stays the same over all rounds of a run: the promise, the cohort, who may fail or turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dp import CoinSchedule
from dp.mechanisms import DistributedMechanism, MechanismName
from protocol.goal import PrivacyGoal
from protocol.planning.calibration import ERROR_SHARE, calibrate, sharpest
from protocol.planning.committee import (
    CommitteeNumbers,
    CommitteePlan,
    choose_ring,
)
from protocol.planning.graph import COMPLETE_UP_TO, default_graph
from protocol.planning.plan_checks import ProtocolName, check_plan
from protocol.planning.returned import (
    PlannedNoise,
    ReturnedPlan,
    ReturnedRun,
    calibrate_returned,
    member_uploads,
    round_parameters,
)
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.draw_policy import BeaconSource, DrawPolicy
from protocol.round.field_size import WRAP_PROBABILITY, bits_for
from protocol.round.lottery import DrawnMembers, Members
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.parameters import RoundParameters
from protocol.round.policy import ClientPolicy
from protocol.round.returned_noise import likely_returning
from protocol.round.rings import fitting_security_bits
from protocol.round.setup import RoundSetup, coin_schedule, removal_table
from secagg import Mode, ParameterError, SessionContext, lowest_threshold
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.records import MemberUploads, fewest_members
from secagg.pairwise.graph_parameters import SECURITY_BITS
from sketch import PublicSeed, SketchSpec
from sketch.controllers import Prior


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What stays the same over all rounds of a run.

    Args:
        goal: (epsilon, delta) of any one client over all the rounds it takes part in, against the
            server.
        cohort: n, clients invited to each round; fixed, so that noise does not depend on it.
        tolerated_dropouts: clients that may vanish from a round without the noise falling short.
        tolerated_colluders: clients of a cohort that may work for the server. Whoever cannot trust
            the server to draw cohorts at random counts those of all clients there are.
        clip_l2: C, in the units of an update.
        mode: what the server is trusted with.
        degree: k of a sparse graph, 0 for the complete one; left out together with the threshold,
            both are chosen for the cohort: the complete graph for up to 200 clients.
        threshold: t; the smallest safe one if left out.
        mechanism: name of the noise that clients add: `binomial`, `skellam` or `discrete-gaussian`.
        exact_noise: take surplus noise off when fewer clients vanish than tolerated, at the price
            of a few more shares for each pair of clients; otherwise it stays in the sum. Coins
            alone can be taken off, and are if this is left out.
        error_share: how much more variance the noise may have than that of the Gaussian mechanism
            at the same epsilon; less costs bits.
        wrap_probability: accepted chance that a round's sum does not fit its field and is lost; 0
            costs several bits more, and is possible with coins only.
        security_bits: of a sparse graph and its committee; if left out, the fewest from 80 on, in
            steps of 8, with which a ring fails no more often than the goal sets aside. The
            complete graph has no use for them.
        lifetime_seconds: whole seconds from a round's announcement to its end, which clients with
            a clock enforce; 0 for rounds that never expire. The shorter, the fewer rings a server
            can try.
        protocol: `pairwise`, in which every client answers in every stage, or `one-shot`, in which
            a client uploads once and a committee opens the sum. Mode, degree, threshold and
            security bits are about pairwise rounds.
        committee: of one-shot rounds; everyone who is invited if left out.
        returned: for a run in which members of a named committee add a part of the noise, and take
            it back in the next round; the goal's rounds are then those of one client. Clients add
            discrete Gaussian noise.

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
    mechanism: MechanismName = "binomial"
    exact_noise: bool | None = None
    error_share: float = ERROR_SHARE
    wrap_probability: float = WRAP_PROBABILITY
    security_bits: int | None = None
    lifetime_seconds: int = 0
    protocol: ProtocolName = "pairwise"
    committee: CommitteePlan | None = None
    returned: ReturnedPlan | None = None

    def __post_init__(self) -> None:
        check_plan(self)

    @property
    def fewest_members(self) -> int:
        """Fewest members whose noise is in a sum, where members add noise.

        Corrupt members may stay away, and have as many honest ones left out as members. Corrupt
        clients together with them may have more uploads of members left out than that, and end
        rounds (docs/one-shot-security.md).
        """
        numbers = self.committee_numbers
        away = (self.committee or CommitteePlan()).away or 0
        return max(
            fewest_members(numbers.size, numbers.corrupt),
            numbers.size - 2 * numbers.corrupt - away,
        )

    @property
    def returned_run(self) -> ReturnedRun:
        """Who is in the sums of a run whose noise comes back.

        Raises:
            ParameterError: the figures make no such run, or this is none.
        """
        if self.returned is None:
            raise ParameterError("returned", None, "a ReturnedPlan")
        numbers = self.committee_numbers
        return ReturnedRun(
            schedule=self.returned.schedule(self.goal.rounds),
            clients=self.cohort,
            members=numbers.size,
            corrupt_clients=self.tolerated_colluders,
            corrupt_members=numbers.corrupt,
            fewest_clients=self.minimum_survivors,
            fewest_members=self.fewest_members,
            fewest_returning=likely_returning(numbers.size, self.fewest_members),
            away=self.returned.away,
            optimiser=self.returned.optimiser,
        )

    def planned_noise(self, length: int, sketch_clip_l2: float | None = None) -> PlannedNoise:
        """The noise of a run in which a part comes back.

        Args:
            length: of the vectors that are summed.
            sketch_clip_l2: bound on them; the plan's clip if left out.

        Raises:
            ParameterError: this is no such run, nothing would be gained, or no noise meets the
                goal.
        """
        return calibrate_returned(
            self.goal.epsilon,
            self.goal.delta,
            self.returned_run,
            bound=self.clip_l2 if sketch_clip_l2 is None else sketch_clip_l2,
            length=length,
            error_share=self.error_share,
        )

    @property
    def committee_kind(self) -> CommitteeKind:
        """Who opens the sums of one-shot rounds."""
        return (self.committee or CommitteePlan()).kind

    @property
    def committee_numbers(self) -> CommitteeNumbers:
        """What the committee of a one-shot round is made of, besides its members."""
        plan = self.committee or CommitteePlan()
        return plan.numbers(self.cohort, self.tolerated_colluders, self.tolerated_dropouts)

    @property
    def ring_bits(self) -> int:
        """Security bits of the rounds: as given, or what the goal needs.

        Raises:
            ParameterError: the goal needs more than there are.
        """
        if self.security_bits is not None:
            return self.security_bits
        if self.protocol == "one-shot":
            return SECURITY_BITS
        by_size = self.degree is None and self.threshold is None
        if not (self.cohort > COMPLETE_UP_TO if by_size else self.degree):
            return SECURITY_BITS
        return fitting_security_bits(self.goal, self.cohort, self.mode, self.lifetime_seconds)

    @property
    def graph(self) -> tuple[int, int]:
        """(k, t): as given, or what the cohort needs."""
        degree = self.degree
        if degree is None and self.threshold is None:
            return default_graph(
                self.cohort,
                self.tolerated_colluders,
                self.tolerated_dropouts,
                self.mode,
                self.ring_bits,
            )
        degree = degree or 0
        if self.threshold is not None:
            return degree, self.threshold
        lowest = lowest_threshold(
            self.cohort,
            self.tolerated_colluders,
            self.mode,
            degree,
            security_bits=self.ring_bits,
        )
        return degree, lowest

    @property
    def minimum_survivors(self) -> int:
        """Fewer survivors would thin the noise below its target, so no such sum is released."""
        return self.cohort - self.tolerated_dropouts

    @property
    def fewest_honest(self) -> int:
        """Survivors whose noise counts: colluders take off their own."""
        return self.minimum_survivors - self.tolerated_colluders

    @property
    def prior(self) -> Prior:
        """What a controller may know before the first release.

        The noise is that of the Gaussian mechanism, below which the clients' integers do not come.

        Raises:
            ParameterError: the goal only counts; see `PrivacyGoal`.
        """
        deviation = self.goal.noise_multiplier * self.clip_l2 / self.cohort
        return Prior(norm_squared=self.clip_l2**2, noise_variance=deviation**2)

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
            mechanism=self.mechanism,
        )
        return replace(self, goal=goal)

    def schedule(self, mechanism: DistributedMechanism) -> CoinSchedule | None:
        """The batches of a client's noise; None if there is nothing to take off."""
        if self.exact_noise is False:
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
    ) -> RoundParameters:
        """Parameters of a round of this plan.

        Args:
            goal: of the round, where rounds take unequal shares; the plan's if left out.
            clip_l2: of the round; the plan's if left out.
            sketch_clip_l2: see `calibrate`, which this raises as, too.
        """
        if self.returned is not None:
            if goal not in (None, self.goal) or clip_l2 not in (None, self.clip_l2):
                valid = "those of the plan in all rounds: noise comes back at the scale it went in"
                raise ParameterError("goal, clip_l2", (goal, clip_l2), valid)
            return round_parameters(
                self.planned_noise(sketch.size, sketch_clip_l2),
                model_digest=model_digest,
                clip_l2=self.clip_l2,
                sketch=sketch,
                sketch_clip_l2=self.clip_l2 if sketch_clip_l2 is None else sketch_clip_l2,
                public_seed=public_seed,
                tolerated_dropouts=self.tolerated_dropouts,
                wrap_probability=self.wrap_probability,
            )
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
            mechanism=self.mechanism,
        )

    def setup(
        self,
        parameters: RoundParameters,
        cohort: Sequence[bytes],
        session_id: bytes,
        round_number: int,
        opened_at: int = 0,
    ) -> RoundSetup:
        """A pairwise round of this plan; `one_shot_setup` makes one of the other kind.

        Args:
            parameters: calibrated for the plan.
            cohort: identity keys, as many as planned.
            opened_at: now, in whole unix seconds, if the plan's rounds expire.

        Raises:
            ParameterError: rounds expire and no time was given, or the other way round.
        """
        removal = removal_table(self.schedule(parameters.mechanism))
        if self.protocol != "pairwise":
            raise ParameterError("protocol", self.protocol, "pairwise for this kind of setup")
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
            security_bits=self.ring_bits,
            opened_at=opened_at,
            lifetime_seconds=self.lifetime_seconds,
        )
        return RoundSetup(context, parameters)

    def one_shot_setup(
        self,
        parameters: RoundParameters,
        cohort: Sequence[bytes],
        members: Members,
        session_id: bytes,
        round_number: int,
        opened_at: int = 0,
        uploads: MemberUploads | None = None,
    ) -> OneShotSetup:
        """A one-shot round of this plan.

        Args:
            members: of the committee, with their signed keys; of everyone, in the cohort's order;
                as `Lottery.seat` gives them if they are drawn.
            uploads: the terms of the members' uploads, from `member_uploads`, where the plan has
                returned noise; those of the first round if left out.

        Raises:
            ParameterError: as for `setup`; or other members than planned.
        """
        if self.protocol != "one-shot":
            raise ParameterError("protocol", self.protocol, "one-shot for this kind of setup")
        removal = removal_table(self.schedule(parameters.mechanism))
        seeds = max(removal, default=0).bit_length()
        numbers = self.committee_numbers
        committee = numbers.committee(self.committee_kind, members)
        adding: tuple[bytes, ...] = ()
        if self.returned is not None:
            adding = tuple(member.identity for member in committee.members)
            uploads = uploads or member_uploads(self.returned_run, parameters)
        invited = Cohort([*cohort, *adding])
        bits = bits_for(parameters, self.cohort, seeds, len(adding))
        ring = choose_ring(self.cohort + len(adding), parameters.length, bits, seeds, numbers)
        context = OneShotContext(
            session_id=session_id,
            round_number=round_number,
            size=len(invited),
            cohort_root=invited.root,
            minimum_survivors=self.minimum_survivors,
            tolerated_colluders=self.tolerated_colluders,
            committee=committee,
            degree=ring.degree,
            limbs=ring.limbs,
            rounding_bits=ring.rounding_bits,
            entries=ring.entries,
            removal=removal,
            bits=bits,
            length=parameters.length,
            application_digest=parameters.digest(),
            opened_at=opened_at,
            lifetime_seconds=self.lifetime_seconds,
            member_uploads=uploads,
        )
        places = members.places if isinstance(members, DrawnMembers) else None
        return OneShotSetup(context, parameters, invited, places)

    def draw_policy(
        self, registry_root: bytes, registry_size: int, beacon_of: BeaconSource | None = None
    ) -> DrawPolicy:
        """What clients of this plan insist on where members are drawn.

        Args:
            registry_root, registry_size: of all who can be drawn, as the client knows them.
            beacon_of: where it gets beacons; None if a draw has none.

        Raises:
            ParameterError: the plan's committee is not drawn, or takes fewer bits than are safe.
        """
        committee = self.committee or CommitteePlan()
        if committee.kind is not CommitteeKind.DRAWN:
            raise ParameterError("committee", committee.kind.value, "one that is drawn")
        return DrawPolicy(
            registry_root=registry_root,
            registry_size=registry_size,
            odds=committee.whole_odds,
            corrupt_identities=committee.corrupt or 0,
            smallest=self.committee_numbers.size,
            beacon_of=beacon_of,
            security_bits=committee.draw_bits,
        )

    def client_policy(
        self,
        dimension: int | None,
        named: Collection[bytes] = (),
        draw: DrawPolicy | None = None,
    ) -> ClientPolicy:
        """The policy of clients who want what this plan promises and accept nothing less.

        A client that gets the plan from the server gains nothing by it: plan and policy have to
        come from somebody that the client trusts.

        Args:
            dimension: d, length of what a client sums; None where sums of a round differ in it.
            named: identity keys of a named committee's members, in one-shot rounds.
            draw: of a drawn one; see `draw_policy`.
        """
        committee = None
        if self.protocol == "one-shot":
            numbers = self.committee_numbers
            committee = CommitteePolicy(
                kind=self.committee_kind,
                named=named,
                corrupt=None if draw else numbers.corrupt,
                smallest_threshold=numbers.randomness + numbers.per_polynomial,
                draw=draw,
            )
        return ClientPolicy(
            minimum_noise_multiplier=self.goal.noise_multiplier,
            goal=self.goal,
            minimum_survivors=self.minimum_survivors,
            largest_cohort=self.cohort,
            registry_colluders=self.tolerated_colluders,
            largest_clip_l2=self.clip_l2,
            dimension=dimension,
            mechanisms=(self.mechanism,),
            allow_semi_honest=self.mode is Mode.SEMI_HONEST,
            minimum_security_bits=self.ring_bits,
            largest_lifetime_seconds=self.lifetime_seconds or None,
            committee=committee,
            returned_noise=self.returned is not None,
            apart=self.returned.apart if self.returned else 1,
        )
