"""Aggregators that play everybody in this process, by the protocol of a plan."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from protocol.exchange.aggregators import (
    Aggregator,
    NoiseSource,
    RealAggregator,
    fresh_noise,
    system_rand,
)
from protocol.exchange.local_committee import (
    KeySource,
    LocalCommittee,
    fresh_key,
    system_rand_of,
)
from protocol.exchange.one_shot import AbsenceSource, OneShotAggregator, nobody_away
from protocol.exchange.ranks import ALONE, Ranks
from protocol.planning.training_plan import TrainingPlan
from protocol.round.draw_policy import BeaconSource
from protocol.round.lottery import Lottery
from protocol.round.member import MemberPolicy
from protocol.round.parameters import RoundParameters
from protocol.round.policy import ClientPolicy
from protocol.round.setup import RoundEncoding
from secagg import Identity, ParameterError
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.sortition import Registry
from secagg.shamir import Rand
from secagg.terms import MAX_LENGTH, SESSION_ID_BYTES

_NAMED = b"veilsum/simulated client/v1/"


def named_identities(names: Sequence[str]) -> list[Identity]:
    """Identities that follow from names: the same ones whenever a simulation plays these clients.

    A ledger then counts them as the same. Such a key is nobody's secret, so it is of no use but in
    a simulation.

    Raises:
        ParameterError: a name is no str, is empty, or comes twice.
    """
    valid = "a name of its own for each client, a str that is not empty"
    if not all(isinstance(name, str) and name for name in names):
        raise ParameterError("names", "with one that is empty or no str", valid)
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise ParameterError("names", f"with {twice!r} more than once", valid)
    keys = (hashlib.sha256(_NAMED + name.encode(errors="surrogatepass")).digest() for name in names)
    return [Identity.from_private_bytes(key) for key in keys]


def local_committee(
    plan: TrainingPlan,
    identities: Sequence[Identity],
    named: Sequence[Identity] | None = None,
    key_of: KeySource = fresh_key,
    beacon_of: BeaconSource | None = None,
    rand_of: Callable[[bytes], Rand] = system_rand_of,
) -> LocalCommittee:
    """The committee of a one-shot plan; one that is drawn is drawn from the clients.

    Args:
        identities: of all clients.
        named: of a named committee's members; fresh ones if left out.
        key_of: their sealing keys; leave it alone except to run the same rounds twice.
        beacon_of: where the beacons of a drawn committee come from; None if it has none.
        rand_of: as for `LocalCommittee`.
    """
    numbers = plan.committee_numbers
    members: Sequence[Identity] = identities
    if plan.committee_kind is CommitteeKind.NAMED:
        members = named or [Identity.generate() for _ in range(numbers.size)]
    policy = MemberPolicy(
        minimum_survivors=plan.minimum_survivors,
        tolerated_colluders=plan.tolerated_colluders,
        corrupt=numbers.corrupt,
        registry=frozenset(identity.public for identity in identities),
        fewest_members=plan.fewest_members if plan.returned else 0,
        # Who announces is in this process as well, and keeps to the plan.
        largest_length=MAX_LENGTH,
    )
    lottery = None
    if plan.committee_kind is CommitteeKind.DRAWN and plan.committee:
        registry = Registry([identity.public for identity in identities])
        lottery = Lottery(registry, plan.committee.whole_odds, numbers.size, beacon_of)
    return LocalCommittee(plan.committee_kind, members, policy, key_of, lottery, rand_of)


def local_aggregator(
    plan: TrainingPlan,
    identities: Sequence[Identity],
    dimension: int | None,
    *,
    committee: LocalCommittee | None = None,
    executor: Executor | None = None,
    noise: NoiseSource = fresh_noise,
    rand_of: Callable[[int], Rand] = system_rand,
    folder: Path | None = None,
    ranks: Ranks = ALONE,
    absences: AbsenceSource = nobody_away,
) -> Aggregator:
    """The real protocol of a plan, with every party in this process, or divided among several.

    Args:
        identities: the clients' signing keys.
        dimension: d, as for `TrainingPlan.client_policy`.
        committee: of one-shot rounds; made if left out.
        executor: optional, for unmasking in pairwise rounds.
        noise, rand_of: leave them alone except to run the same rounds twice.
        folder: where one-shot uploads are spooled that do not fit into memory.
        ranks: among which one-shot cohorts are divided.
        absences: members of a named or drawn committee that get lost, round by round.

    Raises:
        ParameterError: several ranks, for a protocol whose server is one process.
    """
    if plan.protocol == "pairwise":
        if ranks.size > 1:
            raise ParameterError("ranks", ranks.size, "1, or a plan of one-shot rounds")
        policy = plan.client_policy(dimension)
        return RealAggregator(identities, policy, executor, noise=noise, rand_of=rand_of)
    committee = committee or local_committee(plan, identities)
    policy = one_shot_policy(plan, dimension, committee)
    return OneShotAggregator(
        identities,
        policy,
        committee,
        noise=noise,
        rand_of=rand_of,
        absences=absences,
        folder=folder,
        ranks=ranks,
    )


def one_shot_policy(
    plan: TrainingPlan, dimension: int | None, committee: LocalCommittee
) -> ClientPolicy:
    """What clients of a one-shot plan insist on, about this committee too.

    Args:
        dimension: d, as for `TrainingPlan.client_policy`.
        committee: in this process.
    """
    draw = None
    if (lottery := committee.lottery) is not None:
        registry = lottery.registry
        draw = plan.draw_policy(registry.root, len(registry), lottery.beacon_of)
    return plan.client_policy(dimension, committee.named, draw)


def imagined_setup(plan: TrainingPlan, parameters: RoundParameters) -> RoundEncoding:
    """A round of a plan among clients that do not exist, for whoever measures one."""
    session = bytes(SESSION_ID_BYTES)
    identities = [Identity.generate() for _ in range(plan.cohort)]
    keys = [identity.public for identity in identities]
    if plan.protocol == "pairwise":
        return plan.setup(parameters, keys, session, 0)
    members = local_committee(plan, identities).members(session, keys, 0)
    return plan.one_shot_setup(parameters, keys, members, session, 0)
