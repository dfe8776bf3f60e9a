"""The parts that attacks on whole rounds are made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dp import BinomialRelease, NonPrivateRelease
from protocol import Pipeline, RoundSetup
from secagg import CapacityError, Identity, RemoteProtocolError, centre
from simulations.audits.base import Claim, identities_of, noise_seed, public_keys
from simulations.threats.catalogue.capacity import LINF_BOUND, ExtremeRounds
from simulations.threats.game.weak_clients import unbound
from simulations.threats.rounds import suppression
from simulations.threats.rounds.announced import (
    COHORT,
    DIMENSION,
    OTHER_SHAPE,
    SURVIVORS,
    TARGET,
    announced_round,
    deceived,
    lies,
)
from simulations.threats.rounds.parties import (
    Participant,
    edited,
    real_client,
)
from simulations.threats.rounds.released import (
    LENGTH,
    STEP,
    accuracy_bound,
    allowed_accuracy,
    guessing_rate,
    long_vector,
    on_grid,
    smallest_difference,
)
from simulations.threats.rounds.split import SplitOutcome, Story, open_sum, open_unbound, run_split
from simulations.threats.rounds.suppression import INPUTS, random_layer, suppressed_round

DIGEST = bytes(32)


class TestAllowedAccuracy:
    """The allowed accuracy against closed forms."""

    def test_one_pair(self) -> None:
        assert accuracy_bound(Claim(0.0, 0.2)) == pytest.approx(0.6)
        # Who tells the world outright with probability delta, and else by randomised response.
        expected = 1e-5 + (1.0 - 1e-5) * math.e / (1.0 + math.e)
        assert accuracy_bound(Claim(1.0, 1e-5)) == pytest.approx(expected, rel=1e-12)
        assert accuracy_bound(Claim(1e4, 1e-5)) == 1.0

    @pytest.mark.parametrize("mu", [0.1, 0.5, 2.0])
    def test_coins_are_close_to_the_gaussian(self, mu: float) -> None:
        coins = 40_000
        shift = round(mu * math.sqrt(coins / 4.0))
        allowed = allowed_accuracy(BinomialRelease(coins, float(shift), shift, 1))
        # The best guess compares the likelihoods of two binomials.
        law = stats.binom(coins, 0.5)
        outcomes = np.arange(-shift, coins + shift + 1)
        variation = np.abs(law.pmf(outcomes) - law.pmf(outcomes - shift)).sum() / 2.0
        best = (1.0 + variation) / 2.0
        assert best <= allowed <= best + STEP

    def test_no_noise_allows_everything(self) -> None:
        assert allowed_accuracy(NonPrivateRelease()) == 1.0

    def test_guesses(self) -> None:
        scores, worlds = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 1, 0, 1])
        assert guessing_rate(scores, worlds, 1.5, 0.5)["successes"] == 2
        assert guessing_rate(scores, worlds, 0.5, 0.5)["successes"] == 3
        figures = guessing_rate(np.arange(2000) % 2.0, np.arange(2000) % 2, 0.5, 0.9)
        assert figures["accuracy"] == 1.0 and figures["succeeded"]


def people_of(
    seed: int = 1, **told_to_target: float
) -> tuple[dict[int, Participant], dict[int, Identity], RoundSetup]:
    """A cohort, everybody with an update; the target is told something else."""
    identities = identities_of(seed, COHORT)
    setup = announced_round(identities, DIGEST, 20, seed)
    registry = public_keys(identities)
    rng = np.random.default_rng(seed)
    people = {
        index: Participant(
            real_client(identity, registry),
            edited(setup.announce(), **(told_to_target if index == TARGET else {})),
            DIGEST,
            rng.normal(size=DIMENSION) / 8.0,
            noise_seed(seed, index),
        )
        for index, identity in enumerate(identities)
    }
    return people, dict(enumerate(identities)), setup


class TestSplit:
    """The server's stories work on clients that were told the same, so refusals mean something."""

    @pytest.mark.parametrize("story", [Story.ONE_ROSTER, Story.STOLEN_KEYS])
    def test_one_story_gets_all_uploads(self, story: Story) -> None:
        people, identities, _ = people_of()
        outcome = run_split(people, identities, story)
        assert sorted(outcome.uploads) == list(range(COHORT))
        assert not outcome.refusals and outcome.involves(TARGET)

    def test_one_group_gets_its_sum(self) -> None:
        people, identities, setup = people_of()
        (total,) = run_split(people, identities, Story.OWN_ROSTERS).sums
        expected = sum(person.sent() for person in people.values())
        assert np.array_equal(centre(total.vector), expected)
        assert total.survivors == tuple(range(setup.context.size))

    @pytest.mark.parametrize("story", Story)
    def test_a_lie_gets_nothing_of_the_target(self, story: Story) -> None:
        people, identities, _ = people_of(scale=17.0)
        outcome = run_split(people, identities, story)
        assert not outcome.involves(TARGET) and not outcome.uploads
        assert isinstance(outcome.refusals[TARGET], RemoteProtocolError)
        # Four of five are enough for a sum of their own.
        others = len(outcome.sums[0].survivors) if outcome.sums else 0
        assert others == (SURVIVORS if story is Story.OWN_ROSTERS else 0)

    def test_an_announcement_that_is_none(self) -> None:
        people, identities, _ = people_of(degree=2)
        assert not people[TARGET].understands and people[0].understands
        outcome = run_split(people, identities, Story.ONE_ROSTER)
        assert outcome.refusals.keys() == {TARGET}


