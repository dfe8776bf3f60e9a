"""From a goal to a round's parameters: enough noise with the fewest survivors, and hardly more."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dp import BinomialRelease, DominationAccountant, MomentsAccountant, Sensitivities
from dp.mechanisms import MECHANISMS
from protocol import RoundParameters
from protocol.goal import PrivacyGoal, goal_entry
from protocol.noise.calibration import calibrate, sharpest
from secagg import ParameterError
from sketch import PublicSeed, SketchSpec, spec_for_size


def test_a_goal_holds_floats() -> None:
    """As its readers expect them: whole numbers of a caller are written like all others."""
    entry = goal_entry(PrivacyGoal(20, 1e-5, 10, moment_order=3))
    assert entry == goal_entry(PrivacyGoal(20.0, 1e-5, 10, moment_order=3.0))
    assert {name for name, value in entry.items() if type(value) is not float} == {"rounds"}


IDENTITY = SketchSpec.identity(100)


def calibrated(
    goal: PrivacyGoal = PrivacyGoal(4.0, 1e-5, 5),  # noqa: B008
    *,
    sketch: SketchSpec = IDENTITY,
    fewest_honest: int = 8,
    **options: Any,
) -> RoundParameters:
    return calibrate(
        goal,
        fewest_honest=fewest_honest,
        sketch=sketch,
        clip_l2=0.7,
        tolerated_dropouts=1,
        model_digest=bytes(32),
        public_seed=PublicSeed(bytes(32)),
        **options,
    )


@pytest.mark.parametrize(
    ("size", "fewest_honest", "share"),
    [(15, 1000, 0.005), (15, 1000, 1.0), (1500, 2, 0.01), (20_000, 8, 0.1), (20_000, 8, 1.0)],
)
@pytest.mark.parametrize("name", MECHANISMS)
def test_noise_is_within_its_share_of_the_gaussian(
    size: int, fewest_honest: int, share: float, name: str
) -> None:
    """By the closed form of the Gaussian mechanism, and not by much less: bits cost."""
    sketch = spec_for_size(20_000, size)
    goal = PrivacyGoal(8.0, 1e-5, 5)
    options = {"error_share": share, "mechanism": name, "wrap_probability": 1e-9}
    parameters = calibrated(goal, sketch=sketch, fewest_honest=fewest_honest, **options)
    assert parameters.mechanism.name == name
    sigma = goal.noise_multiplier * parameters.sketch_clip_l2 * parameters.scale
    variance = fewest_honest * (parameters.mechanism.variance + 1 / 6)
    excess = variance / sigma**2 - 1
    assert 0.0 < excess <= share
    # One sixteenth of an octave less would have been too little, or nearly.
    assert excess > 0.5 * share


@pytest.mark.parametrize("epsilon", [1.0, 50.0])
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_goal_is_met_with_the_fewest_survivors(epsilon: float, name: str) -> None:
    goal = PrivacyGoal(epsilon, 1e-5, 5)
    parameters = calibrated(goal, mechanism=name, wrap_probability=1e-9)
    accountant = DominationAccountant(goal.reserve)
    bounds = Sensitivities(parameters.l2_bound, parameters.linf_bound)
    accountant.compose(parameters.mechanism.event(bounds, 8, 100), 5)
    assert 0.98 * epsilon < accountant.epsilon(1e-5) <= epsilon


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        *(({"error_share": share}, "error_share") for share in (0.0, 4e-3, 1.1, float("nan"))),
        ({"mechanism": "skellam"}, r"wrap_probability.*skellam"),  # no field holds every sum
        ({"fewest_honest": 0}, "fewest_honest"),
        (
            {"goal": PrivacyGoal(0.5, 1e-5, 5), "fewest_honest": 1},
            r"epsilon = 0.5: .*unchanged: error_share = .*; or epsilon = ",
        ),
        ({"goal": PrivacyGoal(2.0, 1e-5, 10, 1.5), "error_share": 1.0}, "moment_order"),
    ],
)
def test_what_cannot_be_met_says_what_to_change(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        calibrated(**changes)


@pytest.mark.parametrize(
    ("epsilon", "delta", "remedies"),
    [
        (1.0, 2e-3, {"error_share", "epsilon"}),  # what is set aside of delta costs more
        (1000.0, 1e-5, {"epsilon", "clients"}),  # the noise is finer than rounding
        (1e-7, 1e-5, {"epsilon"}),  # more coins than there are
    ],
)
def test_every_remedy_that_is_named_works(epsilon: float, delta: float, remedies: set[str]) -> None:
    goal = PrivacyGoal(epsilon, delta, 1)
    with pytest.raises(ParameterError, match="one that noise in integers can meet") as caught:
        calibrated(goal, fewest_honest=34)
    found = dict(re.findall(r"(error_share|epsilon) = ([\d.e+-]+)", caught.value.valid))
    if times := re.search(r"(\d+) times as many clients", caught.value.valid):
        calibrated(goal, fewest_honest=34 * int(times[1]))
        found["clients"] = times[1]
    assert set(found) == remedies
    calibrated(PrivacyGoal(float(found["epsilon"]), delta, 1), fewest_honest=34)
    if "error_share" in found:
        calibrated(goal, fewest_honest=34, error_share=float(found["error_share"]))


def test_a_sketch_has_no_room_beyond_the_clip() -> None:
    """Room would be paid for with noise in every coordinate."""
    for spec in (IDENTITY, spec_for_size(1000, 500, 5)):
        parameters = calibrated(sketch=spec, fewest_honest=5)
        assert parameters.sketch_clip_l2 == parameters.clip_l2


WEAK = PrivacyGoal(20.0, 1e-5, 10)
FIGURES = {"fewest_honest": 3, "bound": 0.7, "length": 4, "error_share": 1.0}


def rounds_of(goal: PrivacyGoal) -> RoundParameters:
    return calibrated(goal, sketch=SketchSpec.identity(4), fewest_honest=3, error_share=1.0)


def test_weak_noise_gets_the_better_bound() -> None:
    """At sigma near 4 moments allow a scale a fifth smaller, within the same error."""
    chosen = sharpest(WEAK, **FIGURES)
    assert chosen.moment_order is not None
    plain, sharp = rounds_of(WEAK), rounds_of(chosen)
    assert sharp.scale < 0.85 * plain.scale
    accountant = MomentsAccountant(chosen.reserve)
    event = BinomialRelease(3 * sharp.mechanism.coins, sharp.l2_bound, sharp.linf_bound, 4)
    accountant.compose(event, 10)
    assert accountant.epsilon(1e-5) <= 20.0
    # What the moments allow, domination would not.
    by_domination = DominationAccountant(WEAK.reserve)
    by_domination.compose(event, 10)
    assert by_domination.epsilon(1e-5) > 20.0


def test_strong_noise_keeps_domination() -> None:
    for goal in (WEAK, PrivacyGoal(4.0, 1e-5, 5)):
        assert sharpest(goal, **{**FIGURES, "error_share": 0.01}).moment_order is None
    assert sharpest(PrivacyGoal(20.0, 1e-5, 10, 3.0), **{**FIGURES, "length": 5000}) == WEAK
