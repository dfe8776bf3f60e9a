"""One-shot sums: a client uploads once, and a committee opens the sum.

Source: docs/one-shot-security.md; the cryptography is in `secagg.oneshot`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, ClassVar

from protocol.checks import of_kind
from protocol.exchange.aggregators import Aggregator
from protocol.exchange.local_committee import (
    KeySource,
    LocalCommittee,
    fresh_key,
    system_rand_of,
)
from protocol.exchange.one_shot import EXCHANGES, OneShotAggregator
from protocol.exchange.remote_one_shot import RemoteOneShotAggregator
from protocol.promise import Promise
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.draw_policy import BeaconSource, DrawPolicy
from protocol.round.field_size import bits_for
from protocol.round.lottery import DrawnMembers, Lottery, Members
from protocol.round.member import MemberPolicy
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.parameters import RoundParameters
from protocol.round.setup import RoundEncoding, removal_table
from protocol.schemes.committee import (
    CommitteeNumbers,
    CommitteePlan,
    Drawn,
    Everyone,
    Named,
    choose_ring,
    require_one_shot,
)
from protocol.schemes.scheme import (
    Announced,
    Carrier,
    KeyHolders,
    Local,
    Priced,
    Scheme,
    Standing,
    Trusted,
)
from secagg import Identity, ParameterError
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.draw_bound import BITS_WITHOUT_BEACON
from secagg.oneshot.records import MemberUploads, fewest_members
from secagg.oneshot.sortition import Places, Registry
from secagg.shamir import Rand
from secagg.terms import MAX_LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShot(Scheme):
    """A client uploads once, and a committee opens the sum.

    Args:
        committee: `Everyone` who is invited, a `Named` committee or one that is `Drawn`.

    Raises:
        ParameterError: no such committee.
    """

    KIND: ClassVar[str] = "one-shot"
    SEATS: ClassVar[bool] = True
    DIVISIBLE: ClassVar[bool] = True
    SHORT_STAGES: ClassVar[int] = len(EXCHANGES)

    committee: CommitteePlan = field(default_factory=Everyone)

    def __post_init__(self) -> None:
        if not isinstance(self.committee, CommitteePlan):
            valid = "Everyone(), a Named or a Drawn"
            raise ParameterError("committee", self.committee, valid)

    def numbers(self, plan: Promise) -> CommitteeNumbers:
        """What the committee of a round is made of, besides its members."""
        dropouts, colluders = plan.tolerated_dropouts, plan.tolerated_colluders
        return self.committee.numbers(plan.cohort, colluders, dropouts)

    def check(self, plan: Promise) -> None:
        """As `Scheme.check` says."""
        require_one_shot(plan.cohort, plan.tolerated_colluders, plan.tolerated_dropouts)
        _ = self.numbers(plan)

    def standing(self, plan: Promise) -> Standing:
        """As `Scheme.standing` says.

        Corrupt members may stay away, and have as many honest ones left out as members. Corrupt
        clients together with them may have more uploads of members left out than that, and end
        rounds (docs/one-shot-security.md).
        """
        if not isinstance(self.committee, Named):
            valid = "a named one: noise comes back only to members who stay the same"
            raise ParameterError("committee", self.committee.KIND.value, valid)
        numbers = self.numbers(plan)
        left = numbers.size - 2 * numbers.corrupt - self.committee.away
        fewest = max(fewest_members(numbers.size, numbers.corrupt), left)
        return Standing(numbers.size, numbers.corrupt, fewest)

    def price(
        self, plan: Promise, parameters: RoundParameters, bits: int, seeds: int, adding: int
    ) -> Priced:
        """As `Scheme.price` says: the ring, and the bytes of every message of a client."""
        everyone = isinstance(self.committee, Everyone)
        numbers, clients = self.numbers(plan), plan.cohort + adding
        return choose_ring(clients, parameters.length, bits, seeds, numbers, everyone=everyone)

    def setup(
        self, plan: Promise, parameters: RoundParameters, announced: Announced
    ) -> OneShotSetup:
        """As `Scheme.setup` says."""
        removal = removal_table(plan.schedule(parameters.mechanism))
        seeds = max(removal, default=0).bit_length()
        invited, places, terms = self._terms(plan, parameters, announced)
        bits = bits_for(parameters, plan.cohort, seeds, len(invited) - plan.cohort)
        bits = max(bits, announced.bits)
        ring = choose_ring(len(invited), parameters.length, bits, seeds, self.numbers(plan))
        context = OneShotContext(
            **terms,
            degree=ring.degree,
            limbs=ring.limbs,
            rounding_bits=ring.rounding_bits,
            entries=ring.entries,
            removal=removal,
            bits=bits,
        )
        return OneShotSetup(context, parameters, invited, places)

    def _terms(
        self, plan: Promise, parameters: RoundParameters, announced: Announced
    ) -> tuple[Cohort, Places | None, dict[str, Any]]:
        """Who is invited, where drawn members are, and terms of every round with a committee."""
        members = announced.members
        if members is None:
            raise ParameterError("members", None, "the committee's, with their signed keys")
        committee = self.numbers(plan).committee(self.committee.KIND, members)
        uploads = announced.uploads or plan.noise.uploads(plan, parameters)
        adding = () if uploads is None else tuple(each.identity for each in committee.members)
        invited = Cohort([*announced.cohort, *adding])
        places = members.places if isinstance(members, DrawnMembers) else None
        return (
            invited,
            places,
            {
                "session_id": announced.session_id,
                "round_number": announced.round_number,
                "size": len(invited),
                "cohort_root": invited.root,
                "minimum_survivors": plan.minimum_survivors,
                "tolerated_colluders": plan.tolerated_colluders,
                "committee": committee,
                "length": parameters.length,
                "application_digest": parameters.digest(),
                "opened_at": announced.opened_at,
                "lifetime_seconds": plan.lifetime_seconds,
                "member_uploads": uploads,
            },
        )

    def clauses(self, plan: Promise, trusted: Trusted) -> CommitteePolicy:
        """As `Scheme.clauses` says."""
        return CommitteePolicy(**self._insisted(plan, trusted))

    def _insisted(self, plan: Promise, trusted: Trusted) -> dict[str, Any]:
        numbers = self.numbers(plan)
        return {
            "kind": self.committee.KIND,
            "named": trusted.named,
            "corrupt": None if trusted.draw else numbers.corrupt,
            "smallest_threshold": numbers.randomness + numbers.per_polynomial,
            "draw": trusted.draw,
        }

    def table(self) -> dict[str, Any]:
        """As `Scheme.table` says."""
        committee = {"kind": self.committee.KIND.value}
        for each in ("size", "corrupt", "away", "odds"):
            if hasattr(self.committee, each):
                committee[each] = getattr(self.committee, each)
        return {"kind": self.KIND, "committee": committee}

    def rules(self, plan: Promise) -> dict[str, dict[str, Any]]:
        """As `Scheme.rules` says."""
        numbers = self.numbers(plan)
        threshold = numbers.randomness + numbers.per_polynomial
        rules: dict[str, Any] = {"kind": self.committee.KIND.value, "corrupt": numbers.corrupt}
        if isinstance(self.committee, Drawn):
            if self.committee.draw_bits != BITS_WITHOUT_BEACON:
                valid = f"{BITS_WITHOUT_BEACON} or left out: no policy file has another"
                raise ParameterError("security_bits", self.committee.security_bits, valid)
            of, odds = self.committee.corrupt, self.committee.odds
            rules |= {"corrupt": of, "size": numbers.size, "odds": odds}
        return {"committee": {**rules, "threshold": threshold}}

    def local(self, plan: Promise, play: Local) -> Aggregator:
        """As `Scheme.local` says."""
        committee = play.committee or local_committee(plan, play.identities)
        return OneShotAggregator(
            play.identities,
            play.policy_of(trusted_of(plan, committee)),
            committee,
            noise=play.noise,
            rand_of=play.rand_of,
            absences=play.absences,
            folder=play.folder,
            ranks=play.ranks,
        )

    def imagined_members(
        self, plan: Promise, identities: Sequence[Identity], session_id: bytes
    ) -> Members:
        """As `Scheme.imagined_members` says."""
        keys = [identity.public for identity in identities]
        return local_committee(plan, identities).members(session_id, keys, 0)

    def remote(self, carrier: Carrier, executor: Executor | None = None) -> Aggregator:
        """As `Scheme.remote` says."""
        return RemoteOneShotAggregator(
            carrier.collect, carrier.consult, carrier.members, carrier.note, carrier.note_member
        )

    def key_holders(
        self, plan: Promise, named: Collection[bytes], registry: Collection[bytes]
    ) -> KeyHolders:
        """As `Scheme.key_holders` says."""
        if isinstance(self.committee, Named):
            return KeyHolders(frozenset(named), len(named))
        if isinstance(self.committee, Drawn):
            drawn_from, size = self._drawn_from(plan, registry), self.numbers(plan).size
            lottery = Lottery(drawn_from, self.committee.whole_odds, size)
            return KeyHolders(frozenset(registry), size, lottery=lottery)
        return KeyHolders(frozenset(registry), plan.cohort, everyone=True)

    def draw(self, plan: Promise, registry: Collection[bytes]) -> DrawPolicy | None:
        """What clients insist on if members are drawn from a registry; None if they are not."""
        if not isinstance(self.committee, Drawn):
            return None
        drawn_from = self._drawn_from(plan, registry)
        return draw_policy(plan, drawn_from.root, len(drawn_from))

    def _drawn_from(self, plan: Promise, registry: Collection[bytes]) -> Registry:
        """All clients, of whom no fewer may be corrupt as members than as clients."""
        corrupt, least = (
            of_kind("committee", self.committee, Drawn).corrupt,
            plan.tolerated_colluders,
        )
        if corrupt < least:
            valid = f"at least {least}, as tolerated_colluders: members are drawn from the clients"
            raise ParameterError("corrupt", corrupt, valid)
        return Registry(sorted(registry))

    def named_members(self, plan: Promise) -> int:
        """As `Scheme.named_members` says."""
        return self.numbers(plan).size if self.committee.STANDS else 0

    @classmethod
    def stage_bytes(cls, setup: RoundEncoding) -> int:
        """As `Scheme.stage_bytes` says: members get everybody's shares, or upload noise before."""
        one_shot = of_kind("setup", setup, OneShotSetup)
        up = one_shot.traffic(one_shot.context.invited).up
        shares = one_shot.context.invited * (up["seals"] + up.get("functional", 0))
        return max(shares, one_shot.adding_members * sum(up.values()))


