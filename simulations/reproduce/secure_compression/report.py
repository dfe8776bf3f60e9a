"""The page and the summary of the experiment, made from its plain figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from simulations.reproduce.intervals import half_width
from simulations.reproduce.origin import paragraph
from simulations.reproduce.output import Report, Titled
from simulations.reproduce.secure_compression.claims import alone, by_arm
from simulations.reproduce.secure_compression.plot import plot
from simulations.reproduce.text import points, section

Row = Mapping[str, Any]
Figures = Mapping[str, Any]
Rows = list[list[str]]


def page(figures: Figures) -> str:
    """Return the page as Markdown."""
    parts = [
        "# Secure PowerSGD, clips that follow, Denoise: do they help?\n",
        paragraph(figures, "secure-compression", figures["plan"]["data"] == "digits"),
        "## What was seen\n",
        *verdicts(figures),
        "\n![accuracy by bytes, by clip, and what averages gain](secure-compression.png)\n",
        "## Setting\n",
        _setting(figures),
    ]
    for title, rows in (
        ("Comparisons", comparison_rows(figures["conclusions"]["comparisons"])),
        ("Ways to release a mean, nothing behind", release_rows(figures)),
        ("Clips at the right clip's learning rate", common_rows(figures)),
        ("Accuracy behind every average, %", average_rows(figures)),
        (
            "Denoise against no average, way by way",
            comparison_rows([asdict(each) for each in by_arm(figures, "denoise", "none")]),
        ),
        (
            "Denoise against momentum, way by way",
            comparison_rows([asdict(each) for each in by_arm(figures, "denoise", "momentum")]),
        ),
        ("Learning rates: chosen, and accuracy in the trials, %", trial_rows(figures)),
    ):
        parts.append("\n" + section(title, rows))
    return "\n".join(parts)


def verdicts(figures: Figures) -> list[str]:
    """Return the verdict on each question, a list item each, with what it follows from."""
    comparisons = figures["conclusions"]["comparisons"]
    found = []
    for question, word in figures["conclusions"]["verdicts"].items():
        seen = [each for each in comparisons if each["question"] == question]
        gains = ", ".join(points(each["mean"], each["half_width"], "+.1f") for each in seen)
        found.append(f"- {question[0].upper()}{question[1:]}: **{word}** ({gains} points).")
    return found


def _setting(figures: Figures) -> str:
    plan = figures["plan"]
    seeds, trials = plan["seeds"], plan["tuning_seeds"]
    handshake = figures["rows"][0]["bytes"]["handshakes"]
    return (
        f"- {plan['data']}, a network of one hidden layer with {plan['hidden']} units, "
        f"{figures['parameters']:,} parameters, {figures['tested']:,} pictures tested; "
        f"{plan['rounds'] * plan['cohort']:,} clients, labels by Dirichlet(1), 4 local steps of 8 "
        f"pictures at rate 0.1.\n"
        f"- {plan['rounds']} rounds of {plan['cohort']} clients, so that everybody takes part "
        f"once; nobody is lost, nobody colludes. epsilon = {plan['epsilon']:g} against the "
        f"server, delta = {plan['delta']:g}, a contribution against the zero vector. PowerSGD "
        "releases two sums a round, and both are in that epsilon; the votes of a following clip "
        "are as well.\n"
        "- Noise is the clients' binomial coins. The sum is the ideal one: the integers of the "
        "real protocol in the same field, without its messages. Their bytes are those that "
        "`protocol.plan_deployment` states: keys, shares, confirmations and unmasking, "
        f"{handshake:,} bytes of a client for every sum whatever its length, in both directions. "
        "The model that the server sends is in none of the figures, and PowerSGD's bases have a "
        "column of their own: doubles, sent to every client.\n"
        f"- The right clip is {plan['clip']:g}, about the median norm of an update.\n"
        f"- A learning rate is sought for every row by steps of two until both neighbours of the "
        f"best are no better, by the mean of runs with other seeds ({trials}). Accuracy is that "
        f"of the last fifth of the rounds, a mean over {seeds} seeds.\n"
        "- Momentum b at rate r (1 - b) stands beside Denoise with b at rate r: without its second "
        "clip, and where nothing is left out of a message as here, Denoise *is* momentum.\n"
        "- **Better**: the whole 95 % interval of the paired differences is above zero. **Not "
        "better**: all of it is below half a point. Else **not decided**. A question with several "
        "comparisons has a verdict if all of them agree. Intervals do not know that a learning "
        "rate was chosen by few trials, and of twenty one misses.\n"
    )


def comparison_rows(comparisons: Sequence[Mapping[str, Any]]) -> Rows:
    """Return differences with intervals and verdicts."""
    rows = [["question", "what", "against", "points", "verdict"]]
    for each in comparisons:
        gain = points(each["mean"], each["half_width"], "+.1f")
        rows.append([each["question"], each["what"], each["against"], gain, each["verdict"]])
    return rows


def release_rows(figures: Figures) -> Rows:
    """Return accuracy and bytes of every way to release, without an average."""
    rows = [["way", "numbers", "vectors", "all messages", "bases", "accuracy, %", "last clip"]]
    for row in alone(figures).values():
        sizes = (row["bytes"][name] for name in ("numbers", "vectors", "total", "bases"))
        shown = [f"{size:,}" for size in sizes]
        rows.append([row["title"], *shown, _accuracy(row), _clips(row)])
    return rows


def common_rows(figures: Figures) -> Rows:
    """Return the clips at one learning rate."""
    rows = [["way", "rate", "accuracy, %", "last clip"]]
    first = next(row for row in figures["rows"] if row["name"] == "sketch-1-none")
    for row in (first, *figures["common"]):
        rows.append([row["title"], f"{row['rate']:g}", _accuracy(row), _clips(row)])
    return rows


def average_rows(figures: Figures) -> Rows:
    """Return accuracies of every way to release by what follows."""
    kinds = dict.fromkeys((row["average"], row["momentum"]) for row in figures["rows"])
    rows = [["way", *(_kind(*kind) for kind in kinds)]]
    found = {(row["arm"], row["average"], row["momentum"]): row for row in figures["rows"]}
    for row in alone(figures).values():
        if all((row["arm"], *kind) in found for kind in kinds):
            rows.append([row["title"], *(_accuracy(found[row["arm"], *kind]) for kind in kinds)])
    return rows


def trial_rows(figures: Figures) -> Rows:
    """Return what the choice of every learning rate rests on."""
    rows = [["way", "average", "chosen", "tried"]]
    for row in figures["rows"]:
        tried = ", ".join(f"{rate:g}: {100 * mean:.1f}" for rate, mean in row["tried"])
        chosen = f"{row['rate']:g}" + (" (at the edge)" if row["at_edge"] else "")
        rows.append([row["title"], _kind(row["average"], row["momentum"]), chosen, tried])
    return rows


def _kind(average: str, momentum: float) -> str:
    return "no average" if average == "none" else f"{average} {momentum:g}"


def _accuracy(row: Row) -> str:
    width = half_width(row["accuracies"])
    lost = f", {row['diverged']} lost" if row["diverged"] else ""
    return points(row["accuracy"], width) + lost


def _clips(row: Row) -> str:
    """Return the range of the clips at which runs ended, of those that follow."""
    clips = [clip for clip in row["last_clips"] if clip is not None]
    return f"{min(clips):.3g} to {max(clips):.3g}" if clips else "-"


def _summary(figures: Figures) -> Iterator[str | Titled]:
    yield "accuracy by way to release", release_rows(figures)
    yield "accuracy behind averages, %", average_rows(figures)
    yield from verdicts(figures)


REPORT = Report("secure-compression", {"page": (".md", page), "plot": (".png", plot)}, _summary)
