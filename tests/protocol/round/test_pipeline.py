"""The stages in order, out of order, and the noise that comes out at the end."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from round_kit import make_setup, updates
from scipy import stats

from dp import (
    BinomialMechanism,
    Bounded,
    CoinSchedule,
    DiscreteGaussianMechanism,
    Noised,
    NoiseSeed,
    NonFiniteUpdateError,
    Quantized,
    SensitivityExceededError,
    SkellamMechanism,
    clip_l2,
)
from dp.clipping import l2_norm
from dp.coins import sample_binomial
from dp.dropouts import batch_noise
from dp.mechanisms import DistributedMechanism
from protocol.round import pipeline as pipeline_module
from protocol.round.pipeline import AddNoise, Clip, Compress, Lift, Pipeline, Quantize, Rotate
from protocol.round.setup import RoundSetup
from secagg import FieldSum, FieldVector, ParameterError, PrimeField, centre
from secagg.field import add_into

ALPHA = 1e-6


def ideal_sum(setup: RoundSetup, pipeline: Pipeline, vectors: list[FieldVector]) -> FieldSum:
    total = setup.context.field.zeros(setup.context.length)
    for vector in vectors:
        add_into(total, vector)
    return FieldSum(FieldVector(setup.context.field, total), tuple(range(len(vectors))))


def test_without_noise_the_mean_comes_back() -> None:
    setup = make_setup(coins=0, scale=4096.0, linf_bound=1 << 14)
    pipeline = Pipeline(setup)
    total = ideal_sum(
        setup, pipeline, [pipeline.encode(updates(i), NoiseSeed.fresh()) for i in range(6)]
    )
    release = pipeline.decode(total)
    expected = np.mean([clip_l2(updates(i), 2.0).values for i in range(6)], axis=0)
    # Six stochastic roundings, each off by less than one unit, rotated (an isometry).
    assert np.linalg.norm(release.update - expected) < math.sqrt(200) / 4096.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_updates_that_are_not_finite_are_refused(bad: float) -> None:
    update = updates(0).copy()
    update[17] = bad
    with pytest.raises(NonFiniteUpdateError):
        Pipeline(make_setup()).encode(update, NoiseSeed.fresh())


@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-200, 1.0, 1e200, 1.7e308])
def test_a_process_that_makes_numpy_raise_encodes_all_the_same(size: float) -> None:
    """Who leaves a round must not depend on how large or small its finite update is."""
    update = updates(0).astype(np.float64)
    update = update / np.abs(update).max() * size
    seed = NoiseSeed.fresh()
    for length in (None, 60):
        pipeline = Pipeline(make_setup(size=length))
        expected = pipeline.encode(update, seed)
        with np.errstate(all="raise"):
            alone = pipeline.encode(update, seed)
            block = pipeline.encode_block({0: pipeline.clip(update)}, {0: [seed]}, {})
        assert np.array_equal(alone.elements, expected.elements)
        assert np.array_equal(block.elements, expected.elements)


SEEDS = {i: [NoiseSeed(bytes([i, batch]) * 16) for batch in range(9)] for i in range(6)}


def encoded(pipeline: Pipeline, clients: list[int], seeds: int = 1) -> tuple[FieldVector, dict]:
    """The sum of a block of clients, and who was refused."""
    clipped, refused = {i: pipeline.clip(updates(i)) for i in clients}, dict[int, str]()
    return pipeline.encode_block(clipped, {i: SEEDS[i][:seeds] for i in clients}, refused), refused


@pytest.mark.parametrize("size", [None, 60])
def test_a_block_is_the_sum_of_its_clients_encoded_one_by_one(
    mechanism: DistributedMechanism, size: int | None
) -> None:
    removable = isinstance(mechanism, BinomialMechanism)
    setup = make_setup(size=size, mechanism=mechanism, removable=removable)
    pipeline, end = Pipeline(setup), 1 + setup.context.seeds
    vectors = [pipeline.encode(updates(i), of[0], of[1:end]) for i, of in SEEDS.items()]
    block, _ = encoded(pipeline, list(SEEDS), end)
    assert np.array_equal(block.elements, ideal_sum(setup, pipeline, vectors).vector.elements)


@pytest.mark.parametrize("stage", [Rotate, Quantize, AddNoise])
def test_a_client_that_a_stage_refuses_is_left_out_of_its_block(
    stage: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, turns, accept = Pipeline(make_setup()), iter(range(6)), stage.client
    expected, _ = encoded(pipeline, [0, 1, 3, 4, 5])

    def refuse_third(*arguments: object) -> object:
        if next(turns) == 2:
            raise SensitivityExceededError("too long")
        return accept(*arguments)

    monkeypatch.setattr(stage, "client", refuse_third)
    block, refused = encoded(pipeline, list(SEEDS))
    assert np.array_equal(block.elements, expected.elements)
    assert refused == {2: "too long"}


@pytest.mark.parametrize("shape", [(199,), (201,), (200, 1), ()])
def test_updates_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="update"):
        Pipeline(make_setup()).encode(np.zeros(shape, np.float32), NoiseSeed.fresh())


def test_stages_in_the_wrong_order_raise_when_forced() -> None:
    bounded = clip_l2(np.ones(8), 1.0)
    seed = NoiseSeed.fresh()
    with pytest.raises((AttributeError, TypeError)):
        AddNoise(BinomialMechanism(4), None).client(bounded, seed)  # type: ignore[arg-type]
    with pytest.raises((AttributeError, TypeError)):
        Quantize(8.0, 10).client(np.ones(8), seed)  # type: ignore[arg-type]
    with pytest.raises((ParameterError, TypeError)):
        Clip(8, 1.0).client(bounded)  # type: ignore[arg-type]
    with pytest.raises(SensitivityExceededError):
        Bounded(np.ones(8), 1.0)


def test_what_signal_and_noise_reach_only_together_wraps_around() -> None:
    """Neither alone is beyond the field's half; an error would tell that together they are."""
    field, noise = PrimeField(8), BinomialMechanism(240).noise
    assert (field.largest_centred, noise.noise_limit) == (125, 120)
    noised = Noised(np.array([126, -126, 125, 0]), noise, 144, 6)
    assert centre(Lift(field).client(noised)).tolist() == [-125, 125, 125, 0]
    assert centre(Lift(field).clients([noised] * 3, 4)).tolist() == [127 - 251, 124, 375 - 251, 0]