class TestVictims:
    """They lack one defence and nothing else."""

    def test_the_hash_is_gone_and_the_rest_is_there(self) -> None:
        _, _, setup = people_of()
        free = unbound(setup.context)
        assert free.hash == bytes(32) != setup.context.hash
        assert free.encode() == setup.context.encode()

    def test_victims_sum_correctly_if_nobody_lies(self) -> None:
        people, _, setup = people_of()
        outcome = SplitOutcome()
        open_unbound(people, setup.context, outcome)
        expected = sum(person.sent() for person in people.values())
        assert np.array_equal(centre(outcome.sums[0].vector), expected)

    @pytest.mark.parametrize("name", sorted(set(lies(1)) - OTHER_SHAPE))
    def test_real_clients_open_no_sum_where_victims_do(self, name: str) -> None:
        identities = identities_of(1, COHORT)
        setup = announced_round(identities, DIGEST, 20, 1)
        for run, opens in ((open_sum, False), (open_unbound, True)):
            outcome = SplitOutcome()
            run(deceived(identities, setup, lies(1)[name], 1), setup.context, outcome)
            assert outcome.involves(TARGET) is opens


class TestSuppression:
    """A model of dead units."""

    def test_the_gradient_is_right(self) -> None:
        rng = np.random.default_rng(5)
        layer, inputs, label = random_layer(rng), rng.normal(size=INPUTS), 0.3

        def loss(flat: np.ndarray) -> np.float64:
            weights, biases = flat[:-8].reshape(8, INPUTS), flat[-8:]
            return (np.maximum(weights @ inputs + biases, 0.0).sum() - label) ** 2 / 2.0

        flat = np.concatenate([layer.weights.ravel(), layer.biases])
        steps = 1e-6 * np.eye(DIMENSION)
        slope = np.array([loss(flat + step) - loss(flat - step) for step in steps]) / 2e-6
        assert np.allclose(layer.update(inputs, label), -slope, atol=1e-5)

    def test_dead_units_give_exactly_nothing(self) -> None:
        rng = np.random.default_rng(5)
        dead = random_layer(rng).suppressed()
        assert not dead.update(rng.normal(size=INPUTS), 1.0).any()

    def test_only_the_target_has_an_update(self) -> None:
        drawn = suppressed_round(3, 0)
        alive = [bool(update.any()) for update in drawn.updates]
        assert alive == [index == TARGET for index in range(COHORT)]
        assert len({model.digest() for model in drawn.models}) == 2


