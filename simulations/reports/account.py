"""The body of `veilsum account`.

It says what a mechanism costs, how much noise a target needs, and what a ledger adds up to. Figures
go out as plain values; `simulations.commands.account` prints them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dp import (
    Adjacency,
    BinomialRelease,
    DiscreteGaussianRelease,
    DominationAccountant,
    Event,
    FailingGaussian,
    LocalAccountant,
    SkellamRelease,
    UnsupportedEventError,
    coins_for_epsilon,
    epsilons,
    replace_one,
    variance_for_epsilon,
)
from dp.accounting.report import json_number
from dp.audit import (
    ReplayedEntry,
    composed_epsilon,
    composed_moments,
    composed_mu,
    flattened,
    read_ledger,
    release_moment,
    release_mu,
    replaced,
    replayed_epsilon,
    replayed_gaussian,
    without_peers,
)
from dp.clipping import MAX_L2_BOUND
from dp.records import decode_event
from protocol.errors import ConfigurationError
from protocol.training.records import listed_cohort
from simulations.reports.account_export import gaussian_figures

MECHANISMS = ("binomial", "skellam", "discrete_gaussian")
EVERYBODY = "every client"
REPLAY_ROUTE = "independent replay: SciPy tails, the definition at every vertex"
MOMENTS_ROUTE = "independent replay: SciPy tails, truncated moments at every shift"
ADJACENCIES = {"zero-out": Adjacency.ZERO_OUT, "replace-one": Adjacency.REPLACE_ONE}
"""What epsilons may be about, by the names of the command line."""

REPLAY_ROOM = 1.0 + 1e-5
"""Relative room for a replay, which rounds to the nearest: at the goal itself, and in an export."""

RING_FAILURES = "failures of secure aggregation"
"""What a guarantee leaves out where the goal set nothing aside for it, as those of version 0.1."""

LOCAL_ROUTE = "pure epsilons of one client's reports, composed at delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked about a mechanism; `None` where an option was not given.

    Attributes:
        mechanism: one of `MECHANISMS`.
        coins: N of the sum (binomial).
        variance: of the sum (skellam), or one client's parameter (discrete_gaussian).
        clients: honest contributors (discrete_gaussian).
        l2, linf, dim: sensitivities in integer units, and coordinates.
        delta, rounds: of the whole run, and its releases.
        target_epsilon: solve for coins or variance instead.
        adjacency: zero-out, or replace-one.
    """

    mechanism: str
    coins: int | None
    variance: float | None
    clients: int | None
    l2: float
    linf: int
    dim: int
    delta: float
    rounds: int
    target_epsilon: float | None
    adjacency: Adjacency = Adjacency.ZERO_OUT


def account_mechanism(question: Question) -> dict[str, Any]:
    """Epsilon of a mechanism by every accountant, after solving for the noise if that was asked.

    Raises:
        ConfigurationError: an option is missing, out of place or out of range.
    """
    _check(question)
    try:
        noise, per = _noise(question)
        event = _event(question, noise)
        report = epsilons([(event, question.rounds)], question.delta, question.adjacency)
        pair = _dominating(event, question)
    except ValueError as error:
        raise ConfigurationError(question.mechanism, str(error), "see --help") from error
    name = "coins" if question.mechanism == "binomial" else "variance"
    return {
        **report.as_json(),
        "mechanism": question.mechanism,
        name: noise,
        f"{name}_are" if name == "coins" else f"{name}_is": per,
        "rounds": question.rounds,
        **gaussian_figures(pair),
        **({} if question.clients is None else {"clients": question.clients}),
    }


def _dominating(event: Event, question: Question) -> FailingGaussian | None:
    """The open failure, else Gaussian, that dominates all rounds; None if there is none."""
    accountant = DominationAccountant()
    asked = replace_one(event) if question.adjacency is Adjacency.REPLACE_ONE else event
    if not accountant.supports(asked):
        return None
    accountant.compose(asked, question.rounds)
    return accountant.gaussian(question.delta)