def released_noise(
    survivors: int,
    coins: int,
    rounds: int,
    *,
    broken_twin: bool = False,
) -> np.ndarray:
    """Integer noise of the whole path: encode zero updates, sum, decode; in integer units."""
    samples = []
    for number in range(rounds):
        setup = make_setup(coins=coins, linf_bound=1, scale=64.0)
        pipeline = Pipeline(setup)
        vectors = []
        for i in range(survivors):
            seed = NoiseSeed(bytes([number, i, coins % 256]) + bytes(29))
            vectors.append(pipeline.encode(np.zeros(200, np.float32), seed))
        if broken_twin:
            # The last client's noise is that of the first: its coins are counted twice.
            vectors[-1] = vectors[0]
        release = pipeline.decode(ideal_sum(setup, pipeline, vectors))
        rotated = pipeline._rotate.rotation.forward(release.mean_sketch)
        samples.append(rotated * survivors * 64.0)
    return np.concatenate(samples)


def variance_is_plausible(noise: np.ndarray, coins_total: int) -> np.bool:
    """Chi-square test of the variance; the kurtosis of the binomial is slightly below 3."""
    statistic = float(np.sum(noise**2) / (coins_total / 4.0))
    low = stats.chi2.ppf(ALPHA / 2, noise.size)
    high = stats.chi2.isf(ALPHA / 2, noise.size)
    return low <= statistic <= high