class TestOrder:
    """One model by its names, another by the order of its arrays."""

    def test_the_gradient_is_right(self) -> None:
        rng = np.random.default_rng(5)
        shapes = [(8, suppression.LIST_INPUTS), (8,), (8,)]
        flat, inputs, label = (
            rng.normal(size=DIMENSION),
            rng.normal(size=suppression.LIST_INPUTS),
            0.3,
        )

        def arrays(flat: np.ndarray) -> list[np.ndarray]:
            parts = np.split(flat, [8 * suppression.LIST_INPUTS, 8 * suppression.LIST_INPUTS + 8])
            return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

        def loss(flat: np.ndarray) -> np.float64:
            weights, biases, slopes = arrays(flat)
            return (slopes @ np.maximum(weights @ inputs + biases, 0.0) - label) ** 2 / 2.0

        # Names do not matter to training, and so they are not in order here.
        model = suppression.ListModel(dict(zip("cab", arrays(flat), strict=True)))
        steps = 1e-6 * np.eye(DIMENSION)
        slope = np.array([loss(flat + step) - loss(flat - step) for step in steps]) / 2e-6
        assert np.allclose(model.update(inputs, label), -slope, atol=1e-5)

    def test_only_the_target_has_an_update_and_the_same_arrays_by_their_names(self) -> None:
        drawn = suppression.permuted_round(3, 0)
        alive = [bool(update.any()) for update in drawn.updates]
        assert alive == [index == TARGET for index in range(COHORT)]
        assert len({model.digest() for model in drawn.models}) == 2
        assert len({model.digest_by_name() for model in drawn.models}) == 1
        target, other = drawn.models[TARGET].arrays, drawn.models[TARGET - 1].arrays
        assert list(target) != list(other)
        assert all(np.array_equal(array, other[name]) for name, array in target.items())


class TestGrid:
    """Updates that rounding leaves alone, and the largest sums there are."""

    def test_nothing_is_rounded(self) -> None:
        identities = identities_of(1, COHORT)
        setup = announced_round(identities, DIGEST, 0, 1)
        integers = np.random.default_rng(2).integers(-1, 2, DIMENSION)
        update = on_grid(setup.parameters, integers)
        for number in range(20):
            encoded = Pipeline(setup).encode(update, noise_seed(number))
            assert np.array_equal(centre(encoded), integers)

    @pytest.mark.parametrize("norm", [3.95, 17.0, 100.0])
    def test_long_vectors(self, norm: float) -> None:
        vector = long_vector(norm)
        assert vector.shape == (LENGTH,)
        assert 0.9 * norm < np.linalg.norm(vector) <= norm

    def test_extreme_rounds_are_on_the_bound(self) -> None:
        extreme = ExtremeRounds(1)
        rows = extreme.integers(3)
        coins = extreme.setup.parameters.mechanism.coins
        assert np.all(rows[:, 3] >= LINF_BOUND - coins // 2)
        assert np.all(np.delete(np.abs(rows), 3, axis=1) <= coins // 2)
        assert np.all(extreme.integers(3 + LENGTH)[:, 3] < 0)

    def test_a_field_that_is_too_small(self) -> None:
        extreme, rows = ExtremeRounds(1), ExtremeRounds(1).integers(0)
        bits = extreme.setup.context.bits
        assert np.array_equal(extreme.in_field(rows, bits), rows.sum(axis=0))
        assert not np.array_equal(extreme.in_field(rows, bits - 2), rows.sum(axis=0))
        with pytest.raises(CapacityError):
            extreme.smaller(bits - 1)
        assert extreme.in_real_round(0)


@pytest.mark.parametrize(
    ("sets", "smallest"),
    [
        ([(0, 1, 2), (0, 1, 2)], 0),
        ([(0, 1, 2), (0, 2)], 1),
        ([(0, 1), (0, 2), (0, 1, 2, 3)], 2),
        ([(0, 1)], 0),
    ],
)
def test_smallest_difference(sets: list[tuple[int, ...]], smallest: int) -> None:
    assert smallest_difference(sets) == smallest
