"""An account as a table and lines for people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from rich.console import Console

from simulations.common.tables import show_rows
from simulations.learning.records import flat
from simulations.reports.account.ledger import LedgerAccount
from simulations.reports.account.mechanism import MechanismAccount

_SAID_ELSEWHERE: Final = frozenset(
    "by_accountant reasons route adjacency delta winner gaussian zcdp insecure_seed protects sybil "
    "without_members dp_accounting guaranteed guaranteed_at_delta guaranteed_but_for".split()
)

_WORDS: Final = {
    "client": "client that has spent most",
    "releases": "releases that it took part in",
    "entries": "entries of the ledger",
    "goal.epsilon": "goal: epsilon",
    "goal.delta": "goal: delta",
    "goal.delta0": "goal: of delta, for each release outside its Gaussian bound",
    "goal.aggregation": "goal: of delta, for failures of secure aggregation",
    "goal.moment_order": "goal: order of the moments that count it",
    "goal.rounds": "goal: rounds of a client, at most",
}
"""What figures are called that do not say it themselves."""


def print_account(account: MechanismAccount | LedgerAccount, console: Console) -> None:
    """Print what a mechanism costs, or what a ledger adds up to."""
    if isinstance(account, LedgerAccount) and account.warning:
        console.print(account.warning, style="bold", highlight=False, markup=False)
    rows = _ledger_rows(account) if isinstance(account, LedgerAccount) else _bounds(account)
    cells = [(name, _readable(value), remark) for name, value, remark in rows]
    show_rows("privacy account", ("accountant", "epsilon", "remark"), cells, console)
    if pair := account.pair:
        console.print(
            f"except with probability {pair.failure:.6g}, {pair.mu:.6g}-GDP; "
            f"that is {pair.failure:.3g}-approximate "
            f"{pair.rho:.6g}-zCDP",
            highlight=False,
        )
    figures = account.as_json()
    said = _SAID_ELSEWHERE | ({"epsilon"} if isinstance(account, LedgerAccount) else set())
    details = [
        (_WORDS.get(name, name.replace("_", " ")), _readable(figure))
        for name, figure in flat(figures).items()
        if name.partition(".")[0] not in said
    ]
    show_rows("", ("figure", "value"), details, console)
    console.print(f"delta {account.delta:g}; {figures['adjacency']}", highlight=False)
    if isinstance(account, LedgerAccount) and account.local:
        console.print("against everybody who sees the reports: nobody else's noise is relied on")
    else:
        console.print("against the server, which knows the cohort: no amplification by sampling")


def _bounds(account: MechanismAccount) -> Iterator[tuple[str, float, str]]:
    """Name, epsilon and remark of every accountant."""
    report = account.report
    for name, epsilon in report.by_accountant.items():
        remark = "the smallest bound" if name == report.winner else report.reasons.get(name, "")
        if name == "gaussian_reference":
            remark = "a yardstick, not a bound"
        yield name, epsilon, remark


def _ledger_rows(account: LedgerAccount) -> Iterator[tuple[str, float, str]]:
    """What a ledger adds up to: name, epsilon and remark; the guarantee first, if there is one."""
    if account.local:
        yield "local", account.epsilon, account.route
        return
    spent = "no goal: holds if everything was fixed beforehand"
    if guarantee := account.guarantee:
        words = (
            f"guaranteed at delta {guarantee.delta:g} against the server, whenever the run stops"
        )
        if guarantee.but_for:
            words += f", but for {guarantee.but_for}"
        yield "goal", guarantee.epsilon, words
        spent = f"spent so far, at delta {account.delta:g}"
    elif account.insecure_seed is not None:
        spent = "with secrets that nobody knows, which these are not"
    elif account.goal is not None:
        spent = "an estimate, since the goal is about zero-out"
    yield "replay", account.epsilon, f"{spent}; {account.route}"
    if guarantee and account.at_any_stop is not None:
        words = f"so far, at delta {guarantee.delta:g}, and holds also if the run stops by results"
        yield "odometer", account.at_any_stop, words
    if account.dp_accounting is not None:
        words = "its composition of Gaussians, under REPLACE_SPECIAL"
        yield "dp-accounting", account.dp_accounting, f"{spent}; {words}"
    if account.without_members is not None:
        words = "against a server that knows all members' noise (honest clients' noise only)"
        yield "replay", account.without_members, f"{spent}; {words}"
    words = "against a server that made up all other clients (own noise only)"
    yield "replay", account.sybil, f"{spent}; {words}"


def _readable(value: object) -> str:
    if value == "inf" or value == math.inf:
        return "infinite"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
