"""What the paper claims of FedSel, and what the intervals say to it.

A claim about all cases is reproduced if every case is above zero at 95 %. It is not reproduced if
some case is surely not, where the doubt of 5 % is shared out among the cases. Else not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

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
from simulations.reproduce.fedsel.arms import HONEST

CONSTANT: Final = 0.51
"""Up to this balanced accuracy a model is called a constant answer."""

NEGLIGIBLE: Final = 5e-4
"""A difference in accuracy that is surely below this is none: a twentieth of a point."""

Row = Mapping[str, Any]


def claims(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every claim with its verdict, each made from the intervals alone."""
    found = [
        *_by_mode(parts["table3"], _table3),
        *_by_mode(parts["figure2f"], _one_epoch),
        *_by_mode(parts["figure2g"], _two_epochs),
        *_by_mode(parts["figure2hi"], _others),
    ]
    return [claim.figures() for claim in found]


def _by_mode(
    rows: Sequence[Row], about: Callable[[Sequence[Row], str], Iterable[Claim | None]]
) -> list[Claim]:
    """Return the claims about each way to choose learning rates; None is nothing to say."""
    found: list[Claim | None] = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        rate = "own learning rates" if mode == "own" else f"learning rate {mode}"
        found += about([row for row in rows if row["mode"] == mode], rate)
    return [claim for claim in found if claim is not None]


def _table3(rows: Sequence[Row], rate: str) -> list[Claim | None]:
    honest = [row for row in rows if _keeps_its_promise(row)]
    controls = [row for row in honest if row["arm"].endswith("-C")]
    plain = [row for row in honest if not row["arm"].endswith("-C")]

    def more(text: str, source: str, gains: Sequence[Interval]) -> Claim | None:
        return judge(f"{text}; {rate}", source, gains)

    return [
        more("EXP/PE/PS-PM-C gain accuracy over PM", "Table 3", _read(controls, "gain")),
        more("what they gain is more than what they lose", "Table 3", _read(plain, "gain")),
        _sizes(controls, rate),
        _real_models(controls, rate),
        more("EXP/PE/PS-PM are above RND-PM, a random choice", OURS, _read(plain, "over_blind")),
        more("PE is more accurate than PS", "Table 3", _negated(rows, "over_encoding")),
        more(
            "PE as printed is more accurate than PE that keeps its promise",
            OURS,
            _read(rows, "over_honest"),
        ),
    ]


def _one_epoch(rows: Sequence[Row], rate: str) -> list[Claim | None]:
    text = f"two stages are above PM at every epsilon; {rate}"
    return [judge(text, "Figure 2 (f)", _read(rows, "gain"))]


def _two_epochs(rows: Sequence[Row], rate: str) -> list[Claim | None]:
    text = f"two stages are above PM at every epsilon with two epochs, too; {rate}"
    kept = f"keeping what was not sent raises accuracy; {rate}"
    return [
        judge(text, "Figure 2 (g)", _read(rows, "gain")),
        judge(kept, "Figure 2 (g)", _read(rows, "by_keeping")),
    ]


def _others(rows: Sequence[Row], rate: str) -> list[Claim | None]:
    pairs = [row for row in rows if row["arm"].startswith("PS-")]
    projected = _negated([row for row in rows if row["arm"] == "PM-RP"], "gain")
    text = f"PS before PM, HM and Duchi lowers the error; {rate}"
    return [
        judge(text, "Figure 2 (h)", _read(pairs, "gain")),
        _deviations(rows, pairs, rate),
        judge(f"PS-PM is more accurate than PM-RP; {rate}", "Figure 2 (i)", projected),
    ]


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
    return Claim(
        statement=statement,
        source=source,
        tolerance=NEGLIGIBLE,
        verdict=NOT_REPRODUCED if against else undecided,
        seen=f"{cases} cases, {more} for it, {against} against",
    )


def _deviations(rows: Sequence[Row], pairs: Sequence[Row], rate: str) -> Claim:
    """Compare standard deviations over all runs by the ratio of variances (F test)."""
    less = more = 0
    for row in pairs:
        values = row["arm"].removeprefix("PS-")
        other = next(r for r in rows if r["arm"] == values and r["table"] == row["table"])
        ours, theirs, freedom = row["deviation"] ** 2, other["deviation"] ** 2, row["runs"] - 1
        less += ours * float(stats.f.isf(0.5 * DOUBT, freedom, freedom)) < theirs
        shared = float(stats.f.isf(0.5 * DOUBT / len(pairs), freedom, freedom))
        more += ours > theirs * shared
    text = f"PS before PM, HM and Duchi lowers the standard deviation; {rate}"
    return counted(text, "Figure 2 (h)", len(pairs), less, more)


def _sizes(controls: Sequence[Row], rate: str) -> Claim:
    """Compare gains with the paper's figures, with the doubt shared out among the cases."""
    rows = [row for row in controls if "paper_gain" in row]
    inside = sum(
        abs(gain.mean - row["paper_gain"]) <= gain.half(DOUBT / len(rows))
        for gain, row in zip(_read(rows, "gain"), rows, strict=True)
    )
    text = f"the gains are the printed ones; {rate}"
    return counted(text, "Table 3", len(rows), inside, len(rows) - inside)


def _real_models(controls: Sequence[Row], rate: str) -> Claim:
    """Ask what the paper does not: is what gains a model, or a constant answer?"""
    found = _read(controls, "balanced")
    real = sum(each.above(CONSTANT) for each in found)
    constant = sum(each.below(CONSTANT, DOUBT / len(found)) for each in found)
    text = f"EXP/PE/PS-PM-C are more than constant answers; {rate}"
    return counted(text, OURS, len(found), real, constant)


def _keeps_its_promise(row: Row) -> bool:
    """Say whether an arm has one of the private selectors, by its name."""
    return str(row["arm"]).removesuffix("-C") in [f"{selection}-PM" for selection in HONEST]


def _read(rows: Iterable[Row], key: str, sign: float = 1.0) -> list[Interval]:
    """Return the intervals of the rows that have one."""
    found = [row[key] for row in rows if key in row]
    return [Interval(sign * each["mean"], each["error"], each["count"]) for each in found]


def _negated(rows: Iterable[Row], key: str) -> list[Interval]:
    return _read(rows, key, -1.0)
