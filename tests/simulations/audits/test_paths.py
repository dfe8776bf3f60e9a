"""Whole rounds under audit: real and ideal agree, and every mistake is the one it is named for."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dp import BinomialMechanism
from dp.mechanisms import MECHANISMS, MechanismName
from protocol import PrivacyGoal
from secagg import ParameterError
from simulations.audits.base import Check, Claim, derived_seed, noise_seed
from simulations.audits.paths import (
    FAR_BEYOND,
    LOST_EARLY_AND_LATE,
    Mistake,
    PathSettings,
    WholePath,
    repeatable,
)
from simulations.audits.released_noise import noise_figures, noise_settings
from simulations.audits.sensitivity import audit_clip
from sketch import spec_for_size

SKETCHED = PathSettings(spec_for_size(300, 90, 5), PrivacyGoal(4.4, 1e-5, 1), exact_noise=False)


@pytest.mark.parametrize("dropouts", [{}, LOST_EARLY_AND_LATE])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_real_rounds_release_what_ideal_ones_do(dropouts: dict, mechanism: MechanismName) -> None:
    """Without removable noise all noise comes from the audit's own seeds."""
    updates = np.random.default_rng(3).normal(size=(8, 300))
    settings = replace(SKETCHED, mechanism=mechanism)
    real, ideal = (WholePath(settings, 7, real=real) for real in (True, False))
    assert real.released(0, updates, dropouts)[1] == 8 - bool(dropouts)
    # The public seed is the same, so the rotation is; the session's masks are not in the sum.
    assert np.array_equal(
        real.released(1, updates, dropouts)[0], ideal.released(1, updates, dropouts)[0]
    )


def test_a_release_is_in_the_units_of_the_event() -> None:
    """The same noise twice, with and without a client: what differs is its integer vector."""
    path = WholePath(SKETCHED, 1)
    parameters = path.claimed.parameters
    table = np.zeros((8, 300))
    without, _ = path.released(0, table)
    table[2, 5] = 0.9
    difference = path.released(0, table)[0] - without
    assert np.max(np.abs(difference - np.rint(difference))) < 1e-6
    length = float(np.linalg.norm(difference))
    assert length <= parameters.l2_bound
    # Rounding moves no coordinate by more than one.
    assert abs(length - 0.9 * parameters.scale) <= np.sqrt(parameters.length)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
@pytest.mark.parametrize("colluders", [(), (0,)])
@pytest.mark.parametrize("real", [False, True])
def test_the_law_of_other_noise(
    mechanism: MechanismName, colluders: tuple[int, ...], real: bool
) -> None:
    """With dropouts, and less what a colluder knows; its twins are noticed as with coins."""
    path = WholePath(noise_settings(20_000, mechanism=mechanism), 3, real=real)
    found = noise_figures(path, 1, LOST_EARLY_AND_LATE, colluders)
    assert not found["rejected"], found
    assert found["claimed_variance"] > 100.0
    # A colluder whose seed is shared takes off its own noise only.
    shared = () if colluders else (Mistake.SHARED_SEED,)
    for mistake in (Mistake.HALF_NOISE, *shared):
        twin = replace(path, mistake=mistake)
        assert noise_figures(twin, 1, LOST_EARLY_AND_LATE, colluders)["rejected"]


@pytest.mark.statistical
def test_the_clip_holds() -> None:
    audit = audit_clip(8, 1)
    figures, (twin,) = audit.product(), (mutant() for mutant in audit.mutants.values())
    # With the clip the shift is as long as a vector on the clip, not nothing.
    assert abs(figures["measured_shift"] - figures["stated_l2_sensitivity"]) < figures["tolerance"]
    longer = twin["measured_shift"] / figures["stated_l2_sensitivity"]
    assert longer > 0.5 * FAR_BEYOND


