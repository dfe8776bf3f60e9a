"""Both sides of every bound of an argument: what is refused, in which words, and what passes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from bounds import Row

from dp import (
    BinomialMechanism,
    Bounded,
    Budget,
    Coins,
    DiscreteGaussianMechanism,
    FailureReserve,
    Noised,
    NoiseSeed,
    Quantized,
    Sensitivities,
    SkellamMechanism,
    clip_l2,
    coins_for_epsilon,
    quantize,
    variance_for_epsilon,
)
from dp.accounting.discrete_gaussian import DiscreteGaussianSum
from dp.accounting.domination import effective_sigma
from dp.accounting.gaussian import gaussian_mu
from dp.accounting.laws import MAX_TOTAL_COINS, BinomialNoise, SkellamNoise
from dp.accounting.tails import log_tails
from dp.accounting.theorem1 import Theorem1Parameters, theorem1
from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND
from dp.coin_schedule import CoinSchedule
from dp.coins import MAX_COINS, sample_binomial
from dp.correlated.planning import Schedule
from dp.events import (
    AboveThresholdRelease,
    Allocated,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    FixedSizeSampled,
    GaussianRelease,
    LaplaceRelease,
    LevelRelease,
    LocalRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
)
from dp.keystream import Usage
from dp.local import CrossPolytope, Duchi, Hybrid, Piecewise, PrivQuant, best_priv_quant
from dp.local.agreement import AgreementLaw, AgreementSums
from dp.local.audit import worst_exact_ratio, worst_log_ratio, worst_ratio
from dp.local.calibration import printed_priv_quant
from dp.local.reconstruction import ReconstructionProtection
from dp.local.sampled import SampledCoordinates, sampled_hybrid, sampled_piecewise
from dp.local.selection import (
    encoding_law,
    exponential,
    perturbed_encoding,
    perturbed_sampling,
    printed_perturbed_encoding,
)
from dp.local.two_stage import selection_share_for, two_stage
from dp.local.windows import MAX_POINTS, WindowLaw, window_law
from dp.mechanisms import mechanism_of
from dp.mechanisms.levels import LevelMechanism, rotated_clip
from dp.rounding import MAX_LINF_BOUND, rounded_l2_bound
from dp.sampling import (
    BinomialLaw,
    DiscreteGaussianLaw,
    RoundedGaussianLaw,
    SkellamLaw,
    sample_law,
)
from dp.sampling.laplace import MAX_SCALE, MIN_SCALE, DiscreteLaplaceLaw
from dp.sampling.laws import MAX_TRIALS, MAX_VARIANCE, MIN_VARIANCE

NAN, INF = math.nan, math.inf
SEED = NoiseSeed(bytes(range(32)))
SHORT = Bounded(np.ones(2), 2.0)
TWO = Sensitivities(16.0, 4)


def field(event: Any, name: str, *values: list[Any]) -> Row:
    """Of an event or another frozen record."""
    return Row(lambda value: replace(event, **{name: value}), name, *values)


BINOMIAL = BinomialRelease(1024, 16.0, 16, 10)
SKELLAM = SkellamRelease(1.0, 1.0, 1, 1)
GAUSSIAN = DiscreteGaussianRelease(1.0, 1, 1.0, 1, 1)
LEVELS = LevelRelease(1, 0.5, 2, 1.0, 1, True)
POISSON = PoissonSampled(0.5, BINOMIAL)
FIXED = FixedSizeSampled(1, 2, BINOMIAL)
ALLOCATED = Allocated(2, BINOMIAL)
LAPLACE = LaplaceRelease(1.0, 1)
ABOVE = AboveThresholdRelease(1.0, 1.0, 1)
EVENTS = [
    field(BINOMIAL, "coins", [-1], [1.5, True], [0]),
    field(BINOMIAL, "l2_sensitivity", [-1.0, NAN, INF], [3], [0.0]),
    field(BINOMIAL, "linf_sensitivity", [0], [1.0], [1]),
    field(BINOMIAL, "dimension", [0], [True], [1]),
    field(SKELLAM, "variance", [-1.0], [1], [0.0]),
    field(GAUSSIAN, "local_variance", [INF], [1], [0.0]),
    field(GAUSSIAN, "contributors", [-1], [1.0], [0]),
    field(GaussianRelease(1.0, 1.0), "sigma", [NAN], [1], [0.0]),
    field(LEVELS, "probability", [0.6, 0.0], ["half"], [0.5, 1e-9]),
    field(LEVELS, "levels", [1], [2.0], [2]),
    field(LEVELS, "norm", [0.0], [1], [1e-9]),
    field(LEVELS, "rotated", [], [1], [False]),
    field(POISSON, "rate", [0.0, 1.1], [1], [1e-9, 1.0]),
    field(POISSON, "event", [], [NonPrivateRelease()], [SKELLAM]),
    field(FIXED, "size", [0], [1.0], [1, 2]),
    field(FIXED, "population", [0], [2.0], [1]),
    field(FIXED, "event", [], [Composition((BINOMIAL,))], [SKELLAM]),
    field(ALLOCATED, "rounds", [0], [2.0, True], [1]),
    field(ALLOCATED, "event", [], [Composition((BINOMIAL,)), FIXED], [SKELLAM]),
    field(LAPLACE, "scale", [0.0, NAN], [1], [1e-9]),
    field(LAPLACE, "sensitivity", [0], [1.0], [1]),
    field(ABOVE, "threshold_scale", [0.0], [1], [1e-9]),
    field(ABOVE, "query_scale", [INF], [1], [1e-9]),
    field(ABOVE, "sensitivity", [0], [1.0], [1]),
    Row(Composition, "part", [()], [[BINOMIAL]], [(BINOMIAL,)]),
    Row(LocalRelease, "epsilon", [0.0, -1.0, NAN, INF], [1, "1", True], [1e-9]),
]

LAWS = [
    Row(DiscreteLaplaceLaw, "scale", [0.0, -1.0, MIN_SCALE / 2, MAX_SCALE * 2, NAN, INF], [1]),
    Row(DiscreteLaplaceLaw, "scale", [], [], [MIN_SCALE, MAX_SCALE]),
    *(
        Row(
            kind,
            r"variance|sigma_squared",
            [0.0, -1.0, MIN_VARIANCE / 2, 2 * MAX_VARIANCE, NAN, INF],
            [1, True, "1"],
            [MIN_VARIANCE, MAX_VARIANCE],
        )
        for kind in (DiscreteGaussianLaw, SkellamLaw)
    ),
    Row(
        lambda n: BinomialLaw(n, 0.5), "trials", [-1, MAX_TRIALS + 1], [1.0, True], [0, MAX_TRIALS]
    ),
    Row(lambda p: BinomialLaw(1, p), "probability", [0.0, 1.0, NAN], [1], [0.5]),
    Row(lambda p: BinomialLaw(1, p), r"2\^-64", [2.0**-65], [], [2.0**-64]),
    Row(RoundedGaussianLaw, "sigma", [0.5, 5000.0], [2], [1.0, 4096.0]),
    Row(lambda index: SEED.derive(Usage.REFINEMENT, index), "index", [-1, 2**64], [], [2**64 - 1]),
    Row(lambda length: sample_law(SkellamLaw(5.0), SEED, length), "length", [-1], [1.0, True], [0]),
    Row(lambda seed: sample_law(SkellamLaw(5.0), seed, 1), "NoiseSeed", [], [bytes(32)], [SEED]),
    Row(NoiseSeed, "str", [], ["x" * 32]),
    Row(BinomialNoise, "coins", [3, 0, 2**40], [], [2]),
    Row(SkellamNoise, "variance", [0.0, NAN, 1e300], [], [1.0]),
    Row(lambda n: DiscreteGaussianSum(1.0, n), "contributors", [0], [], [1]),
    Row(lambda v: DiscreteGaussianSum(v, 1), "local_variance", [-1.0], [], [1.0]),
    Row(lambda v: DiscreteGaussianSum(v, 10**6), "local_variance", [1e6], [], [1.0]),
    Row(lambda reach: log_tails(BinomialNoise(8), reach), "must", [0, 5], [], [1, 4]),
]

BASE = Theorem1Parameters(coins=65536, l1=16384.0, l2=128.0, linf=16.0, dimension=10**6)
ACCOUNTING = [
    field(BASE, "coins", [-1], [], [0]),
    field(BASE, "dimension", [0], [], [1]),
    field(BASE, "l1", [-1.0], [], [0.0]),
    field(BASE, "l2", [NAN], [], [0.0]),
    field(BASE, "linf", [INF], [], [0.0]),
    field(BASE, "probability", [0.6, 0.0], [], [0.5]),
    field(BASE, "step", [0.0, 2.0], [], [1.0]),
    Row(lambda delta: theorem1(BASE, delta), "delta", [0.0, 1.0, -0.1, NAN], [], [0.5]),
    Row(lambda n: effective_sigma(n, 1.0, 1, 0.1), "coins", [-1], [], [0, MAX_TOTAL_COINS + 1]),
    Row(lambda l2: effective_sigma(10, l2, 1, 0.1), "l2_sensitivity", [-1.0, NAN, INF], [], [0.0]),
    Row(lambda linf: effective_sigma(10, 1.0, linf, 0.1), "linf_sensitivity", [0], [], [1]),
    Row(lambda delta0: effective_sigma(10, 1.0, 1, delta0), "delta0", [0.0, 0.5, NAN], [], [0.4]),
    Row(lambda epsilon: gaussian_mu(epsilon, 0.1), "must lie", [-1.0, NAN, 1e7], [], [0.0]),
    Row(lambda delta: gaussian_mu(1.0, delta), "must lie", [0.0, 1.0], [], [0.5]),
    Row(lambda a: FailureReserve(1e-8, 1, a), "aggregation", [-1e-9, 0.5, NAN], [], [0.0, 0.4]),
    Row(lambda delta0: FailureReserve(delta0, 1), "delta0", [0.0, 0.5, NAN], [], [0.1]),
    Row(lambda n: FailureReserve(0.1, n), "releases", [0], [], [1]),
    Row(lambda n: FailureReserve.from_delta(1e-5, n), "releases", [0], [], [1]),
    Row(lambda epsilon: Budget(epsilon, 0.1), "epsilon", [0.0, NAN], [], [INF]),
    Row(lambda delta: Budget(1.0, delta), "delta", [0.0, 1.0], [], [0.5]),
    Row(lambda e: coins_for_epsilon(e, 1e-5, 1.0, 1), "epsilon", [0.0, INF, NAN], [], [1.0]),
    Row(lambda delta: coins_for_epsilon(1.0, delta, 1.0, 1), "delta", [0.0, 1.0], [], [0.5]),
    Row(lambda l2: coins_for_epsilon(1.0, 1e-5, l2, 1), "l2_sensitivity", [0.5, NAN], [], [1.0]),
    Row(lambda linf: coins_for_epsilon(1.0, 1e-5, 1.0, linf), "linf_sensitivity", [0], [], [1]),
    Row(lambda n: coins_for_epsilon(1.0, 1e-5, 1.0, 1, n), "rounds", [0], [], [1]),
    Row(lambda e: variance_for_epsilon(e, 1e-5, 4.0, 4), "epsilon", [0.0], [], [1.0]),
    Row(lambda delta: variance_for_epsilon(1.0, delta, 4.0, 4), "delta", [1.0], [], [0.5]),
    Row(lambda l2: variance_for_epsilon(1.0, 1e-5, l2, 4), "l2_sensitivity", [0.5], [], [1.0]),
    Row(lambda n: variance_for_epsilon(1.0, 1e-5, 4.0, 4, n), "rounds", [0], [], [1]),
    Row(lambda n: variance_for_epsilon(1.0, 1e-5, 4.0, 4, 1, n), "contributors", [0], [], [1]),
    Row(lambda given: Schedule(given, 1, 1), "rounds must lie in", [0], [], [1]),
    Row(lambda given: Schedule(10, given, 1), "participations must lie in", [11], [], [10]),
    Row(lambda given: Schedule(10, 2, given), "apart must be at least 1", [0], [], [1]),
    Row(
        lambda given: Schedule(10, given, 5),
        "participations must be at most 2, for 10 rounds that are 5 apart",
        [3],
        [],
        [2],
    ),
]

VECTORS = [
    Row(lambda v: clip_l2(v, 1.0), "NumPy array", [], [[1.0, 2.0], (1.0,), None, 3.0]),
    *(
        Row(lambda v: clip_l2(v, 1.0), "dtype float32 or float64", [], [np.ones(3, dtype=kind)])
        for kind in (np.int64, np.float16, np.complex128, object, bool)
    ),
    *(
        Row(lambda v: clip_l2(v, 1.0), "one-dimensional", [np.ones(shape)])
        for shape in ((), (2, 2), (1, 3, 1))
    ),
    Row(
        lambda bound: clip_l2(np.ones(2), bound),
        "l2_bound",
        [0.0, -1.0, NAN, INF, 1e-300, 1e300],
        [],
        [MIN_L2_BOUND, MAX_L2_BOUND],
    ),
    Row(lambda v: Bounded(v, 2.0), "float64", [], [np.ones(2, np.float32)], [np.ones(2)]),
    Row(lambda scale: quantize(SHORT, scale, 4, SEED), "scale", [0.0, -1.0, NAN, INF], [], [1.0]),
    Row(
        lambda linf: quantize(SHORT, 1.0, linf, SEED),
        "linf_bound",
        [0, MAX_LINF_BOUND + 1],
        [2.0, True],
        [1, MAX_LINF_BOUND],
    ),
    *(
        Row(lambda v: Quantized(v, 2, 1), "int64", [], [np.ones(2, dtype=kind)])
        for kind in (np.int32, np.uint64, np.float64)
    ),
    Row(lambda l2: rounded_l2_bound(l2, 1), "l2", [0.0], [], [1.0]),
    Row(lambda d: rounded_l2_bound(1.0, d), "dimension", [0], [], [1]),
    Row(lambda beta: rounded_l2_bound(1.0, 1, beta), "beta", [0.0, 1.0], [], [0.5]),
    Row(lambda n: sample_binomial(SEED, n, 1), "coins", [-1, MAX_COINS + 1], [1.0, True], [0]),
    Row(lambda length: sample_binomial(SEED, 1, length), "length", [-1], [], [0]),
    Row(lambda n: Coins(1, n), "batches", [0], [1.0, True], [1]),
    Row(lambda v: Noised(v, Coins(4), 9, 3), "int64", [], [np.array([1.0])], [np.array([1])]),
]


def level(**change: object) -> LevelMechanism:
    """A good mechanism of levels, but for the change."""
    return LevelMechanism(**{"norm": 1.0, "clip": 1.0, "levels": 4, "coins": 8, **change})  # type: ignore[arg-type]


def schedule(**change: object) -> CoinSchedule:
    """A good schedule, but for the change."""
    names = ("target_coins", "cohort", "tolerated_dropouts", "tolerated_colluders")
    return CoinSchedule(**{**dict(zip(names, (90, 6, 3, 1), strict=True)), **change})  # type: ignore[arg-type]


MECHANISMS = [
    Row(lambda norm: level(norm=norm), "l2_bound", [0.0], [], [1.0]),
    Row(lambda clip: level(clip=clip), "clip", [0.0, NAN], [], [1.0]),
    Row(lambda n: level(levels=n), "levels", [1, 1 << 25], [2.0], [2]),
    Row(lambda n: level(coins=n), "coins", [-1], [], [0]),
    Row(lambda p: level(probability=p), "probability", [0.75, 0.0], [], [0.5]),
    Row(lambda given: level(rotated=given), "rotated", [], [1], [True]),
    Row(lambda d: rotated_clip(1.0, d, 1, 0.1), "dimension", [0], [], [1]),
    Row(lambda n: rotated_clip(1.0, 1, n, 0.1), "clients", [0], [], [1]),
    Row(lambda delta: rotated_clip(1.0, 1, 1, delta), "delta", [0.0, 1.0], [], [0.5]),
    Row(
        lambda name: mechanism_of(name, 1.0),
        "one of binomial, skellam, discrete-gaussian",
        ["laplace"],
    ),
    Row(lambda n: mechanism_of("binomial", n), "coins", [-1], [1.0], [0]),
    Row(lambda v: mechanism_of("skellam", v), "variance", [-1.0], [1], [1.0]),
    Row(lambda v: mechanism_of("discrete-gaussian", v), "sigma_squared", [NAN, 0.0], [], [1.0]),
    Row(lambda l2: Sensitivities(l2, 1), "l2", [0.0, INF], [1], [1e-9]),
    Row(lambda linf: Sensitivities(1.0, linf), "linf", [0], [1.0], [1]),
    *(
        row
        for each in (BinomialMechanism(64), DiscreteGaussianMechanism(20.0), SkellamMechanism(17.5))
        for row in (
            Row(lambda n, each=each: each.total_limit(n, 1, 0.1), "clients", [0], [1.0], [1]),
            Row(lambda d, each=each: each.total_limit(1, d, 0.1), "dimension", [0], [], [1]),
            Row(
                partial(each.total_limit, 1, 1),
                "wrap_probability",
                [-0.1, 1.0, NAN],
                [1],
                [0.5],
            ),
            Row(lambda n, each=each: each.event(TWO, n, 10), "contributors", [-1], [], [0]),
        )
    ),
    *(
        Row(
            lambda n, name=name: schedule(**{name: n}),
            f"{name} must be an int",
            [],
            [2.0, True, "2", None],
        )
        for name in ("target_coins", "cohort", "tolerated_dropouts", "tolerated_colluders")
    ),
    Row(lambda v: schedule(variant=v), "variant must be a BatchVariant, got str", [], ["BINARY"]),
]

SELECTORS = [exponential, perturbed_sampling, perturbed_encoding, printed_perturbed_encoding]


def selector(make: Any, dimension: object, top: object, epsilon: object) -> object:
    """A selector, of which the first kind has no top."""
    return make(dimension, epsilon) if make is exponential else make(dimension, top, epsilon)


PROTECTION = ReconstructionProtection(4, 1.0)


def priv_quant(at: int, value: object) -> PrivQuant:
    """A good quantizer, but for one argument."""
    good: list[Any] = [5, 2, 1.0, 0, 0.75]
    return PrivQuant(*good[:at], value, *good[at + 1 :])


LOCAL = [
    *(
        row
        for make in (Duchi, Piecewise, Hybrid)
        for row in (Row(make, "epsilon", [0.0, -1.0, NAN, INF, 1e-7, 1e7], [], [1.0]),)
    ),
    *(
        Row(partial(make, 1.0), "bits", [1, 25], [8.0, True], [2, 24])
        for make in (Piecewise, Hybrid)
    ),
    *(
        row
        for make in SELECTORS
        for row in (
            Row(partial(selector, make, 5, 2), "epsilon must be", [-0.1, NAN, INF], [True], [0.0]),
            Row(lambda d, make=make: selector(make, d, 1, 1.0), "dimension must", [1], [5.0], [2]),
        )
    ),
    *(
        Row(lambda k, make=make: selector(make, 5, k, 1.0), "top must", [0, 5], [2.0], [1, 4])
        for make in SELECTORS[1:]
    ),
    Row(partial(encoding_law, 5, 2), "log_odds must lie in", [-0.1, 701.0, NAN], [], [0.0, 700.0]),
    Row(lambda n: WindowLaw(n, 1, 2, 1), "points", [1, MAX_POINTS + 1], [], [2, MAX_POINTS]),
    Row(lambda n: WindowLaw(4, n, 2, 1), "width", [0, 4], [], [1, 3]),
    Row(lambda n: WindowLaw(4, 2, n, 1), "inside", [1, 1 << 63], [], [2]),
    Row(lambda n: WindowLaw(4, 2, 2, n), "inside", [0], [], [1]),
    Row(partial(window_law, 4, 2), "epsilon", [0.0, NAN, INF, -1.0], [True, "1"], [1.0]),
    Row(lambda n: window_law(4, n, 1.0), "width", [4, 0], [], [1, 3]),
    Row(worst_ratio, "matrix", [[0.5, 0.5], [[]]], [], [[[1.0]]]),
    Row(worst_ratio, "finite|negative|positive", [[[0.5, NAN]], [[0.5, -0.1]], [[0.0, 0.0]]]),
    Row(worst_log_ratio, "NaN|infinity|positive", [[[0.0, NAN]], [[INF]], [[-INF]]]),
    Row(worst_exact_ratio, "rows|equal length", [[], [[1, 2], [3]]], [], [[[1, 2]]]),
    Row(worst_exact_ratio, "total|negative", [[[1, 2], [1, 3]], [[0, 0]], [[3, -1], [1, 1]]]),
    Row(lambda n: CrossPolytope(2, 1.0, n), "repeats", [0], [1.0], [1]),
    Row(lambda epsilon: CrossPolytope(2, epsilon, 1000), "epsilon", [1e-5], [], [1.0]),
    Row(lambda d: CrossPolytope(d, 1.0), "dimension", [0], [], [1]),
    *(
        Row(lambda d, make=make: make(d, 1.0), "dimension", [0], [2.0], [1])
        for make in (sampled_piecewise, sampled_hybrid)
    ),
    Row(partial(sampled_piecewise, 3), "epsilon", [NAN], [], [1.0]),
    Row(lambda n: SampledCoordinates(3, 1.0, n, Piecewise(0.1)), "sampled", [4], [], [3]),
    *(
        Row(lambda values, at=at: priv_quant(at, values), words, out, kinds, within)
        for at, words, out, kinds, within in (
            (0, "dimension must lie in", [0], [], [2]),
            (1, "levels must lie in", [1], [], [2]),
            (2, "bound must be (positive|a float)", [0.0, INF], ["1"], [1.0]),
            (3, r"kappa must lie in -4\.\.4, got -?5", [5, -5], [], [0]),
            (3, "kappa must be an int", [], [0.0], []),
            (3, "agree no more likely", [-4], [], [4]),
            (4, "agree no more likely", [0.5], [], [0.75]),
            (4, "probability must be a multiple", [1.0, 0.0, NAN, 2.0**-65], [], []),
            (4, "probability must be a float", [], [1], []),
        )
    ),
    *(
        row
        for make in (best_priv_quant, printed_priv_quant)
        for row in (
            Row(partial(make, 5, 2, 1.0), "epsilon must", [0.0, -1.0, NAN, INF], ["1"], [1.0]),
            Row(lambda n, make=make: make(5, n, 1.0, 1.0), "levels must lie", [1], [], [2]),
        )
    ),
    Row(partial(printed_priv_quant, 5, 2, 1.0, 1.0), "share must lie", [0.0, 1.0, NAN], [], [0.5]),
    Row(lambda d: AgreementSums(d, 2, 1), "dimension must", [0, (1 << 24) + 1], [5.0], [5]),
    Row(lambda n: AgreementSums(5, n, 1), "levels must", [1], [True], [2]),
    Row(lambda n: AgreementSums(5, 2, n), r"threshold must lie in 1\.\.5", [0, 6], [], [1, 5]),
    Row(
        lambda law: AgreementLaw(*law),
        "must be",
        [(0, 2, 0, 0), (5, 1, 0, 5), (5, 2, 4, 3), (5, 2, 0, 6), (5, 2, -1, 3)],
    ),
    Row(
        lambda n: ReconstructionProtection(n, 1.0),
        "targets must be (at least 4|an int)",
        [3],
        [4.0],
        [4],
    ),
    Row(partial(ReconstructionProtection, 4), "epsilon must be finite", [-1.0, NAN, INF]),
    Row(partial(ReconstructionProtection, 4, 1.0), "prior must be finite", [-1.0, NAN, INF]),
    *(
        Row(function, "closeness must lie", [-0.1, 1.1, NAN])
        for function in (PROTECTION.breach, PROTECTION.exact_breach)
    ),
    Row(PROTECTION.closeness_for, "probability", [0.0, 1.0, NAN]),
    *(
        Row(lambda value, name=name: two_stage(5, 1.0, **{name: value}), words, out)
        for name, words, out in (
            ("selection_share", "selection_share must lie in", [-0.1, 1.0, NAN]),
            ("kept_share", "kept_share must lie strictly", [0.0, 1.0, NAN]),
            ("bound", "bound must be positive", [0.0, -1.0, INF, NAN]),
            ("selector", "selector must be", ["best"]),
        )
    ),
    Row(partial(two_stage, 5), "epsilon must lie in", [0.0], [], [1.0]),
    Row(lambda d: selection_share_for(d, 5, 1.0), "dimension and clients", [0], [], [1]),
    Row(lambda n: selection_share_for(5, n, 1.0), "dimension and clients", [0], [], [1]),
    Row(
        lambda most: selection_share_for(5, 5, 1.0, largest=most),
        "largest must lie in",
        [1.0, -0.1],
        [],
        [0.0],
    ),
]


ROWS = [*EVENTS, *LAWS, *ACCOUNTING, *VECTORS, *MECHANISMS, *LOCAL]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_both_sides_of_a_bound(row: Row) -> None:
    row.check()
