"""How the server's work grows with the cohort: seconds for each client, on sparse graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from protocol.schemes.committee import CommitteeNumbers
from secagg import Mode
from simulations.bench.one_shot_round import bench_one_shot_round
from simulations.bench.round import bench_round
from simulations.bench.timing import Figures
from simulations.common.figures import BLUE, DOTS_PER_INCH, ORANGE

SIZES = (250, 500, 1000, 2000, 4000, 8000)
ONE_SHOT_SIZES = (*SIZES, 64_000)


def bench_growth(
    sizes: Sequence[int],
    dim: int,
    dropout: float,
    mode: Mode,
    progress: Callable[[Figures], None] = lambda _: None,
) -> list[Figures]:
    """One round for each size of cohort; see `bench_round` for the figures.

    Its figures, with `server_seconds_per_client` and `server_seconds_per_edge`, an edge being a
    pair of neighbours: n k / 2 of them.
    """
    results = []
    for size in sizes:
        figures = bench_round(size, dim, dropout, 24, mode)
        seconds = float(figures["server_seconds"])
        figures["server_seconds_per_client"] = seconds / size
        figures["server_seconds_per_edge"] = seconds / (size * float(figures["degree"]) / 2)
        results.append(figures)
        progress(figures)
    return results


def bench_one_shot_growth(
    sizes: Sequence[int],
    dim: int,
    dropout: float,
    numbers: CommitteeNumbers,
    progress: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One one-shot round for each size of cohort, all with one committee.

    The figures of `bench_one_shot_round`, with `server_seconds_per_client`,
    `server_cpu_seconds_per_client`, and `ratio_to_first`, the latter divided by the smallest
    cohort's: 1 if the server's work for a client does not grow.
    """
    results: list[dict[str, Any]] = []
    for size in sizes:
        figures = bench_one_shot_round(size, dim, dropout, 24, numbers)
        figures["server_seconds_per_client"] = figures["server_seconds"] / size
        figures["server_cpu_seconds_per_client"] = each = figures["server_cpu_seconds"] / size
        first = results[0]["server_cpu_seconds_per_client"] if results else each
        figures["ratio_to_first"] = each / first
        results.append(figures)
        progress(figures)
    return results


def plot_growth(results: Sequence[Figures], path: Path) -> Path:
    """Server milliseconds for each client, and the degree of the graph, by size of the cohort."""
    figure = Figure(figsize=(9, 5), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.add_subplot()
    sizes = [figures["clients"] for figures in results]
    per_client = [1e3 * float(figures["server_seconds_per_client"]) for figures in results]
    left.plot(sizes, per_client, "o-", color=BLUE, label="server time for each client")
    left.set_xscale("log", base=2)
    left.set_xticks(sizes, [f"{size:,}" for size in sizes])
    left.set_ylim(0, 1.3 * max(per_client))
    left.set_xlabel("clients in the round")
    left.set_ylabel("server milliseconds per client")
    right = left.twinx()
    degrees = [float(figures["degree"]) for figures in results]
    right.plot(sizes, degrees, "s--", color=ORANGE, label="neighbours k of each client")
    right.set_ylim(0, 1.3 * max(degrees))
    right.set_ylabel("neighbours k")
    lines = [*left.get_lines(), *right.get_lines()]
    left.legend(lines, [str(line.get_label()) for line in lines], loc="lower right")
    first = results[0]
    left.set_title(f"Growth of the server's work, d = {first['dim']:,}, mode {first['mode']}")
    figure.savefig(path)
    return path
