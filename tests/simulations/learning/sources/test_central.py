"""The trusted server among the sources of means: what it adds up, and what noise it adds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy import stats

from dp import PrivacyError
from dp.clipping import clip_l2
from dp.correlated.strategies import BandedStrategy
from protocol.round.losses import Stage
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.federated import CohortUpdates, Invitation
from simulations.learning.noise_schedule import banded_plan, returned_plan
from simulations.learning.run.overrides import changed
from simulations.learning.sources import CentralMean, PlainMean, uploaders
from simulations.learning.sources.central import GROUP
from sketch.controllers import FixedRate

D, COHORT, CLIP = 400, 2 * GROUP + 3, 0.25
ALPHA = 1e-6
SMALL = 1e-2


def config(noise: float) -> RunConfig:
    given = {"epsilon": None, "noise_multiplier": noise, "clip_l2": CLIP}
    privacy = demo_config().privacy.model_copy(update=given)
    base = demo_config().model_copy(update={"privacy": privacy})
    return changed(base, [("cohort.size", COHORT)])


def invitation(updates: np.ndarray, number: int = 0, **lost: Stage) -> Invitation:
    dropouts = {int(name.lstrip("c")): stage for name, stage in lost.items()}
    chunks = iter([updates[:5], updates[5:]])
    model = np.zeros(D, np.float32)
    return Invitation(number, tuple(range(COHORT)), dropouts, CohortUpdates(chunks), model)


@pytest.fixture
def updates() -> np.ndarray:
    return updates_of_all()


def updates_of_all() -> np.ndarray:
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


POPULATION, ROUNDS = 4 * COHORT, 12


def correlated(noise: str) -> RunConfig:
    changes = {
        "rounds": ROUNDS,
        "task.population": POPULATION,
        "cohort.size": COHORT,
        "sketch": {"controller": "fixed", "rate": 1.0},
        "noise.kind": noise,
        "privacy.clip_l2": CLIP,
    }
    return changed(demo_config(), list(changes.items()))


def covariance(noise: str) -> np.ndarray:
    """Of the noise of all rounds, over the variance that independent noise would have."""
    found = config_noise(noise)
    strategy = found.strategy
    if strategy is not None:
        inverse = np.linalg.inv(strategy.matrix)
        return np.asarray(inverse @ inverse.T)
    share, fresh = found.share, found.fresh
    expected = np.eye(ROUNDS) - share * (np.eye(ROUNDS, k=1) + np.eye(ROUNDS, k=-1))
    expected[1:, 1:] += share * np.eye(ROUNDS - 1)
    return np.asarray(fresh * expected)


@dataclass(frozen=True)
class Planned:
    strategy: BandedStrategy | None = None
    share: float = 0.0
    fresh: float = 1.0


def config_noise(noise: str) -> Planned:
    if noise == "banded":
        return Planned(banded_plan(correlated(noise)).strategy)
    plan = returned_plan(correlated(noise))
    return Planned(share=plan.returned_share, fresh=plan.fresh_ratio)


@cache
def noise_of_all_rounds(noise: str) -> tuple[np.ndarray, float]:
    """What was added in each round, and the variance that the last one states."""
    updates, source = updates_of_all(), CentralMean(correlated(noise), FixedRate(1.0), D)
    clipped = np.sum([clip_l2(update, CLIP).values for update in updates], axis=0) / COHORT
    gaps = np.array([source.mean(invitation(updates, t)) - clipped for t in range(ROUNDS)])
    return gaps, source.facts(invitation(updates))["noise_variance"]


@pytest.mark.parametrize("noise", ["returned", "banded"])
@pytest.mark.parametrize("claimed", ["returned", "banded", "independent"])
def test_noise_of_all_rounds_has_the_planned_covariance(noise: str, claimed: str) -> None:
    """Whitened by the plan it is standard normal; by another plan it is not."""
    gaps, stated = noise_of_all_rounds(noise)
    z = correlated(noise).privacy.goal(correlated(noise).participations).noise_multiplier
    sigma = z * CLIP / COHORT
    planned = np.eye(ROUNDS) if claimed == "independent" else covariance(claimed)
    white = np.linalg.solve(np.linalg.cholesky(planned), gaps / sigma)
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], D * ROUNDS)
    products = white @ white.T / np.sqrt(D)
    # Off the diagonal: 66 products that are nearly standard normal.
    apart = np.abs(products[np.triu_indices(ROUNDS, 1)]).max()
    fits = low < np.sum(white**2) < high and apart < stats.norm.isf(ALPHA / 132)
    assert bool(fits) is (claimed == noise)
    if claimed == noise:
        assert stated == pytest.approx(planned[-1, -1] * sigma**2)


@pytest.mark.parametrize("noise", ["returned", "banded"])
def test_rounds_have_one_sketch_and_one_divisor(updates: np.ndarray, noise: str) -> None:
    """With others the noise would not cancel: the whole of it comes back scaled or scattered."""
    source = CentralMean(correlated(noise), FixedRate(4.0, rows=5), D)
    everybody = invitation(np.zeros_like(updates))
    fewer = invitation(np.zeros_like(updates), 1, c3=Stage.ADVERTISE, c4=Stage.ADVERTISE)
    total = source.mean(everybody) + source.mean(fewer)
    again = CentralMean(correlated(noise), FixedRate(4.0, rows=5), D)
    assert np.allclose(
        total, again.mean(invitation(0 * updates)) + again.mean(invitation(0 * updates, 1))
    )


def test_the_whole_run_is_charged_from_the_first_round_on(updates: np.ndarray) -> None:
    spent = {}
    for noise in ("independent", "returned", "banded"):
        source = CentralMean(correlated(noise), FixedRate(1.0), D)
        spent[noise] = []
        for number in range(ROUNDS):
            source.mean(invitation(updates, number))
            spent[noise].append(source.facts(invitation(updates))["epsilons"]["outsider"])
    goal = correlated("returned").privacy.epsilon
    assert spent["independent"][0] < spent["independent"][-1] == pytest.approx(goal)
    for noise in ("returned", "banded"):
        assert spent[noise] == pytest.approx([goal] * ROUNDS)
