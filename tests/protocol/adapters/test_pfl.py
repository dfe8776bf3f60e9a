"""pfl's own backend, aggregator and algorithms around `PrivateMean`.

pfl needs another dp-accounting than ours, so it has an environment of its own: `make test-pfl`.
"""

# ruff: noqa: E402  what may be missing is looked for before it is imported

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import re
import runpy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.doubles.plans import plan_of_words

pytest.importorskip("pfl", reason="pfl is not installed; make test-pfl has a place for it")
torch = pytest.importorskip("torch", reason="pfl trains with torch here")

from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDatasetBase
from pfl.hyperparam.base import AlgorithmHyperParams, ModelHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.metrics import Metrics
from pfl.postprocessor import Postprocessor
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism
from pfl.stats import ElementWeightedMappedVectorStatistics, MappedVectorStatistics

from dp import BudgetExceededError, Ledger, NoiseSeed
from dp.mechanisms import MECHANISMS
from protocol import IdealAggregator, Pipeline, PrivacyGoal, PrivateTraining, Stage, TrainingPlan
from protocol.adapters.pfl import FieldStatistics, PrivateMean
from protocol.adapters.pfl.cohort import CollectedSums, seats
from protocol.adapters.pfl.layout import Layout, flatten
from protocol.adapters.pfl.postprocessor import NO_MODEL
from protocol.round.setup import RoundSetup
from protocol.training.private import RoundResult
from secagg import (
    FieldVector,
    LocalProtocolError,
    ParameterError,
    PrimeField,
    TooFewSurvivorsError,
    centre,
)
from sketch.controllers import AdaptNorm, FixedRate

ROOT = Path(__file__).parents[3]
SHAPES = {"weight": (8, 30), "bias": (60,)}
DIMENSION, COHORT, DROPOUTS = 300, 12, 3

# A habit of pfl's Gaussian mechanism.
pytestmark = pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")


@pytest.fixture(autouse=True)
def one_framework() -> None:
    set_framework_module(pytorch_ops)
    torch.set_num_threads(1)


@pytest.fixture
def event_loop() -> Iterator[None]:
    """The training loop of pfl takes the current event loop and makes none."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.jsonl") as opened:
        yield opened


class Secrets:
    """Seeds that repeat with their label, and no two alike in one run."""

    def __init__(self, label: str) -> None:
        self._label, self._drawn = label, 0

    def _next(self, size: int = 32) -> bytes:
        self._drawn += 1
        return hashlib.shake_256(f"{self._label} {self._drawn}".encode()).digest(size)

    def rand(self, size: int) -> bytes:
        return self._next(size)

    def noise(self, index: int) -> NoiseSeed:
        return NoiseSeed(self._next())

    def removable(self, index: int, count: int) -> Sequence[NoiseSeed]:
        return [NoiseSeed(self._next()) for _ in range(count)]

    @classmethod
    def all_of_a_run(cls) -> dict[str, Any]:
        """Sources of public seeds, noise and removable noise."""
        return {
            "rand": cls("public").rand,
            "noise": cls("noise").noise,
            "removable": cls("removable").removable,
        }


class Users(FederatedDatasetBase):
    """Whoever is next in line; a user is its update."""

    def __init__(self, line: Sequence[tuple[Any, np.ndarray]]) -> None:
        super().__init__()
        self._line = iter(line)

    def __next__(self) -> tuple[Dataset, int]:
        user_id, update = next(self._line)
        return Dataset((update,), user_id=user_id), 0

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[Dataset, int]]:
        for _ in range(cohort_size):
            yield next(self)


class Given:
    """An algorithm that trains nothing: its update is the user's data."""

    def simulate_one_user(self, model: Any, user_dataset: Dataset, central_context: Any) -> Any:
        flat = torch.from_numpy(user_dataset.raw_data[0])
        parts = pytorch_ops.reshape(flat, list(SHAPES.values()))
        return MappedVectorStatistics(dict(zip(SHAPES, parts, strict=True))), Metrics()


