"""Plots: a PNG of the promised size each, whatever the records, and no global state."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from simulations.figures import (
    HEIGHT_PIXELS,
    WIDTH_PIXELS,
    RoundRecord,
    plot_accuracy,
    plot_clients,
    plot_epsilon,
    plot_sketch,
    write_figures,
)

Plot = Callable[[list[RoundRecord], Path], Path]
PLOTS: tuple[Plot, ...] = (plot_accuracy, plot_sketch, plot_epsilon, plot_clients)


def record(number: int = 1, **changes: Any) -> RoundRecord:
    """Return a plausible record of one round."""
    size = max(600, 4810 - 300 * number)
    values: dict[str, Any] = {
        "round": number,
        "accuracy": 0.92 - 0.8 / (1 + number),
        "loss": 2.3 / number,
        "sketch_size": size,
        "dimension": 4810,
        "compression": 4810 / size,
        "bits": 18,
        "bytes_per_client": 2.5 * size,
        "cohort": 80,
        "survivors": 72 - number % 3,
        "epsilon_server": 0.8 * math.sqrt(number),
        "epsilon_outsider": 0.7 * math.sqrt(number),
        "lost": {"keys": number % 3, "shares": 3, "masked input": 5},
    }
    return RoundRecord(**{**values, **changes})


def records(count: int = 20) -> list[RoundRecord]:
    """Return a run."""
    return [record(number) for number in range(1, count + 1)]


def png_size(path: Path) -> tuple[int, int]:
    """Return width and height from the header of a PNG."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("count", [1, 20, 200])
def test_plot_writes_a_png_and_returns_its_path(plot: Plot, count: int, tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    assert plot(records(count), path) == path
    assert png_size(path) == (WIDTH_PIXELS, HEIGHT_PIXELS)


def test_all_figures_land_in_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "figures"
    paths = write_figures(records(), folder, baseline=[0.5, 0.9])
    assert [path.name for path in paths] == [
        "accuracy.png",
        "sketch.png",
        "epsilon.png",
        "clients.png",
    ]
    assert set(folder.iterdir()) == set(paths)


def test_same_records_same_bytes(tmp_path: Path) -> None:
    first = write_figures(records(3), tmp_path / "a")
    second = write_figures(records(3), tmp_path / "b")
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_baseline_changes_the_plot(tmp_path: Path) -> None:
    alone = plot_accuracy(records(), tmp_path / "a.png")
    both = plot_accuracy(records(), tmp_path / "b.png", baseline=[0.5, 0.8, 0.9])
    assert alone.read_bytes() != both.read_bytes()


@pytest.mark.parametrize("value", [math.inf, 0.0])
def test_epsilon_may_be_infinite_or_zero(value: float, tmp_path: Path) -> None:
    run = [record(n, epsilon_server=value, epsilon_outsider=value) for n in (1, 2)]
    assert png_size(plot_epsilon(run, tmp_path / "e.png"))[0] == WIDTH_PIXELS


def test_diverged_run_can_be_plotted(tmp_path: Path) -> None:
    run = [record(1), record(2, accuracy=0.1, loss=math.nan, survivors=0, lost={"rejected": 80})]
    assert len(write_figures(run, tmp_path)) == 4


def test_unexplained_losses_are_counted(tmp_path: Path) -> None:
    assert record(3, lost={}).unexplained == 8
    assert record(3, lost={"keys": 5}).unexplained == 3
    explained = plot_clients([record(3)], tmp_path / "a.png")
    unexplained = plot_clients([record(3, lost={})], tmp_path / "b.png")
    assert explained.read_bytes() != unexplained.read_bytes()


@pytest.mark.parametrize("plot", PLOTS)
def test_no_record_is_refused(plot: Plot, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one round"):
        plot([], tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize(
    ("survivors", "lost", "message"),
    [
        (81, {}, "survivors 81"),
        (-1, {}, "survivors -1"),
        (72, {"keys": -1}, "negative"),
        (72, {"keys": 9}, "9 lost and 72 surviving"),
    ],
)
def test_clients_must_add_up(survivors: int, lost: Mapping[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record(survivors=survivors, lost=lost)


def test_pyplot_is_not_needed() -> None:
    assert "pyplot" not in vars(sys.modules["simulations.figures"])
