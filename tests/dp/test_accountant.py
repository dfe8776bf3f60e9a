"""One conformance suite for every accountant, then each one's own figures."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from accounts import epsilon_of

from dp.accounting import (
    DominationAccountant,
    FailureReserve,
    GaussianReference,
    LocalAccountant,
    MomentsAccountant,
    Theorem1Accountant,
    effective_sigma,
    gaussian_epsilon,
    theorem1_epsilon,
)
from dp.accounting.base import Accountant
from dp.accounting.base import EventCounter as _EventCounter
from dp.accounting.laws import MAX_TOTAL_COINS
from dp.accounting.theorem1 import Theorem1Parameters
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event
from dp.events import (
    Adjacency,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    GaussianRelease,
    LocalRelease,
    NonPrivateRelease,
    SkellamRelease,
)

AGAINST_SERVER = [DominationAccountant, Theorem1Accountant, MomentsAccountant, GaussianReference]
ALL = [*AGAINST_SERVER, LocalAccountant]
DELTA = 1e-5
RELEASE = BinomialRelease(65536, 16.0, 16, 1000)
OTHER = BinomialRelease(30000, 8.0, 4, 500)
Pair = tuple[Event, Event]


class Unknown:
    """An event from somewhere else."""


@pytest.fixture
def pair(kind: type[_EventCounter]) -> Pair:
    """Two events that an accountant has theorems for."""
    if kind is LocalAccountant:
        return LocalRelease(0.5), LocalRelease(0.3)
    return RELEASE, OTHER


@pytest.mark.parametrize("kind", ALL)
class TestConformance:
    """What every accountant promises."""

    def test_states_its_terms(self, kind: type[_EventCounter]) -> None:
        accountant: Accountant = kind()
        local = kind is LocalAccountant
        assert accountant.adjacency is (Adjacency.ANY_INPUT if local else Adjacency.ZERO_OUT)
        assert accountant.name
        assert accountant.is_bound is (kind not in (GaussianReference, Theorem1Accountant))

    def test_nothing_released_costs_nothing(self, kind: type[_EventCounter]) -> None:
        assert kind().epsilon(DELTA) == 0.0

    def test_noiseless_release_costs_everything(
        self, kind: type[_EventCounter], pair: Pair
    ) -> None:
        release, _ = pair
        assert epsilon_of(kind, release, NonPrivateRelease()) == math.inf
        assert epsilon_of(kind, NonPrivateRelease(), delta=0.99) == math.inf

    def test_more_releases_cost_more(self, kind: type[_EventCounter], pair: Pair) -> None:
        release, _ = pair
        values = [epsilon_of(kind, *[release] * n) for n in (1, 2, 4, 9)]
        assert values == sorted(values)
        assert 0.0 < values[0] < values[-1] < math.inf

    def test_larger_delta_costs_less(self, kind: type[_EventCounter], pair: Pair) -> None:
        release, other = pair
        values = [epsilon_of(kind, release, other, delta=d) for d in (1e-8, 1e-6, 1e-4)]
        assert values == sorted(values, reverse=True)

    def test_order_does_not_matter(self, kind: type[_EventCounter], pair: Pair) -> None:
        release, other = pair
        assert epsilon_of(kind, release, other, release) == epsilon_of(
            kind, release, release, other
        )

    def test_count_equals_repetition(self, kind: type[_EventCounter], pair: Pair) -> None:
        release, _ = pair
        counted = kind()
        counted.compose(release, 5)
        assert counted.epsilon(DELTA) == epsilon_of(kind, *[release] * 5)
        assert counted.releases == 5

    def test_composition_equals_its_parts(self, kind: type[_EventCounter], pair: Pair) -> None:
        release, other = pair
        together = Composition((release, Composition((other, release))))
        assert epsilon_of(kind, together) == epsilon_of(kind, release, other, release)

    def test_unknown_events_are_refused_by_name_and_change_nothing(
        self, kind: type[_EventCounter], pair: Pair
    ) -> None:
        release, other = pair
        accountant = kind()
        accountant.compose(other)
        before = accountant.epsilon(DELTA)
        mixed = Composition((release, NonPrivateRelease(), Unknown()))  # type: ignore[arg-type]
        assert not accountant.supports(mixed)
        with pytest.raises(UnsupportedEventError, match="Unknown"):
            accountant.compose(mixed)
        assert accountant.epsilon(DELTA) == before
        assert accountant.releases == 1

    def test_copies_are_independent(self, kind: type[_EventCounter], pair: Pair) -> None:
        _, other = pair
        original = kind()
        original.compose(other)
        twin = original.copy()
        twin.compose(NonPrivateRelease())
        assert type(twin) is kind
        assert original.epsilon(DELTA) < twin.epsilon(DELTA) == math.inf

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
    def test_bad_delta(self, kind: type[_EventCounter], delta: float) -> None:
        with pytest.raises(ValueError, match="delta"):
            kind().epsilon(delta)

    @pytest.mark.parametrize("count", [0, -3])
    def test_bad_count(self, kind: type[_EventCounter], pair: Pair, count: int) -> None:
        release, _ = pair
        with pytest.raises(ValueError, match="count"):
            kind().compose(release, count)


@pytest.mark.parametrize("kind", AGAINST_SERVER)
def test_no_coins_cost_everything(kind: type[_EventCounter]) -> None:
    assert epsilon_of(kind, BinomialRelease(0, 1.0, 1, 1)) == math.inf


def integer_noise(sigma: int) -> Iterator[Event]:
    """Releases with noise of this deviation, whatever its law, and shifts up to it."""
    variance, clients = float(sigma**2), 25
    for l2 in (1, sigma // 4, sigma):
        for linf in {max(1, l2 // 4), l2}:
            yield BinomialRelease(4 * sigma**2, float(l2), linf, 10)
            yield SkellamRelease(variance, float(l2), linf, 10)
            yield DiscreteGaussianRelease(variance / clients, clients, float(l2), linf, 10)


@pytest.mark.parametrize("sigma", [8, 16, 20, 32])
def test_integer_noise_costs_as_much_more_than_the_gaussian_as_the_page_says(sigma: int) -> None:
    """Within 1 % from 20 integer units on, down to a delta of 1e-8; at 16 it is not."""
    page = Path(__file__).parents[2] / "docs" / "accounting.md"
    (row,) = re.findall(
        rf"^\| {sigma} \| ([.\d]+ \| [.\d]+ \| [.\d]+) \|$", page.read_text(), re.MULTILINE
    )
    for delta, percent in zip((1e-5, 1e-8, 1e-12), map(float, row.split(" | ")), strict=True):
        ratios = []
        for event, rounds in itertools.product(integer_noise(sigma), (1, 10, 100)):
            accounts = DominationAccountant(), GaussianReference()
            for account in accounts:
                account.compose(event, rounds)
            ratios.append(accounts[0].epsilon(delta) / accounts[1].epsilon(delta))
        assert min(ratios) >= 1.0
        assert percent - 0.1 < 100.0 * (max(ratios) - 1.0) <= percent


def test_gaussian_releases_never_fail() -> None:
    """No delta is set aside: two of them are exactly one of twice mu squared."""
    event = GaussianRelease(16.0, 4.0)
    assert epsilon_of(DominationAccountant, event, event) == gaussian_epsilon(
        math.sqrt(2 * (4 / 16) ** 2), DELTA
    )
    mixed = epsilon_of(DominationAccountant, event, RELEASE)
    assert epsilon_of(DominationAccountant, RELEASE) < mixed
    assert epsilon_of(DominationAccountant, GaussianRelease(0.0, 1.0)) == math.inf
    assert epsilon_of(DominationAccountant, GaussianRelease(0.0, 0.0)) == 0.0


def test_practically_no_noise_promises_nothing() -> None:
    for event in (
        SkellamRelease(1e-9, 1.0, 1, 1),
        DiscreteGaussianRelease(1e-9, 9, 1.0, 1, 1),
        DiscreteGaussianRelease(1.0, 0, 1.0, 1, 1),
        DiscreteGaussianRelease(0.04, 400, 1.0, 1, 1),
    ):
        assert epsilon_of(DominationAccountant, event) == math.inf


def test_domination_does_not_know_the_dimension() -> None:
    small, large = (BinomialRelease(1024, 16.0, 16, d) for d in (1, 10**9))
    assert epsilon_of(DominationAccountant, small) == epsilon_of(DominationAccountant, large)


def test_domination_stays_between_gaussian_and_theorem1() -> None:
    for event in (RELEASE, OTHER):
        gaussian = epsilon_of(GaussianReference, event)
        assert gaussian <= epsilon_of(DominationAccountant, event) <= 1.01 * gaussian
        assert epsilon_of(DominationAccountant, event) < epsilon_of(Theorem1Accountant, event)


def test_heterogeneous_composition_equals_homogeneous_when_equal() -> None:
    """A twin that differs only in its (ignored) dimension is counted as another event."""
    twin = BinomialRelease(65536, 16.0, 16, 999)
    mixed = epsilon_of(DominationAccountant, *[RELEASE] * 6, *[twin] * 4)
    assert mixed == pytest.approx(epsilon_of(DominationAccountant, *[RELEASE] * 10), rel=1e-12)


def test_composition_formula_at_one_delta0() -> None:
    """The reported value is one of the bounds it is the minimum of, and no larger than another."""
    rounds, delta0 = 10, 2.0**-24
    sigma = effective_sigma(65536, 16.0, 16, delta0)
    bound = gaussian_epsilon(math.sqrt(rounds) * 16.0 / sigma, DELTA - rounds * delta0)
    found = epsilon_of(DominationAccountant, *[RELEASE] * rounds)
    assert found <= bound
    assert found == pytest.approx(bound, rel=0.01)


class TestFailureReserve:
    """Delta for failures fixed beforehand, for runs whose parameters are adaptive."""

    def test_it_costs_little(self) -> None:
        searched, reserved = (
            DominationAccountant(),
            DominationAccountant(FailureReserve.from_delta(DELTA, 50)),
        )
        for accountant in (searched, reserved):
            accountant.compose(RELEASE, 50)
        assert searched.epsilon(DELTA) <= reserved.epsilon(DELTA)
        assert reserved.epsilon(DELTA) == pytest.approx(searched.epsilon(DELTA), rel=0.005)

    def test_the_whole_reserve_counts_from_the_first_release(self) -> None:
        few = DominationAccountant(FailureReserve(1e-8, 10))
        many = DominationAccountant(FailureReserve(1e-8, 900))
        for accountant in (few, many):
            accountant.compose(RELEASE)
        assert few.epsilon(DELTA) < many.epsilon(DELTA) < math.inf

    def test_beyond_the_planned_releases_nothing_is_promised(self) -> None:
        accountant = DominationAccountant(FailureReserve(1e-8, 2))
        accountant.compose(RELEASE, 2)
        assert accountant.copy().epsilon(DELTA) < math.inf
        accountant.compose(RELEASE)
        assert accountant.epsilon(DELTA) == math.inf
        assert accountant.copy().epsilon(DELTA) == math.inf

    def test_a_reserve_larger_than_delta_promises_nothing(self) -> None:
        accountant = DominationAccountant(FailureReserve(1e-6, 10))
        accountant.compose(RELEASE)
        assert accountant.epsilon(DELTA) == math.inf

    def test_failures_of_secure_aggregation_are_a_part_of_it(self) -> None:
        reserve = FailureReserve.from_delta(DELTA, 50)
        assert 50 * reserve.aggregation == pytest.approx(DELTA / 100)
        assert reserve.total >= 50 * (reserve.delta0 + reserve.aggregation)
        without, with_them = (
            DominationAccountant(FailureReserve(1e-8, 10, failure)) for failure in (0.0, 1e-8)
        )
        for accountant in (without, with_them):
            accountant.compose(RELEASE)
        assert without.epsilon(DELTA) < with_them.epsilon(DELTA) < math.inf
        hopeless = DominationAccountant(FailureReserve(1e-8, 10, DELTA / 10))
        hopeless.compose(RELEASE)
        assert hopeless.epsilon(DELTA) == math.inf


def test_many_rounds_reuse_the_cache() -> None:
    accountant = DominationAccountant()
    accountant.compose(RELEASE)
    effective_sigma.cache_clear()
    for _ in range(64):
        accountant.compose(RELEASE)
        accountant.epsilon(DELTA)
    # 64 values of T span six octaves of delta0; without a fixed grid this would be 64 x 9.
    assert effective_sigma.cache_info().misses <= 40


def test_long_runs_and_tiny_deltas_do_not_fail() -> None:
    event = BinomialRelease(10**6, 16.0, 16, 10)
    assert 0.0 < epsilon_of(DominationAccountant, event, rounds=100_000) < math.inf
    assert 0.0 < epsilon_of(DominationAccountant, RELEASE, delta=1e-40) < math.inf
    assert epsilon_of(DominationAccountant, RELEASE, delta=1e-300) > 1.0
    assert epsilon_of(DominationAccountant, RELEASE, delta=0.9) == 0.0


def test_no_sensitivity_no_loss() -> None:
    event = BinomialRelease(100, 0.0, 1, 5)
    assert epsilon_of(DominationAccountant, event) == 0.0
    assert epsilon_of(GaussianReference, event) == 0.0


def test_coins_beyond_the_tables_count_as_none() -> None:
    most, more = (BinomialRelease(MAX_TOTAL_COINS + n, 1.0, 1, 1) for n in (0, 1 << 40))
    epsilon = epsilon_of(DominationAccountant, most)
    assert epsilon_of(DominationAccountant, more) == epsilon > 0.0


def test_a_failed_computation_is_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DominationAccountant, "_epsilon_of_releases", lambda self, delta: math.nan)
    assert epsilon_of(DominationAccountant, RELEASE) == math.inf


def test_an_overflow_is_infinite() -> None:
    assert epsilon_of(DominationAccountant, BinomialRelease(100, 1e300, 4, 1)) == math.inf
    assert epsilon_of(MomentsAccountant, BinomialRelease(100, 1e300, 4, 1)) == math.inf


def test_too_many_releases_are_refused() -> None:
    accountant = DominationAccountant()
    with pytest.raises(ValueError, match="count"):
        accountant.compose(RELEASE, 2**40)
    assert accountant.epsilon(DELTA) == 0.0


def test_theorem1_takes_the_smaller_composition() -> None:
    """Few rounds: basic. Many rounds of small epsilon: advanced."""
    event = BinomialRelease(10**8, 16.0, 16, 1000)
    parameters = Theorem1Parameters(10**8, 256.0, 16.0, 16.0, 1000)
    assert epsilon_of(Theorem1Accountant, event) == theorem1_epsilon(parameters, DELTA)
    rounds = 10_000
    basic = rounds * theorem1_epsilon(parameters, DELTA / rounds)
    assert epsilon_of(Theorem1Accountant, event, rounds=rounds) < 0.1 * basic


def test_theorem1_uses_the_better_l1_bound() -> None:
    """min(sqrt(d) D2, D2^2): one dimension makes l1 equal l2."""
    flat = BinomialRelease(65536, 128.0, 16, 1)
    direct = Theorem1Parameters(65536, 128.0, 128.0, 16.0, 1)
    assert epsilon_of(Theorem1Accountant, flat) == theorem1_epsilon(direct, DELTA)


@pytest.mark.slow
def test_an_epsilon_query_is_fast() -> None:
    """The design figure is 100 ms; of processor time, ten times that for a slow machine."""
    epsilon_of(DominationAccountant, RELEASE)  # compile
    effective_sigma.cache_clear()
    start = time.process_time()
    epsilon_of(DominationAccountant, BinomialRelease(10**7, 1000.0, 1000, 10))
    assert time.process_time() - start < 1.0
