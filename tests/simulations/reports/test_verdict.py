"""Each verdict by records that earn it, and by records that just miss it."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from rich.console import Console

from protocol.planning.configuration import CONTROLLERS
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.run.overrides import changed
from simulations.reports.outcome import show_outcome
from simulations.reports.verdict import (
    FEWEST_DECISIONS,
    NOISE_DROWNS,
    Answer,
    Subject,
    Verdict,
    Weight,
    judge,
    lengths_of,
)
from sketch.controllers.options import options_of

DIMENSION = 10_000
VARIANCE = 1e-4
NOISE = math.sqrt(DIMENSION * VARIANCE)  # 1
ROUNDS = 16


def records_of(
    together: float = 0.5,
    *,
    rounds: int = ROUNDS,
    size: int = 5_000,
    wanted: float = 5_000.0,
    clipped: int | None = 30,  # of 60 clients; None if it was not measured
    sketch: float | None = 0.1,  # squared error over that of the noise; None if it was not measured
    figures: dict[str, float] | None = None,  # of the controller, beside what it wanted and got
) -> list[dict[str, Any]]:
    """Records whose noise over signal, summed over the run, is `together`."""
    signal = NOISE / (together * math.sqrt(rounds))
    error: dict[str, Any] = {"measured": 1.0}
    if sketch is not None:
        error |= {"sketch": sketch * NOISE**2, "noise": NOISE**2, "rounding": 0.0}
    if clipped is not None:
        error |= {"clipping": 0.1, "clipped_clients": clipped}
    each = {
        "accuracy": 0.5,
        "cohort": 64,
        "survivors": 60,
        "sketch_size": size,
        "dimension": DIMENSION,
        "compression": DIMENSION / size,
        "noise_variance": VARIANCE,
        "released_norm_squared": signal**2 + size * VARIANCE,
        "error": error,
        "figures": {"wanted_size": wanted, "size": float(size), **(figures or {})},
        "epsilons": {"server": 2.0, "colluders": 2, "delta": 1e-5, "guaranteed": 5.0},
    }
    return [{"round": number, **each} for number in range(1, rounds + 1)]


def config_of(**changes: object) -> RunConfig:
    pairs = [(key.replace("__", "."), value) for key, value in changes.items()]
    return changed(demo_config(), [("engine.aggregator", "ideal"), *pairs])


def answer(subject: Subject, verdict: Verdict) -> Answer | None:
    found = [each for each in verdict.answers if each.subject is subject]
    return found[0] if found else None


def judged(config: RunConfig | None = None, **arguments: Any) -> Verdict:
    return judge(config or config_of(), records_of(**arguments))


def test_nothing_stands_out() -> None:
    verdict = judged()
    assert verdict.findings == [] and verdict.line == "Nothing stands out."
    (fine,) = verdict.rest
    assert fine.startswith("In order: ")
    for figure in ("0.5 times in the sum of 16 rounds", "50% of the updates", "0.1 times"):
        assert figure in fine


@pytest.mark.parametrize(
    ("together", "weight", "headline"),
    [
        (0.95, Weight.FINE, ""),
        (1.05, Weight.KNOW, "the noise is as large as what is learned"),
        (0.9 * NOISE_DROWNS, Weight.KNOW, "the noise is as large as what is learned"),
        (1.1 * NOISE_DROWNS, Weight.CHANGE, "the noise drowns what is learned"),
    ],
)
def test_noise_as_large_as_the_signal(together: float, weight: Weight, headline: str) -> None:
    found = answer(Subject.NOISE, judged(together=together))
    assert (found.weight, found.headline) == (weight, headline)
    assert "noise in a released mean has length 1," in found.said
    assert f"{together:.2g} times in the sum of 16 rounds" in found.said


def test_the_lengths_are_those_that_went_in() -> None:
    found = lengths_of(records_of(together=2.0))
    assert found.noise == pytest.approx(NOISE)
    assert found.signal == pytest.approx(NOISE / (2.0 * 4.0))
    assert found.together == pytest.approx(2.0)
    assert found.seen


def test_a_signal_that_cannot_be_seen_is_not_taken_to_be_there() -> None:
    """The estimate is below zero, as it is half of the time without any signal."""
    records = records_of()
    for record in records:
        record["released_norm_squared"] = 0.999 * 5_000 * VARIANCE
    found = answer(Subject.NOISE, judge(config_of(), records))
    assert found.weight is Weight.CHANGE
    assert "at most about" in found.said and "at least" in found.said


def test_figures_that_cannot_tell_accuse_nobody() -> None:
    """Few coordinates: what could hide in the noise is as long as the noise itself."""
    records = records_of()
    for record in records:
        record |= {"sketch_size": 4, "dimension": 4, "compression": 1.0}
        record["released_norm_squared"] = 4 * VARIANCE
    found = answer(Subject.NOISE, judge(config_of(), records))
    assert found.weight is Weight.UNKNOWN and found.headline == ""


def test_without_released_lengths_the_noise_is_unknown() -> None:
    records = records_of(together=9.0)
    for record in records:
        del record["released_norm_squared"]
    verdict = judge(config_of(), records)
    assert answer(Subject.NOISE, verdict).weight is Weight.UNKNOWN
    assert "Not known: how long the noise is" in verdict.rest[-1]


@pytest.mark.parametrize(
    ("clipped", "advice"),
    [
        (60, "privacy.clip_l2 does not help"),
        (45, "train a smaller model."),
        (20, "A lower privacy.clip_l2 may help too: only 33%"),
        (None, "A lower privacy.clip_l2 takes off noise too, if few updates are as long"),
    ],
)
def test_what_the_clip_has_to_do_with_the_noise(clipped: int | None, advice: str) -> None:
    assert advice in answer(Subject.NOISE, judged(together=2.0, clipped=clipped)).change


@pytest.mark.parametrize(
    ("clipped", "headline"),
    [
        (60, "every client is clipped"),
        (57, "nearly every client is clipped"),
        (56, ""),
        (1, ""),
        (0, "hardly any client reaches the clip"),
    ],
)
def test_everybody_clipped_and_nobody(clipped: int, headline: str) -> None:
    found = answer(Subject.CLIP, judged(clipped=clipped))
    assert found.headline == headline
    assert found.weight is {
        60: Weight.KNOW, 57: Weight.KNOW, 56: Weight.FINE, 1: Weight.FINE, 0: Weight.CHANGE
    }[clipped]  # fmt: skip


def test_clips_that_nobody_counted_are_unknown() -> None:
    verdict = judged(clipped=None)
    assert answer(Subject.CLIP, verdict).weight is Weight.UNKNOWN
    assert "no server sees that" in verdict.rest[-1]
    assert verdict.line == "Nothing stands out."


def test_a_clip_that_follows_norms_is_changed_by_its_quantile() -> None:
    config = config_of(clipping__smallest=0.01)
    assert "clipping.quantile" in answer(Subject.CLIP, judged(config, clipped=0)).change


def test_a_controller_that_never_compresses() -> None:
    verdict = judged(size=DIMENSION, wanted=31_000.0, sketch=0.0)
    found = answer(Subject.CONTROLLER, verdict)
    assert verdict.line == "The controller never compresses."
    assert "All 10,000 values were sent in every round. It asked for 31,000" in found.said
    assert "raise sketch.gamma (now 0.1): up to about 0.31 that changes nothing." in found.change
    # One round with a sketch is a near miss, and so is a controller that had no time.
    records = records_of(size=DIMENSION, wanted=9_999.0)
    records[-1] |= {"sketch_size": 5_000, "compression": 2.0}
    assert answer(Subject.CONTROLLER, judge(config_of(), records)).weight is Weight.FINE
    short = judged(size=DIMENSION, rounds=FEWEST_DECISIONS)
    assert answer(Subject.CONTROLLER, short).weight is Weight.UNKNOWN


@pytest.mark.parametrize(
    ("wanted", "first_rate", "want", "by"),
    [
        (5_014.0, 8.0, "", ""),
        (5_016.0, 8.0, "larger", "by a lower sketch.first_rate, or a larger sketch.step_factor"),
        # Nothing is lower than no compression.
        (5_016.0, 1.0, "larger", "by a larger sketch.step_factor"),
        (4_985.0, 8.0, "", ""),
        (4_984.0, 8.0, "smaller", "by a higher sketch.first_rate, or a larger sketch.step_factor"),
        (4_000.0, 8.0, "smaller", "by a higher sketch.first_rate, or a larger sketch.step_factor"),
    ],
)
def test_a_controller_at_its_limit(wanted: float, first_rate: float, want: str, by: str) -> None:
    """A size is rounded to whole rows, 15 values here, up or down: that is no limit."""
    config = config_of(sketch={"controller": "published", "first_rate": first_rate})
    found = answer(Subject.CONTROLLER, judged(config, wanted=wanted))
    assert found.headline == ("the controller always sits at its limit" if want else "")
    if want:
        assert f"mostly a {want} one" in found.said and "In 15 of 15 rounds" in found.said
        assert f"get there sooner: {by}, or by" in found.change


ADVICE = [
    {"size": DIMENSION, "wanted": 31_000.0},
    {"size": DIMENSION, "wanted": 31_000.0, "figures": {"shortest": 31e3, "longest": 62e3}},
    {"size": DIMENSION, "wanted": 310_000.0, "figures": {"shortest": 31e4, "longest": 62e4}},
    {"wanted": 9_000.0, "sketch": 4.0, "figures": {"shortest": 100.0, "longest": 5_000.0}},
    {"wanted": 1_000.0, "sketch": 4.0, "figures": {"shortest": 5_000.0, "longest": 9_000.0}},
    {"size": 15, "wanted": 1.0},
]


@pytest.mark.parametrize("name", [name for name in CONTROLLERS if name != "fixed"])
@pytest.mark.parametrize("records", ADVICE)
def test_advice_names_options_that_the_controller_has(name: str, records: dict[str, Any]) -> None:
    verdict = judged(config_of(sketch={"controller": name}), **records)
    found = answer(Subject.CONTROLLER, verdict)
    assert found.headline
    changes = " ".join(each.change for each in verdict.answers)
    named = set(re.findall(r"sketch\.([a-z_]+)", changes)) - {"controller"}
    assert named <= set(options_of(CONTROLLERS[name]))
    assert named or "Run more rounds." in changes


def test_a_gamma_that_is_far_off_is_said_to_be() -> None:
    """At more than the error of the noise there is nothing to be saved for free."""
    interval = {"shortest": 8_000.0, "longest": 12_000.0}
    near = answer(Subject.CONTROLLER, judged(size=DIMENSION, wanted=1e4, figures=interval))
    assert "asked for 10,000 on average, and would have kept any size from 8,000 to" in near.said
    assert "up to about 0.12 that changes nothing" in near.change
    far = {"shortest": 90_000.0, "longest": 120_000.0}
    lost = answer(Subject.CONTROLLER, judged(size=DIMENSION, wanted=9e4, figures=far))
    assert lost.change.startswith(
        "Nothing: sketch.gamma (now 0.1) would have to be above about 1.2"
    )
    # A warm-up that is not over has asked for nothing yet.
    warm = config_of(sketch={"controller": "two_stage", "warmup": 40})
    records = records_of(size=DIMENSION)
    for record in records:
        record["figures"] = {"size": float(DIMENSION)}
    assert "lower sketch.warmup (now 40)" in answer(Subject.CONTROLLER, judge(warm, records)).change


@pytest.mark.parametrize(
    ("wanted", "shortest", "option"), [(2e4, 5e3, "kappa (now 0.1)"), (5e3, 2e4, "gamma_high")]
)
def test_curvature_or_the_norm_keeps_a_sketch_long(
    wanted: float, shortest: float, option: str
) -> None:
    config = config_of(sketch={"controller": "adapt_progress", "gamma_high": 0.4})
    figures = {"shortest": shortest, "longest": 4e4}
    found = answer(
        Subject.CONTROLLER, judged(config, size=DIMENSION, wanted=wanted, figures=figures)
    )
    assert f"raise sketch.{option}" in found.change


@pytest.mark.parametrize(("share", "option"), [(0.2, "gamma (now 0.1)"), (0.4, "gamma_high")])
def test_a_budget_may_be_bounded_from_above(share: float, option: str) -> None:
    """At twice the size of the model, a round needs twice the share."""
    config = config_of(sketch={"controller": "adapt_budget", "gamma_high": 0.5})
    figures = {"shortest": 15e3, "longest": 2e4, "share": share}
    found = answer(Subject.CONTROLLER, judged(config, size=DIMENSION, wanted=15e3, figures=figures))
    assert f"raise sketch.{option}" in found.change


def test_a_sketch_of_one_column_is_as_short_as_its_rows() -> None:
    found = answer(Subject.CONTROLLER, judged(size=15, wanted=3.0))
    assert found.change.startswith("Lower sketch.rows (now 15)")
    longer = answer(Subject.CONTROLLER, judged(size=30, wanted=3.0))
    assert "rows (now" not in longer.change


def test_a_controller_that_is_free_now_and_then_is_not_at_its_limit() -> None:
    records = records_of(wanted=9_000.0)
    for record in records[:4]:
        record["figures"] = {"wanted_size": 5_000.0, "size": 5_000.0}
    assert answer(Subject.CONTROLLER, judge(config_of(), records)).headline == ""


def test_a_fixed_sketch_has_no_controller() -> None:
    config = config_of(sketch={"controller": "fixed", "rate": 2.0})
    assert answer(Subject.CONTROLLER, judged(config, wanted=9_000.0)) is None


@pytest.mark.parametrize(("ratio", "weight"), [(0.99, Weight.FINE), (4.0, Weight.CHANGE)])
def test_a_sketch_that_costs_more_than_the_noise(ratio: float, weight: Weight) -> None:
    found = answer(Subject.SKETCH, judged(sketch=ratio))
    assert found.weight is weight
    assert f"{ratio:.2g} times the squared error of the noise" in found.said
    if found.headline:
        assert found.change.startswith("Lower sketch.gamma: ")
        given = judged(config_of(sketch={"first_rate": 8.0}), sketch=ratio)
        change = answer(Subject.SKETCH, given).change
        assert change.startswith("Lower sketch.gamma or sketch.first_rate: ")
    fixed = config_of(sketch={"controller": "fixed", "rate": 2.0})
    change = answer(Subject.SKETCH, judged(fixed, sketch=8.0)).change
    assert change == "Lower sketch.rate from 2 to 1 or less."


def test_the_error_of_a_sketch_is_estimated_where_it_was_not_measured() -> None:
    # The signal is 2 in a round whose noise is 1: (d - 1) 4 / L is 8, where d is 2 L.
    found = answer(Subject.SKETCH, judged(together=1 / 8, sketch=None))
    assert found.weight is Weight.CHANGE
    assert "8 times the squared error of the noise (estimated from released" in found.said
    hidden = answer(Subject.SKETCH, judged(together=20.0, sketch=None))
    assert hidden.weight is Weight.UNKNOWN


def test_what_is_not_there_is_not_judged() -> None:
    nothing = judge(config_of(engine__aggregator="plain"), records_of())
    assert nothing.answers == () and nothing.line == "Nothing could be judged."
    assert judge(config_of(), []).answers == ()
    power = judge(config_of(powersgd__rank=2), records_of())
    assert answer(Subject.CONTROLLER, power) is None
    assert answer(Subject.SKETCH, power).weight is Weight.UNKNOWN


def test_the_heaviest_comes_first_and_all_are_in_the_line() -> None:
    verdict = judged(together=2.0, clipped=60, sketch=4.0)
    assert verdict.line == (
        "Compression costs more accuracy than the noise; the noise is as large as what is "
        "learned; every client is clipped."
    )


def test_what_is_printed_fits_a_narrow_terminal() -> None:
    console = Console(record=True, width=80, quiet=False, file=open("/dev/null", "w"))
    show_outcome(console, config_of(), records_of(together=4.0, clipped=60))
    console.file.close()
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    said = " ".join(text.split())
    assert said.startswith("Verdict: The noise drowns what is learned; every client is clipped.")
    assert "What to change: Raise privacy.epsilon" in said
    assert "What epsilon 5 means" in said
