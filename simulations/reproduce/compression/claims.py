"""The claims of the thesis, each with the evidence for or against it.

A claim about accuracies is decided by a mean and an interval around it: over seeds where there are
several, else over the test examples alone, which leaves out how seeds differ and says so. A gain
counts as reproduced if it is surely above zero and at least half of what was claimed; as not
reproduced if it surely is below half of that. What lies between is not decided. Claims that follow
from the set-up alone (epsilons, traffic, the error that noise makes) are computed for the thesis's
own set-up, whichever task is run.

May use scipy; must not know torch, models or data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import norm, spearmanr

from simulations.learning.example_level.accounting import Account
from simulations.learning.example_level.breakdown import noise_error, share_kept
from simulations.reproduce.intervals import half_width

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
UNDECIDED = "not decided"

CLOSE = 0.02
"""Largest relative difference of a computed figure from the published one."""

CONFIDENCE = 0.99

GIB = 2.0**30

COORDINATE_BYTES = 8
"""Of a coordinate in the thesis's traffic: an index and a number, 4 bytes each."""

Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim.

    Args:
        claim: in words.
        published: the figure, if there is one.
        measured: ours, if there is one.
        half_width: of the interval around ours, if there is one.
        verdict: one of the three.
        why: what the verdict rests on.
    """

    claim: str
    published: float | None
    measured: float | None
    half_width: float | None
    verdict: str
    why: str


@dataclass(frozen=True, slots=True)
class PublishedTask:
    """A set-up of the thesis. All its runs have 100 epochs.

    Args:
        examples, batch, delta, clip, dimension: of the set-up; N and d are not printed, see the
            model and `plan.load`.
        epsilons: by noise multiplier, where the text names them.
        traffic: of an uncompressed run, in GiB; the thesis writes Gb.
    """

    examples: int
    batch: int
    delta: float
    clip: float
    dimension: int
    epsilons: Mapping[float, float]
    traffic: float

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


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two arms, or of two differences: mean and half-width, in points."""

    mean: float
    half_width: float


def claims(figures: Figures) -> list[dict[str, Any]]:
    """Return all claims, decided as far as these figures go."""
    found = [*_computed()]
    # A few thousand parameters and a friendly data set decide nothing.
    if figures["task"] != "digits":
        found += [*_errors(figures), *_gains(figures), *_denoise(figures), _correlation(figures)]
    return [asdict(claim) for claim in found]


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


def _figure(claim: str, published: float, ours: float, why: str) -> Claim:
    close = abs(ours / published - 1.0) <= CLOSE
    return Claim(claim, published, ours, None, REPRODUCED if close else NOT_REPRODUCED, why)


def _errors(figures: Figures) -> Iterator[Claim]:
    """Claims about gradient errors, measured on this task."""
    rows = {(row["noise_multiplier"], row["arm"]): row["error"] for row in figures["results"]}
    loudest = max(figures["plan"]["noise"])
    strong = [name for (noise, name) in rows if noise == 0.0 and name.startswith(("dgc", "power"))]
    if not strong or loudest == 0.0:
        return
    quiet = max(rows[0.0, name]["channel"]["total"] for name in strong)
    noise = rows[loudest, "none"]["noise"]["total"]
    verdict = REPRODUCED if noise > 10.0 * quiet else NOT_REPRODUCED
    why = f"compression alone errs by at most {quiet:.3g} ({figures['parameters']:,} parameters)"
    yield Claim("noise dominates the gradient error", None, noise, None, verdict, why)
    least = min(strong, key=lambda name: rows[loudest, name]["channel"]["total"])
    after = rows[loudest, least]["channel"]
    verdict = REPRODUCED if after["total"] < 0.5 * noise else NOT_REPRODUCED
    why = f"from {noise:.4g} by {least}; bias {after['bias']:.3g}, variance {after['variance']:.3g}"
    claim = "compression cuts the error that noise made"
    yield Claim(claim, None, after["total"], None, verdict, why)
    published = 0.2 if figures["task"] == "cifar10" else None
    verdict = UNDECIDED
    if published is not None:
        verdict = REPRODUCED if quiet <= 2.0 * published else NOT_REPRODUCED
    why = "largest error at noise 0; the published figure is of CIFAR-10"
    claim = "CIFAR-10: compression alone errs by up to 0.2"
    yield Claim(claim, 0.2, None if published is None else quiet, None, verdict, why)


