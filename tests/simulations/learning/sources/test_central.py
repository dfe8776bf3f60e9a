"""The trusted server among the sources of means: what it adds up, and what noise it adds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from dp import PrivacyError
from dp.clipping import clip_l2
from protocol.exchange.stages import Stage
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.federated import CohortUpdates, Invitation
from simulations.learning.run.overrides import changed
from simulations.learning.sources import CentralMean, PlainMean, uploaders
from simulations.learning.sources.central import GROUP
from sketch.controllers import FixedRate

D, COHORT, CLIP = 400, 2 * GROUP + 3, 0.25
ALPHA = 1e-6
SMALL = 1e-2


def config(noise: float) -> RunConfig:
    base = demo_config().model_copy(update={"privacy": demo_config().privacy})
    privacy = base.privacy.model_copy(update={"epsilon": None, "noise_multiplier": noise})
    return changed(base.model_copy(update={"privacy": privacy}), [("cohort.size", COHORT)])


def invitation(updates: np.ndarray, number: int = 0, **lost: Stage) -> Invitation:
    dropouts = {int(name.lstrip("c")): stage for name, stage in lost.items()}
    chunks = iter([updates[:5], updates[5:]])
    model = np.zeros(D, np.float32)
    return Invitation(number, tuple(range(COHORT)), dropouts, CohortUpdates(chunks), model)


@pytest.fixture
def updates() -> np.ndarray:
    """Some shorter than the clip, some longer."""
    table = np.random.default_rng(3).normal(size=(COHORT, D)).astype(np.float32)
    return table * np.linspace(0.001, 0.05, COHORT, dtype=np.float32)[:, None]


def test_without_noise_it_is_the_mean_of_clipped_updates(updates: np.ndarray) -> None:
    source = CentralMean(config(SMALL), FixedRate(1.0), D)
    mean = source.mean(invitation(updates, c3=Stage.ADVERTISE, c7=Stage.UNMASK))
    kept = [i for i in range(COHORT) if i != 3]
    expected = np.mean([clip_l2(updates[i], CLIP).values for i in kept], axis=0)
    assert np.allclose(mean, expected, atol=6.0 * SMALL * CLIP / 10)
    facts = source.facts(invitation(updates))
    assert (facts["survivors"], facts["lost"], facts["refused"]) == (20 - 2, {"advertise": 1}, 0)


def test_updates_that_are_not_finite_are_left_out(updates: np.ndarray) -> None:
    updates[4, 7] = np.nan
    updates[GROUP] = np.inf
    source = CentralMean(config(SMALL), FixedRate(1.0), D)
    mean = source.mean(invitation(updates))
    kept = [i for i in range(COHORT) if i not in (4, GROUP)]
    expected = np.mean([clip_l2(updates[i], CLIP).values for i in kept], axis=0)
    assert np.allclose(mean, expected, atol=6.0 * SMALL * CLIP / 10)
    assert source.facts(invitation(updates))["refused"] == 2


def test_nothing_finite_at_all_is_an_error(updates: np.ndarray) -> None:
    with pytest.raises(PrivacyError, match="finite"):
        CentralMean(config(1.0), FixedRate(1.0), D).mean(invitation(np.full_like(updates, np.nan)))


@pytest.mark.parametrize("stated", [1.0, 0.5], ids=["right", "half the noise"])
def test_noise_has_the_stated_variance(updates: np.ndarray, stated: float) -> None:
    """Chi-square over all coordinates of 30 rounds; half the noise would be found."""
    noise, rounds = 2.0, 30
    source = CentralMean(config(noise * stated), FixedRate(1.0), D)
    expected = np.mean([clip_l2(update, CLIP).values for update in updates], axis=0)
    sigma = noise * CLIP / COHORT
    gaps = [source.mean(invitation(updates, number)) - expected for number in range(rounds)]
    statistic = float(np.sum(np.square(gaps))) / sigma**2
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], D * rounds)
    assert bool(low < statistic < high) is (stated == 1.0)
    if stated == 1.0:
        assert source.facts(invitation(updates))["noise_variance"] == pytest.approx(sigma**2)


def test_threads_and_a_new_object_change_nothing(updates: np.ndarray) -> None:
    """The noise follows from the seed and the round, so a run can go on from its state."""
    whole = CentralMean(config(1.0), FixedRate(4.0, rows=5), D)
    means = [whole.mean(invitation(updates, number)) for number in range(2)]
    with ThreadPoolExecutor(3) as pool:
        first = CentralMean(config(1.0), FixedRate(4.0, rows=5), D, None, pool)
        assert np.array_equal(first.mean(invitation(updates)), means[0])
    again = CentralMean(config(1.0), FixedRate(4.0, rows=5), D, first.state)
    assert np.array_equal(again.mean(invitation(updates, 1)), means[1])
    assert not np.array_equal(means[0], means[1])


def test_the_plain_mean_clips_nothing(updates: np.ndarray) -> None:
    source = PlainMean()
    given = invitation(updates, c0=Stage.INPUT)
    assert uploaders(given) == list(range(1, COHORT))
    assert np.allclose(source.mean(given), updates[1:].mean(axis=0), atol=1e-6)
    assert source.facts(given)["lost"] == {"input": 1}
