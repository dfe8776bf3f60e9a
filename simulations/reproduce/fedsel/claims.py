"""What the paper claims of FedSel, and what the intervals say to it.

A claim about all cases is reproduced if every case is above zero at 95 %. It is not reproduced if
some case is surely not, where the doubt of 5 % is shared out among the cases. Else not decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from scipy import stats

from simulations.reproduce.engine.claims import (
    DOUBT,
    NOT_REPRODUCED,
    OURS,
    REPRODUCED,
    UNDECIDED,
    Claim,
    Interval,
)
from simulations.reproduce.engine.rows import Figures, Row, distinct, first, where
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
    }
    for part, about in parts.items():
        for mode in distinct(figures[part], "mode"):
            rate = "own learning rates" if mode == "own" else f"learning rate {mode}"
            for claim in about(where(figures[part], mode=mode)):
                if claim is not None:
                    yield replace(claim, statement=f"{claim.statement}; {rate}")


def _table3(rows: Sequence[Row]) -> Iterator[Claim | None]:
    names = [f"{selection}-PM" for selection in HONEST]
    controls = [row for row in rows if row["arm"] in [f"{name}-C" for name in names]]
    plain = [row for row in rows if row["arm"] in names]
    text = "EXP/PE/PS-PM-C gain accuracy over PM"
    yield judge(text, "Table 3", _read(controls, "gain"))
    text = "what they gain is more than what they lose"
    yield judge(text, "Table 3", _read(plain, "gain"))
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
    yield _deviations(rows, pairs)
    projected = _read(where(rows, arm="PM-RP"), "gain", -1.0)
    yield judge("PS-PM is more accurate than PM-RP", "Figure 2 (i)", projected)


def judge(statement: str, source: str, gains: Sequence[Interval]) -> Claim | None:
    """Return the claim "more, in every case"; None where there is no case."""
    if not gains:
        return None
    more = sum(gain.above(0.0) for gain in gains)
    against = sum(gain.below(NEGLIGIBLE, DOUBT / len(gains)) for gain in gains)
    return counted(statement, source, len(gains), more, against)


def counted(statement: str, source: str, cases: int, more: int, against: int) -> Claim:
    """Return what so many cases for and against a claim come to."""
    undecided = REPRODUCED if cases and more == cases else UNDECIDED
    verdict = NOT_REPRODUCED if against else undecided
    seen = f"{cases} cases, {more} for it, {against} against"
    return Claim(statement, source, verdict, seen, tolerance=NEGLIGIBLE)


def _deviations(rows: Sequence[Row], pairs: Sequence[Row]) -> Claim:
    """Compare standard deviations over all runs by the ratio of variances (F test)."""
    less = more = 0
    for row in pairs:
        other = first(rows, arm=row["arm"].removeprefix("PS-"), table=row["table"])
        ours, theirs, freedom = row["deviation"] ** 2, other["deviation"] ** 2, row["runs"] - 1
        less += ours * float(stats.f.isf(0.5 * DOUBT, freedom, freedom)) < theirs
        shared = float(stats.f.isf(0.5 * DOUBT / len(pairs), freedom, freedom))
        more += ours > theirs * shared
    text = "PS before PM, HM and Duchi lowers the standard deviation"
    return counted(text, "Figure 2 (h)", len(pairs), less, more)


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
