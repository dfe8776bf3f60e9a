"""What is counted of a record is never more than what is honest in it, whoever is corrupt."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from member_records import Record, accounted, honest_charge, random_records

from dp.correlated import (
    Charge,
    CorrelatedAccountant,
    CorrelatedRelease,
    Parts,
    RoundNoise,
    RoundParts,
)
from dp.correlated.accountant import promises_of

PARTS = Parts(
    client_variance=3.0,
    member_variance=4.0,
    clients=8,
    members=5,
    corrupt_clients=2,
    corrupt_members=1,
    fewest_clients=6,
    fewest_members=3,
    rounds=5,
    dimension=10,
)
SMALL = (
    PARTS,
    replace(PARTS, member_variance=30.0, fewest_members=4),
    replace(PARTS, members=6, corrupt_members=2, fewest_members=5, member_variance=9.0),
    replace(PARTS, members=6, corrupt_members=0, fewest_members=1, member_variance=9.0),
    replace(PARTS, members=7, corrupt_members=1, fewest_members=3, member_variance=20.0),
)


def counted_charge(parts: Parts, records: Sequence[Record], bounds: np.ndarray) -> float:
    """From what is counted, also by twins that count more than an event admits."""
    charge, before = Charge(), None
    for record, bound in zip(records, bounds, strict=True):
        now = record.numbers
        charge = charge.after(RoundNoise(parts.fresh(now), parts.returned(now, before)), bound)
        before = now
    return charge.mu_squared


ONE_OF_FOUR = [
    replace(PARTS, members=4, rounds=3, member_variance=variance) for variance in (0.1, 100.0)
]
TAKING_PART = [np.array(each) for each in itertools.product((0.0, 1.0), repeat=3) if any(each)]


def careers() -> list[str]:
    """What a member may do in three rounds: be away, add noise, or also take back."""
    every = ("".join(each) for each in itertools.product("-+r", repeat=3))
    return [each for each in every if each[0] != "r" and "-r" not in each]


@cache
def all_records(parts: Parts) -> list[tuple[list[Record], list[float]]]:
    """All of four members in three rounds, with the true charges under the worst corrupt member.

    Members are alike, so careers are chosen without order; the corrupt one is each of them.
    """
    played = []
    for chosen in itertools.combinations_with_replacement(careers(), 4):
        records = [
            Record(
                6,
                frozenset(j for j in range(4) if chosen[j][t] != "-"),
                frozenset(j for j in range(4) if chosen[j][t] == "r"),
            )
            for t in range(3)
        ]
        if all(len(record.entered) >= 3 for record in records):
            true = [
                max(honest_charge(parts, records, [j], bounds) for j in range(4))
                for bounds in TAKING_PART
            ]
            played.append((records, true))
    return played


def as_counted_by(kind: type[Parts], parts: Parts) -> Parts:
    return kind(**{name: getattr(parts, name) for name in Parts.__slots__})


def highest_share(kind: type[Parts]) -> float:
    """The true charge of the worst corrupt set over the counted one, at its most."""
    return max(
        charge / counted_charge(as_counted_by(kind, parts), records, bounds)
        for parts in ONE_OF_FOUR
        for records, true in all_records(parts)
        for bounds, charge in zip(TAKING_PART, true, strict=True)
    )


class OnceTheCorrupt(Parts):
    """Takes c off what entered, where 2c must go: those who came back may be others."""

    def fresh(self, now: RoundParts) -> float:
        honest = now.clients - self.corrupt_clients
        return self.client_variance * honest + self.member_variance * (
            now.entered - self.corrupt_members
        )

    def returned(self, now: RoundParts, before: RoundParts | None) -> float:
        most = before.entered - self.corrupt_members if before else 0
        return self.member_variance * min(now.returned, most)


class OnceTheCorruptOfEach(OnceTheCorrupt):
    """Takes c off either: as if they were among those who came back and among the others."""

    def returned(self, now: RoundParts, before: RoundParts | None) -> float:
        most = before.entered - self.corrupt_members if before else 0
        return self.member_variance * min(max(0, now.returned - self.corrupt_members), most)


class AllWhoCameBack(Parts):
    """Takes every member that came back for an honest one."""

    def returned(self, now: RoundParts, before: RoundParts | None) -> float:
        most = max(0, before.entered - 2 * self.corrupt_members) if before else 0
        return self.member_variance * min(now.returned, most)


class AllClientsHonest(Parts):
    """Counts the noise of every client."""

    def fresh(self, now: RoundParts) -> float:
        return super().fresh(now) + self.client_variance * self.corrupt_clients


def test_no_corrupt_set_makes_the_charge_larger() -> None:
    assert len(all_records(ONE_OF_FOUR[0])) > 100
    assert 0.9 < highest_share(Parts) <= 1.0 + 1e-12


@pytest.mark.parametrize(
    "kind", [OnceTheCorrupt, OnceTheCorruptOfEach, AllWhoCameBack, AllClientsHonest]
)
def test_counting_more_is_too_much(kind: type[Parts]) -> None:
    assert highest_share(kind) > 1.02


@pytest.mark.parametrize("parts", SMALL)
def test_enough_of_either_kind_is_honest(parts: Parts) -> None:
    """For every corrupt set, as many honest parts come back and stay as are counted."""
    everybody = range(parts.members)
    for present, came_back in itertools.product(everybody, repeat=2):
        entered, returned = present + 1, came_back
        if entered < parts.fewest_members or returned > entered:
            continue
        now = RoundParts(clients=parts.clients, entered=max(entered, returned), returned=returned)
        before = RoundParts(clients=parts.clients, entered=entered)
        unit = parts.member_variance
        back = parts.returned(now, before) / unit
        clients = parts.client_variance * (parts.clients - parts.corrupt_clients)
        stays = (parts.fresh(before) - clients) / unit - back
        for corrupt in range(parts.corrupt_members + 1):  # of them, among those who came back
            corrupt_stays = parts.corrupt_members - corrupt
            assert back <= max(0, returned - corrupt)
            assert stays <= max(0, entered - returned - corrupt_stays) + 1e-9


# -- the filter -------------------------------------------------------------------------------


def counted_covariance(parts: Parts, records: Sequence[Record]) -> np.ndarray:
    """Of what is counted in the sums of all rounds."""
    numbers = [record.numbers for record in records]
    befores = [None, *numbers][: len(numbers)]
    returned = [parts.returned(*pair) for pair in zip(numbers, befores, strict=True)]
    sigma = np.diag([parts.fresh(each) for each in numbers] + np.array(returned))
    for t in range(1, len(records)):
        sigma[t, t - 1] = sigma[t - 1, t] = -returned[t]
    return sigma


def test_rounds_that_nobody_sees_cost_nothing() -> None:
    """A record that was made up only raises a count, whatever it says."""
    rng, alone_is_less = np.random.default_rng(11), 0
    for number in range(400):
        parts = SMALL[number % len(SMALL)]
        records = random_records(rng, parts, int(rng.integers(2, 6)))
        sigma = counted_covariance(parts, records)
        bounds = rng.random(len(records)) * (rng.random(len(records)) < 0.7)
        seen = np.flatnonzero(rng.random(len(records)) < 0.6)
        listed = bounds @ np.linalg.solve(sigma, bounds)
        assert listed == pytest.approx(counted_charge(parts, records, bounds), rel=1e-9)
        true = bounds[seen] @ np.linalg.solve(sigma[np.ix_(seen, seen)], bounds[seen])
        assert true <= listed * (1 + 1e-9)
        # Whoever counts each of them for itself counts too little.
        alone = float(np.sum(bounds[seen] ** 2 / sigma[seen, seen]))
        alone_is_less += int(alone < true * (1 - 1e-6))
    assert alone_is_less > 50


def possible(parts: Parts, before: RoundParts | None, fewest_returning: int) -> list[RoundParts]:
    """Every record that a round may turn out to have."""
    most = before.entered if before else 0
    return [
        RoundParts(clients=clients, entered=entered, returned=returned)
        for clients in range(parts.fewest_clients, parts.clients + 1)
        for entered in range(parts.fewest_members, parts.members + 1)
        for returned in range(min(fewest_returning, most), min(most, entered) + 1)
    ]


def after(accountant: CorrelatedAccountant, release: CorrelatedRelease) -> float:
    twin = accountant.copy()
    twin.compose(release)
    return twin.mu_squared


def test_the_dearest_record_is_among_the_ends() -> None:
    lowest_only = highest_only = tightest = 0.0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        parts = SMALL[seed % len(SMALL)]
        size = int(rng.integers(0, parts.rounds))
        records = random_records(rng, parts, size)
        accountant = accounted(parts, records, rng.choice([0.0, 1.0, 4.0], size))
        before = records[-1].numbers if records else None
        fewest = int(rng.integers(0, parts.members + 1))

        ends, every = (
            [after(accountant, parts.release(size + 1, now, before, 1.0)) for now in turns]
            for turns in (parts.worst(before, fewest), possible(parts, before, fewest))
        )
        dearest = max(every)
        assert dearest <= max(ends) * (1 + 1e-12)
        tightest = max(tightest, max(ends) / dearest)
        lowest_only = max(lowest_only, dearest / ends[0])
        highest_only = max(highest_only, dearest / ends[-1])
    # Every end is a record that may happen, and one of them alone is not enough.
    assert tightest <= 1.0 + 1e-12
    assert lowest_only > 1.05 and highest_only > 1.05


def filtered(parts: Parts, seed: int, ends: slice) -> float:
    """A client that uploads while the bound allows: its true charge in the end, over the bound."""
    rng = np.random.default_rng(seed)
    records = random_records(rng, parts, parts.rounds)
    most, bounds = 0.4 * rng.uniform(0.3, 2.0), np.zeros(parts.rounds)
    before, accountant = None, CorrelatedAccountant()
    for t, record in enumerate(records):
        turns = parts.worst(before, len(record.returned))[ends]
        charges = [after(accountant, parts.release(t + 1, now, before, 1.0)) for now in turns]
        bounds[t] = max(charges) <= most
        accountant.compose(parts.release(t + 1, record.numbers, before, float(bounds[t])))
        before = record.numbers
    corrupt_sets = itertools.combinations(range(parts.members), parts.corrupt_members)
    return max(honest_charge(parts, records, each, bounds) for each in corrupt_sets) / most


def test_a_client_that_checks_the_ends_stays_within_its_bound() -> None:
    played = [(parts, seed) for parts in SMALL for seed in range(60)]
    shares = [filtered(parts, seed, slice(None)) for parts, seed in played]
    assert max(shares) <= 1.0 + 1e-12
    assert max(shares) > 0.8


# -- numbers ----------------------------------------------------------------------------------


def test_what_is_promised() -> None:
    release = PARTS.release(1, RoundParts(clients=7, entered=5), None, 2.0)
    assert release == CorrelatedRelease(
        index=1,
        fresh_variance=3.0 * (7 - 2) + 4.0 * (5 - 2),
        returned_variance=0.0,
        l2_sensitivity=2.0,
        dimension=10,
        rounds=5,
        least_fresh=3.0 * (6 - 2) + 4.0 * (3 - 2),
        largest_return=4.0 * (5 - 2),
        smallest_part=3.0,
        most_parts=13,
        least_kept=3.0 * (6 - 2),
    )
    assert promises_of(release) == PARTS.promises
    before = RoundParts(clients=7, entered=5)
    for returned, counted in ((0, 0), (1, 0), (2, 1), (4, 3), (5, 3)):
        now = RoundParts(clients=6, entered=5, returned=returned)
        assert PARTS.release(2, now, before, 0.0).returned_variance == 4.0 * counted


def test_any_true_record_can_be_released() -> None:
    """Also where sums of floats are off by a rounding."""
    rng = np.random.default_rng(7)
    for parts in SMALL:
        for _ in range(40):
            odd = replace(
                parts,
                client_variance=float(rng.uniform(0.1, 1e4)),
                member_variance=float(rng.uniform(0.1, 1e4)),
            )
            accounted(odd, random_records(rng, odd, odd.rounds), np.ones(odd.rounds))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client_variance": 0.0}, "client_variance must be positive and finite, got 0.0"),
        ({"member_variance": float("inf")}, "member_variance must be positive and finite"),
        ({"corrupt_clients": 6}, "fewest_clients must lie in 7..8, got 6"),
        ({"fewest_clients": 9}, "fewest_clients must lie in 3..8, got 9"),
        ({"corrupt_members": 2}, "fewest_members must lie in 5..5, got 3"),
        ({"fewest_members": 6}, "fewest_members must lie in 3..5, got 6"),
        ({"corrupt_members": -1}, "corrupt_members must be at least 0"),
        ({"rounds": 0}, "rounds must lie in 1.."),
        ({"dimension": 0}, "dimension must be at least 1"),
    ],
)
def test_bad_parts(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(PARTS, **changes)


def test_parts_have_their_types() -> None:
    with pytest.raises(TypeError, match="client_variance must be a float, got int"):
        replace(PARTS, client_variance=3)
    with pytest.raises(TypeError, match="members must be an int, got float"):
        replace(PARTS, members=5.0)  # type: ignore[arg-type]


def test_bad_records() -> None:
    now = RoundParts(clients=6, entered=4, returned=4)
    few = RoundParts(clients=6, entered=3)
    with pytest.raises(ValueError, match=r"returned must lie in 0\.\.4, got 5"):
        replace(now, returned=5)
    with pytest.raises(ValueError, match=r"clients must lie in 6\.\.8, got 5"):
        PARTS.release(2, replace(now, clients=5), few, 1.0)
    with pytest.raises(ValueError, match=r"entered must lie in 3\.\.5, got 2"):
        PARTS.release(2, few, RoundParts(clients=6, entered=2), 1.0)
    with pytest.raises(ValueError, match=r"returned must be at most 3, who entered .*, got 4"):
        PARTS.release(2, now, few, 1.0)
    with pytest.raises(ValueError, match=r"returned must be at most 0, .*, got 4"):
        PARTS.release(1, now, None, 1.0)
    with pytest.raises(ValueError, match="before must be left out in round 1 only"):
        PARTS.release(1, few, few, 1.0)
    with pytest.raises(ValueError, match="before must be left out in round 1 only"):
        PARTS.release(2, few, None, 1.0)
    with pytest.raises(ValueError, match=r"index must lie in 1\.\.5"):
        PARTS.release(6, few, few, 1.0)
    with pytest.raises(ValueError, match=r"fewest_returning must lie in 0\.\.5"):
        PARTS.worst(few, 6)
    with pytest.raises(ValueError, match=r"entered must lie in 3\.\.5"):
        PARTS.worst(RoundParts(clients=6, entered=2), 0)
