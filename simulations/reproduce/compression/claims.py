"""The claims of the thesis, each with the evidence for or against it.

A gain in accuracy counts as reproduced if it is surely above zero and at least half of what was
claimed; as not reproduced if it surely is below half of that. Intervals are over seeds: a single
one decides nothing about accuracy. Claims that follow from the set-up alone (epsilons, traffic, the
error that noise makes) are computed for the thesis's own set-up, whichever task is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from simulations.campaigns.claims import (
    OURS,
    UNDECIDED,
    Claim,
    Interval,
    above,
    close,
    decided,
    every,
    fact,
)
from simulations.campaigns.rows import Figures, Row
from simulations.learning.example_level.accounting import Account
from simulations.learning.example_level.breakdown import noise_error, share_kept

CLOSE = 0.02  # largest relative difference of a computed figure from the published one
DOUBT = 0.01

GIB = 2.0**30

COORDINATE_BYTES = 8  # of a coordinate in the thesis's traffic: an index and a number, 4 bytes each
CHAPTER = "chapter 3"

Term = tuple[int, float, str]  # A sign, a noise multiplier and an arm


@dataclass(frozen=True, slots=True)
class PublishedTask:
    """A set-up of the thesis. All its runs have 100 epochs."""

    # examples, batch, delta, clip, dimension: of the set-up; N and d are not printed, see the model
    # and `plan.load`
    examples: int
    batch: int
    delta: float
    clip: float
    dimension: int
    epsilons: Mapping[float, float]  # by noise multiplier, where the text names them
    traffic: float  # of an uncompressed run, in GiB; the thesis writes Gb

    @property
    def steps(self) -> int:
        """Steps of a run: the last batch of an epoch may be short."""
        return 100 * -(-self.examples // self.batch)

    def account(self, noise: float) -> Account:
        """What a run costs."""
        return Account(
            examples=self.examples,
            batch=self.batch,
            steps=self.steps,
            noise_multiplier=noise,
            delta=self.delta,
        )


SURNAMES = PublishedTask(16_040, 32, 8e-5, 3.0, 117_522, {0.4: 50.92}, 44.22)
CIFAR10 = PublishedTask(50_000, 128, 1e-5, 5.0, 361_290, {0.4: 62.09, 0.8: 4.86}, 105.25)


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield all claims, decided as far as these figures go."""
    yield from _computed()
    # A few thousand parameters and a friendly data set decide nothing.
    needed = {0.0, 0.8 if figures["task"] == "cifar10" else 0.4}
    if figures["task"] != "digits" and needed <= set(figures["plan"]["noise"]):
        arms = {row["arm"] for row in figures["results"]}
        if "dgc-16" in arms:
            yield from (*_errors(figures), *_gains(figures), _correlation(figures))
        for kind, controls, words in READINGS:
            if f"{kind}-1" in arms and controls.keys() <= arms:
                yield from _denoise(figures, kind, controls, words)


def _computed() -> Iterator[Claim]:
    """Claims that need no training."""
    for name, task in (("Surnames", SURNAMES), ("CIFAR-10", CIFAR10)):
        for noise, published in task.epsilons.items():
            ours = task.account(noise).published_epsilon()
            why = "the Renyi divergences of Opacus; loss distributions give less"
            yield _figure(f"{name}: epsilon at noise {noise:g}", published, ours, why)
        traffic = task.dimension * COORDINATE_BYTES * task.steps / GIB
        why = f"{task.dimension:,} coordinates of {COORDINATE_BYTES} bytes, {task.steps:,} steps"
        yield _figure(f"{name}: GiB sent without compression", task.traffic, traffic, why)
    noise_only = noise_error(CIFAR10.dimension, CIFAR10.clip, 0.8, CIFAR10.batch)
    why = "d (z C / B)^2: it depends on no data and no model but through d"
    yield _figure("CIFAR-10: gradient error of noise 0.8", 353.0, noise_only, why)
    why = "the 1/256 largest coordinates of pure noise hold 4 % of its energy"
    kept = noise_only * share_kept(256.0)
    yield _figure("CIFAR-10: the same after compression at rate 256", 14.0, kept, why)


def _figure(statement: str, published: float, ours: float, why: str) -> Claim:
    verdict = close(ours, published, CLOSE)
    numbers = {"published": published, "measured": ours, "tolerance": CLOSE}
    return Claim(statement, CHAPTER, verdict, why, **numbers)