class Spy(Postprocessor):
    """Notes every update as it leaves the training."""

    def __init__(self) -> None:
        self.updates: list[np.ndarray] = []

    def postprocess_one_user(self, *, stats: Any, user_context: Any) -> Any:
        self.updates.append(flatten(stats))
        return stats, Metrics()


def people(count: int, prefix: str = "user", length: float = 1.0) -> list[tuple[str, np.ndarray]]:
    table = np.random.default_rng(5).normal(size=(count, DIMENSION)).astype(np.float32)
    table *= length * np.linspace(0.02, 0.2, count, dtype=np.float32)[:, None]
    return [(f"{prefix} {index}", update) for index, update in enumerate(table)]


def make_plan(rounds: int = 3, **other: Any) -> TrainingPlan:
    values: dict[str, Any] = {
        "goal": PrivacyGoal(8.0, 1e-5, rounds),
        "cohort": COHORT,
        "tolerated_dropouts": DROPOUTS,
        "tolerated_colluders": 1,
        "clip_l2": 1.0,
    }
    return plan_of_words({**values, **other})


def gather(
    postprocessors: list[Postprocessor], line: Sequence[tuple[Any, np.ndarray]], **backend: Any
) -> tuple[MappedVectorStatistics, Metrics]:
    """One pass of pfl's backend over these users."""
    users = Users(line)
    size = backend.pop("cohort_size", len(line))
    context = CentralContext(
        current_central_iteration=0,
        do_evaluation=False,
        cohort_size=size,
        population=Population.TRAIN,
        algorithm_params=AlgorithmHyperParams(),
        model_train_params=ModelHyperParams(),
        seed=3,
    )
    return SimulatedBackend(users, users, postprocessors, **backend).gather_results(
        None, Given(), central_context=context
    )


# The sum.


def vectors(bits: int, count: int, length: int = 257) -> list[FieldVector]:
    """Uniform elements, the smallest and the largest among them."""
    field, generator = PrimeField(bits), np.random.default_rng(bits)
    table = generator.integers(0, field.modulus, size=(count, length), dtype=np.uint64)
    table[:, 0], table[:, 1] = 0, field.modulus - 1
    return [FieldVector(field, row.astype(field.dtype)) for row in table]


def added(parts: Sequence[FieldVector], cls: type[FieldStatistics] = FieldStatistics) -> Any:
    total = cls(parts[0], 1)
    for part in parts[1:]:
        total = cls(part, 1) + total
    return total


@pytest.mark.parametrize("bits", [8, 16, 17, 24, 25, 32, 33, 48, 49, 62])
def test_plus_is_exact_in_the_field(bits: int) -> None:
    """As Python's integers say; neither float32, which pfl likes, nor a sum modulo 2^bits is."""
    parts = vectors(bits, 40)
    modulus = parts[0].field.modulus
    columns = zip(*(part.elements.tolist() for part in parts), strict=True)
    expected = [sum(column) % modulus for column in columns]
    total = added(parts)
    assert total.users == 40
    assert total.num_parameters == len(parts[0])
    assert total.vector.elements.tolist() == expected

    in_float32 = sum(p.elements.astype(np.float32) for p in parts) % np.float32(modulus)
    # 40 numbers of 17 bits stay below 2^24.
    assert (in_float32.astype(np.uint64).tolist() == expected) == (bits <= 17)
    without_modulus = sum(p.elements.astype(np.uint64) for p in parts)
    assert (without_modulus & np.uint64(parts[0].field.word_mask)).tolist() != expected


def test_only_like_statistics_add_up() -> None:
    one = FieldStatistics(vectors(24, 1)[0], 1)
    for other in (
        FieldStatistics(vectors(25, 1)[0], 1),
        FieldStatistics(vectors(24, 1, 100)[0], 1),
        MappedVectorStatistics({}),
    ):
        with pytest.raises(ParameterError):
            one + other


