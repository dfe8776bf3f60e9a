"""What the paper claims of FedSel, and what the intervals say to it.

A claim about all cases is reproduced if every case is above zero at 95 %. It is not reproduced if
some case is surely not, where the doubt of 5 % is shared out among the cases. Else not decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from scipy import stats

from simulations.campaigns.claims import DOUBT, OURS, Claim, Interval, decided, fact
from simulations.campaigns.rows import Figures, Row, distinct, first, where
from simulations.reproduce.fedsel.figures import EARLY
from simulations.reproduce.fedsel.plan import HONEST

CONSTANT: Final = 0.51  # up to this balanced accuracy a model is called a constant answer
# A difference in accuracy that is surely below this is none: a twentieth of a point
NEGLIGIBLE: Final = 5e-4


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield every claim with its verdict, for each way to choose learning rates."""
    parts = {
        "table3": _table3,
        "figure2f": _one_epoch,
        "figure2g": _two_epochs,
        "figure2hi": _others,
        "figure2ad": _choices,
        "figure3a": _kept,
    }
    for part, about in parts.items():
        for mode in distinct(figures[part], "mode"):
            rate = "own learning rates" if mode == "own" else f"learning rate {mode}"
            for claim in about(where(figures[part], mode=mode)):
                if claim is not None:
                    yield replace(claim, statement=f"{claim.statement}; {rate}")
    # The rest is at own rates, or computed.
    for part, about in {"figure3b": _shares, "figure3c": _batches, "times": _times}.items():
        yield from filter(None, about(figures[part]))
    yield from _theory(figures)


def _table3(rows: Sequence[Row]) -> Iterator[Claim | None]:
    names = [f"{selection}-PM" for selection in HONEST]
    controls = [row for row in rows if row["arm"] in [f"{name}-C" for name in names]]
    plain = [row for row in rows if row["arm"] in names]
    yield judge("EXP/PE/PS-PM-C gain accuracy over PM", "Table 3", _read(controls, "gain"))
    yield judge("what they gain is more than what they lose", "Table 3", _read(plain, "gain"))
    yield _sizes(controls)
    yield _real_models(controls)
    text = "EXP/PE/PS-PM are above RND-PM, a random choice"
    yield judge(text, OURS, _read(plain, "over_blind"))
    yield judge("PE is more accurate than PS", OURS, _read(rows, "over_encoding", -1.0))
    text = "PE as printed is more accurate than PE that keeps its promise"
    yield judge(text, OURS, _read(rows, "over_honest"))


def _one_epoch(rows: Sequence[Row]) -> Iterator[Claim | None]:
    yield judge("two stages are above PM at every epsilon", "Figure 2 (f)", _read(rows, "gain"))


def _two_epochs(rows: Sequence[Row]) -> Iterator[Claim | None]:
    text = "two stages are above PM at every epsilon with two epochs, too"
    yield judge(text, "Figure 2 (g)", _read(rows, "gain"))
    text = "keeping what was not sent raises accuracy"
    yield judge(text, "Figure 2 (g)", _read(rows, "by_keeping"))


def _others(rows: Sequence[Row]) -> Iterator[Claim | None]:
    pairs = [row for row in rows if row["arm"].startswith("PS-")]
    text = "PS before PM, HM and Duchi lowers the error"
    yield judge(text, "Figure 2 (h)", _read(pairs, "gain"))
    beside = [first(rows, arm=r["arm"].removeprefix("PS-"), table=r["table"]) for r in pairs]
    text = "PS before PM, HM and Duchi lowers the standard deviation"
    yield _deviations(text, "Figure 2 (h)", pairs, beside)
    projected = _read(where(rows, arm="PM-RP"), "gain", -1.0)
    yield judge("PS-PM is more accurate than PM-RP", "Figure 2 (i)", projected)


def _choices(rows: Sequence[Row]) -> Iterator[Claim | None]:
    """Values are exact here: what is compared is who chooses the coordinate."""
    chosen = [row for row in rows if row["arm"] in HONEST]
    largest = max(row["epsilon"] for row in chosen)
    ends = [row for row in chosen if row["epsilon"] == largest and row["steps"] is None]
    for steps, when in ((EARLY, f"after {EARLY} steps"), (None, "at the end")):
        top = where(rows, arm="NP-K", steps=steps)
        text = f"NP-K, the largest coordinate, is above NP-RS, a random one, {when}"
        yield judge(text, "Figure 2 (a), (b)", _read(top, "gain"))
        looking = where(chosen, epsilon=4.0, steps=steps)
        text = f"EXP/PE/PS with an epsilon of 4 are above NP-RS {when}"
        yield judge(text, "Figure 2 (a), (b)", _read(looking, "gain"))
    text = "a choice with more epsilon is more accurate: the most above the least"
    yield judge(text, "Figure 2 (c), (d)", _read(ends, "over_least"))
    yield judge("PE and PS are above EXP", "Figure 2 (c), (d)", _read(ends, "over_exponential"))


def _kept(rows: Sequence[Row]) -> Iterator[Claim | None]:
    text = "keeping gradients without the rate is more accurate, two epochs"
    yield judge(text, "Figure 3 (a)", _read(rows, "by_plain"))


def _shares(rows: Sequence[Row]) -> Iterator[Claim | None]:
    first_share = rows[0]["share"]
    others = [row for row in rows if row["share"] != first_share]
    text = f"mu = {first_share:g} is above every larger one; own learning rates"
    yield judge(text, "Figure 3 (b)", _read(others, "under_first"))
    text = f"mu = {first_share:g} is above PM at both epsilons; own learning rates"
    yield judge(text, "Figure 3 (b)", _read(where(rows, share=first_share), "gain"))