@pytest.mark.statistical
def test_noise_behind_a_count_mean_sketch_has_the_same_law() -> None:
    settings = replace(noise_settings(1), sketch=spec_for_size(12_000, 4000, 5))
    path = WholePath(settings, 3)
    assert not noise_figures(path, 2, {}, (0,))["rejected"]
    assert noise_figures(replace(path, mistake=Mistake.HALF_NOISE), 2, {}, (0,))["rejected"]


@pytest.mark.statistical
def test_noise_of_a_colluder_left_in_is_too_much() -> None:
    """The subtraction itself: without it the sum has the outsider's noise, not the server's."""
    path = WholePath(noise_settings(20_000), 3)
    noise, survivors = path.noise_of(0)
    kept, _ = path.noise_of(0, colluders=(0,))
    known = noise - kept
    left = path.claimed.noise_left(survivors)
    assert known.var() == pytest.approx(left.variance, rel=0.1)
    assert abs(np.corrcoef(known, kept)[0, 1]) < 5 / np.sqrt(20_000)


def test_the_twins_differ_from_the_real_path_in_one_thing() -> None:
    path = WholePath(noise_settings(50), 5)
    honest = path.setup(0).parameters

    def changed(mistake: Mistake) -> set[str]:
        other = replace(path, mistake=mistake).setup(0).parameters
        names = type(honest).__slots__
        return {name for name in names if getattr(other, name) != getattr(honest, name)}

    assert changed(Mistake.NONE) == set()
    assert changed(Mistake.HALF_NOISE) == {"mechanism"}
    assert changed(Mistake.TENTH) == {"mechanism"}
    assert changed(Mistake.NO_CLIP) == {"clip_l2", "sketch_clip_l2", "linf_bound"}
    assert changed(Mistake.SHARED_SEED) == changed(Mistake.SEED_AGAIN) == set()
    assert "mechanism" in changed(Mistake.NO_MARGIN)
    assert replace(path, mistake=Mistake.NO_MARGIN).setup(0).context.tolerated_colluders == 0


def test_a_round_without_noise_has_no_law() -> None:
    path = WholePath(noise_settings(50), 5)
    silent = replace(path.claimed.parameters, mechanism=BinomialMechanism(0))
    path.__dict__["claimed"] = path._setup(path.settings, silent, 0)
    with pytest.raises(ParameterError, match="a round with noise"):
        path.claimed_release(8, colluders=False)


def test_derived_randomness_repeats_and_differs() -> None:
    assert noise_seed(1, "a", 2) == noise_seed(1, "a", 2)
    assert noise_seed(1, "a", 2) != noise_seed(1, "a", 3)
    assert noise_seed(1, "a", 2) != noise_seed(2, "a", 2)
    assert derived_seed(1, "ab") != derived_seed(1, "a", "b")
    first, second = repeatable(1, "x"), repeatable(1, "x")
    drawn = [first(40), first(40), first(3)]
    assert drawn == [second(40), second(40), second(3)]
    assert drawn[0] != drawn[1]
    assert [len(each) for each in drawn] == [40, 40, 3]


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1.0, 0.1), (float("nan"), 0.1), (1.0, 0.0), (1.0, 1.0)]
)
def test_a_claim_is_in_range(epsilon: float, delta: float) -> None:
    with pytest.raises(ParameterError):
        Claim(epsilon, delta)


@pytest.mark.parametrize(
    ("real", "twin", "held"),
    [(False, True, True), (True, True, False), (False, False, False), (True, False, False)],
)
def test_a_check_holds_only_if_its_twin_is_rejected(real: bool, twin: bool, held: bool) -> None:
    check = Check.of("x", "X", {"rejected": real}, {"rejected": twin, "epsilon": float("inf")})
    assert check.held is held
    plain = json.loads(json.dumps(check.as_json(), allow_nan=False))
    assert set(plain) == {"id", "title", "with_defence", "without_defence", "held"}
    assert plain["without_defence"]["epsilon"] == "inf"