@pytest.mark.parametrize("bits", [8, 16, 17, 24, 25, 32, 33, 48, 49, 62])
def test_a_copy_through_float32_is_exact(bits: int) -> None:
    """The backend copies the first user's statistics by `get_weights` and `from_weights`."""
    (vector,) = vectors(bits, 1)
    copied = FieldStatistics(vector, 7).apply_elementwise(torch.clone)
    assert copied.users == 7
    assert copied.vector.field == vector.field
    np.testing.assert_array_equal(copied.vector.elements, vector.elements)
    if bits > 24:
        rounded = vector.elements.astype(np.float32).astype(np.float64)
        assert not np.array_equal(rounded, vector.elements.astype(np.float64))


def changed_at(place: tuple[int, int], value: float) -> Callable[[Any], Any]:
    def change(limbs: Any) -> Any:
        limbs = limbs.clone()
        limbs[place] = value
        return limbs

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda limbs: limbs * 0.5, id="scaled"),
        pytest.param(lambda limbs: limbs + torch.randn(limbs.shape), id="noised"),
        pytest.param(lambda limbs: limbs + limbs, id="added as floats"),
        pytest.param(lambda limbs: limbs[:, 1:], id="shortened"),
        pytest.param(lambda limbs: limbs[:1], id="a limb lost"),
        pytest.param(changed_at((0, 3), float("nan")), id="NaN"),
        pytest.param(changed_at((0, 3), -1.0), id="negative"),
    ],
)
def test_whatever_is_no_copy_is_refused(change: Callable[[Any], Any]) -> None:
    (vector,) = vectors(40, 1)
    with pytest.raises(LocalProtocolError, match="last postprocessor"):
        FieldStatistics(vector, 1).apply_elementwise(change)


@pytest.mark.parametrize("bits", [8, 16, 17, 25, 32, 40, 62])
def test_bits_beyond_the_field_are_not_cut_off(bits: int) -> None:
    """The last limb has more room than the field; what a machine word would drop is refused."""
    (vector,) = vectors(bits, 1)
    metadata, (limbs,) = FieldStatistics(vector, 1).get_weights()
    limbs[-1, 5] = 2.0 ** (bits - 24 * (len(limbs) - 1))
    with pytest.raises(LocalProtocolError, match="last postprocessor"):
        FieldStatistics(vector, 1).from_weights(metadata, [limbs])


def test_the_prime_itself_is_no_element() -> None:
    (vector,) = vectors(40, 1)
    metadata, (limbs,) = FieldStatistics(vector, 1).get_weights()
    modulus = vector.field.modulus
    limbs[:, 1] = torch.tensor([modulus & 0xFFFFFF, modulus >> 24], dtype=torch.float32)
    with pytest.raises(LocalProtocolError, match="last postprocessor"):
        FieldStatistics(vector, 1).from_weights(metadata, [limbs])


# The mean.


def ideal_run(
    plan: TrainingPlan,
    controller: Any,
    rounds: Sequence[Sequence[np.ndarray]],
    ledger: Ledger,
) -> list[RoundResult]:
    """Our own ideal functionality on the same updates with the same secrets."""
    secrets = Secrets.all_of_a_run()
    aggregator = IdealAggregator(secrets["removable"], secrets["noise"])
    training = PrivateTraining(
        plan, DIMENSION, controller, aggregator, ledger, rand=secrets["rand"]
    )
    cohort = [hashlib.sha256(b"%d" % index).digest() for index in range(COHORT)]
    return [
        training.run_round(
            cohort,
            NO_MODEL,
            updates.__getitem__,
            dict.fromkeys(range(len(updates), COHORT), Stage.ADVERTISE),
        )
        for updates in rounds
    ]


