"""What a run's records say about its settings, in plain words, with what to change.

Pure functions of a configuration and its records. Lengths are estimated from released values and
public parameters, as any server could; which clients were clipped, and what the sketch cost, only a
simulation measures. What the records do not have is said to be unknown, never taken to be in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from simulations.common.tables import readable
from simulations.learning.configuration import RunConfig
from simulations.learning.records import Record
from simulations.reports.size_advice import (
    SKETCH_ABOVE_NOISE,
    how_to_compress,
    how_to_free,
    keys_of,
    option,
    short,
    wished,
)
from sketch.error import compression_error, noise_error, norm_estimate_variance

NOISE_IS_LARGE: Final = 1.0
"""Noise over signal, both summed over a run whose updates all point the same way: from here on the
sum of all released means has more noise in it than signal."""
NOISE_DROWNS: Final = 3.0
"""The same. Of twelve rounds on the bundled digits, those at 1.5 to 1.8 lost 6 to 8 points of
accuracy to a run without privacy, those at 3.7 to 4.3 lost 20 to 50, and at 6 nothing was left."""
EVERYBODY: Final = 0.95
"""Share of clipped updates from which on lengths no longer count: the few that are shorter than the
clip do not show in a mean."""
NOBODY: Final = 0.01
"""Share of clipped updates up to which the clip is larger than it has to be."""
FEW: Final = 0.5
"""Share of clipped updates below which a smaller clip takes off more noise than signal, in general:
the median length is the usual choice (Andrew et al. 2021, arXiv 1905.03871)."""
ALWAYS: Final = 0.9
"""Share of a controller's decisions at a limit that count as all: a single one that the noise of an
estimate kept from it must not hide the others."""
FEWEST_DECISIONS: Final = 3
"""Rounds that a controller has sized; with fewer, every controller is still on its way."""


class Weight(IntEnum):
    """How much an answer matters, the heaviest first."""

    CHANGE = 0
    KNOW = 1
    FINE = 2
    UNKNOWN = 3


class Subject(StrEnum):
    """What an answer is about."""

    NOISE = "noise"
    CLIP = "clip"
    CONTROLLER = "controller"
    SKETCH = "sketch"


@dataclass(frozen=True, slots=True)
class Answer:
    """One thing that was looked at."""

    subject: Subject
    weight: Weight
    # a sentence with its figures; in lower case, without a full stop, unless it stands out
    said: str
    headline: str = ""  # in a few words; empty unless it stands out
    change: str = ""  # what to do about it; empty if nothing


@dataclass(frozen=True, slots=True)
class Verdict:
    """All answers about a run, the heaviest first."""

    answers: tuple[Answer, ...]

    @property
    def findings(self) -> list[Answer]:
        """Those that stand out."""
        return [answer for answer in self.answers if answer.headline]

    @property
    def line(self) -> str:
        """The verdict in one line."""
        if self.findings:
            said = "; ".join(answer.headline for answer in self.findings)
            return f"{said[0].upper()}{said[1:]}."
        if any(answer.weight is Weight.FINE for answer in self.answers):
            return "Nothing stands out."
        return "Nothing could be judged."

    @property
    def rest(self) -> list[str]:
        """Sentences about what is in order and what is unknown."""
        groups = (("In order", Weight.FINE), ("Not known", Weight.UNKNOWN))
        answers = ((name, [a.said for a in self.answers if a.weight is w]) for name, w in groups)
        return [f"{name}: {'; '.join(said)}." for name, said in answers if said]


def judge(config: RunConfig, records: Sequence[Record]) -> Verdict:
    """Look at the noise, the clip, the controller and the sketch of a run."""
    if not records or config.engine.aggregator == "plain":
        return Verdict(())
    share = clipped_share(records)
    answers = (
        judge_noise(config, records, share),
        judge_clip(config, share),
        judge_controller(config, records),
        judge_sketch(config, records),
    )
    found = (answer for answer in answers if answer is not None)
    return Verdict(tuple(sorted(found, key=lambda answer: answer.weight)))


@dataclass(frozen=True, slots=True)
class Lengths:
    """Signal and noise of a mean round, as released values tell of them."""

    rounds: int  # that tell
    # estimate of the mean update's squared length, without bias; may be negative
    signal_squared: float
    deviation: float  # of that estimate
    noise: float  # length of the noise in a decoded mean update
    sum_noise: float  # length of the noise in the sum of these rounds

    @property
    def seen(self) -> bool:
        """Whether there is a signal beyond doubt: two standard deviations."""
        return self.signal_squared > 2.0 * self.deviation

    @property
    def signal(self) -> float:
        """Length of a mean update; what could hide in the noise, if that is more."""
        return math.sqrt(max(self.signal_squared, self.deviation))

    @property
    def each(self) -> float:
        """Noise over signal in a round."""
        return self.noise / self.signal if self.signal else math.inf

    @property
    def together(self) -> float:
        """The same over the whole run, if all updates point the same way: noise does not."""
        return self.sum_noise / (self.rounds * self.signal) if self.signal else math.inf


def lengths_of(records: Iterable[Record]) -> Lengths | None:
    """Signal and noise of a run; None if its records have no released lengths."""
    estimates, variances, noises = [], [], []
    came_back: float | None = None
    for record in records:
        together = record.get("sum_noise_variance")
        if together is not None:
            came_back = math.sqrt(noise_error(record["dimension"], together))
        noise, length = record.get("noise_variance"), record.get("released_norm_squared")
        if isinstance(noise, float) and length is not None:
            size = record["sketch_size"]
            estimates.append(length - size * noise)
            variances.append((size, noise))
            noises.append(noise_error(record["dimension"], noise))
    if not estimates:
        return None
    count = len(estimates)
    signal = math.fsum(estimates) / count
    clamped = max(signal, 0.0)
    doubt = (norm_estimate_variance(size, clamped, 0.0, noise) for size, noise in variances)
    noise = _root_mean(noises)
    return Lengths(
        rounds=count,
        signal_squared=signal,
        deviation=math.sqrt(math.fsum(doubt)) / count,
        noise=noise,
        sum_noise=math.sqrt(count) * noise if came_back is None else came_back,
    )


def clipped_share(records: Iterable[Record]) -> float | None:
    """Share of the updates in the sums that were longer than the clip; None if nobody measured."""
    clipped, counted = 0.0, 0
    for record in records:
        count = (record.get("error") or {}).get("clipped_clients")
        if count is not None:
            clipped += count
            counted += record["survivors"]
    return min(1.0, clipped / counted) if counted else None


def judge_noise(config: RunConfig, records: Sequence[Record], share: float | None) -> Answer:
    """Whether the noise is as large as what is learned.

    Args:
        share: of the updates that were clipped; None if unknown.
    """
    found = lengths_of(records)
    if found is None:
        said = "how long the noise is beside the updates, as no single released mean is on record"
        return Answer(Subject.NOISE, Weight.UNKNOWN, said)
    about, times = ("about", "") if found.seen else ("at most about", "at least ")
    said = (
        f"the noise in a released mean has length {short(found.noise)}, the mean update itself "
        f"{about} {short(found.signal)}: the noise is {times}{short(found.each)} times as long "
        f"in one round, and {short(found.together)} times in the sum of {found.rounds} rounds, if "
        "all of them pull the same way"
    )
    if found.together < NOISE_IS_LARGE:
        if not found.seen:
            said = f"whether the noise is as large as the signal: {said}"
            return Answer(Subject.NOISE, Weight.UNKNOWN, said)
        return Answer(Subject.NOISE, Weight.FINE, said)
    drowned = found.together >= NOISE_DROWNS
    slower = " A lower server.learning_rate keeps it from carrying the model away meanwhile."
    headline = "the noise drowns" if drowned else "the noise is as large as"
    return Answer(
        Subject.NOISE,
        Weight.CHANGE if drowned else Weight.KNOW,
        _sentence(said),
        f"{headline} what is learned",
        "Raise privacy.epsilon, have more clients (task.population and cohort.size together: the "
        f"noise of a mean falls as they grow), or train a smaller model.{_of_clip(config, share)}"
        f"{slower if drowned else ''}",
    )


def judge_clip(config: RunConfig, share: float | None) -> Answer | None:
    """Whether the clip shortens everybody, or nobody; None where nothing is clipped."""
    if config.local_dp is not None:
        return None
    if share is None:
        said = "how many updates the clip shortened: no server sees that, and this run has no count"
        return Answer(Subject.CLIP, Weight.UNKNOWN, said)
    said = f"{_percent(share)} of the updates were longer than the clip and were shortened to it"
    if share >= EVERYBODY:
        return Answer(
            Subject.CLIP,
            Weight.KNOW,
            f"{_sentence(said)} Only their directions count then; server.learning_rate sets how "
            "far the model moves.",
            "every client is clipped" if share == 1.0 else "nearly every client is clipped",
            "If accuracy rises, leave it; otherwise raise server.learning_rate. A larger clip also "
            "makes the noise larger.",
        )
    if share <= NOBODY:
        return Answer(
            Subject.CLIP,
            Weight.CHANGE,
            f"{_sentence(said)} The noise is made for updates as long as the clip, and none is.",
            "hardly any client reaches the clip",
            f"Lower {_clip_key(config)}: the noise falls in the same proportion.",
        )
    return Answer(Subject.CLIP, Weight.FINE, said)


def judge_controller(config: RunConfig, records: Sequence[Record]) -> Answer | None:
    """Whether a controller compresses, and is free to; None where none chooses a size."""
    if config.sketch.controller == "fixed" or not _sketches(config):
        return None
    decided = records[1:]
    if len(decided) < FEWEST_DECISIONS:
        said = f"what the sketch's controller does: {len(records)} rounds are too few to tell"
        return Answer(Subject.CONTROLLER, Weight.UNKNOWN, said)
    sizes, dimension = [record["sketch_size"] for record in decided], records[-1]["dimension"]
    if min(sizes) >= dimension:
        return Answer(
            Subject.CONTROLLER,
            Weight.KNOW,
            f"All {dimension:,} values were sent in every round.{wished(decided)}",
            "the controller never compresses",
            f"{how_to_compress(config, decided)} It costs bytes only: accuracy is best without "
            "compression.",
        )
    at_limit = _at_limit(config, decided)
    if at_limit is not None:
        return at_limit
    said = f"the controller sends {min(sizes):,} to {max(sizes):,} of {dimension:,} values"
    return Answer(Subject.CONTROLLER, Weight.FINE, said)


def judge_sketch(config: RunConfig, records: Sequence[Record]) -> Answer | None:
    """Whether compression costs more than noise; None where nothing is compressed."""
    if config.powersgd is not None:
        said = "what low rank leaves out of a mean update: it has no closed form"
        return Answer(Subject.SKETCH, Weight.UNKNOWN, said)
    shorter = [record for record in records if record["compression"] > 1.0]
    if not _sketches(config) or not shorter:
        return None
    ratio, how = _sketch_over_noise(shorter, lengths_of(records))
    if ratio is None:
        said = "what the sketch costs beside the noise: no round measured it"
        return Answer(Subject.SKETCH, Weight.UNKNOWN, said)
    said = f"the sketch adds {short(ratio)} times the squared error of the noise ({how})"
    if ratio <= SKETCH_ABOVE_NOISE:
        return Answer(Subject.SKETCH, Weight.FINE, said)
    if config.sketch.controller == "fixed":
        rate = getattr(config.sketch, "rate", None) or shorter[-1]["compression"]
        change = f"Lower sketch.rate from {rate:.3g} to {max(1.0, rate / ratio):.3g} or less."
    else:
        keys = keys_of(config, ("gamma", "kappa", "gamma_high"))
        if (option(config, "first_rate") or 1.0) > 1.0:
            keys.append("sketch.first_rate")
        change = f"Lower {' or '.join(keys)}: the sketch is then larger."
    return Answer(
        Subject.SKETCH,
        Weight.CHANGE,
        _sentence(said),
        "compression costs more accuracy than the noise",
        change,
    )


def _sketch_over_noise(
    records: Sequence[Record], lengths: Lengths | None
) -> tuple[float | None, str]:
    """Squared error of the sketch over that of the noise, and where it is known from."""
    sketch = noise = 0.0
    for record in records:
        error = record.get("error") or {}
        if error.get("noise") and "sketch" in error:
            sketch += error["sketch"] or 0.0
            noise += (error["noise"] or 0.0) + (error.get("rounding") or 0.0)
    if noise:
        return sketch / noise, "measured by the simulation"
    if lengths is None or not lengths.seen:
        return None, ""
    for record in records:
        variance = record.get("noise_variance")
        if isinstance(variance, float):
            size, dimension = record["sketch_size"], record["dimension"]
            sketch += compression_error(dimension, size, lengths.signal_squared)
            noise += noise_error(dimension, variance)
    return (sketch / noise, "estimated from released lengths") if noise else (None, "")


def _at_limit(config: RunConfig, decided: Sequence[Record]) -> Answer | None:
    """An answer if a controller hardly ever got the size that it asked for."""
    larger = smaller = 0
    figures_of = (record.get("figures") or {} for record in decided)
    known = [each for each in figures_of if {"wanted_size", "size"} <= each.keys()]
    for figures in known:
        # A size is rounded to whole rows, up or down, which is no limit; a single column is one.
        wanted, size, rows = figures["wanted_size"], figures["size"], config.sketch.rows
        larger += wanted > size + rows
        smaller += wanted < size - (rows if size > rows else 1)
    limited = larger + smaller
    if len(known) < FEWEST_DECISIONS or limited < ALWAYS * len(known):
        return None
    want = "larger" if larger >= smaller else "smaller"
    last = known[-1]
    return Answer(
        Subject.CONTROLLER,
        Weight.KNOW,
        f"In {limited} of {len(known)} rounds the controller could not have the size that it asked "
        f"for, mostly a {want} one; at last it wanted {readable(round(last['wanted_size']))} "
        f"values and got {readable(round(last['size']))}.",
        "the controller always sits at its limit",
        how_to_free(config, decided, want == "larger", last["size"]),
    )


def _of_clip(config: RunConfig, share: float | None) -> str:
    """What the clip has to do with the noise."""
    key = _clip_key(config)
    if share is None:
        return f" A lower {key} takes off noise too, if few updates are as long."
    if share >= EVERYBODY:
        return f" {key} does not help: while everybody is clipped, noise and signal grow with it."
    if share < FEW:
        return f" A lower {key} may help too: only {_percent(share)} of the updates reach it."
    return ""


def _clip_key(config: RunConfig) -> str:
    return "privacy.clip_l2" if config.clipping is None else "clipping.quantile"


def _sketches(config: RunConfig) -> bool:
    return config.powersgd is None and config.local_dp is None


def _root_mean(squares: Sequence[float]) -> float:
    return math.sqrt(math.fsum(squares) / len(squares))


def _percent(share: float) -> str:
    """A share that is only called all or none if it is."""
    if 0.0 < share < 0.01:
        return "less than 1%"
    return "more than 99%" if 0.99 < share < 1.0 else f"{share:.0%}"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