def one_shot_of(plan: Promise) -> OneShot:
    """The scheme of a plan of one-shot rounds; `ParameterError` of any other."""
    return of_kind("scheme", plan.scheme, OneShot)


def one_shot_setup(
    plan: Promise,
    parameters: RoundParameters,
    cohort: Sequence[bytes],
    members: Members,
    session_id: bytes,
    round_number: int,
    opened_at: int = 0,
    uploads: MemberUploads | None = None,
) -> OneShotSetup:
    """A round of a plan of one-shot rounds; arguments as of `Announced`."""
    announced = Announced(
        cohort=cohort,
        session_id=session_id,
        round_number=round_number,
        opened_at=opened_at,
        members=members,
        uploads=uploads,
    )
    return one_shot_of(plan).setup(plan, parameters, announced)


def local_committee(
    plan: Promise,
    identities: Sequence[Identity],
    named: Sequence[Identity] | None = None,
    key_of: KeySource = fresh_key,
    beacon_of: BeaconSource | None = None,
    rand_of: Callable[[bytes], Rand] = system_rand_of,
) -> LocalCommittee:
    """The committee of a one-shot plan in this process; one that is drawn comes from the clients.

    Args:
        beacon_of: where the beacons of a drawn committee come from; None if it has none.
    """
    scheme = one_shot_of(plan)
    numbers, committee = scheme.numbers(plan), scheme.committee
    members: Sequence[Identity] = identities
    if isinstance(committee, Named):
        members = named or [Identity.generate() for _ in range(numbers.size)]
    policy = MemberPolicy(
        minimum_survivors=plan.minimum_survivors,
        tolerated_colluders=plan.tolerated_colluders,
        corrupt=numbers.corrupt,
        registry=frozenset(identity.public for identity in identities),
        fewest_members=plan.noise.fewest_members(plan),
        # Who announces is in this process as well, and keeps to the plan.
        largest_length=MAX_LENGTH,
    )
    lottery = None
    if isinstance(committee, Drawn):
        registry = Registry([identity.public for identity in identities])
        lottery = Lottery(registry, committee.whole_odds, numbers.size, beacon_of)
    return LocalCommittee(committee.KIND, members, policy, key_of, lottery, rand_of)


def trusted_of(plan: Promise, committee: LocalCommittee) -> Trusted:
    """Whom clients of a plan trust, if the committee is in this process."""
    if committee.lottery is None:
        return Trusted(named=committee.named)
    registry = committee.lottery.registry
    draw = draw_policy(plan, registry.root, len(registry), committee.lottery.beacon_of)
    return Trusted(named=committee.named, draw=draw)


def draw_policy(
    plan: Promise,
    registry_root: bytes,
    registry_size: int,
    beacon_of: BeaconSource | None = None,
) -> DrawPolicy:
    """What clients of a plan insist on where members are drawn.

    Args:
        beacon_of: where it gets beacons; None if a draw has none.
    """
    scheme = one_shot_of(plan)
    committee = of_kind("committee", scheme.committee, Drawn)
    return DrawPolicy(
        registry_root=registry_root,
        registry_size=registry_size,
        odds=committee.whole_odds,
        corrupt_identities=committee.corrupt,
        smallest=scheme.numbers(plan).size,
        beacon_of=beacon_of,
        security_bits=committee.draw_bits,
    )