def same_release(ours: RoundResult, theirs: RoundResult) -> bool:
    """Bit for bit: the sum in the field, the mean, and what it cost."""
    return (
        ours.setup.parameters == theirs.setup.parameters
        and np.array_equal(ours.outcome.total.vector.elements, theirs.outcome.total.vector.elements)
        and ours.release.update.tobytes() == theirs.release.update.tobytes()
        and ours.release.noise_variance == theirs.release.noise_variance
        and ours.epsilons == theirs.epsilons
    )


def private_run(
    plan: TrainingPlan, sizes: Sequence[int], ledger: Ledger
) -> tuple[list[RoundResult], list[np.ndarray], list[list[np.ndarray]], list[Metrics]]:
    """Rounds of the same first users through pfl: results, means, raw updates, metrics."""
    mean = PrivateMean(
        plan, DIMENSION, AdaptNorm(first_rate=1.0, rows=5), ledger, **Secrets.all_of_a_run()
    )
    results, means, updates, metrics = [], [], [], []
    for size in sizes:
        spy = Spy()
        statistics, public = gather([spy, WeightByUser(), mean], people(COHORT)[:size])
        assert mean.last is not None
        results.append(mean.last)
        means.append(flatten(statistics))
        updates.append(spy.updates)
        metrics.append(public)
    return results, means, updates, metrics


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_mean_is_that_of_the_ideal_functionality(
    ledger: Ledger, tmp_path: Path, mechanism: str
) -> None:
    """For full cohorts, for lost users, and with sketches whose size changes."""
    plan = make_plan(mechanism=mechanism)
    results, means, updates, metrics = private_run(plan, (COHORT, COHORT - 2, 9), ledger)
    with Ledger.open(tmp_path / "other.jsonl") as other:
        expected = ideal_run(plan, AdaptNorm(first_rate=1.0, rows=5), updates, other)
        assert len(other.entries()) == len(ledger.entries()) == 3
    assert len({result.setup.context.length for result in results}) > 1
    for result, mean, ideal, public in zip(results, means, expected, metrics, strict=True):
        assert same_release(result, ideal)
        # pfl has no other floats.
        assert mean.dtype == np.float32
        np.testing.assert_array_equal(mean, ideal.release.update.astype(np.float32))
        context = ideal.setup.context
        assert public["veilsum | epsilon spent against the server"] == ideal.epsilons.server
        assert public["veilsum | epsilon spent against an outsider"] == ideal.epsilons.outsider
        assert (
            public["veilsum | epsilon spent against a server with sybils"] == ideal.epsilons.sybil
        )
        assert public["veilsum | sketch size"] == context.length
        assert public["veilsum | compression"] == DIMENSION / context.length
        assert public["veilsum | bits per element"] == context.bits
        assert public["veilsum | survivors"] == ideal.release.survivors
        assert public["veilsum | lost users"] == COHORT - ideal.release.survivors
        assert public["veilsum | refused users"] == 0


def add_in_the_ring(one: FieldStatistics, other: FieldStatistics) -> FieldStatistics:
    """Modulo 2^bits, as a machine word does it, and not modulo the prime."""
    field = one.vector.field
    total = (one.vector.elements.astype(np.uint64) + other.vector.elements) & np.uint64(
        field.word_mask
    )
    total %= np.uint64(field.modulus)
    return FieldStatistics(FieldVector(field, total.astype(field.dtype)), one.users + other.users)


def add_without_reduction(one: FieldStatistics, other: FieldStatistics) -> FieldStatistics:
    """Add vectors as pfl adds tensors: without any modulus."""
    field = one.vector.field
    total = one.vector.elements.astype(np.uint64) + other.vector.elements
    return FieldStatistics(FieldVector(field, total.astype(field.dtype)), one.users + other.users)


