"""Attacks on whole private rounds: what they report, and that a weakened product falls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dp import BinomialMechanism
from dp.mechanisms import MechanismName
from protocol import ClientPolicy, PrivacyGoal, RoundParameters, RoundSetup
from protocol.noise.calibration import calibrate
from simulations.audits.base import Check
from simulations.audits.paths import PathSettings, WholePath
from simulations.threats.attack import Effort
from simulations.threats.catalogue import capacity, cohorts, noise, parameters
from simulations.threats.rounds import reduced_noise, suppression
from simulations.threats.rounds.announced import lies, worse_rounds
from simulations.threats.rounds.released import BareRounds
from simulations.threats.rounds.suppression import ReluLayer

ATTACKS = {
    attack.id: attack
    for module in (cohorts, parameters, noise, capacity)
    for attack in module.ATTACKS
}
SEED = 1


@pytest.mark.parametrize(
    "name",
    ["A10", "A15", "A22", *(pytest.param(name, marks=pytest.mark.slow) for name in ("A6", "A16"))],
)
def test_a_seed_gives_the_same_figures(quick_check: Callable[[str], Check], name: str) -> None:
    assert ATTACKS[name].check(Effort.QUICK, SEED).as_json() == quick_check(name).as_json()


def sides(check: Check) -> tuple[dict[str, float | str], dict[str, float | str]]:
    return check.with_defence, check.without_defence


class TestReports:
    """What is told beside the rates."""

    def test_sybils(self, quick_check: Callable[[str], Check]) -> None:
        real, twin = sides(quick_check("A6"))
        for parameter in ("cohort", "minimum_survivors", "tolerated_colluders"):
            assert f"PolicyError ({parameter})" in real["refused_with"]
        # Honest about what is left: registered Sybils are let in, and then few coins hide much.
        assert real["registered Sybils, a full cohort"] == "joined"
        assert real["own_noise_epsilon"] > 2.0 * real["accounted_epsilon"]
        assert twin["chance"] < twin["accuracy"] < real["own_noise_accuracy"] + 0.03
        assert twin["uploads_recovered"] == twin["real_rounds"]

    def test_sybils_open_every_batch_but_one(self, quick_check: Callable[[str], Check]) -> None:
        """With exact noise, ten clients and three lost: 7/10 of what stays in the sum."""
        real, twin = sides(quick_check("A6"))
        for figures, ratio in ((real, 1.0), (twin, 7 / 10)):
            tolerance = figures["exact_noise_variance_tolerance"]
            assert abs(figures["exact_noise_variance_ratio"] / ratio - 1.0) < tolerance
        assert real["exact_noise_claimed_coins"] < 0.71 * twin["exact_noise_claimed_coins"]
        # What would have been printed for all coins, and what is.
        assert twin["exact_noise_epsilon"] < 3.0 < 3.6 < real["exact_noise_epsilon"]

    def test_differencing(self, quick_check: Callable[[str], Check]) -> None:
        real, twin = sides(quick_check("A10"))
        assert real["smallest_difference_set"] == twin["smallest_difference_set"] == 1
        assert real["exact_updates"] == 0
        assert twin["exact_updates"] == twin["of_differences"]

    @pytest.mark.parametrize("name", ["A11", "A27"])
    def test_models(self, quick_check: Callable[[str], Check], name: str) -> None:
        real, _ = sides(quick_check(name))
        for reason in ("BAD_SIGNATURE", "SET_TOO_SMALL", "BAD_SEAL"):
            assert f"RemoteProtocolError {reason}" in real["refused_with"]
        # The others have a round of their own; the target is in none of them.
        assert real["sums_without_target"] == real["trials"] // 3

    def test_parameters(self, quick_check: Callable[[str], Check]) -> None:
        real, twin = sides(quick_check("A12"))
        for name in lies(SEED):
            assert name in real["refused_with"]
        for name in worse_rounds(SEED):
            assert f"{name}: PolicyError" in real["told_to_all"]
        assert twin["sums_opened"] == twin["of_lies"] == 12

    @pytest.mark.parametrize(("name", "ratio"), [("A15", 7 / 12), ("A16", 6 / 9)])
    def test_noise(self, quick_check: Callable[[str], Check], name: str, ratio: float) -> None:
        real, twin = sides(quick_check(name))
        assert abs(real["variance_ratio"] - 1.0) < real["variance_tolerance"]
        assert abs(twin["variance_ratio"] / ratio - 1.0) < twin["variance_tolerance"]

    def test_capacity(self, quick_check: Callable[[str], Check]) -> None:
        real, twin = sides(quick_check("A19"))
        assert real["refused_with"].count("CapacityError") == 3
        assert twin["bits"] == real["bits"] - 1
        # Two bits are missing: eight times the bound alone is beyond the field.
        assert twin[f"wrong_sums_at_{real['bits'] - 2}_bits"] == twin["trials"]


class TestWeakenedProduct:
    """With the defence taken from the product itself, the very same check does not hold."""

    def test_a_hash_without_the_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ReluLayer, "digest", lambda self: parameters.NO_MODEL)
        found = parameters.inconsistent_models(Effort.QUICK, SEED)
        assert found.real["succeeded"]

    def test_a_hash_of_sorted_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = suppression.model_digest
        monkeypatch.setattr(
            suppression, "model_digest", lambda arrays: right(dict(sorted(arrays.items())))
        )
        found = parameters.inconsistent_order(Effort.QUICK, SEED)
        assert found.real["succeeded"]

    def test_a_policy_that_accepts_everything(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parameters, "strict_policy", lambda setup: parameters.TRUSTING)
        found = parameters.inconsistent_parameters(Effort.QUICK, SEED)
        assert found.real["policies_passed"] == len(worse_rounds(SEED))
        assert found.real["succeeded"]

    def test_coins_without_a_margin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = noise.cheated_setup

        def thin(parameters: RoundParameters, settings: PathSettings, seed: int) -> RoundSetup:
            coins = BinomialMechanism(parameters.mechanism.coins * 7 // 12)
            fewer = dataclasses.replace(parameters, mechanism=coins)
            return right(fewer, settings, seed)

        # The claim stays that of the right coins.
        settings = reduced_noise.noise_settings(20_000, exact_noise=True)
        claimed = right(settings.parameters(SEED), settings, SEED)
        made = thin(settings.parameters(SEED), settings, SEED)
        assert reduced_noise.cheated_figures(made, claimed, SEED)["succeeded"]
        assert not reduced_noise.cheated_figures(claimed, claimed, SEED)["succeeded"]

    @pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
    def test_other_noise_without_a_margin(self, mechanism: MechanismName) -> None:
        """Clients that add none, and some that vanish: what is left is what was charged."""
        coins = reduced_noise.noise_settings(20_000, exact_noise=False)
        settings = dataclasses.replace(coins, mechanism=mechanism)
        claimed = noise.cheated_setup(settings.parameters(SEED), settings, SEED)
        found = reduced_noise.cheated_figures(claimed, claimed, SEED)
        assert not found["succeeded"] and found["claimed_variance"] > 0.0
        hopeful = noise.without_margin(settings, SEED)
        made = noise.cheated_setup(hopeful, settings, SEED)
        assert reduced_noise.cheated_figures(made, claimed, SEED)["succeeded"]

    @pytest.mark.parametrize("name", ["A15", "A16"])
    def test_a_calibration_that_counts_the_colluders_coins(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        def hopeful(goal: PrivacyGoal, *, fewest_honest: int, **others: Any) -> RoundParameters:
            return calibrate(goal, fewest_honest=fewest_honest + len(noise.COLLUDERS), **others)

        # Accountant and noise agree with each other, and not with what was promised.
        monkeypatch.setattr("simulations.audits.paths.calibrate", hopeful)
        found = ATTACKS[name].run(Effort.QUICK, SEED).real
        assert not found["law_rejected"]
        assert found["accounted_epsilon"] > found["promised_epsilon"]
        assert found["succeeded"]

    def test_a_client_without_a_policy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ClientPolicy, "check", lambda self, setup, **_: None)
        assert cohorts.sybils(Effort.QUICK, SEED).real["succeeded"]

    def test_a_charge_for_all_coins_that_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if the Sybils had no shares of the seeds of those that could have gone."""
        monkeypatch.setattr(RoundSetup, "own_noise", property(lambda setup: setup.noise_left(7)))
        found = cohorts.sybils(Effort.QUICK, SEED)
        assert found.real["succeeded"]
        assert not found.real["accuracy"] > found.real["chance"]

    def test_a_setup_without_the_capacity_proof(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("protocol.round.setup.bits_for", lambda *_: 2)
        assert capacity.wrap_around(Effort.QUICK, SEED).real["succeeded"]


def test_the_claims_are_about_the_round_that_is_played() -> None:
    """A game held against the event of another round would prove nothing."""
    path = WholePath(cohorts.SMALL, SEED)
    bare = BareRounds(cohorts.SMALL, SEED)
    assert isinstance(path.claimed, RoundSetup)
    assert path.claimed.parameters == bare.claimed.parameters
    assert path.setup(0).parameters.mechanism == path.claimed.parameters.mechanism
    assert bare.setup(0).parameters.mechanism == BinomialMechanism(0)
    assert np.array_equal(path.setup(0).context.cohort, bare.setup(0).context.cohort)
