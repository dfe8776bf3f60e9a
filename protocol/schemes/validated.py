"""Validated sums: a one-shot round whose committee leaves out vectors longer than a bound.

Source: docs/validated.md; the cryptography is in `secagg.validated`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from protocol.exchange.aggregators import Aggregator
from protocol.promise import Promise
from protocol.round.committee_policy import ValidatedPolicy
from protocol.round.lottery import DrawnMembers
from protocol.round.one_shot_setup import announcement_bytes
from protocol.round.parameters import RoundParameters
from protocol.round.validated_setup import ERROR_VARIANCE, ValidatedSetup, bound_of
from protocol.schemes.committee import CommitteeNumbers, Everyone
from protocol.schemes.one_shot import OneShot
from protocol.schemes.scheme import Announced, Local, Priced, Standing, Trusted
from secagg import ParameterError
from secagg.oneshot.committee import lowest_quorum
from secagg.oneshot.context import Cohort
from secagg.validated.context import DEGREE, ValidatedContext, bits_of_sum
from secagg.validated.parameters import Parameters, ring_for, widest
from secagg.validated.traffic import client_traffic, member_traffic

BOUND_BYTES = 24
"""What an announcement has besides that of a one-shot round, give or take some integers."""


@dataclass(frozen=True, slots=True)
class BoundChoice:
    """A bound, the ring that holds it, and what a client's messages cost.

    Attributes:
        bound: beta in clipping norms: as far as one client can move the sum, noise included.
        largest_shift: what all tolerated colluders together can move it, in clipping norms.
        honest_signal: what all other clients together move it at most, for comparison.
        ring_bits: of the prime.
        repetitions: of the challenges.
        bytes_each: by part, what a client sends and is sent.
    """

    bound: float
    largest_shift: float
    honest_signal: float
    ring_bits: int
    repetitions: int
    bytes_each: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated(OneShot):
    """A client uploads once, and a committee opens the sum of what is short enough.

    Noise is the clients' own and stays in sums: the bound covers it. The lattice's errors stay as
    well, so vectors are in units that are fine beside them.

    Args:
        committee: as of `OneShot`; large enough for products of shares.
    """

    KIND: ClassVar[str] = "validated"
    DIVISIBLE: ClassVar[bool] = False
    REMOVES: ClassVar[bool] = False
    ERROR_VARIANCE: ClassVar[float] = ERROR_VARIANCE

    def numbers(self, plan: Promise) -> CommitteeNumbers:
        """As `OneShot.numbers` says: of a product's degree as many answers as are sure to come."""
        return validated_numbers(*self._seats(plan))

    def check(self, plan: Promise) -> None:
        """As `Scheme.check` says."""
        OneShot.check(self, plan)
        if plan.noise.exact:
            valid = "left out or False: noise of validated sums stays in them"
            raise ParameterError("exact", plan.noise.exact, valid)
        if plan.noise.mechanism == "skellam":
            valid = "binomial or discrete-gaussian: the bound covers tails of a Gaussian"
            raise ParameterError("mechanism", plan.noise.mechanism, valid)

    def standing(self, plan: Promise) -> Standing:
        """None: members add no noise yet, whose uploads would have bounds of their own."""
        del plan
        valid = "one-shot, where noise comes back: members of validated rounds add none"
        raise ParameterError("scheme", self.KIND, valid)

    def price(
        self, plan: Promise, parameters: RoundParameters, bits: int, seeds: int, adding: int
    ) -> Priced:
        """As `Scheme.price` says: the bound, the ring, and the bytes of a client's messages."""
        del bits, seeds, adding
        p, numbers = self._conditions(plan, parameters), self.numbers(plan)
        priced = client_traffic(p, plan.cohort)
        if isinstance(self.committee, Everyone):
            priced += member_traffic(p, plan.cohort, numbers.quorum, plan.cohort)
        announced = announcement_bytes(plan.cohort, numbers.size) + BOUND_BYTES
        bound = math.sqrt(p.bound) / (parameters.scale * parameters.sketch_clip_l2)
        return BoundChoice(
            bound=bound,
            largest_shift=plan.tolerated_colluders * bound,
            honest_signal=float(plan.cohort - plan.tolerated_colluders),
            ring_bits=p.ring.bits,
            repetitions=p.repetitions,
            bytes_each=priced.announced(announced).each,
        )

    def setup(
        self, plan: Promise, parameters: RoundParameters, announced: Announced
    ) -> ValidatedSetup:
        """As `Scheme.setup` says."""
        members = announced.members
        if members is None:
            raise ParameterError("members", None, "the committee's, with their signed keys")
        p, cohort = self._conditions(plan, parameters), Cohort(announced.cohort)
        context = ValidatedContext(
            session_id=announced.session_id,
            round_number=announced.round_number,
            size=len(cohort),
            cohort_root=cohort.root,
            minimum_survivors=plan.minimum_survivors,
            tolerated_colluders=plan.tolerated_colluders,
            committee=self.numbers(plan).committee(self.committee.KIND, members),
            bits=bits_of_sum(plan.cohort, p.bound),
            length=parameters.length,
            application_digest=parameters.digest(),
            opened_at=announced.opened_at,
            lifetime_seconds=plan.lifetime_seconds,
            away=p.away,
            ring_bits=p.ring.bits,
            bound=p.bound,
        )
        places = members.places if isinstance(members, DrawnMembers) else None
        return ValidatedSetup(context, parameters, cohort, places)

    def clauses(self, plan: Promise, trusted: Trusted) -> ValidatedPolicy:
        """As `Scheme.clauses` says."""
        return ValidatedPolicy(**self._insisted(plan, trusted))

    def rules(self, plan: Promise) -> dict[str, dict[str, Any]]:
        """As `Scheme.rules` says."""
        rules = OneShot.rules(self, plan)
        return {"committee": {"scheme": self.KIND, **rules["committee"]}}

    def local(self, plan: Promise, play: Local) -> Aggregator:
        """As `Scheme.local` says."""
        if play.ranks.size > 1:
            raise ParameterError("ranks", play.ranks.size, "1 for validated rounds")
        return OneShot.local(self, plan, play)

    def _seats(self, plan: Promise) -> tuple[int, int, int]:
        dropouts, colluders = plan.tolerated_dropouts, plan.tolerated_colluders
        return self.committee.seats(plan.cohort, colluders, dropouts)

    def _conditions(self, plan: Promise, parameters: RoundParameters) -> Parameters:
        """What a round of the plan is about; `ParameterError` if no ring holds its bound."""
        numbers, bound = self.numbers(plan), bound_of(parameters)
        return Parameters(
            ring=ring_for(DEGREE, bound),
            blocks=-(-parameters.length // DEGREE),
            members=numbers.size,
            corrupt=numbers.corrupt,
            away=self._seats(plan)[2],
            randomness=numbers.randomness,
            per_polynomial=numbers.per_polynomial,
            bound=bound,
        )


def validated_numbers(size: int, corrupt: int, away: int) -> CommitteeNumbers:
    """The numbers of a committee that decides whatever its corrupt members do."""
    randomness = max(corrupt, 1)

    def width(members: int) -> int:
        """The most coefficients of a polynomial, T + l, whose products are surely decoded."""
        agreed = 2 * (members - away - 2 * corrupt) > members + corrupt
        return widest(members, corrupt, away) if agreed else 0

    enough = max(randomness, corrupt + away) + 1
    if width(size) < enough:
        least = next(members for members in count(size + 1) if width(members) >= enough)
        raise ParameterError(
            "committee",
            f"{size} members, {corrupt} of them corrupt and {away} away",
            f"larger, {least} members or more, or with fewer away: members multiply shares",
        )
    quorum = lowest_quorum(size, corrupt)
    return CommitteeNumbers(size, corrupt, randomness, width(size) - randomness, quorum)