def test_a_sum_that_is_not_in_the_field_is_rejected(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the comparison above, or by the field vector's own check."""
    plan = make_plan()
    monkeypatch.setattr(FieldStatistics, "__add__", add_in_the_ring)
    results, _, updates, _ = private_run(plan, (COHORT,), ledger)
    with Ledger.open(tmp_path / "ideal.jsonl") as other:
        (expected,) = ideal_run(plan, AdaptNorm(first_rate=1.0, rows=5), updates, other)
    assert not same_release(results[0], expected)
    monkeypatch.setattr(FieldStatistics, "__add__", add_without_reduction)
    with (
        Ledger.open(tmp_path / "third.jsonl") as third,
        pytest.raises(ParameterError, match="elements"),
    ):
        private_run(plan, (COHORT,), third)


def test_users_get_fresh_noise(ledger: Ledger) -> None:
    """Without seeds from outside no two users, and no two rounds, share theirs."""
    encoded: list[FieldVector] = []

    class Look(Postprocessor):
        def postprocess_one_user(self, *, stats: FieldStatistics, user_context: Any) -> Any:
            encoded.append(stats.vector)
            return stats, Metrics()

    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    nothing = [(user_id, np.zeros(DIMENSION, np.float32)) for user_id, _ in people(COHORT)]
    for _ in range(2):
        gather([mean, Look()], nothing)
    # The update is zero, so what is left is the noise.
    noise = {centre(vector).tobytes() for vector in encoded}
    assert len(noise) == 2 * COHORT


# Weights.


@pytest.mark.parametrize("weight", [3.0, 0.5, 0.0, float("nan")])
def test_a_weight_is_refused(ledger: Ledger, weight: float) -> None:
    class Weigh(Postprocessor):
        def postprocess_one_user(self, *, stats: Any, user_context: Any) -> Any:
            stats.weight = weight
            return stats, Metrics()

    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(ParameterError, match="WeightByDatapoints") as caught:
        gather([Weigh(), mean], people(COHORT))
    assert str(weight) not in str(caught.value)


def test_weighting_by_data_is_refused_on_either_side(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(ParameterError, match=r"stats\.weight"):
        gather([WeightByDatapoints(), mean], people(COHORT))
    with pytest.raises(LocalProtocolError, match="cannot be weighted"):
        gather([mean, WeightByDatapoints()], people(COHORT))
    assert ledger.entries() == ()


def test_element_weights_are_refused(ledger: Ledger) -> None:
    class Weigh(Postprocessor):
        def postprocess_one_user(self, *, stats: Any, user_context: Any) -> Any:
            return ElementWeightedMappedVectorStatistics(dict(stats.items())), Metrics()

    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(ParameterError, match="ElementWeighted"):
        gather([Weigh(), mean], people(COHORT))


# Who came.


@pytest.mark.statistical
def test_surplus_noise_is_taken_off(tmp_path: Path) -> None:
    """With everybody there the noise is about that of the fewest; the twin keeps all of it."""
    nothing = [(user_id, np.zeros_like(update)) for user_id, update in people(COHORT)]
    excess = {}
    for exact in (True, False):
        with Ledger.open(tmp_path / f"{exact}.jsonl") as ledger:
            plan = make_plan(rounds=20, exact_noise=exact)
            mean = PrivateMean(plan, DIMENSION, FixedRate(1.0), ledger, **Secrets.all_of_a_run())
            squares = []
            for _ in range(20):
                gather([mean], nothing)
                assert mean.last is not None
                # Updates are zero, so the mean sketch is noise.
                parameters, noise = mean.last.setup.parameters, mean.last.release.mean_sketch
                squares.append(np.mean((noise * COHORT * parameters.scale) ** 2))
        # In units of the coins that the fewest honest survivors hold.
        excess[exact] = np.mean(squares) / (
            (COHORT - DROPOUTS - 1) * parameters.mechanism.coins / 4
        )
    # Expected are 12/11 and 12/8, colluders' coins included. The mean square of 6000 Gaussian
    # values is off by more than 4.9 * sqrt(2 / 6000) = 9 % one time in a million.
    assert excess[True] < 12 / 11 * 1.09
    assert excess[False] > 12 / 8 * 0.91
    assert 12 / 11 * 1.09 < 12 / 8 * 0.91


def test_too_few_users_release_nothing(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(TooFewSurvivorsError) as caught:
        gather([mean], people(COHORT - DROPOUTS - 1))
    assert (caught.value.survivors, caught.value.needed) == (8, 9)
    assert mean.last is None
    assert ledger.entries() == ()
    # The next round is a round like any other.
    gather([mean], people(COHORT - DROPOUTS))
    assert len(ledger.entries()) == 1


def broken(line: list[tuple[Any, np.ndarray]], *places: int) -> list[tuple[Any, np.ndarray]]:
    return [
        (user_id, np.full_like(update, np.nan) if place in places else update)
        for place, (user_id, update) in enumerate(line)
    ]


def test_a_user_with_a_broken_update_is_lost(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    _, metrics = gather([mean], broken(people(COHORT), 4))
    assert metrics["veilsum | refused users"] == 1
    assert metrics["veilsum | survivors"] == COHORT - 1
    assert mean.last is not None
    assert 4 not in mean.last.outcome.total.survivors
    assert np.all(np.isfinite(mean.last.release.update))


def test_a_lost_user_pays_like_the_others(ledger: Ledger) -> None:
    """It was invited, as in every round of ours; so one round is all that it has."""
    mean = PrivateMean(make_plan(rounds=1), DIMENSION, FixedRate(1.0), ledger)
    line = people(COHORT)
    gather([mean], broken(line, 4))
    others = people(COHORT, prefix="other")
    with pytest.raises(BudgetExceededError):
        gather([mean], [line[4], *others[1:]])
    # The seat of somebody who was drawn twice, and empty seats, are nobody's.
    twice = [*others[:5], others[0]]
    for start in (0, 1):
        newcomers = people(COHORT - 6, prefix=f"newcomer {start}")
        regulars = [(f"{start} {user_id}", update) for user_id, update in twice]
        gather([mean], [*regulars, *newcomers])
    assert len(ledger.entries()) == 3


def test_too_many_broken_updates_say_why(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(TooFewSurvivorsError) as caught:
        gather([mean], broken(people(COHORT), 0, 3, 5, 7))
    assert any("party 3 was lost" in note for note in caught.value.__notes__)


def test_a_user_counts_once_in_a_round(ledger: Ledger) -> None:
    """Its random sampler draws with replacement: twice in one sum is twice the sensitivity."""
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    line = people(COHORT)
    line[6] = (line[2][0], line[6][1])
    gather([mean], line)
    assert mean.last is not None
    assert 6 not in mean.last.outcome.total.survivors
    assert mean.last.outcome.refused[6] == "the cohort was drawn twice for the same round"


def test_more_users_than_planned_are_refused(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(ParameterError, match="max_overshoot_fraction"):
        gather([mean], people(COHORT + 1))
    assert ledger.entries() == ()
    gather([mean], people(COHORT))


def test_overshooting_within_the_plan(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    _, metrics = gather([mean], people(COHORT), cohort_size=10, max_overshoot_fraction=0.2)
    assert 10 <= metrics["veilsum | survivors"] <= COHORT


def test_a_sum_is_handed_over_once(ledger: Ledger) -> None:
    training = PrivateTraining(make_plan(), DIMENSION, FixedRate(1.0), CollectedSums(), ledger)
    setup = training.next_setup(seats(COHORT), NO_MODEL)
    with pytest.raises(LocalProtocolError, match="collect"):
        training.run_setup(setup)
    assert ledger.entries() == ()


def test_users_of_another_process_are_missed(ledger: Ledger) -> None:
    """Their surplus noise is not known here, so a sum over them is not decoded."""

    class FromElsewhere(Postprocessor):
        def postprocess_server(self, *, stats: Any, **context: Any) -> Any:
            return stats + FieldStatistics(stats.vector, 1), Metrics()

    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(LocalProtocolError, match="over 12 users, of 11 encoded here"):
        gather([mean, FromElsewhere()], people(COHORT - 1))
    assert ledger.entries() == ()


def test_a_round_that_was_cut_short_is_not_continued(ledger: Ledger) -> None:
    """A user's training fails, and the caller begins again."""

    class Fails(Postprocessor):
        def __init__(self) -> None:
            self.left = 3

        def postprocess_one_user(self, *, stats: Any, user_context: Any) -> Any:
            self.left -= 1
            if not self.left:
                raise OSError("no battery")
            return stats, Metrics()

    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(OSError, match="battery"):
        gather([Fails(), mean], people(COHORT))
    with pytest.raises(LocalProtocolError, match="cut short"):
        gather([mean], people(COHORT - 2, prefix="other"))
    gather([mean], people(COHORT))
    assert len(ledger.entries()) == 1


# What it costs.


def test_the_budget_ends_the_run(ledger: Ledger) -> None:
    """The goal is for two rounds of a user: the third is refused, and charged to nobody."""
    mean = PrivateMean(make_plan(rounds=2), DIMENSION, FixedRate(1.0), ledger)
    for _ in range(2):
        _, metrics = gather([mean], people(COHORT))
    assert metrics["veilsum | epsilon spent against the server"] <= 8.0
    spent, last = ledger.entries(), mean.last
    with pytest.raises(BudgetExceededError):
        gather([mean], people(COHORT))
    assert ledger.entries() == spent
    assert mean.last is last
    # Others have not spent anything.
    gather([mean], people(COHORT, prefix="other"))


def test_users_pay_for_their_own_rounds(ledger: Ledger) -> None:
    """Two groups that take turns have each spent one round after two; without ids it is two."""
    mean = PrivateMean(make_plan(rounds=4), DIMENSION, FixedRate(1.0), ledger)
    epsilons = []
    for prefix in ("user", "other", "user"):
        _, metrics = gather([mean], people(COHORT, prefix))
        epsilons.append(metrics["veilsum | epsilon spent against the server"])
    assert epsilons[0] == epsilons[1] < epsilons[2]


def test_users_without_ids_are_the_same_in_every_round(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(rounds=4), DIMENSION, FixedRate(1.0), ledger)
    nameless = [(None, update) for _, update in people(COHORT)]
    epsilons = []
    for _ in range(2):
        _, metrics = gather([mean], nameless)
        assert metrics["veilsum | refused users"] == 0
        epsilons.append(metrics["veilsum | epsilon spent against the server"])
    assert epsilons[0] < epsilons[1]


def test_a_ledger_remembers_users(tmp_path: Path) -> None:
    """A second process with the same ledger goes on from what users have spent."""
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as first:
        mean = PrivateMean(make_plan(rounds=1), DIMENSION, FixedRate(1.0), first)
        gather([mean], people(COHORT))
        state = mean.state
    with Ledger.open(path) as again:
        mean = PrivateMean(make_plan(rounds=1), DIMENSION, FixedRate(1.0), again, state=state)
        with pytest.raises(BudgetExceededError):
            gather([mean], people(COHORT))


def test_a_round_is_charged_before_it_is_decoded(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged = []
    decode = Pipeline.decode

    def watched(self: Pipeline, *sums: Any) -> Any:
        charged.append(len(ledger.entries()))
        return decode(self, *sums)

    monkeypatch.setattr(Pipeline, "decode", watched)
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    for _ in range(2):
        gather([mean], people(COHORT))
    assert charged == [1, 2]


def test_a_setup_is_used_once(ledger: Ledger) -> None:
    """The half of `PrivateTraining` that this adapter is built on."""
    captured: list[RoundSetup] = []

    class Keep(IdealAggregator):
        def run(self, setup: RoundSetup, *args: Any, **kwargs: Any) -> Any:
            captured.append(setup)
            return super().run(setup, *args, **kwargs)

    plan, line = make_plan(), people(COHORT)
    training = PrivateTraining(plan, DIMENSION, FixedRate(1.0), Keep(), ledger)
    cohort = [hashlib.sha256(b"%d" % index).digest() for index in range(COHORT)]
    training.run_round(cohort, NO_MODEL, lambda index: line[index][1])
    with pytest.raises(ParameterError, match="next round, number 1"):
        training.run_setup(captured[0], lambda index: line[index][1])
    assert len(ledger.entries()) == 1


# Where it is put.


def clipped_and_noised() -> CentrallyAppliedPrivacyMechanism:
    return CentrallyAppliedPrivacyMechanism(GaussianMechanism(0.1, 1.0))


def test_it_must_be_the_last(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(LocalProtocolError, match="last postprocessor"):
        gather([mean, clipped_and_noised()], people(COHORT))
    second = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(ParameterError, match="FieldStatistics"):
        gather([mean, second], people(COHORT))
    assert ledger.entries() == ()


def test_others_may_come_first(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    statistics, _ = gather([clipped_and_noised(), mean], people(COHORT))
    assert isinstance(statistics, MappedVectorStatistics)
    assert {name: tuple(value.shape) for name, value in statistics.items()} == SHAPES
    assert statistics.weight == 1


def test_another_dimension_is_refused(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION - 1, FixedRate(1.0), ledger)
    with pytest.raises(ParameterError, match="num_parameters = 300"):
        gather([mean], people(COHORT))


def test_another_layout_is_refused(ledger: Ledger) -> None:
    class Flatten(Postprocessor):
        def postprocess_one_user(self, *, stats: Any, user_context: Any) -> Any:
            return MappedVectorStatistics({k: v.reshape(-1) for k, v in stats.items()}), Metrics()

    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    gather([mean], people(COHORT))
    with pytest.raises(ParameterError, match="the same as before"):
        gather([Flatten(), mean], people(COHORT))


def test_running_statistics_are_refused_by_name() -> None:
    with pytest.raises(ParameterError, match=r"norm\.running_var"):
        Layout.of(MappedVectorStatistics({"norm.running_var": np.ones(3, np.float32)}))


def test_there_is_nothing_to_deploy(ledger: Ledger) -> None:
    mean = PrivateMean(make_plan(), DIMENSION, FixedRate(1.0), ledger)
    with pytest.raises(LocalProtocolError, match="simulation only"):
        mean.postprocess_server_live(
            stats=FieldStatistics(vectors(24, 1)[0], 1),
            central_context=None,
            aggregate_metrics=Metrics(),
        )


# The example and the page.


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = ROOT / "examples" / "pfl" / "digits.py"
    spec = importlib.util.spec_from_file_location("pfl_digits_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.usefixtures("event_loop")
def test_digits_are_learned(example: ModuleType, ledger: Ledger) -> None:
    """Federated averaging over ten private rounds; guessing is right one time in ten."""
    model = example.new_model(seed=1, rate=2.0)
    dimension = sum(value.numel() for value in model.variable_map.values())
    mean = example.private_mean(dimension, ledger, rounds=10, **Secrets.all_of_a_run())
    before = model.evaluate(example.Digits.load().test)["accuracy"].overall_value
    accuracy = example.train(model, [mean], rounds=10)
    assert before < 0.3
    assert accuracy > 0.6
    assert mean.last is not None
    assert mean.last.epsilons.server <= 8.0
    assert mean.last.release.survivors == example.COHORT
    assert len(ledger.entries()) == 10


@pytest.mark.usefixtures("event_loop")
def test_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The code in docs/integrations/pfl.md runs in the order in which it stands."""
    page = ROOT / "docs" / "integrations" / "pfl.md"
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    script = tmp_path / "page.py"
    script.write_text(code)
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(script))
    assert names["private_mean"].last.release.survivors == 20
