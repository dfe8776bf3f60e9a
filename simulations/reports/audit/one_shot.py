"""Small one-shot rounds as checks: all schedules of a server, and the small cases of the page."""

from __future__ import annotations

from typing import Final

from simulations.audits.base import Check
from simulations.reports.audit.span import mutant_figures, product_figures
from simulations.threats.one_shot.run_schedules import RunRules, SchedulesReport, run_schedules
from simulations.threats.one_shot.weak import (
    ForgetsLists,
    ForgetsRounds,
    SignsLate,
    TakesAnyTerms,
)
from simulations.threats.span.one_shot import OneShotMutant, OneShotReport, one_shot_span
from simulations.threats.span.small_cases import rules, signed_set, signed_set_committees

SHARES_ID: Final = "one-shot shares"
RUNS_ID: Final = "returned runs"

WEAK_RUNS: Final = {
    "quorum_one_lower": RunRules(fewer_signatures=1),
    "late_signatures": RunRules(SignsLate),
    "forgotten_lists": RunRules(ForgetsLists),
    "forgotten_rounds": RunRules(ForgetsRounds),
    "other_terms": RunRules(TakesAnyTerms),
}
"""Members that lack a rule, by its name."""


def one_shot_id(clients: int, members: int) -> str:
    """Return "one-shot span 3 x 4"."""
    return f"one-shot span {clients} x {members}"


def check_one_shot_span(clients: int, members: int) -> Check:
    """Go through all schedules of small one-shot rounds, of the product and of mutants."""
    mutants = [
        mutant
        for mutant in OneShotMutant
        if mutant.smallest[0] <= clients and mutant.smallest[1] <= members
    ]
    found = one_shot_span(clients, members)
    return Check.of(
        one_shot_id(clients, members),
        f"No schedule of a one-shot round of {clients} clients, {members} members to a committee, "
        "yields more than one sum (twins: parties that lack one rule each)",
        product_figures(found, "\n".join(found.broken)),
        mutant_figures([_ended(one_shot_span(clients, members, mutant)) for mutant in mutants]),
    )


def check_shares(largest: int) -> Check:
    """Small committees, by elimination: what is learned with the protocol's rules, and without."""
    enough = fewer = right = more = 0
    for committee in signed_set_committees(largest):
        for learned, plain in signed_set(committee):
            if committee.randomness >= committee.corrupt:
                enough += 1
                right += learned == committee.secrets and plain
            else:
                fewer += 1
                more += learned > committee.secrets
    table = rules()
    kept = sum(rule.with_rule == rule.promised for rule in table)
    broken = sum(rule.learned > rule.promised for rule in table)
    return Check.of(
        SHARES_ID,
        "Members' shares give the sums of one signed set and nothing else "
        "(twins: fewer random coefficients than corrupt members; one rule less)",
        {
            "committees": enough,
            "exactly_the_sums": right,
            "rules": len(table),
            "rules_that_suffice": kept,
            "rejected": right < enough or kept < len(table),
        },
        {
            "committees": fewer,
            "more_than_the_sums": more,
            "rules_missing": len(table),
            "more_than_promised": broken,
            "rejected": more == fewer and broken == len(table),
        },
    )


def check_returned_runs(schedules: int, seed: int) -> Check:
    """Draw schedules of runs whose noise comes back, for the product's memories and for others."""
    found = run_schedules(schedules, seed)
    weak = {name: run_schedules(schedules, seed, rules) for name, rules in WEAK_RUNS.items()}
    caught = sum(report.broken > 0 for report in weak.values())
    return Check.of(
        RUNS_ID,
        "No schedule of rounds opens sums with less noise than their records say "
        "(twins: members that lack one rule each)",
        {
            "schedules": schedules,
            "with_several_sums": found.several,
            "broken_schedules": found.broken,
            "first_flaw": _most(found),
            "rejected": found.broken > 0,
        },
        {
            "mutants": len(weak),
            "caught": caught,
            **{name: f"{each.broken:,} of {each.schedules:,}" for name, each in weak.items()},
            "rejected": caught == len(weak),
        },
    )


def _most(report: SchedulesReport) -> str:
    return report.flaws.most_common(1)[0][0] if report.flaws else ""


def _ended(report: OneShotReport) -> tuple[OneShotReport, str]:
    """A report, and how it ended in words."""
    return report, report.broken[-1] if report.broken else f"{report.schedules:,} schedules held"
