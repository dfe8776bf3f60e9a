"""What the paper claims of FedSel, and what the intervals say to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from scipy import stats

from simulations.reproduce.fedsel.arms import HONEST
from simulations.reproduce.fedsel.intervals import (
    DOUBT,
    Interval,
    judge,
    read_interval,
    verdict,
)

CONSTANT: Final = 0.51
"""Up to this balanced accuracy a model is called a constant answer."""


OURS: Final = "Not in the paper: "


def claims(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every claim with its verdict, each made from the intervals alone."""
    table3, found = parts["table3"], []

    def add(claim: str, mode: str, gains: Sequence[Interval]) -> None:
        if gains:
            found.append({"claim": claim, "mode": mode, **judge(gains)})

    for mode in dict.fromkeys(row["mode"] for row in table3):
        rows = [row for row in table3 if row["mode"] == mode]
        honest = [row for row in rows if _keeps_its_promise(row)]
        controls = [row for row in honest if row["arm"].endswith("-C")]
        plain = [row for row in honest if not row["arm"].endswith("-C")]
        add("Table 3: EXP/PE/PS-PM-C gain accuracy over PM", mode, _gains(controls))
        add("Table 3: what they gain is more than what they lose", mode, _gains(plain))
        found.append({"mode": mode, **_sizes(controls)})
        found.append({"mode": mode, **_real_models(controls)})
        ahead = [read_interval(row["over_blind"]) for row in plain]
        add(OURS + "EXP/PE/PS-PM are above RND-PM, a random choice", mode, ahead)
        reversed_ = [_negated(row["over_encoding"]) for row in rows if "over_encoding" in row]
        add("Table 3: PE is more accurate than PS", mode, reversed_)
        printed = [read_interval(row["over_honest"]) for row in rows if "over_honest" in row]
        add(
            OURS + "PE as printed is more accurate than PE that keeps its promise",
            mode,
            printed,
        )
    found += _sweep_claims(parts)
    found += _other_claims(parts["figure2hi"])
    return found


def _sweep_claims(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for part, text in (
        ("figure2f", "Figure 2 (f): two stages are above PM at every epsilon"),
        ("figure2g", "Figure 2 (g): with two epochs, too"),
    ):
        for mode in dict.fromkeys(row["mode"] for row in parts[part]):
            rows = [row for row in parts[part] if row["mode"] == mode and "gain" in row]
            found.append({"claim": text, "mode": mode, **judge(_gains(rows))})
            kept = [read_interval(row["by_keeping"]) for row in rows if "by_keeping" in row]
            if kept:
                text_kept = "Figure 2 (g): keeping what was not sent raises accuracy"
                found.append({"claim": text_kept, "mode": mode, **judge(kept)})
    return found


def _other_claims(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for mode in dict.fromkeys(row["mode"] for row in rows):
        here = [row for row in rows if row["mode"] == mode]
        pairs = [row for row in here if row["arm"].startswith("PS-")]
        text = "Figure 2 (h): PS before PM, HM and Duchi lowers the error"
        found.append({"claim": text, "mode": mode, **judge(_gains(pairs))})
        found.append({"mode": mode, **_deviations(here, pairs)})
        projected = [_negated(row["gain"]) for row in here if row["arm"] == "PM-RP"]
        text = "Figure 2 (i): PS-PM is more accurate than PM-RP"
        found.append({"claim": text, "mode": mode, **judge(projected)})
    return found


def _deviations(
    rows: Sequence[Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Compare standard deviations over all runs by the ratio of variances (F test)."""
    less = more = 0
    for row in pairs:
        values = row["arm"].removeprefix("PS-")
        other = next(r for r in rows if r["arm"] == values and r["table"] == row["table"])
        ours, theirs, freedom = row["deviation"] ** 2, other["deviation"] ** 2, row["runs"] - 1
        less += ours * float(stats.f.isf(0.5 * DOUBT, freedom, freedom)) < theirs
        shared = float(stats.f.isf(0.5 * DOUBT / len(pairs), freedom, freedom))
        more += ours > theirs * shared
    claim = "Figure 2 (h): and the standard deviation"
    return {"claim": claim, **verdict(len(pairs), less, more)}


def _sizes(controls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare gains with the paper's figures, with the doubt shared out among the cases."""
    rows = [row for row in controls if "paper_gain" in row]
    gains = [read_interval(row["gain"]) for row in rows]
    inside = sum(
        abs(gain.mean - row["paper_gain"]) <= gain.half(DOUBT / len(rows))
        for gain, row in zip(gains, rows, strict=True)
    )
    claim = "Table 3: the gains are the printed ones"
    return {"claim": claim, **verdict(len(rows), inside, len(rows) - inside)}


def _real_models(controls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Ask what the paper does not: is what gains a model, or a constant answer?"""
    found = [read_interval(row["balanced"]) for row in controls]
    real = sum(each.above(CONSTANT) for each in found)
    constant = sum(each.below(CONSTANT, DOUBT / len(found)) for each in found)
    claim = OURS + "EXP/PE/PS-PM-C are more than constant answers"
    return {"claim": claim, **verdict(len(found), real, constant)}


def _keeps_its_promise(row: Mapping[str, Any]) -> bool:
    """Say whether an arm has one of the private selectors, by its name."""
    return str(row["arm"]).removesuffix("-C") in [f"{selection}-PM" for selection in HONEST]


def _gains(rows: Iterable[Mapping[str, Any]]) -> list[Interval]:
    return [read_interval(row["gain"]) for row in rows]


def _negated(figures: Mapping[str, Any]) -> Interval:
    return Interval(-figures["mean"], figures["error"], figures["count"])
