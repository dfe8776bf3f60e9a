"""Validated sums: a one-shot round whose committee leaves out vectors longer than a bound.

Source: docs/validated.md; the cryptography is in `secagg.validated`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from protocol.promise import Promise
from protocol.round.committee_policy import ValidatedPolicy
from protocol.round.one_shot_setup import announcement_bytes
from protocol.round.parameters import RoundParameters
from protocol.round.validated_setup import ERROR_VARIANCE, ValidatedSetup, bounds_of
from protocol.schemes.committee import CommitteeNumbers, Everyone
from protocol.schemes.one_shot import OneShot
from protocol.schemes.scheme import Announced, Priced, Trusted
from secagg import ParameterError
from secagg.oneshot.committee import lowest_quorum
from secagg.oneshot.complaints import weight_of_member
from secagg.validated.context import DEGREE, ValidatedContext, bits_of_sum, longest_of
from secagg.validated.parameters import Parameters, ring_for, widest
from secagg.validated.traffic import client_traffic, member_traffic

BOUND_BYTES = 24
"""What an announcement has besides that of a one-shot round, give or take some integers."""


@dataclass(frozen=True, slots=True)
class BoundChoice:
    """A bound, the ring that holds it, and what a client's messages cost.

    Attributes:
        bound: beta in clipping norms: as far as one client can move the sum, noise included.
        member_bound: beta_m, likewise of a member that adds noise; 0 if none does.
        largest_shift: how far all tolerated colluders and corrupt members together can move it by
            what they send, in clipping norms.
        left_out: honest uploads that corrupt members can have left out besides, at most (S4).
        honest_signal: what the other clients, who stay, move it at most, for comparison.
        ring_bits: of the prime.
        repetitions: of the challenges.
        bytes_each: by part, what a client sends and is sent.
    """

    bound: float
    member_bound: float
    largest_shift: float
    left_out: int
    honest_signal: float
    ring_bits: int
    repetitions: int
    bytes_each: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated(OneShot):
    """A client uploads once, and a committee opens the sum of what is short enough.

    The bound covers a client's own noise, which stays in the sum. Where members add noise as well,
    theirs has a bound of its own. The lattice's errors stay, so vectors are in units that are fine
    beside them.

    Args:
        committee: as of `OneShot`; large enough for products of shares.
    """

    KIND: ClassVar[str] = "validated"
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

    def price(
        self, plan: Promise, parameters: RoundParameters, bits: int, seeds: int, adding: int
    ) -> Priced:
        """As `Scheme.price` says: the bound, the ring, and the bytes of a client's messages."""
        del bits, seeds
        bounds, numbers = bounds_of(parameters), self.numbers(plan)
        p = self._conditions(plan, parameters, max(bounds))
        priced = client_traffic(p, plan.cohort + adding)
        if isinstance(self.committee, Everyone):
            priced += member_traffic(p, plan.cohort, numbers.quorum, plan.cohort)
        announced = announcement_bytes(plan.cohort, numbers.size) + BOUND_BYTES
        clip = parameters.scale * parameters.sketch_clip_l2
        bound, of_member = (math.sqrt(each) / clip for each in bounds)
        corrupt, colluders = numbers.corrupt, plan.tolerated_colluders
        most_corrupt = colluders + (corrupt if adding else 0)
        lost = corrupt * weight_of_member(most_corrupt, corrupt) - 1 if corrupt else 0
        return BoundChoice(
            bound=bound,
            member_bound=of_member,
            largest_shift=colluders * bound + corrupt * of_member,
            left_out=lost,
            honest_signal=float(plan.cohort - colluders - lost),
            ring_bits=p.ring.bits,
            repetitions=p.repetitions,
            bytes_each=priced.announced(announced).each,
        )

    def setup(
        self, plan: Promise, parameters: RoundParameters, announced: Announced
    ) -> ValidatedSetup:
        """As `Scheme.setup` says."""
        bound, of_member = bounds_of(parameters)
        p = self._conditions(plan, parameters, max(bound, of_member))
        invited, places, terms = self._terms(plan, parameters, announced)
        adding = len(invited) - plan.cohort
        longest = longest_of(bound, plan.cohort) + longest_of(of_member, adding)
        made = (
            ValidatedContext(
                **terms,
                bits=bits_of_sum(longest),
                away=p.away,
                ring_bits=p.ring.bits,
                bound=bound,
                member_bound=of_member,
                nonce=nonce,
            )
            for nonce in count()
        )
        context = next(each for each in made if each.has_inverses)
        return ValidatedSetup(context, parameters, invited, places)

    def clauses(self, plan: Promise, trusted: Trusted) -> ValidatedPolicy:
        """As `Scheme.clauses` says."""
        return ValidatedPolicy(**self._insisted(plan, trusted))

    def rules(self, plan: Promise) -> dict[str, dict[str, Any]]:
        """As `Scheme.rules` says."""
        rules = OneShot.rules(self, plan)
        return {"committee": {"scheme": self.KIND, **rules["committee"]}}

    def _seats(self, plan: Promise) -> tuple[int, int, int]:
        dropouts, colluders = plan.tolerated_dropouts, plan.tolerated_colluders
        return self.committee.seats(plan.cohort, colluders, dropouts)

    def _conditions(self, plan: Promise, parameters: RoundParameters, bound: int) -> Parameters:
        """What a round of the plan is about; `ParameterError` if no ring holds its bound."""
        numbers = self.numbers(plan)
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