def _errors(figures: Figures) -> Iterator[Claim]:
    """Claims about gradient errors, measured on this task."""
    rows = {key: row["error"] for key, row in _by_place(figures).items()}
    loudest = max(figures["plan"]["noise"])
    strong = [name for noise, name in rows if noise == 0.0 and name.startswith(("dgc", "power"))]
    quiet = max(rows[0.0, name]["channel"]["total"] for name in strong)
    noise = rows[loudest, "none"]["noise"]["total"]
    least = min(strong, key=lambda name: rows[loudest, name]["channel"]["total"])
    after = rows[loudest, least]["channel"]
    yield Claim(
        "noise dominates the gradient error",
        CHAPTER,
        fact(noise > 10.0 * quiet),
        f"compression alone errs by {quiet:.3g} ({figures['parameters']:,} parameters)",
        measured=noise,
        tolerance=10.0 * quiet,
    )
    parts = f"bias {after['bias']:.3g}, variance {after['variance']:.3g}"
    yield Claim(
        "compression cuts the error that noise made",
        CHAPTER,
        fact(after["total"] < 0.5 * noise),
        f"from {noise:.4g} by {least}; {parts}",
        measured=after["total"],
        tolerance=0.5 * noise,
    )
    here = figures["task"] == "cifar10"
    yield Claim(
        "CIFAR-10: compression alone errs by up to 0.2",
        CHAPTER,
        fact(quiet <= 2.0 * 0.2) if here else UNDECIDED,
        "largest error at noise 0; the published figure is of CIFAR-10",
        published=0.2,
        measured=quiet if here else None,
        tolerance=2.0 * 0.2,
    )


VALUES = {"dgc": (16, 256), "powersgd": (16, 1)}
KINDS = (("", "with error feedback"), ("-forgetful", "losses forgotten"))


def _gains(figures: Figures) -> Iterator[Claim]:
    """Claims about what compression does to accuracy."""
    published = {"names": (0.4, {"dgc": 5.1, "powersgd": 10.4}), "cifar10": (0.8, {"dgc": 11.6})}
    noise, gains = published.get(figures["task"], (0.4, {"dgc": None, "powersgd": None}))
    rows = _by_place(figures)
    for kind, gain in gains.items():
        for ending, words in KINDS:
            names = [f"{kind}-{value}{ending}" for value in VALUES[kind]]
            best = max(names, key=lambda name: float(rows[noise, name]["accuracy"]))
            found = _difference(figures, [(1, noise, best), (-1, noise, "none")])
            statement = f"at noise {noise:g}, {kind} gains accuracy over no compression, {words}"
            yield _decided(statement, gain, found, figures, f"best: {best}")
    for noise in (noise for noise in figures["plan"]["noise"] if noise > 0.0):
        found = _difference(figures, [(1, noise, "least"), (-1, noise, "none")])
        statement = f"at noise {noise:g} the clip of the least error gains accuracy"
        yield _decided(statement, None, found, figures, "the learning rate is the same")
    if figures["task"] == "names":
        loudest = max(figures["plan"]["noise"])
        for arm, drop in (("none", 40.4), ("dgc-256", 34.0), ("dgc-256-forgetful", 34.0)):
            found = _difference(figures, [(1, 0.0, arm), (-1, loudest, arm)])
            statement = f"noise {loudest:g} costs accuracy: {arm}"
            yield _decided(statement, drop, found, figures, "against noise 0")


# The arm of Denoise under noise, controls whose steps are as short with what they do in words, and
# the algorithm in words
SHORT = "equally short steps do"
READINGS: tuple[tuple[str, dict[str, str], str], ...] = (
    (
        "printed",
        {"printed_slow": SHORT, "printed_average": f"{SHORT}, with its average behind them"},
        "Denoise as printed",
    ),
    ("shared", {"shared_slow": SHORT}, "Denoise as printed, the sum's noise shared out,"),
    ("denoise", {"slow": SHORT}, "Denoise with its noise on the sum"),
)