def _batches(rows: Sequence[Row]) -> Iterator[Claim | None]:
    by_rule = [row for row in rows if row["arm"] != "PM"]
    text = "with its rule for mu FedSel is above PM at every batch size; own learning rates"
    yield judge(text, "Figure 3 (c)", _read(by_rule, "gain"))
    text = "and has a smaller standard deviation; own learning rates"
    beside = [first(rows, arm="PM", batch=row["batch"]) for row in by_rule]
    yield _deviations(text, "Figure 3 (c)", by_rule, beside)


def _times(rows: Sequence[Row]) -> Iterator[Claim | None]:
    """Ratios of times, less one: measurement by measurement."""
    gains = []
    for row in where(rows, arm="PS"):
        for name in ("EXP", "PE"):
            other = first(rows, arm=name, dimension=row["dimension"])["seconds"]
            ratios = [a / b - 1.0 for a, b in zip(other, row["seconds"], strict=True)]
            gains.append(Interval.of(ratios))
    yield judge("a choice by PS takes less time than by EXP or PE", "Figure 2 (e)", gains)


def _theory(figures: Figures) -> Iterator[Claim]:
    """Yield what is computed."""
    found = figures["theorem2"]
    text = "Var[alpha s*] is at most Var[(alpha s)*], of PM at 48 settings"
    seen = f"{found['least']:.4g} to {found['largest']:.4g} times"
    yield Claim(text, "Theorem 2", fact(found["largest"] <= 1.0), seen)
    staged = [row for row in figures["noise"] if row["arm"] != "PM"]
    flat = where(figures["noise"], arm="PM")
    ends = [(where(staged, dimension=row["dimension"]), row) for row in (flat[0], flat[-1])]
    (few, least), (many, most) = ends
    falls = all(a["noise"] > b["noise"] for a, b in zip(few, many, strict=True))
    places = f"from d = {least['dimension']:,} to {most['dimension']:,}"
    text = "noise of two stages falls with d, that of PM grows"
    seen = f"{places}: {few[-1]['noise']:.3g} to {many[-1]['noise']:.3g} (PS)"
    seen += f", {least['noise']:.3g} to {most['noise']:.3g} (PM)"
    yield Claim(text, "Theorem 3, Table 1", fact(falls and most["noise"] > least["noise"]), seen)
    text = "noise beside what is left of the gradient is smaller than PM's"
    worst = [
        row["relative"] / first(flat, dimension=row["dimension"])["relative"] for row in staged
    ]
    seen = f"{min(worst):.3g} to {max(worst):.3g} times PM's: what is sent shrinks by d as well"
    yield Claim(text, OURS, fact(max(worst) < 1.0), seen)


def judge(statement: str, source: str, gains: Sequence[Interval]) -> Claim | None:
    """Return the claim "more, in every case"; None where there is no case."""
    if not gains:
        return None
    more = sum(gain.above(0.0) for gain in gains)
    against = sum(gain.below(NEGLIGIBLE, DOUBT / len(gains)) for gain in gains)
    return counted(statement, source, len(gains), more, against)


def counted(statement: str, source: str, cases: int, more: int, against: int) -> Claim:
    """Return what so many cases for and against a claim come to."""
    # A gain may be surely above zero and surely negligible: that is against it.
    verdict = decided(more == cases > 0 == against, against > 0)
    seen = f"{cases} cases, {more} for it, {against} against"
    return Claim(statement, source, verdict, seen, tolerance=NEGLIGIBLE)


def _deviations(text: str, source: str, rows: Sequence[Row], others: Sequence[Row]) -> Claim:
    """Compare standard deviations over all runs by the ratio of variances (F test)."""
    less = more = 0
    for row, other in zip(rows, others, strict=True):
        ours, theirs, freedom = row["deviation"] ** 2, other["deviation"] ** 2, row["runs"] - 1
        less += ours * float(stats.f.isf(0.5 * DOUBT, freedom, freedom)) < theirs
        shared = float(stats.f.isf(0.5 * DOUBT / len(rows), freedom, freedom))
        more += ours > theirs * shared
    return counted(text, source, len(rows), less, more)


def _sizes(controls: Sequence[Row]) -> Claim:
    """Compare gains with the paper's figures, with the doubt shared out among the cases."""
    rows = [row for row in controls if "paper_gain" in row]
    inside = sum(
        abs(gain.mean - row["paper_gain"]) <= gain.half(DOUBT / len(rows))
        for gain, row in zip(_read(rows, "gain"), rows, strict=True)
    )
    text = "the gains are the printed ones"
    return counted(text, "Table 3", len(rows), inside, len(rows) - inside)


def _real_models(controls: Sequence[Row]) -> Claim:
    """Ask what the paper does not: is what gains a model, or a constant answer?"""
    found = _read(controls, "balanced")
    real = sum(each.above(CONSTANT) for each in found)
    constant = sum(each.below(CONSTANT, DOUBT / len(found)) for each in found)
    text = "EXP/PE/PS-PM-C are more than constant answers"
    return counted(text, OURS, len(found), real, constant)


def _read(rows: Iterable[Row], key: str, sign: float = 1.0) -> list[Interval]:
    found = [row[key] for row in rows if key in row]
    return [Interval(sign * each["mean"], each["error"], each["count"]) for each in found]
