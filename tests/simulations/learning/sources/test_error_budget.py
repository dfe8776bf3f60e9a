"""The parts of a mean's error: what a meter sees, and whether the parts add up to what happens."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from protocol.round.losses import Stage
from simulations.learning.configuration import demo_config
from simulations.learning.federated import CohortUpdates, Invitation
from simulations.learning.run.overrides import changed
from simulations.learning.sources import CentralMean
from simulations.learning.sources.error_budget import ErrorMeter, Measured, sketched_parts
from sketch import Probe, SketchSpec
from sketch.controllers import FixedRate
from sketch.spec import median_for_size, spec_for_size

D, COHORT, CLIP = 300, 12, 0.25
ALPHA = 1e-6
ROUNDS = 300


def updates_of_all() -> np.ndarray:
    """Half of them are longer than the clip; they point in much the same direction."""
    rng = np.random.default_rng(3)
    table = (rng.normal(size=D) + 0.5 * rng.normal(size=(COHORT, D))).astype(np.float32)
    norms = np.linspace(0.5 * CLIP, 1.5 * CLIP, COHORT)
    return table * (norms / np.linalg.norm(table, axis=1)).astype(np.float32)[:, None]


@pytest.fixture
def updates() -> np.ndarray:
    return updates_of_all()


def measured(
    updates: np.ndarray, released: np.ndarray, survivors: int = COHORT, clip: float = CLIP
) -> Measured:
    meter = ErrorMeter(updates.__getitem__, clip)
    for index in range(len(updates)):
        assert meter(index) is not None
    return meter.measure(released, survivors)


def test_a_meter_sees_what_the_clip_takes_off(updates: np.ndarray) -> None:
    norms = np.linalg.norm(updates, axis=1)
    clipped = updates * np.minimum(1.0, CLIP / norms)[:, None]
    found = measured(updates, clipped.mean(axis=0))
    cut = float(np.sum((updates - clipped).mean(axis=0) ** 2))
    assert found.clipping == pytest.approx(cut, rel=1e-5)
    # A released mean without noise is off by the clip alone.
    assert found.distance == pytest.approx(cut, rel=1e-5)
    assert found.clipped == int((norms > CLIP).sum()) == COHORT // 2
    assert found.norm_squared == pytest.approx(np.sum(clipped.mean(axis=0) ** 2), rel=1e-5)
    facts = found.parts(noise=1.0)
    assert set(facts) == {"measured", "clipping", "noise", "clipped_clients"}


def test_updates_that_are_not_finite_are_not_in_the_mean(updates: np.ndarray) -> None:
    updates[2, 5], updates[7, 0] = np.nan, np.inf
    kept = np.delete(updates, [2, 7], axis=0)
    found = measured(updates, kept.mean(axis=0), survivors=COHORT - 2, clip=math.inf)
    assert found.distance == pytest.approx(0.0, abs=1e-12)
    assert found.parts() == {"measured": found.distance}


def test_a_mean_over_other_clients_has_no_distance(updates: np.ndarray) -> None:
    assert measured(updates, updates.mean(axis=0), survivors=COHORT - 1).distance is None


def test_an_identity_has_no_sketch_error_and_a_median_no_closed_form(updates: np.ndarray) -> None:
    found = measured(updates, updates.mean(axis=0))
    assert sketched_parts(SketchSpec.identity(D), found, D, 2.0) == {
        "sketch": 0.0,
        "noise": 2.0 * D,
    }
    assert sketched_parts(median_for_size(D, 90, 3, rows=5), found, D, 2.0) == {}


def test_a_second_sketch_costs_the_first_some_of_its_weight(updates: np.ndarray) -> None:
    found = measured(updates, updates.mean(axis=0))
    probe = Probe(32, 0.2)
    with_probe = sketched_parts(spec_for_size(D, 60, 5, probe), found, D, 2.0)
    alone = sketched_parts(spec_for_size(D, 60, 5), found, D, 2.0)
    assert with_probe["noise"] == pytest.approx(alone["noise"] / probe.main_weight**2)
    assert with_probe["sketch"] == alone["sketch"]


GIVEN = {"epsilon": None, "noise_multiplier": 0.5, "clip_l2": 0.25}


@cache
def errors(rate: float, length: float) -> list[dict[str, float]]:
    """What was measured in many rounds at this rate, of updates of this share of their length."""
    privacy = demo_config().privacy.model_copy(update=GIVEN)
    base = demo_config().model_copy(update={"privacy": privacy})
    source = CentralMean(changed(base, [("cohort.size", COHORT)]), FixedRate(rate, rows=5), D)
    clients, lost, model = tuple(range(COHORT)), {1: Stage.SHARE}, np.zeros(D, np.float32)
    found = []
    for number in range(ROUNDS):
        trained = CohortUpdates(iter([length * updates_of_all()]))
        source.mean(Invitation(number, clients, lost, trained, model))
        found.append(source.facts(None)["error"])
    return found


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("rate", "length", "twin"),
    [
        (1.0, 1.0, None),
        (1.0, 1.0, "clipping"),
        (1.0, 1.0, "noise"),
        (4.0, 0.3, None),
        (4.0, 0.3, "sketch"),
        (4.0, 0.3, "noise"),
    ],
)
def test_the_parts_add_up_to_the_measured_error(
    rate: float, length: float, twin: str | None
) -> None:
    """Mean over many rounds; without any one of its parts the sum is rejected.

    The mean of the differences over its own standard error is close to normal after 300 rounds.
    Compressed updates are short, as a sketch that is longer than the clip is cut: an error that the
    parts do not have.
    """
    parts = [name for name in ("sketch", "noise", "clipping") if name != twin]
    gaps = [each["measured"] - sum(each[name] for name in parts) for each in errors(rate, length)]
    statistic = float(np.mean(gaps) / (np.std(gaps, ddof=1) / math.sqrt(ROUNDS)))
    held = bool(abs(statistic) < stats.norm.isf(ALPHA / 2))
    assert held is (twin is None), statistic
