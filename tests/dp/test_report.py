"""The composite report and the four epsilons."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from accounts import epsilon_of

from dp.accounting import DominationAccountant, Theorem1Accountant, theorem1_epsilon
from dp.accounting.cpsgd import level_parameters
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event
from dp.events import (
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    GaussianRelease,
    LevelRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
)
from dp.protection import four_epsilons, own_noise
from dp.report import epsilons

DELTA = 1e-5
COINS = BinomialRelease(1024, 16.0, 16, 10**6)


@pytest.mark.parametrize(
    ("event", "theorem1", "domination", "gaussian", "winner"),
    [
        (BinomialRelease(256, 4.0, 4, 10**6), math.inf, 2.031, 1.993, "exact"),
        (COINS, math.inf, 4.403, 4.377, "domination"),
        (BinomialRelease(65536, 128.0, 16, 10**6), 5.512, 4.378, 4.377, "domination"),
        (BinomialRelease(4096, 64.0, 64, 10**6), 28.392, 10.016, 9.997, "domination"),
    ],
)
def test_check_values(
    event: Event, theorem1: float, domination: float, gaussian: float, winner: str
) -> None:
    report = epsilons([event], DELTA)
    assert report.by_accountant["theorem1"] == pytest.approx(theorem1, abs=6e-4)
    assert report.by_accountant["domination"] == pytest.approx(domination, abs=6e-4)
    assert report.by_accountant["gaussian_reference"] == pytest.approx(gaussian, abs=6e-4)
    assert report.winner == winner
    assert report.epsilon == report.by_accountant[winner]
    assert report.epsilon == min(
        eps for name, eps in report.by_accountant.items() if name != "gaussian_reference"
    )


def test_json_spells_infinity_and_says_why() -> None:
    record = json.loads(json.dumps(epsilons([COINS], DELTA).as_json(), allow_nan=False))
    assert record["by_accountant"]["theorem1"] == "inf"
    assert "N p (1-p) = 256 is below 23 ln(10 d / delta)" in record["reasons"]["theorem1"]
    assert set(record["reasons"]) == {"theorem1"}
    assert record["adjacency"].startswith("zero-out")


def test_the_reference_never_wins() -> None:
    assert epsilons([GaussianRelease(8.0, 4.0)], DELTA).winner == "domination"
    nothing = epsilons([BinomialRelease(0, 4.0, 4, 10)], DELTA)
    assert nothing.epsilon == math.inf and nothing.winner == ""
    assert set(nothing.reasons) == set(nothing.by_accountant)


def test_counted_events_equal_repeated_ones() -> None:
    assert epsilons([(COINS, 3)], DELTA) == epsilons([COINS] * 3, DELTA)


def test_published_bounds_appear_where_there_are_some() -> None:
    for event in (
        SkellamRelease(256.0, 16.0, 16, 10),
        DiscreteGaussianRelease(4.0, 64, 16.0, 9, 9),
    ):
        report = epsilons([event], DELTA)
        assert report.by_accountant["published"] > report.epsilon
    assert "published" not in epsilons([COINS], DELTA).by_accountant


def test_nothing_private_has_one_reason() -> None:
    report = epsilons([NonPrivateRelease(), COINS], DELTA)
    assert report.epsilon == math.inf
    assert set(report.reasons.values()) == {"something was released without noise"}


def test_refusals_name_the_event() -> None:
    with pytest.raises(UnsupportedEventError, match="no theorem for _Mystery"):
        epsilons([_Mystery()], DELTA)  # type: ignore[list-item]
    report = epsilons([SkellamRelease(1e11, 16.0, 16, 10)], DELTA)
    assert "its tables end at" in report.reasons["domination"]
    with pytest.raises(ValueError, match="delta"):
        epsilons([COINS], 1.0)


class _Mystery:
    """An event that nobody knows."""


class TestLevels:
    """cpSGD's k-level mechanism: sensitivities of Equation (10), delta in two parts or three."""

    def test_equation_10_by_hand(self) -> None:
        """A case with d = 100, k = 17 and D = X, where V = 160 and 2/delta = e^8."""
        event = LevelRelease(10**6, 0.5, 17, 1.0, 100, False)
        found = level_parameters(event, 2 * math.exp(-8))
        spread = math.sqrt(2 * 160 * 8)
        assert found.l1 == pytest.approx(160 + spread + 32 / 3)
        assert found.l2 == pytest.approx(16 + math.sqrt(160 + spread + 32 / 3 + spread))
        assert found.linf == 18.0

    @pytest.mark.parametrize(("rotated", "parts"), [(False, 2), (True, 3)])
    def test_delta_is_split(self, rotated: bool, parts: int) -> None:
        event = LevelRelease(10**6, 0.25, 16, 2.0, 1000, rotated)
        expected = theorem1_epsilon(level_parameters(event, DELTA / parts), DELTA / parts)
        assert epsilon_of(Theorem1Accountant, event, delta=DELTA) == expected < math.inf

    def test_theorem_1_never_wins(self) -> None:
        """As printed it is false for large epsilon: this release shows it."""
        report = epsilons([BinomialRelease(10**7, 4740.0, 237, 400)], DELTA)
        assert report.by_accountant["theorem1"] < report.by_accountant["domination"]
        assert report.winner == "domination"
        printed = epsilons([LevelRelease(10**6, 0.25, 16, 2.0, 1000, False)], DELTA)
        assert printed.by_accountant["theorem1"] < printed.epsilon == math.inf
        assert printed.winner == ""

    def test_the_precondition_says_so(self) -> None:
        report = epsilons([LevelRelease(1000, 0.1, 16, 1.0, 1000, True)], DELTA)
        assert "23 ln(10 d / delta)" in report.reasons["theorem1"]
        assert "LevelRelease" in report.reasons["domination"]


