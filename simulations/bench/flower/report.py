"""Runs the systems one after the other and puts their figures side by side."""

from __future__ import annotations

import importlib.util
import math
import os
import platform
import statistics
from collections.abc import Callable
from importlib.metadata import version

from protocol.errors import ConfigurationError
from simulations.bench.flower.engine import MeasuredSystem, System, measure
from simulations.bench.flower.floor import floor_figures
from simulations.bench.flower.order import DELTA, ERROR_SHARE, FlowerOrder
from simulations.bench.timing import Figures
from simulations.common.provenance import machine

LIBRARIES = ("flwr", "ray", "numpy", "numba", "cryptography")
_DEVIATIONS = 6.0
"""Standard deviations of our noise that a mean may be off: less than one run in 10^8 is further."""
_QUANTISATION = 1e-3
"""Relative error of the systems without noise, many times that of SecAgg+'s integers."""


def bench_flower(
    order: FlowerOrder, cores: int, sketched: bool, progress: Callable[[str], object]
) -> Figures:
    """Seconds and bytes of whole rounds in one run, without training.

    A round goes from before the server chooses its clients to after it has the new model. The first
    round of each system starts actors, imports and compiles; it is reported by itself. The last one
    counts bytes: serialised messages of both directions, a client on average; it is not timed.

    Returns:
        for each system its median, fastest and slowest round, the processor time of a round over
        all its processes, and its bytes; ratios of medians; seconds of each of our stages; our
        parts and their limits in the pairwise protocol (`floor_figures`); the machine and its load.
    """
    for name in ("flwr", "ray"):
        if importlib.util.find_spec(name) is None:
            valid = "make .venv-flower/.installed, or pip install 'flwr[simulation]'"
            raise ConfigurationError("environment", f"{name} is not installed", valid)
    figures = _about(order, cores)
    systems = _systems(order, sketched)
    for system in systems:
        progress(f"{system.value}: {order.all_rounds} rounds of {order.clients} clients")
        figures[f"{system.value}_load_before"] = os.getloadavg()[0]
        measured = measure(system, order, cores)
        _check(system, order, measured["moved"])
        figures |= _rows(system, measured)
        if system in (System.OURS, System.ONE_SHOT):
            figures |= _stages(system, measured)
    figures |= _ratios(figures, systems)
    return figures | floor_figures(order, cores) if System.OURS in systems else figures


def _systems(order: FlowerOrder, sketched: bool) -> list[System]:
    left_out = set() if sketched and "pairwise" in order.protocols else {System.SKETCHED}
    for system, protocol in ((System.OURS, "pairwise"), (System.ONE_SHOT, "one-shot")):
        if protocol not in order.protocols:
            left_out.add(system)
    return [each for each in System if each not in left_out]


def _about(order: FlowerOrder, cores: int) -> Figures:
    return {
        "clients": order.clients,
        "dim": order.dim,
        "lost": order.lost,
        "rounds": order.rounds,
        "mode": order.mode.value,
        "protocols": ", ".join(order.protocols),
        "epsilon": order.epsilon,
        "delta": DELTA,
        "error_share": ERROR_SHARE,
        "exact_noise": order.exact_noise,
        "sketch_rate": order.rate,
        **machine(),
        "cores": cores,
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


def _check(system: System, order: FlowerOrder, moved: float) -> None:
    """The mean over all coordinates of what all rounds added must be what clients added."""
    expected = order.all_rounds * order.mean_shift
    off = _QUANTISATION * expected
    if system in (System.OURS, System.ONE_SHOT, System.SKETCHED):
        off += _DEVIATIONS * _deviation(order) * math.sqrt(order.all_rounds)
    # Written so that NaN fails the test.
    if not abs(moved - expected) <= off:
        raise RuntimeError(
            f"{system.value}: {order.all_rounds} rounds moved the model by {moved:g} on average, "
            f"and clients by {expected:g}, give or take {off:g}"
        )


def _deviation(order: FlowerOrder) -> float:
    """Of one round's mean over all coordinates, with a sketch or without."""
    plan = order.plan()
    noise = plan.goal.noise_multiplier * plan.clip_l2 / order.survivors
    # Noise of the honest alone meets the goal; that of tolerated colluders comes on top, and the
    # noise that nobody takes off, if it is not exact.
    more = (1.0 + ERROR_SHARE) * order.clients / plan.fewest_honest
    # Two coordinates of one bucket disturb each other; their signs are random.
    collisions = math.sqrt(2.0 * order.rate / order.dim) * order.mean_shift
    return math.sqrt(more / order.dim) * noise + collisions


def _rows(system: System, measured: MeasuredSystem) -> Figures:
    name = system.value
    first, *timed, _ = measured["seconds"]
    return {
        f"{name}_seconds_per_round": statistics.median(timed),
        f"{name}_seconds_fastest": min(timed),
        f"{name}_seconds_slowest": max(timed),
        f"{name}_seconds_first_round": first,
        f"{name}_processor_seconds": statistics.median(measured["processor_seconds"][1:-1]),
        f"{name}_bytes_per_client": measured["bytes_down"] + measured["bytes_up"],
        f"{name}_bytes_down": measured["bytes_down"],
        f"{name}_bytes_up": measured["bytes_up"],
        f"{name}_peak_rss_bytes": measured["peak_rss_bytes"],
    }


def _stages(system: System, measured: MeasuredSystem) -> Figures:
    """Medians over the timed rounds; what no stage waits for is the server's own work."""
    rounds = list(zip(measured["seconds"], measured["stages"], strict=True))[1:-1]
    figures: Figures = {
        f"{system.value}_{stage}_seconds": statistics.median(stages[stage] for _, stages in rounds)
        for stage in rounds[0][1]
    }
    alone = [seconds - sum(stages.values()) for seconds, stages in rounds]
    return figures | {f"{system.value}_server_alone_seconds": statistics.median(alone)}


def _ratios(figures: Figures, systems: list[System]) -> Figures:
    def ratio(over: System, under: System, figure: str) -> float:
        return float(figures[f"{over.value}_{figure}"]) / float(figures[f"{under.value}_{figure}"])

    ratios: Figures = {}
    for system in systems[1:]:
        name = f"{system.value}_over_plain"
        ratios[name] = ratio(system, System.PLAIN, "seconds_per_round")
        # Where the system does not tell, there is none.
        if figures["plain_processor_seconds"]:
            ratios[f"{name}_processor"] = ratio(system, System.PLAIN, "processor_seconds")
    for system in (System.OURS, System.ONE_SHOT):
        if system in systems:
            name = f"secaggplus_over_{system.value}"
            ratios[name] = ratio(System.SECAGGPLUS, system, "seconds_per_round")
    return ratios
