"""The plots of one run, each with its figures in words and as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from simulations.common.figures import AMBER, BLUE, GREEN, ORANGE, PINK, SKY
from simulations.common.pages.svg import INK, Chart, Table
from simulations.common.tables import readable
from simulations.learning.records import Record, number
from simulations.reports.run.folders import Run
from simulations.reports.run.plots import DASH, Layer, Line, RoundPlot, rounds_of, words_of
from simulations.reports.run.sketch_size import sketch_chart
from simulations.reports.run.trade_off import trade_off_chart

ADVERSARIES: Final = {"server": "against the server", "outsider": "against an outsider"}
DRAWN: Final = {"server": "so far: server", "outsider": "so far: outsider"}
"""The epsilons that are drawn; a record may have more."""
STAGES: Final = {
    "advertise": ("no keys (advertise)", ORANGE),
    "share": ("no shares (share)", PINK),
    "input": ("no update (input)", AMBER),
    "confirm": ("no signature (confirm)", SKY),
    "unmask": ("no shares given up (unmask)", BLUE),
}
"""What the server did not get from a client, by the stage in which it was lost."""
ERROR_PARTS: Final = {
    "noise": ("noise (privacy)", BLUE),
    "sketch": ("sketch (compression)", AMBER),
    "rounding": ("rounding (to integers)", PINK),
    "clipping": ("clipping (long updates)", GREEN),
}
STAGE_PARTS: Final = {
    "training": ("clients train", GREEN),
    "aggregation": ("protocol and noise", BLUE),
    "compiling": ("compiling (once)", ORANGE),
    "test": ("test of the model", AMBER),
}


def charts_of(run: Run, number: int) -> list[Chart]:
    """Return the plots for which the run has something to show."""
    if not run.records:
        return []
    prefix = f"run{number}"
    makers: tuple[Callable[[Run, str], Chart | None], ...] = (
        accuracy_chart,
        epsilon_chart,
        returned_noise_chart,
        trade_off_chart,
        sketch_chart,
        bytes_chart,
        clients_chart,
        error_chart,
        time_chart,
    )
    drawn = (
        make(run, f"{prefix}-{make.__name__.removesuffix('_chart').replace('_', '-')}")
        for make in makers
    )
    return [chart for chart in drawn if chart is not None]


def accuracy_chart(run: Run, name: str) -> Chart | None:
    """Plot test accuracy by round; None if the model was never tested."""
    tested = run.tested
    if not tested:
        return None
    line = Line("accuracy", rounds_of(tested), [number(r["accuracy"]) for r in tested])
    evaluated = [r for r in run.records if r.get("by_clients", {}).get("accuracy") is not None]
    plot = RoundPlot(name, "Test accuracy", "correct answers", 1 + bool(evaluated))
    plot.draw_line(line, 0)
    if evaluated:
        shares = [number(record["by_clients"]["accuracy"]) for record in evaluated]
        plot.draw_line(Line("as clients say", rounds_of(evaluated), shares), 1)
    plot.in_percent()
    best, last = max(tested, key=lambda record: number(record["accuracy"])), tested[-1]
    text = (
        f"After round {last['round']}, {last['accuracy']:.1%} of the test examples are answered "
        f"correctly; the best was {best['accuracy']:.1%} after round {best['round']}."
    )
    if evaluated:
        found = evaluated[-1]["by_clients"]
        text += (
            f" Clients said after round {evaluated[-1]['round']}, privately and on examples of "
            f"their own: {found['accuracy']:.1%}, with a standard error of "
            f"{found['accuracy_error']:.1%}."
        )
    rows = [(str(r["round"]), f"{r['accuracy']:.1%}", readable(r["loss"])) for r in tested]
    return plot.chart(text, Table(("round", "correct", "loss"), tuple(rows)))


def epsilon_chart(run: Run, name: str) -> Chart | None:
    """Plot the epsilon that one client has spent; None if none is finite."""
    lines = []
    for key in ADVERSARIES:
        values = [number(record["epsilons"].get(key)) for record in run.records]
        if any(math.isfinite(value) for value in values):
            shown = [value if math.isfinite(value) else math.nan for value in values]
            lines.append(Line(DRAWN[key], rounds_of(run.records), shown))
    if not lines:
        return None
    goal = run.guaranteed
    plot = RoundPlot(name, "Privacy spent by one client", "epsilon so far", len(lines) + 1)
    for place, line in enumerate(lines):
        plot.draw_line(line, place)
    if math.isfinite(goal):
        plot.draw_level("guaranteed", goal)
    last = run.records[-1]["epsilons"]
    said = "; ".join(
        f"{words_of(number(last.get(k)))} {v}" for k, v in ADVERSARIES.items() if k in last
    )
    text = (
        f"Guaranteed wherever the run stops: epsilon {words_of(goal)}, its goal. "
        f"Spent so far by the busiest client (an estimate): {said}, who sees released models only."
    )
    names = [k for k, v in last.items() if is_epsilon(v) and k not in ("delta", "colluders")]
    rows = [
        (str(r["round"]), *(words_of(number(r["epsilons"].get(key))) for key in names))
        for r in run.records
    ]
    columns = ("round", *(key.replace("_", " ") for key in names))
    return plot.chart(text, Table(columns, tuple(rows)))


def returned_noise_chart(run: Run, name: str) -> Chart | None:
    """Plot the noise in the sum of all rounds, of which a part came back; None if none did."""
    records = [r for r in run.records if r.get("sum_noise_variance") is not None]
    if not records:
        return None
    lengths, independent = (
        [math.sqrt(r["dimension"] * number(r[key])) for r in records]
        for key in ("sum_noise_variance", "sum_independent_variance")
    )
    plot = RoundPlot(name, "Noise in the sum of all rounds", "length (l2)", 2)
    plot.draw_line(Line("noise that comes back", rounds_of(records), lengths), 0)
    plot.draw_line(Line("independent noise", rounds_of(records), independent), 1)
    last, back = records[-1], sum(r["members_returning"] for r in records)
    text = (
        f"After round {last['round']} the noise in the sum of all mean updates has length "
        f"{readable(lengths[-1])}; independent noise for the same promise would have "
        f"{readable(independent[-1])}, {independent[-1] / lengths[-1]:.2f} times as much. Members "
        f"of the committee took back {back:,} of {sum(r['members'] for r in records):,} draws. "
        "What is assumed: no more members work for the server than were planned for, during the "
        "whole run and until their keys are erased; the others remember what they added, take it "
        "back once, and sign rounds one after the other. If the server knew what all members "
        "added, the epsilon without members would hold; if it could open single uploads, that of "
        "a client's own noise."
    )
    rows = [
        (str(r["round"]), readable(a), readable(b), f"{r['members_returning']} of {r['members']}")
        for r, a, b in zip(records, lengths, independent, strict=True)
    ]
    columns = ("round", "noise that comes back", "independent noise", "members who took back")
    return plot.chart(text, Table(columns, tuple(rows)))


def bytes_chart(run: Run, name: str) -> Chart | None:
    """Plot the bytes of one client: its vector, and the protocol's messages around it."""
    records = run.records
    vector, protocol = (
        [n / 1000 for n in part] for part in zip(*map(split_bytes, records), strict=True)
    )
    title, label, rounds = "Bytes of one client", "kB in a round", rounds_of(records)
    whole = [sum(pair) for pair in zip(vector, protocol, strict=True)]
    total = f"{readable(mean(whole))} kB in a round on average, {readable(sum(whole))} kB in all"
    if not any(protocol):
        plot = RoundPlot(name, title, label, 1)
        plot.draw_line(Line("kB", rounds, whole), 0)
        rows = [(str(now), readable(kilo)) for now, kilo in zip(rounds, whole, strict=True)]
        return plot.chart(f"{total} rounds.", Table(("round", "kB"), tuple(rows)))
    plot = RoundPlot(name, title, label, 2)
    plot.draw_layers(
        rounds,
        [
            Layer("vector: the update", BLUE, vector),
            Layer("protocol: keys, shares", AMBER, protocol),
        ],
    )
    text = (
        f"{total} rounds: {readable(mean(vector))} kB of a round are the vector, which "
        f"compression shortens, {readable(mean(protocol))} kB keys, shares and signatures, "
        "which it does not."
    )
    cells = zip(rounds, vector, protocol, whole, strict=True)
    figures = tuple((str(now), *map(readable, kilos)) for now, *kilos in cells)
    columns = ("round", "vector, kB", "protocol, kB", "together, kB")
    return plot.chart(text, Table(columns, figures))