def _gains(figures: Figures) -> Iterator[Claim]:
    """Claims about what compression does to accuracy."""
    published = {"names": (0.4, {"dgc": 5.1, "powersgd": 10.4}), "cifar10": (0.8, {"dgc": 11.6})}
    noise, gains = published.get(figures["task"], (0.4, {"dgc": None, "powersgd": None}))
    for kind, gain in gains.items():
        for forgetful in (False, True):
            names = _arms(figures, kind, forgetful)
            best = max(names, key=lambda name: _mean(figures, noise, name), default=None)
            if best is None:
                continue
            found = _difference(figures, [(1, noise, best), (-1, noise, "none")])
            claim = f"at noise {noise:g}, {kind} gains accuracy over no compression"
            claim += ", losses forgotten" if forgetful else ", with error feedback"
            yield _decided(claim, gain, found, figures, f"best: {best}")
    if figures["task"] == "names":
        loudest = max(figures["plan"]["noise"])
        for arm, drop in (("none", 40.4), ("dgc-256", 34.0), ("dgc-256-forgetful", 34.0)):
            if _has(figures, arm):
                found = _difference(figures, [(1, 0.0, arm), (-1, loudest, arm)])
                claim = f"noise {loudest:g} costs accuracy: {arm}"
                yield _decided(claim, drop, found, figures, "against noise 0")


def _denoise(figures: Figures) -> Iterator[Claim]:
    """Claims about Denoise."""
    if not _has(figures, "denoise-1"):
        return
    loud = [noise for noise in figures["plan"]["noise"] if noise > 0.0]
    published = {"names": (23.2, 3.5), "cifar10": (24.6, 15.1)}
    by_noise, by_rate = published.get(figures["task"], (None, None))
    recovered = {
        noise: _difference(
            figures,
            [
                (1, 0.0, "none"),
                (-1, noise, "none"),
                (-1, 0.0, "denoise-1"),
                (1, noise, "denoise-1"),
            ],
        )
        for noise in loud
    }
    best = max(recovered, key=lambda noise: recovered[noise].mean)
    claim = "Denoise recovers accuracy that noise had cost, without compression"
    yield _decided(claim, by_noise, recovered[best], figures, f"at noise {best:g}")
    terms = [(1, 0.0, "none"), (-1, 0.0, "dgc-256")]
    terms += [(-1, 0.0, "denoise-1"), (1, 0.0, "denoise-256")]
    claim = "Denoise recovers accuracy that sparsification had cost, without noise"
    yield _decided(claim, by_rate, _difference(figures, terms), figures, "rate 256")
    if _has(figures, "slow"):
        for noise in loud:
            found = _difference(figures, [(1, noise, "denoise-1"), (-1, noise, "slow")])
            claim = (
                f"at noise {noise:g} Denoise gains more than equally short steps do (our question)"
            )
            yield _decided(claim, None, found, figures, "the second clip shortens steps")
    yield _everywhere(figures)