def _denoise(
    figures: Figures, kind: str, controls: Mapping[str, str], words: str
) -> Iterator[Claim]:
    """Claims about Denoise in one reading; without noise both are the same."""
    loud = [noise for noise in figures["plan"]["noise"] if noise > 0.0]
    published = {"names": (23.2, 3.5), "cifar10": (24.6, 15.1)}
    by_noise, by_rate = published.get(figures["task"], (None, None))

    def recovered(noise: float) -> Interval:
        """Return what noise costs without Denoise, less what it costs with it."""
        plain = [(1, 0.0, "none"), (-1, noise, "none")]
        return _difference(figures, [*plain, (-1, 0.0, "denoise-1"), (1, noise, f"{kind}-1")])

    best = max(loud, key=lambda noise: recovered(noise).mean)
    statement = f"{words} recovers accuracy that noise had cost, without compression"
    yield _decided(statement, by_noise, recovered(best), figures, f"at noise {best:g}")
    if kind == "denoise":
        terms = [(1, 0.0, "none"), (-1, 0.0, "dgc-256-forgetful")]
        terms += [(-1, 0.0, "denoise-1"), (1, 0.0, "denoise-256")]
        statement = "Denoise recovers accuracy that sparsification had cost, without noise"
        yield _decided(statement, by_rate, _difference(figures, terms), figures, "rate 256")
    for noise, control in product(loud, controls):
        found = _difference(figures, [(1, noise, f"{kind}-1"), (-1, noise, control)])
        statement = f"at noise {noise:g} {words} gains more than {controls[control]}"
        yield _decided(statement, None, found, figures, "the second clip shortens steps", OURS)
    if any(row["arm"] == f"{kind}-256" for row in figures["results"]):
        yield _everywhere(figures, kind, words)


def _everywhere(figures: Figures, kind: str, words: str) -> Claim:
    """Whether Denoise improves every combination of noise and rate."""
    found = {
        f"{other} at {noise:g}": _difference(
            figures, [(1, noise, f"{kind if noise else 'denoise'}-{rate}"), (-1, noise, other)]
        )
        for noise in figures["plan"]["noise"]
        for rate, other in ((1, "none"), (16, "dgc-16-forgetful"), (256, "dgc-256-forgetful"))
    }
    worst = min(found, key=lambda name: found[name].mean)
    ahead = sum(gain.mean > 0 for gain in found.values())
    return Claim.about(
        f"{words} improves every combination of noise and rate",
        CHAPTER,
        found[worst],
        every(above(gain, 0.0, doubt=DOUBT) for gain in found.values()),
        f"{ahead} of {len(found)} gain; worst: {worst}; {_basis(figures)}",
        doubt=DOUBT,
    )


def _correlation(figures: Figures) -> Claim:
    """Whether larger gradient errors go with lower accuracies."""
    rows = [r for r in figures["results"] if r["arm"].startswith(("none", "dgc", "powersgd"))]
    errors = [row["error"]["channel"]["total"] for row in rows]
    found = spearmanr(errors, [row["accuracy"] for row in rows])
    several = len(figures["plan"]["seeds"]) > 1
    return Claim(
        "larger gradient errors go with lower accuracy",
        CHAPTER,
        fact(found.statistic < 0.0) if several and found.pvalue < DOUBT else UNDECIDED,
        f"rank correlation over {len(rows)} points, p = {float(found.pvalue):.2g}; "
        + _basis(figures),
        measured=float(found.statistic),
    )


def _decided(
    statement: str,
    published: float | None,
    found: Interval,
    figures: Figures,
    why: str,
    source: str = CHAPTER,
) -> Claim:
    """Decide a claimed gain in points; half of what was claimed is enough."""
    goal = 0.0 if published is None else published / 2.0
    enough = found.above(0.0, DOUBT) and found.mean >= goal
    verdict = decided(enough, found.below(goal, DOUBT) or found.mean + found.half(DOUBT) <= 0.0)
    seen = f"{why}; {_basis(figures)}"
    numbers: dict[str, Any] = {"published": published, "tolerance": goal, "doubt": DOUBT}
    return Claim.about(statement, source, found, verdict, seen, **numbers)


def _basis(figures: Figures) -> str:
    """Say what the intervals cover."""
    seeds = len(figures["plan"]["seeds"])
    return f"{seeds} seeds" if seeds > 1 else "one seed decides nothing about accuracy"


def _difference(figures: Figures, terms: Iterable[Term]) -> Interval:
    """Add up accuracies with signs, in points; runs of one seed share a start and batches."""
    rows = _by_place(figures)
    chosen = [(sign, rows[noise, arm]["accuracies"]) for sign, noise, arm in terms]
    return Interval.of(100.0 * np.sum([sign * np.array(values) for sign, values in chosen], axis=0))


def _by_place(figures: Figures) -> dict[tuple[float, str], Row]:
    return {(row["noise_multiplier"], row["arm"]): row for row in figures["results"]}