@pytest.mark.statistical
@pytest.mark.parametrize("coins", [100, 101])
def test_released_noise_is_binomial_over_the_survivors(coins: int) -> None:
    survivors = 5
    noise = released_noise(survivors, coins, rounds=100)
    total = survivors * coins
    assert variance_is_plausible(noise, total)
    # Every value sits on the lattice of a centred binomial ...
    counts = noise + total / 2.0
    assert np.allclose(counts, np.round(counts), atol=1e-6)
    # ... and has its distribution: chi-square over bins of at least 20 expected values.
    edges = stats.binom.ppf(np.linspace(0, 1, 41)[1:-1], total, 0.5)
    edges = np.unique(edges)
    observed = np.histogram(np.round(counts), np.concatenate([[-1], edges, [total]]) + 0.5)[0]
    cumulative = np.concatenate([[0.0], stats.binom.cdf(edges, total, 0.5), [1.0]])
    expected = np.diff(cumulative) * noise.size
    assert expected.min() > 20
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    assert statistic <= stats.chi2.isf(ALPHA, expected.size - 1)


@pytest.mark.statistical
@pytest.mark.parametrize(("coins", "reused"), [(100, True), (50, False)])
def test_a_reused_noise_seed_and_half_the_coins_are_rejected(coins: int, reused: bool) -> None:
    noise = released_noise(5, coins, rounds=100, broken_twin=reused)
    assert not variance_is_plausible(noise, 500)


@pytest.mark.statistical
def test_the_stated_noise_variance_is_the_measured_one() -> None:
    """Signal, sketch and rounding included: compare two releases of the same updates."""
    setup = make_setup(size=100, coins=400)
    pipeline = Pipeline(setup)
    differences = []
    for number in range(60):
        pair = []
        for half in range(2):
            seeds = [NoiseSeed(bytes([number, half, i]) + bytes(29)) for i in range(6)]
            vectors = [pipeline.encode(updates(i), seeds[i]) for i in range(6)]
            pair.append(pipeline.decode(ideal_sum(setup, pipeline, vectors)).mean_sketch)
        differences.append(pair[0] - pair[1])
    spread = np.concatenate(differences)
    statistic = float(np.sum(spread**2) / (2 * pipeline.noise_variance(6)))
    # Rounding is counted at its average over uniform fractions, 1/6 of a squared unit, where it
    # may be anything from 0 to 1/4: against 100 of the coins, at most 0.2 % of the whole.
    slack = 1.0 + 0.25 / 100
    assert stats.chi2.ppf(ALPHA / 2, spread.size) / slack <= statistic
    assert statistic <= stats.chi2.isf(ALPHA / 2, spread.size) * slack


class TestCharged:
    """What leaves the client is what accounting charges for, or nothing leaves."""

    def test_a_sketch_that_is_not_clipped_again_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A sketch lengthens some vectors; without the second clip its bound is unknown."""

        def unclipped(stage: Compress, bounded: Bounded) -> Bounded:
            values = stage.sketch.encode(bounded.values)
            return Bounded(values, max(l2_norm(values), 1.5 * stage.l2_bound))

        pipeline = Pipeline(make_setup(size=60))
        pipeline.encode(updates(5), NoiseSeed.fresh())
        monkeypatch.setattr(Compress, "client", unclipped)
        with pytest.raises(SensitivityExceededError, match="is accounted with"):
            pipeline.encode(updates(5), NoiseSeed.fresh())

    @pytest.mark.parametrize(
        ("stage", "broken"),
        [
            ("_noise", AddNoise(BinomialMechanism(100), None)),
            ("_noise", AddNoise(SkellamMechanism(25.25), None)),
            ("_quantize", Quantize(64.0, 99)),
            ("_quantize", Quantize(64.1, 100)),
        ],
    )
    def test_a_stage_with_other_figures_is_refused(
        self, stage: str, broken: AddNoise | Quantize
    ) -> None:
        pipeline = Pipeline(make_setup())
        setattr(pipeline, stage, broken)
        with pytest.raises(SensitivityExceededError):
            pipeline.encode(updates(0), NoiseSeed.fresh())
        # In a block whoever is refused is left out.
        assert list(encoded(pipeline, [0, 3])[1]) == [0, 3]


def test_noise_beyond_the_field_wraps_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in its place would depend on the update; the sum of such vectors wraps as well."""
    setup = make_setup(mechanism=SkellamMechanism(25.25))
    pipeline, field, half = (
        Pipeline(setup),
        setup.context.field,
        setup.context.field.largest_centred,
    )
    seeds = [NoiseSeed(bytes([i]) * 32) for i in range(2)]
    plain = [centre(pipeline.encode(updates(i), seeds[i])) for i in range(2)]
    add_noise = SkellamMechanism.add_noise

    def far(mechanism: DistributedMechanism, quantized: Quantized, seed: NoiseSeed) -> Noised:
        noised = add_noise(mechanism, quantized, seed)
        return replace(noised, values=noised.values + (half if seed is seeds[0] else -half))

    monkeypatch.setattr(SkellamMechanism, "add_noise", far)
    moved = [pipeline.encode(updates(i), seeds[i]) for i in range(2)]
    assert not np.array_equal(centre(moved[0]), plain[0])
    total = field.zeros(setup.context.length)
    for vector in moved:
        add_into(total, vector)
    assert np.array_equal(centre(FieldVector(field, total)), plain[0] + plain[1])