def _everywhere(figures: Figures) -> Claim:
    """Whether Denoise improves every combination of noise and rate."""
    pairs = {"none": "denoise-1", "dgc-16": "denoise-16", "dgc-256": "denoise-256"}
    found = {
        f"{other} at {noise:g}": _difference(figures, [(1, noise, mine), (-1, noise, other)])
        for noise in figures["plan"]["noise"]
        for other, mine in pairs.items()
        if _has(figures, other) and _has(figures, mine)
    }
    worst = min(found, key=lambda name: found[name].mean + found[name].half_width)
    surely = all(gain.mean - gain.half_width > 0.0 for gain in found.values())
    fails = found[worst].mean + found[worst].half_width < 0.0
    verdict = REPRODUCED if surely else NOT_REPRODUCED if fails else UNDECIDED
    why = f"{sum(gain.mean > 0 for gain in found.values())} of {len(found)} gain; worst: {worst}"
    return Claim(
        "Denoise improves every combination of noise and rate",
        None,
        found[worst].mean,
        found[worst].half_width,
        verdict,
        f"{why}; {_basis(figures)}",
    )


def _correlation(figures: Figures) -> Claim:
    """Whether larger gradient errors go with lower accuracies."""
    rows = [r for r in figures["results"] if r["arm"].startswith(("none", "dgc", "powersgd"))]
    errors = [row["error"]["channel"]["total"] for row in rows]
    accuracies = [row["accuracy"] for row in rows]
    found = spearmanr(errors, accuracies)
    sure = float(found.pvalue) < 1.0 - CONFIDENCE
    verdict = UNDECIDED if not sure else REPRODUCED if found.statistic < 0.0 else NOT_REPRODUCED
    why = f"rank correlation over {len(rows)} points, p = {float(found.pvalue):.2g}"
    claim = "larger gradient errors go with lower accuracy"
    return Claim(claim, None, float(found.statistic), None, verdict, why)


def _decided(
    claim: str, published: float | None, found: Difference, figures: Figures, why: str
) -> Claim:
    """Decide a claimed gain in points; half of what was claimed is enough."""
    low, high = found.mean - found.half_width, found.mean + found.half_width
    goal = 0.0 if published is None else published / 2.0
    verdict = UNDECIDED
    if low > 0.0 and found.mean >= goal:
        verdict = REPRODUCED
    elif high < goal or high <= 0.0:
        verdict = NOT_REPRODUCED
    why = f"{why}; {_basis(figures)}"
    return Claim(claim, published, found.mean, found.half_width, verdict, why)


def _basis(figures: Figures) -> str:
    """Say what the intervals cover."""
    seeds = len(figures["plan"]["seeds"])
    return f"{seeds} seeds" if seeds > 1 else "one seed: interval over test examples only"


def _difference(figures: Figures, terms: Iterable[tuple[int, float, str]]) -> Difference:
    """Add up accuracies with signs, in points; runs of one seed share batches and noise."""
    chosen = [(sign, _row(figures, noise, arm)["accuracies"]) for sign, noise, arm in terms]
    by_seed = 100.0 * np.sum([sign * np.array(values) for sign, values in chosen], axis=0)
    width = half_width(by_seed, CONFIDENCE)
    if width is not None:
        return Difference(float(np.mean(by_seed)), width)
    quantile = float(norm.ppf(0.5 + CONFIDENCE / 2.0))
    variance = sum(values[0] * (1.0 - values[0]) for _, values in chosen) / figures["tested"]
    return Difference(float(by_seed[0]), 100.0 * quantile * math.sqrt(variance))


def _row(figures: Figures, noise: float, arm: str) -> Mapping[str, Any]:
    return next(
        row for row in figures["results"] if row["noise_multiplier"] == noise and row["arm"] == arm
    )


def _mean(figures: Figures, noise: float, arm: str) -> float:
    return float(_row(figures, noise, arm)["accuracy"])


def _has(figures: Figures, arm: str) -> bool:
    return any(row["arm"] == arm for row in figures["results"])


def _arms(figures: Figures, kind: str, forgetful: bool) -> Sequence[str]:
    """Return the names of the arms of a kind, each once."""
    names = dict.fromkeys(row["arm"] for row in figures["results"])
    return [
        name for name in names if name.startswith(kind) and name.endswith("-forgetful") == forgetful
    ]
