"""Aggregators that play everybody in this process, by the protocol of a plan."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from protocol.exchange.aggregators import Aggregator, NoiseSource, fresh_noise, system_rand
from protocol.exchange.local_committee import LocalCommittee
from protocol.exchange.one_shot import AbsenceSource, nobody_away
from protocol.exchange.ranks import ALONE, Ranks
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.parameters import RoundParameters
from protocol.round.policy import ClientPolicy
from protocol.round.setup import RoundEncoding
from protocol.schemes.scheme import Announced, Local, Trusted
from secagg import Identity, ParameterError
from secagg.shamir import Rand
from secagg.terms import SESSION_ID_BYTES

_NAMED = b"veilsum/simulated client/v1/"


def named_identities(names: Sequence[str]) -> list[Identity]:
    """Identities that follow from names: the same ones whenever a simulation plays these clients.

    A ledger then counts them as the same. Such a key is nobody's secret, so it is of no use but in
    a simulation.
    """
    valid = "a name of its own for each client, a str that is not empty"
    if not all(isinstance(name, str) and name for name in names):
        raise ParameterError("names", "with one that is empty or no str", valid)
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise ParameterError("names", f"with {twice!r} more than once", valid)
    keys = (hashlib.sha256(_NAMED + name.encode(errors="surrogatepass")).digest() for name in names)
    return [Identity.from_private_bytes(key) for key in keys]


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
    integers: Callable[[ClientPolicy], ClientPolicy] | None = None,
) -> Aggregator:
    """The real scheme of a plan, with every party in this process, or divided among several.

    Args:
        integers: makes of a client's policy what it insists on in rounds of integers, if in
            something else than in all others.
    """

    def policy_of(trusted: Trusted) -> ClientPolicy:
        policy = client_policy(plan, dimension, trusted.named, trusted.draw)
        return policy if integers is None else replace(policy, integers=integers(policy))

    play = Local(
        identities=identities,
        policy_of=policy_of,
        committee=committee,
        executor=executor,
        noise=noise,
        rand_of=rand_of,
        folder=folder,
        ranks=ranks,
        absences=absences,
    )
    return plan.scheme.local(plan, play)


def imagined_setup(plan: TrainingPlan, parameters: RoundParameters) -> RoundEncoding:
    """A round of a plan among clients that do not exist, for whoever measures one."""
    session = bytes(SESSION_ID_BYTES)
    identities = [Identity.generate() for _ in range(plan.cohort)]
    keys = [identity.public for identity in identities]
    members = plan.scheme.imagined_members(plan, identities, session)
    announced = Announced(cohort=keys, session_id=session, round_number=0, members=members)
    return plan.scheme.setup(plan, parameters, announced)