def test_a_mechanism_other_than_the_charged_one_is_refused(mechanism: DistributedMechanism) -> None:
    """Of the same variance, even: an event has one law."""
    others = (BinomialMechanism(101), SkellamMechanism(25.25), DiscreteGaussianMechanism(25.25))
    for other in others:
        pipeline = Pipeline(make_setup(mechanism=mechanism))
        pipeline._noise = AddNoise(other, None)
        if other == mechanism:
            pipeline.encode(updates(0), NoiseSeed.fresh())
            continue
        with pytest.raises(SensitivityExceededError, match="is accounted with"):
            pipeline.encode(updates(0), NoiseSeed.fresh())


@pytest.mark.parametrize("survivors", [1, 3, 6])
def test_the_noise_of_a_mean_is_that_of_its_survivors(
    survivors: int, mechanism: DistributedMechanism
) -> None:
    setup = make_setup(mechanism=mechanism)
    pipeline = Pipeline(setup)
    seeds = [NoiseSeed(bytes([i]) * 32) for i in range(survivors)]
    vectors = [pipeline.encode(updates(i), seeds[i]) for i in range(survivors)]
    release = pipeline.decode(ideal_sum(setup, pipeline, vectors))
    # One mechanism's noise and one rounding for each survivor, in units of the mean.
    expected = survivors * (mechanism.variance + 1 / 6) / (64.0 * survivors) ** 2
    assert release.noise_variance == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("worth", [1, 1 << 60])
def test_surplus_noise_is_taken_off_by_any_number_of_threads(
    worth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays is exactly the noise of the batches that nobody removes."""
    monkeypatch.setattr(pipeline_module, "WORTH_THREADS", worth)
    monkeypatch.setattr(pipeline_module, "_threads", lambda: 3)
    schedule, length, lost = CoinSchedule.best(9_000, 8, 3, 1), 50, 1
    seeds = [[NoiseSeed.fresh() for _ in schedule.batches] for _ in range(8 - lost)]
    total = np.sum([batch_noise(each, schedule, length) for each in seeds], axis=0)
    given_up = [[each[b].material for b in schedule.removed(lost)] for each in seeds]
    assert given_up[0]
    stays = np.sum(
        [
            sample_binomial(each[b], schedule.batches[b], length) - schedule.batches[b] // 2
            for each in seeds
            for b in schedule.kept(lost)
        ],
        axis=0,
    )
    expected = stays - len(seeds) * schedule.residual_offset(lost)
    noise = AddNoise(BinomialMechanism(0), schedule)
    np.testing.assert_array_equal(
        noise.server(total, noise.surplus(given_up, lost, length), 8 - lost, lost), expected
    )