class TestFourEpsilons:
    """(a) server and colluders, (b) outsider, (c) own noise only, (d) no noise."""

    HONEST = BinomialRelease(14000, 16.0, 16, 100)
    ALL = BinomialRelease(16000, 16.0, 16, 100)

    def test_each_adversary_has_its_own_figure(self) -> None:
        found = four_epsilons(
            [(self.HONEST, 5)],
            [(PoissonSampled(0.1, self.ALL), 5)],
            [(own_noise(self.HONEST, 100), 5)],
            DELTA,
            colluders=12,
        )
        assert found.outsider < found.server < found.sybil < found.secagg_alone == math.inf
        assert found.amplified and found.colluders == 12
        assert found.server == epsilon_of(DominationAccountant, self.HONEST, delta=DELTA, rounds=5)

    def test_text_says_who_and_what(self) -> None:
        found = four_epsilons([self.HONEST], [self.ALL], [own_noise(self.HONEST, 10)], DELTA, 3)
        text = found.text()
        assert "the server with 3 colluding clients" in text
        assert "no amplification" in text and not found.amplified
        assert "infinite of secure aggregation alone" in text
        assert "zero-out" in text and "delta 1e-05" in text
        assert json.loads(json.dumps(found.as_json()))["secagg_alone"] == "inf"

    def test_with_a_goal_the_four_are_readings(self) -> None:
        """What is guaranteed is the goal, as long as nothing was spent beyond it."""
        fixed = four_epsilons([self.HONEST], [self.ALL], [own_noise(self.HONEST, 10)], DELTA, 3)
        assert fixed.guaranteed == fixed.server and "guaranteed" not in fixed.as_json()
        run = replace(fixed, goal=5.0)
        assert run.server < run.guaranteed == run.as_json()["guaranteed"] == 5.0
        assert run.text().startswith("epsilon 5 guaranteed against the server with 3 colluding")
        assert run.text().count("spent so far against") == 3
        overrun = replace(fixed, goal=fixed.server / 2.0)
        assert overrun.guaranteed == math.inf and overrun.as_json()["guaranteed"] == "inf"

    def test_the_server_is_never_amplified(self) -> None:
        with pytest.raises(UnsupportedEventError, match="PoissonSampled"):
            four_epsilons([PoissonSampled(0.1, self.ALL)], [self.ALL], [self.ALL], DELTA)

    @pytest.mark.parametrize(
        ("event", "own"),
        [
            (BinomialRelease(1005, 4.0, 4, 9), BinomialRelease(100, 4.0, 4, 9)),
            (SkellamRelease(50.0, 4.0, 4, 9), SkellamRelease(5.0, 4.0, 4, 9)),
            (
                DiscreteGaussianRelease(2.0, 10, 4.0, 4, 9),
                DiscreteGaussianRelease(2.0, 1, 4.0, 4, 9),
            ),
            (
                LevelRelease(100, 0.5, 4, 1.0, 9, True),
                LevelRelease(10, 0.5, 4, 1.0, 9, True),
            ),
            (NonPrivateRelease(), NonPrivateRelease()),
        ],
    )
    def test_own_noise(self, event: Event, own: Event) -> None:
        assert own_noise(event, 10) == own
        assert own_noise(Composition((event, event)), 10) == Composition((own, own))

    def test_a_central_mechanism_has_no_own_noise(self) -> None:
        with pytest.raises(UnsupportedEventError, match="GaussianRelease"):
            own_noise(GaussianRelease(1.0, 1.0), 3)
        with pytest.raises(ValueError, match="contributors"):
            own_noise(self.ALL, 0)
