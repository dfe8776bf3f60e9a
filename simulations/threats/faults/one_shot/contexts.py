"""One-shot rounds to damage: cohorts, committees and rings drawn at random, and their keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from secagg import Identity, ParameterError
from secagg.oneshot.committee import Committee, CommitteeKind, lowest_quorum
from secagg.oneshot.context import Cohort, OneShotContext, fewest_survivors
from secagg.oneshot.key_entries import entries_for
from simulations.threats.game.contexts import (
    MOST_LOST,
    Wanted,
    cohort_keys,
    identity_of,
    until_it_fits,
)
from simulations.threats.one_shot.parties import (
    SESSION,
    OneShotSetting,
    committee_of,
    entry_of,
    member_identity,
)

LARGEST = 8
"""Most clients of a random round; a committee has one member more at the most."""


def random_context(
    rng: np.random.Generator, number: int, wanted: Wanted | None = None
) -> OneShotContext:
    """Named committees and such of everyone, small and large rings, rounded and not."""
    return until_it_fits(_random_context, rng, number, wanted or Wanted())


def random_committee(
    rng: np.random.Generator,
    clients: int,
    colluders: int,
    fewest_corrupt: int = 0,
) -> Committee:
    """One that stands all of its corrupt members, silent or lying; named if nobody is invited."""
    everyone = clients > 0 and rng.random() < 0.3
    size = clients if everyone else int(rng.integers(3, LARGEST + 2))
    corrupt = max(fewest_corrupt, colluders if everyone else 0, int(rng.integers(3)))
    randomness = max(corrupt, 1) + int(rng.random() < 0.3)
    most = size - randomness - 2 * corrupt
    if most < 1 or lowest_quorum(size, corrupt) > size - corrupt:
        raise ParameterError("members", size, "more of them")
    committee = committee_of(
        size, corrupt, randomness=randomness, per_polynomial=int(rng.integers(1, most + 1))
    )
    if not everyone:
        return committee
    members = tuple(entry_of(u, identity=identity_of(u)) for u in range(size))
    return replace(committee, kind=CommitteeKind.EVERYONE, members=members)


def random_setting(rng: np.random.Generator) -> OneShotSetting:
    """The numbers of a round with a hostile server, which has a client and maybe members."""
    committee = until_it_fits(random_committee, rng, 0, 0)
    return OneShotSetting(
        clients=int(rng.integers(5, LARGEST + 1)),
        members=committee.size,
        corrupt=committee.corrupt,
        randomness=committee.randomness,
        per_polynomial=committee.per_polynomial,
        length=int(rng.integers(1, 20)),
    )


def signer_of(context: OneShotContext, member: int) -> Identity:
    """The identity of a member of the context's committee."""
    named = context.committee.kind is CommitteeKind.NAMED
    return member_identity(member) if named else identity_of(member)


def random_sizes(rng: np.random.Generator, wanted: Wanted) -> dict[str, Any]:
    """Cohort, colluders, and fewest survivors."""
    size = int(rng.integers(4 + 2 * wanted.colluders, LARGEST + 1))
    colluders = max(wanted.colluders, int(rng.random() < 0.4))
    spare = size - fewest_survivors(size, colluders)
    if spare < wanted.spare:
        raise ParameterError("lost", spare, f"at least {wanted.spare}")
    lost = int(rng.integers(wanted.spare, max(MOST_LOST, wanted.spare) + 1))
    return {
        "size": size,
        "tolerated_colluders": colluders,
        "minimum_survivors": size - min(lost, spare),
    }


def _random_context(rng: np.random.Generator, number: int, wanted: Wanted) -> OneShotContext:
    sizes = random_sizes(rng, wanted)
    size = sizes["size"]
    lost = size - sizes["minimum_survivors"]
    removable = rng.random() < 0.5 if wanted.removable is None else wanted.removable
    degree, limbs = (1024, 1) if rng.random() < 0.8 else (2048, 2)
    return OneShotContext(
        session_id=SESSION,
        round_number=number,
        **sizes,
        cohort_root=Cohort(cohort_keys(size)).root,
        committee=random_committee(rng, size, sizes["tolerated_colluders"], wanted.corrupt),
        degree=degree,
        limbs=limbs,
        rounding_bits=int(rng.choice([0, 0, 2, 5])),
        entries=int(rng.choice([1, entries_for(size)])),
        # Never empty, so that a round with removable seeds has some to give up.
        removal=tuple(int(m) for m in rng.integers(1, 8, lost + 1)) if removable else (),
        bits=int(rng.choice([8, 12, 16, 24, 32])),
        length=int(rng.integers(1, 100)),
        application_digest=bytes(32),
    )