def adjacency_of(name: str) -> Adjacency:
    """The adjacency of a name on the command line.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if name not in ADJACENCIES:
        raise ConfigurationError("adjacency", f"value {name!r}", ", ".join(ADJACENCIES))
    return ADJACENCIES[name]


def _check(question: Question) -> None:
    """Refuse options that make no sense, each in its own words."""
    if question.mechanism not in MECHANISMS:
        raise ConfigurationError(
            "mechanism", f"value {question.mechanism!r}", ", ".join(MECHANISMS)
        )
    check_delta(question.delta)
    # Noise is solved for up to what a vector may have; written so that NaN fails the test.
    if question.target_epsilon is not None and not 0.0 <= question.l2 <= MAX_L2_BOUND:
        raise ConfigurationError("l2", f"value {question.l2}", f"in 0 .. {MAX_L2_BOUND:g}")
    if question.rounds < 1:
        raise ConfigurationError("rounds", f"value {question.rounds}", "at least 1")
    discrete = question.mechanism == "discrete_gaussian"
    if discrete and (question.clients is None or question.clients < 1):
        raise ConfigurationError("clients", f"value {question.clients}", "at least 1")
    if not discrete and question.clients is not None:
        raise ConfigurationError("clients", "given", "only with --mechanism discrete_gaussian")
    _check_noise(question)


def check_delta(delta: float) -> None:
    """Raise unless delta lies strictly between 0 and 1."""
    if not 0.0 < delta < 1.0:
        raise ConfigurationError("delta", f"value {delta}", "strictly between 0 and 1")


def _check_noise(question: Question) -> None:
    """Refuse the wrong kind of noise, too much of it, or none."""
    coins = question.mechanism == "binomial"
    wanted, other = ("coins", "variance") if coins else ("variance", "coins")
    if getattr(question, other) is not None:
        raise ConfigurationError(other, "given", f"--{wanted} with {question.mechanism}")
    given = getattr(question, wanted)
    if (given is None) == (question.target_epsilon is None):
        valid = f"either --{wanted} or --target-epsilon"
        raise ConfigurationError(wanted, "not given" if given is None else "given as well", valid)
    if coins and given is not None and (given < 0 or given % 2):
        problem = f"value {given} is {'odd' if given % 2 else 'negative'}"
        raise ConfigurationError("coins", problem, "an even number of at least 0")
    if not coins and given is not None and not 0.0 <= given < math.inf:
        raise ConfigurationError("variance", f"value {given}", "finite and not negative")


def _noise(question: Question) -> tuple[float, str]:
    """The noise, given or solved for, and what it is an amount of."""
    if question.mechanism == "binomial":
        coins = _solved(question) if question.coins is None else question.coins
        return coins, "per coordinate, of all honest surviving clients together"
    value = _solved(question) if question.variance is None else question.variance
    if question.mechanism == "skellam":
        return value, "of a coordinate, of all honest surviving clients together"
    return value, "the parameter of one client's discrete Gaussian"


def _solved(question: Question) -> float:
    """The least coins or variance that meets the target."""
    target = math.nan if question.target_epsilon is None else question.target_epsilon
    factor = 2 if question.adjacency is Adjacency.REPLACE_ONE else 1
    shape = (question.delta, factor * question.l2, factor * question.linf, question.rounds)
    if question.mechanism == "binomial":
        return coins_for_epsilon(target, *shape)
    return variance_for_epsilon(target, *shape, contributors=question.clients)


def _event(
    question: Question, noise: float
) -> BinomialRelease | SkellamRelease | DiscreteGaussianRelease:
    vector = (question.l2, question.linf, question.dim)
    if question.mechanism == "binomial":
        return BinomialRelease(int(noise), *vector)
    if question.mechanism == "skellam":
        return SkellamRelease(noise, *vector)
    return DiscreteGaussianRelease(noise, question.clients or 0, *vector)


def account_ledger(
    path: Path, delta: float | None, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> dict[str, Any]:
    """What a ledger adds up to, by an independent reader and, but for local reports, route.

    Where entries name their cohort, a client pays for its own rounds only, and the client that
    has spent most is reported. Where they state the goal of the run, delta0, the number of
    releases and the part for secure aggregation were fixed by it, and what is guaranteed is the
    goal, at its own delta: what was spent so far is a reading (docs/accounting.md, "What a stop
    may look at"), at the ``delta`` that is asked for. A
    ledger of local reports is about any two inputs of a client, all others about zero-out.

    Raises:
        ConfigurationError: delta is missing or out of range.
        LedgerError: the file is damaged or was altered.
        UnsupportedEventError: an event is not one that the replay knows, or some are local reports
            and some are not.
    """
    entries = read_ledger(path)
    goal = _goal(entries)
    chosen = delta if delta is not None else goal.get("delta")
    if chosen is None:
        raise ConfigurationError("delta", "not given", "--delta: this ledger states no goal")
    check_delta(chosen)
    local = is_local(entries)
    order = goal.get("moment_order")
    if not local and adjacency is Adjacency.REPLACE_ONE:
        entries = [replace(entry, event=replaced(entry.event)) for entry in entries]
    rank = partial(_local_epsilon, delta=chosen)
    most: float = math.inf
    if not local:
        rank = partial(_spent, delta0=goal.get("delta0", chosen / 64.0), order=order)
        most = goal.get("rounds", math.inf)
    client, events = _busiest(entries, rank, most)
    epsilon = sybil = rank(events)
    pair = None
    if not local:
        epsilon = _epsilon(events, goal, chosen)
        sybil = _epsilon(_busiest(entries, rank, most, without_peers)[1], goal, chosen)
        pair = _replayed_pair(events, goal, chosen) if math.isfinite(epsilon) else None
    # A goal is about zero-out.
    promised = goal and not local and adjacency is Adjacency.ZERO_OUT
    return {
        "epsilon": json_number(epsilon),
        "delta": chosen,
        **(_guarantee(events, goal) if promised else {}),
        "sybil": json_number(sybil),
        "client": client,
        "releases": len(events),
        "entries": len(entries),
        "clients": len(_labels(entries)),
        **({"goal": goal} if goal else {}),
        **gaussian_figures(pair),
        "adjacency": str(Adjacency.ANY_INPUT if local else adjacency),
        "route": _route(local, order),
    }


def _route(local: bool, order: float | None) -> str:
    if local:
        return LOCAL_ROUTE
    return REPLAY_ROUTE if order is None else MOMENTS_ROUTE


def is_local(entries: Sequence[ReplayedEntry]) -> bool:
    """Whether a ledger is one of local reports; nothing without noise makes it another."""
    tags = {event["tag"] for entry in entries for event in flattened(entry.event)}
    others = sorted(tags - {"local", "non-private"})
    if "local" in tags and others:
        raise UnsupportedEventError(
            f"the ledger holds local reports beside {', '.join(others)}: they promise something "
            "else, so the two have no common epsilon; keep a ledger for each"
        )
    return "local" in tags


def _goal(entries: Sequence[ReplayedEntry]) -> dict[str, Any]:
    """The goal that all entries state, or nothing if any does not or two differ."""
    goals = [entry.metadata.get("goal") for entry in entries]
    first = goals[0] if goals else None
    if not isinstance(first, dict) or any(goal != first for goal in goals):
        return {}
    epsilon, rounds = first.get("epsilon"), first.get("rounds")
    delta, delta0 = first.get("delta"), first.get("delta0")
    if not (isinstance(delta, float) and isinstance(delta0, float) and type(rounds) is int):
        return {}
    order = first.get("moment_order")
    # An int for a whole number is what some ledgers have; True is none.
    if order is not None and not (type(order) in (int, float) and 1.0 < order < math.inf):
        return {}
    aggregation = first.get("aggregation", 0.0)
    if not (isinstance(aggregation, float) and 0.0 <= aggregation < delta):
        return {}
    if type(epsilon) not in (int, float):
        return {}
    return first if 0.0 < delta0 < delta < 1.0 and rounds >= 1 else {}


def _epsilon(events: Sequence[Mapping[str, Any]], goal: Mapping[str, Any], delta: float) -> float:
    """Of a client's releases, with what the goal sets aside for failures if there is one."""
    if goal:
        # Ledgers of earlier versions set nothing aside for secure aggregation.
        aside = goal["delta0"], goal["rounds"], goal.get("aggregation", 0.0)
        if goal.get("moment_order") is not None:
            return composed_moments(events, delta, *aside, order=goal["moment_order"])
        return composed_epsilon(events, delta, *aside)
    return replayed_epsilon(events, delta)


def _replayed_pair(
    events: Sequence[Mapping[str, Any]], goal: Mapping[str, Any], delta: float
) -> FailingGaussian | None:
    """The open failure, else Gaussian, that dominates a client's releases; None if there is none.

    With a goal all that it sets aside may fail.
    """
    if goal.get("moment_order") is not None:
        return None
    failure, mu = replayed_gaussian(events, delta)
    if goal:
        failure = goal["rounds"] * (goal["delta0"] + goal.get("aggregation", 0.0))
        mu = composed_mu(events, goal["delta0"])
    return FailingGaussian(failure, mu) if mu < math.inf else None


def _guarantee(events: Sequence[Mapping[str, Any]], goal: Mapping[str, Any]) -> dict[str, Any]:
    """The goal's epsilon, which holds at its delta as long as no client was charged beyond it.

    Args:
        events: of the client that was charged most.
    """
    spent = _epsilon(events, goal, goal["delta"])
    kept = spent <= goal["epsilon"] * REPLAY_ROOM
    return {
        "guaranteed": json_number(goal["epsilon"] if kept else math.inf),
        "guaranteed_at_delta": goal["delta"],
        **({} if "aggregation" in goal else {"guaranteed_but_for": RING_FAILURES}),
    }


def _labels(entries: Sequence[ReplayedEntry]) -> set[str]:
    return {name for entry in entries for name in listed_cohort(entry.metadata) or ()}


def _written(entry: ReplayedEntry) -> list[Mapping[str, Any]]:
    """The releases of an entry, as the server met them."""
    return list(flattened(entry.event))


def _busiest(
    entries: Sequence[ReplayedEntry],
    rank: Callable[[Sequence[Mapping[str, Any]]], float],
    most: float,
    releases: Callable[[ReplayedEntry], Sequence[Mapping[str, Any]]] = _written,
) -> tuple[str, list[Mapping[str, Any]]]:
    """The client that has spent most, as ``rank`` has it, and what it took part in.

    Entries without a list of clients are charged to everybody. Whoever took part in more than
    ``most`` releases has spent everything: the goal has set nothing aside for them.
    """
    mine: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    common: list[Mapping[str, Any]] = []
    for entry in entries:
        simple = releases(entry)
        cohort = listed_cohort(entry.metadata)
        if cohort is None:
            common.extend(simple)
        for name in cohort or ():
            mine[name].extend(simple)
    if not mine:
        return EVERYBODY, common
    left = most - len(common)
    spent = {
        name: math.inf if len(events) > left else rank(events) for name, events in mine.items()
    }
    client = max(spent, key=lambda name: (spent[name], name))
    return client, [*common, *mine[client]]


def _spent(events: Sequence[Mapping[str, Any]], delta0: float, order: float | None = None) -> float:
    """The sum of the squared mus of releases, or of their moments if an order is given."""
    if any(event["tag"] == "non-private" for event in events):
        return math.inf
    if order is not None:
        return math.fsum(release_moment(event, delta0, order) for event in events)
    return math.fsum(release_mu(event, delta0) ** 2 for event in events)


def _local_epsilon(events: Sequence[Mapping[str, Any]], delta: float) -> float:
    """Epsilon of one client's local reports, in whatever order it made them."""
    return _composed_reports(frozenset(Counter(map(decode_event, events)).items()), delta)


@lru_cache(maxsize=4096)
def _composed_reports(counts: frozenset[tuple[Event, int]], delta: float) -> float:
    """Epsilon of reports; kept, as many clients of a ledger have made the same."""
    accountant = LocalAccountant()
    for event, count in counts:
        accountant.compose(event, count)
    return accountant.epsilon(delta)


def print_account(figures: Mapping[str, Any], console: Console) -> None:
    """Print what `account_mechanism` or `account_ledger` found, for people."""
    table = Table("accountant", "epsilon", "remark", title="privacy account")
    reasons = figures.get("reasons", {})
    for name, value in figures.get("by_accountant", {}).items():
        remark = "the smallest bound" if name == figures["winner"] else reasons.get(name, "")
        if name == "gaussian_reference":
            remark = "a yardstick, not a bound"
        table.add_row(name, _readable(value), escape(remark))
    local = figures.get("route") == LOCAL_ROUTE
    if "route" in figures:
        for name, epsilon, remark in _ledger_rows(figures, local):
            table.add_row(name, _readable(epsilon), remark)
    console.print(table)
    skipped = {"by_accountant", "reasons", "route", "adjacency", "delta", "winner"}
    if "route" in figures:
        skipped |= {"epsilon", "sybil", "guaranteed", "guaranteed_at_delta", "guaranteed_but_for"}
    if pair := figures.get("gaussian"):
        skipped |= {"gaussian", "zcdp"}
        console.print(
            f"dominated by an open failure of probability {pair['failure']:.6g}, else by "
            f"{pair['mu']:.6g}-GDP: {pair['failure']:.3g}-approximate "
            f"{figures['zcdp']['rho']:.6g}-zCDP",
            highlight=False,
        )
    for name, value in figures.items():
        if name not in skipped:
            console.print(f"{name.replace('_', ' ')}: {_readable(value)}", highlight=False)
    console.print(f"delta {figures['delta']:g}; {figures['adjacency']}", highlight=False)
    if local:
        console.print("against everybody who sees the reports: nobody else's noise is counted on")
    else:
        console.print("against the server, which knows the cohort: no amplification by sampling")


def _ledger_rows(figures: Mapping[str, Any], local: bool) -> Iterator[tuple[str, object, str]]:
    """What a ledger adds up to: name, epsilon and remark; the guarantee first, if there is one."""
    if local:
        yield "local", figures["epsilon"], figures["route"]
        return
    spent = "no goal: if all was fixed beforehand"
    if "guaranteed" in figures:
        delta = figures["guaranteed_at_delta"]
        words = f"guaranteed at delta {delta:g} against the server, whenever the run stops"
        if "guaranteed_but_for" in figures:
            words += f", but for {figures['guaranteed_but_for']}"
        yield "goal", figures["guaranteed"], words
        spent = f"spent so far, at delta {figures['delta']:g}"
    elif "goal" in figures:
        spent = "a reading, since the goal is about zero-out"
    yield "replay", figures["epsilon"], f"{spent}; {figures['route']}"
    words = "against a server that made up all other clients (own noise only)"
    yield "replay", figures["sybil"], f"{spent}; {words}"


def _readable(value: object) -> str:
    if value == "inf":
        return "infinite"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
