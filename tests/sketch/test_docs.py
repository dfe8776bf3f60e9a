"""The figures of docs/sketching.md are those of the code."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from scipy.stats import t as student
from sketch_kit import estimated

from sketch import flat_bound
from sketch.controllers import AdaptNorm, Controller, Prior, Published
from sketch.error import norm_estimate_variance
from sketch.hashing import CHUNK, LABEL, Usage
from sketch.spec import SPEC_BYTES, SPEC_VERSION, SketchKind

PAGE = (Path(__file__).parents[2] / "docs" / "sketching.md").read_text()


def test_portable_definition_is_that_of_the_code() -> None:
    assert f"the {len(LABEL)} ASCII bytes `{LABEL.decode()}`" in PAGE
    assert (Usage.BUCKET.value, Usage.SIGN.value) == (1, 2)
    assert (Usage.ROTATION_FIRST.value, Usage.ROTATION_LAST.value) == (3, 4)
    assert Usage.PROBE.value == 5
    assert f"| 1 | version | {SPEC_VERSION} |" in PAGE
    assert f"They are {SPEC_BYTES} bytes" in PAGE
    assert [kind.value for kind in SketchKind] == [0, 1, 2]
    kinds = ", ".join(f"{kind.value} {kind.name.lower().replace('_', '-')}" for kind in SketchKind)
    assert f"| 1 | kind | {kinds} |" in PAGE
    assert f"{CHUNK:,} coordinates at a time" in PAGE
    assert f"{(4 * CHUNK + CHUNK // 8) // 1024} KiB" in PAGE


def test_figure_of_the_rule() -> None:
    for size, pattern in ((1, r"${:.1f}/\sqrt L$"), (7600, "{:.0%} at $L=7{{,}}600$")):
        deviation = math.sqrt(norm_estimate_variance(size, 1.0, 0.0, 1.0 / (0.1 * size)))
        assert pattern.format(deviation).replace("%", " %") in PAGE


@pytest.mark.parametrize("copies", [3, 5, 7, 9, 15])
def test_what_a_median_costs(copies: int) -> None:
    """M times the variance of the median of M normal values, by its density."""
    half = copies // 2

    def density(x: float) -> float:
        tails = norm.cdf(x) * norm.sf(x)
        return (half + 1) * math.comb(copies, half) * float(norm.pdf(x) * tails**half)

    factor = copies * quad(lambda x: x * x * density(x), -10, 10)[0]
    header, row = re.findall(r"\| (?:\$M\$|factor) \| [13].*", PAGE)
    table = dict(zip(header.split("|"), row.split("|"), strict=True))
    assert table[f" {copies} "].strip() == f"{factor:.2f}"


def test_flat_bounds_of_the_page() -> None:
    found = re.search(
        r"it is ([\d.]+) at \$L\$ = 8,205, ([\d.]+) at 16,380 and ([\d.]+) at 16,395", PAGE
    )
    assert found is not None
    for length, printed in zip((8205, 16380, 16395), found.groups(), strict=True):
        assert f"{flat_bound(1.0, length, 0.05) * math.sqrt(length):.2f}" == printed


ARRIVAL = re.findall(
    r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) / ([\d.]+) \| ([\d.]+) / ([\d.]+) \| \d", PAGE, re.M
)
"""Norm and gamma, then error share over gamma and rate by Adapt Norm, and by the published rule."""

ALPHA, SEEDS_OF_PAGE, SEEDS = 1e-6, 8, 24


def constant_run(controller: Controller, squared: float, seed: int) -> list[int]:
    """Sizes of 100 rounds of one norm and noise 1, by the law of a dense mean's release."""
    rng, dimension = np.random.default_rng(seed), 20_000
    decision = controller.initial(dimension, Prior(norm_squared=10.0 * squared, noise_variance=1.0))
    sizes = []
    for number in range(100):
        size = decision.spec.main_size
        sizes.append(size)
        estimate = float((1.0 + squared / size) * rng.chisquare(size)) - size
        stats = estimated(estimate, size, 1.0, number, dimension=dimension)
        decision = controller.step(decision.state, stats)
    return sizes


def off(controller: Controller, squared: float, gamma: float, told: float) -> float:
    """The error share that the page tells against ours, in standard deviations of both."""
    runs = [constant_run(controller, squared, seed) for seed in range(SEEDS)]
    shares = [float(np.mean(squared / (gamma * np.array(run)))) for run in runs]
    error = float(np.std(shares, ddof=1)) * math.sqrt(1.0 / SEEDS + 1.0 / SEEDS_OF_PAGE)
    # Half of its last digit.
    return max(abs(float(np.mean(shares)) - told) - 0.005, 0.0) / error


@pytest.mark.parametrize("row", ARRIVAL, ids=lambda row: f"{row[0]}-{row[1]}")
def test_error_shares_of_controllers_that_arrive(row: tuple[str, ...]) -> None:
    """Both rules of the page, as they are today; each beside the figure of the other one."""
    squared, gamma, arriving, _, published, _ = map(float, row)
    limit = float(student.isf(ALPHA / 2.0, SEEDS - 1))
    ours, theirs = AdaptNorm(gamma=gamma), Published(gamma=gamma, first_rate=8.0)
    assert off(ours, squared, gamma, arriving) < limit
    assert off(theirs, squared, gamma, published) < limit
    if published > 1.5 * arriving:
        assert off(ours, squared, gamma, published) > limit


def test_the_page_has_these_figures() -> None:
    assert len(ARRIVAL) == 5