def split_bytes(record: Record) -> tuple[float, float]:
    """Bytes of one client in a round: its vector, and all other messages.

    A report that is no vector of numbers of a fixed size counts as one in all of its bytes.
    """
    whole, bits = record["bytes_per_client"], record.get("bits")
    vector = whole if bits is None else min(whole, -(-record["sketch_size"] * bits // 8))
    return vector, whole - vector


def clients_chart(run: Run, name: str) -> Chart | None:
    """Plot at which stage clients got lost; None if nobody did."""
    records = run.records
    layers = list(_loss_layers(records))
    if not layers:
        return None
    plot = RoundPlot(name, "Clients lost, by stage", "clients", len(layers) + 1)
    plot.draw_layers(rounds_of(records), layers)
    invited, summed = sum(r["cohort"] for r in records), sum(r["survivors"] for r in records)
    lost = ", ".join(f"{layer.label} {int(sum(layer.values)):,}" for layer in layers)
    text = (
        f"Of {invited:,} invitations, {summed:,} ended in a sum. Clients lost, by what the server "
        f"did not get from them: {lost}."
    )
    if any(r.get("lost_later") for r in records):
        text += " Who was lost at confirm or unmask is in the sum all the same."
    rows = [
        (str(r["round"]), str(r["survivors"]), *(str(int(layer.values[i])) for layer in layers))
        for i, r in enumerate(records)
    ]
    columns = ("round", "in the sum", *(layer.label for layer in layers))
    return plot.chart(text, Table(columns, tuple(rows)))


def error_chart(run: Run, name: str) -> Chart | None:
    """Plot the parts of the error of the mean beside what was measured; None without either."""
    records = [r for r in run.records if r.get("error")]
    if not records:
        return None
    layers = [
        Layer(label, colour, [r["error"].get(key) or 0.0 for r in records])
        for key, (label, colour) in ERROR_PARTS.items()
        if any(r["error"].get(key) for r in records)
    ]
    measured = [number(r["error"].get("measured")) for r in records]
    plot = RoundPlot(
        name, "Error of the mean update", "squared distance", len(layers) + 1 if layers else 1
    )
    if layers:
        plot.draw_layers(rounds_of(records), layers)
        plot.draw_dots("measured", rounds_of(records), measured)
    else:
        plot.draw_line(Line("measured", rounds_of(records), measured), 0)
    keys = [key for key in ERROR_PARTS if any(key in r["error"] for r in records)]
    rows = [
        (
            str(r["round"]),
            *(readable(r["error"][key]) if key in r["error"] else DASH for key in keys),
            words_of(value),
            str(r["error"].get("clipped_clients", DASH)),
        )
        for r, value in zip(records, measured, strict=True)
    ]
    columns = ("round", *(ERROR_PARTS[key][0] for key in keys), "measured", "clients clipped")
    return plot.chart(_error_text(layers, measured), Table(columns, tuple(rows)))


def time_chart(run: Run, name: str) -> Chart | None:
    """Plot where the time of each round went; None if that was not kept."""
    records = [r for r in run.records if r.get("stages")]
    if not records:
        return None
    layers = [
        Layer(label, colour, [r["stages"].get(key, 0.0) for r in records])
        for key, (label, colour) in STAGE_PARTS.items()
        if key != "compiling" or any(r["stages"].get(key) for r in records)
    ]
    rest = [max(0.0, r["seconds"] - sum(r["stages"].values())) for r in records]
    layers.append(Layer("rest: the server's step", PINK, rest))
    plot = RoundPlot(name, "Time by stage", "seconds", len(layers))
    plot.draw_layers(rounds_of(records), layers)
    sums = {layer.label: sum(layer.values) for layer in layers}
    text = f"{sum(sums.values()):,.1f} s in all rounds: " + ", ".join(
        f"{label} {seconds:,.2f} s" for label, seconds in sums.items()
    )
    if records[0]["stages"].get("compiling"):
        text += ". Compiled code is kept: the next run does not wait for it"
    rows = [
        (str(r["round"]), *(f"{layer.values[i]:.3f}" for layer in layers))
        for i, r in enumerate(records)
    ]
    return plot.chart(text + ".", Table(("round", *sums), tuple(rows)))


def is_epsilon(value: Any) -> bool:
    """Whether an entry of a record's epsilons is one: a number, or "inf"."""
    return value == "inf" or (isinstance(value, int | float) and not isinstance(value, bool))


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return sum(values) / len(values)


def _loss_layers(records: Sequence[Record]) -> Iterator[Layer]:
    """Losses after the sum had the client's update at the bottom, those before it on top."""
    before = [r["lost"] for r in records]
    later = [r.get("lost_later") or {} for r in records]
    for losses in (later, before):
        for stage, (words, colour) in reversed(STAGES.items()):
            counts = [lost.get(stage, 0) for lost in losses]
            if any(counts):
                yield Layer(words, colour, counts)
    rest = [
        r["cohort"] - r["survivors"] - sum(lost.values())
        for r, lost in zip(records, before, strict=True)
    ]
    if any(rest):
        yield Layer("refused, or otherwise", INK, rest)


def _error_text(layers: Sequence[Layer], measured: Sequence[float]) -> str:
    known = [value for value in measured if math.isfinite(value)]
    mean = sum(known) / len(known) if known else math.nan
    parts = ", ".join(
        f"{layer.label} {readable(sum(layer.values) / len(layer.values))}" for layer in layers
    )
    given = f" Predicted parts: {parts}." if parts else ""
    return f"Measured squared error of the mean update, mean over rounds: {words_of(mean)}.{given}"
