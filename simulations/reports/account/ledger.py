"""What a ledger adds up to, by an independent reader."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from dp import (
    Adjacency,
    Event,
    FailingGaussian,
    LocalAccountant,
    UnsupportedEventError,
    to_dp_event,
)
from dp.accounting import gaussian_mu
from dp.audit import (
    composed_epsilon,
    composed_moments,
    composed_mu,
    release_moment,
    release_mu,
    replaced,
    replayed_epsilon,
    replayed_gaussian,
)
from dp.ledger_reader import (
    INTEGER_TAGS,
    ReplayedEntry,
    flattened,
    read_ledger,
    without_members,
    without_peers,
)
from dp.odometer import Odometer
from dp.records import decode_event
from dp.report import json_number
from protocol.errors import ConfigurationError
from protocol.training.records import listed_cohort
from simulations.learning.insecure import protects, remarks, seed_in_notes
from simulations.reports.account.export import gaussian_figures
from simulations.reports.account.question import check_delta
from simulations.reports.account.returning import RUN_ROUTE, busiest_of_run, is_of_run

Release: TypeAlias = Mapping[str, Any]
"""A release as a ledger has it."""

EVERYBODY: Final = "every client"
REPLAY_ROUTE: Final = "independent replay: SciPy tails, the definition at every vertex"
MOMENTS_ROUTE: Final = "independent replay: SciPy tails, truncated moments at every shift"
REPLAY_ROOM: Final = 1.0 + 1e-5
"""Relative room for a replay, which rounds to the nearest: at the goal itself, and in an export."""

RING_FAILURES: Final = "failures of secure aggregation"
"""What a guarantee leaves out where the goal set nothing aside for it, as those of version 0.1."""

LOCAL_ROUTE: Final = "pure epsilons of one client's reports, composed at delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerGoal:
    """The goal that every entry of a ledger states."""

    epsilon: float  # of the whole run
    delta: float  # of the whole run
    delta0: float  # what each release may fail with
    rounds: int  # releases that it allows
    # what secure aggregation may fail with in each; None in ledgers of version 0.1, which set
    # nothing aside for it
    aggregation: float | None
    moment_order: float | None  # of the moments that bound the run; None for domination
    written: Mapping[str, object]  # the goal as it stands in the ledger

    @property
    def failures(self) -> float:
        """What one release and its secure aggregation may fail with."""
        return self.delta0 + (self.aggregation or 0.0)

    def spent(self, releases: Sequence[Release], delta: float) -> float:
        """Epsilon of releases at a delta, with all that the goal sets aside for failures."""
        aside = self.delta0, self.rounds, self.aggregation or 0.0
        if self.moment_order is not None:
            return composed_moments(releases, delta, *aside, order=self.moment_order)
        return composed_epsilon(releases, delta, *aside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What holds whenever the run stops."""

    epsilon: float  # of the goal; infinite if a client was charged beyond it
    delta: float  # of the goal
    but_for: str  # failures that it leaves out, in words; empty if none


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAccount:
    """What a ledger adds up to."""

    epsilon: float  # of the client that has spent most
    delta: float  # that it is stated at
    # None without a goal, for another adjacency than the goal's, or with an insecure seed
    guarantee: Guarantee | None
    sybil: float  # epsilon against a server that made up all other clients
    client: str  # the one that has spent most
    releases: int  # that it took part in
    entries: int  # of the ledger
    clients: int  # of the ledger
    goal: LedgerGoal | None  # that all entries state; None if they do not
    # the open failure, else Gaussian, that dominates its releases; None if there is none
    pair: FailingGaussian | None
    adjacency: Adjacency  # what the epsilons are about
    route: str  # how they were found, in words
    # epsilon against a server that knows the noise of all members; None where none comes back
    without_members: float | None = None
    # that some of its releases followed from; None if none tells of one
    insecure_seed: int | None = None
    # the releases that its client is charged for; none are kept where noise comes back, or of
    # local reports
    charged: tuple[Release, ...] = ()
    dp_accounting: float | None = None  # epsilon by that library; None if it was not asked
    # epsilon so far that holds at the goal's delta wherever the run stops; None without a guarantee
    # by independent noise
    at_any_stop: float | None = None

    @property
    def warning(self) -> str | None:
        """What must stand above the epsilons, if they protect nobody."""
        if self.insecure_seed is None:
            return None
        return (
            f"a simulation that protects {protects(self.insecure_seed)}; the epsilons are what it "
            "would have with secrets that nobody knows"
        )

    @property
    def overrun(self) -> bool:
        """Whether a client was charged more than the goal allows."""
        return self.guarantee is not None and math.isinf(self.guarantee.epsilon)

    @property
    def local(self) -> bool:
        """Whether it is about local reports."""
        return self.route == LOCAL_ROUTE

    def as_json(self) -> dict[str, object]:
        """Return JSON values; infinity is the string "inf"."""
        return {
            **remarks(self.insecure_seed),
            "epsilon": json_number(self.epsilon),
            "delta": self.delta,
            **_guaranteed(self.guarantee),
            **({} if self.at_any_stop is None else {"at_any_stop": self.at_any_stop}),
            **(
                {}
                if self.without_members is None
                else {"without_members": json_number(self.without_members)}
            ),
            "sybil": json_number(self.sybil),
            "client": self.client,
            "releases": self.releases,
            "entries": self.entries,
            "clients": self.clients,
            **({} if self.goal is None else {"goal": self.goal.written}),
            **gaussian_figures(self.pair),
            **(
                {}
                if self.dp_accounting is None
                else {"dp_accounting": json_number(self.dp_accounting)}
            ),
            "adjacency": str(self.adjacency),
            "route": self.route,
        }


def _guaranteed(guarantee: Guarantee | None) -> dict[str, object]:
    if guarantee is None:
        return {}
    return {
        "guaranteed": json_number(guarantee.epsilon),
        "guaranteed_at_delta": guarantee.delta,
        **({"guaranteed_but_for": guarantee.but_for} if guarantee.but_for else {}),
    }


def account_ledger(
    path: Path, delta: float | None, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> LedgerAccount:
    """What a ledger adds up to, by an independent reader and, but for local reports, route.

    Where entries name their cohort, a client pays for its own rounds only, and the client that
    has spent most is reported. Where they state the goal of the run, delta0, the number of
    releases and the part for secure aggregation were fixed by it, and what is guaranteed is the
    goal, at its own delta: what was spent so far is an estimate (docs/accounting.md, "What a stop
    may look at"), at the ``delta`` that is asked for. A
    ledger of local reports is about any two inputs of a client, all others about zero-out.
    """
    entries = read_ledger(path)
    goal = _goal(entries)
    chosen = goal.delta if delta is None and goal is not None else delta
    if chosen is None:
        raise ConfigurationError("delta", "not given", "--delta: this ledger states no goal")
    check_delta(chosen)
    if is_local(entries):
        adjacency, (found, spent) = Adjacency.ANY_INPUT, _of_reports(entries, chosen)
    else:
        if adjacency is Adjacency.REPLACE_ONE:
            entries = [replace(entry, event=replaced(entry.event)) for entry in entries]
        read = _of_run if is_of_run(entries) else _of_sums
        found, spent = read(entries, goal, chosen)
    seed = seed_in_notes(entry.metadata for entry in entries)
    guarantee, at_any_stop = None, None
    # A goal is about zero-out, and about noise that nobody can compute.
    if goal is not None and seed is None and adjacency is Adjacency.ZERO_OUT:
        guarantee = _guarantee(spent(goal), goal)
        at_any_stop = _at_any_stop(found["pair"], goal) if guarantee.epsilon < math.inf else None
    return LedgerAccount(
        **found,
        delta=chosen,
        guarantee=guarantee,
        at_any_stop=at_any_stop,
        entries=len(entries),
        clients=len(_labels(entries)),
        goal=goal,
        adjacency=adjacency,
        insecure_seed=seed,
    )


def by_dp_accounting(account: LedgerAccount) -> LedgerAccount:
    """The same account with what dp-accounting makes of the client's releases.

    The Gaussians are the running accountant's, not the replay's; composition is the library's.
    """
    if math.isinf(account.epsilon):
        return replace(account, dp_accounting=math.inf)
    if account.pair is None:
        raise ConfigurationError(
            "dp-accounting", "a ledger without a bound by Gaussian DP", "left out"
        )
    counted = Counter(map(decode_event, account.charged))
    if account.goal is not None:
        delta0 = account.goal.delta0
    else:  # the replay chose one for each release that may fail
        failing = sum(release["tag"] in INTEGER_TAGS for release in account.charged)
        delta0 = account.pair.failure / failing if failing else account.delta / 64.0
    run = to_dp_event(counted.items(), delta0)
    run = replace(run, failure=max(run.failure, account.pair.failure))
    return replace(account, dp_accounting=run.epsilon(account.delta))


Found: TypeAlias = tuple[dict[str, Any], Callable[[LedgerGoal], float]]
"""Figures of the client that has spent most, and what it has spent at the delta of a goal."""


def _of_reports(entries: Sequence[ReplayedEntry], delta: float) -> Found:
    """Of local reports, which rely on nobody else and meet no goal of a run."""
    rank = partial(_local_epsilon, delta=delta)
    client, reports = _busiest(entries, rank, math.inf)
    figures = {"client": client, "releases": len(reports), "pair": None, "route": LOCAL_ROUTE}
    epsilon = rank(reports)
    return {**figures, "epsilon": epsilon, "sybil": epsilon}, lambda _: math.inf


def _of_run(entries: Sequence[ReplayedEntry], goal: LedgerGoal | None, delta: float) -> Found:
    """Of a run whose noise comes back, which counts as a whole."""
    client, count, epsilon = busiest_of_run(entries, delta, EVERYBODY)
    figures = {
        "client": client,
        "releases": count,
        "epsilon": epsilon,
        "sybil": _reading(entries, goal, delta, without_peers)[2],
        "without_members": _reading(entries, goal, delta, without_members)[2],
        "pair": None,
        "route": RUN_ROUTE,
    }
    return figures, lambda goal: busiest_of_run(entries, goal.delta, EVERYBODY)[2]


def _of_sums(entries: Sequence[ReplayedEntry], goal: LedgerGoal | None, delta: float) -> Found:
    """Of sums with independent noise."""
    client, releases, epsilon = _reading(entries, goal, delta)
    by_moments = goal is not None and goal.moment_order is not None
    figures = {
        "client": client,
        "releases": len(releases),
        "epsilon": epsilon,
        "sybil": _reading(entries, goal, delta, without_peers)[2],
        "pair": _replayed_pair(releases, goal, delta) if math.isfinite(epsilon) else None,
        "route": MOMENTS_ROUTE if by_moments else REPLAY_ROUTE,
        "charged": tuple(releases),
    }
    return figures, lambda goal: goal.spent(releases, goal.delta)


def is_local(entries: Sequence[ReplayedEntry]) -> bool:
    """Whether a ledger is one of local reports; nothing without noise makes it another."""
    tags = {event["tag"] for entry in entries for event in flattened(entry.event)}
    others = sorted(tags - {"local", "non-private"})
    if "local" in tags and others:
        raise UnsupportedEventError(
            f"the ledger holds local reports beside {', '.join(others)}: they make different "
            "promises, so the two have no common epsilon; keep a ledger for each"
        )
    return "local" in tags


def _goal(entries: Sequence[ReplayedEntry]) -> LedgerGoal | None:
    """The goal that all entries state; None if any does not or two differ."""
    goals = [entry.metadata.get("goal") for entry in entries]
    first = goals[0] if goals else None
    if not isinstance(first, dict) or any(goal != first for goal in goals):
        return None
    epsilon, rounds = first.get("epsilon"), first.get("rounds")
    delta, delta0 = first.get("delta"), first.get("delta0")
    if not (isinstance(delta, float) and isinstance(delta0, float) and type(rounds) is int):
        return None
    order, aggregation = first.get("moment_order"), first.get("aggregation", 0.0)
    # An int for a whole number is what some ledgers have; True is none.
    if order is not None and not (type(order) in (int, float) and 1.0 < order < math.inf):
        return None
    if not (isinstance(aggregation, float) and 0.0 <= aggregation < delta):
        return None
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        return None
    if not (0.0 < delta0 < delta < 1.0 and rounds >= 1):
        return None
    return LedgerGoal(
        epsilon=epsilon,
        delta=delta,
        delta0=delta0,
        rounds=rounds,
        aggregation=aggregation if "aggregation" in first else None,
        moment_order=order,
        written=first,
    )


def _replayed_pair(
    releases: Sequence[Release], goal: LedgerGoal | None, delta: float
) -> FailingGaussian | None:
    """The open failure, else Gaussian, that dominates a client's releases; None if there is none.

    With a goal all that it sets aside may fail.
    """
    if goal is None:
        failure, mu = replayed_gaussian(releases, delta)
    elif goal.moment_order is not None:
        return None
    else:
        failure, mu = goal.rounds * goal.failures, composed_mu(releases, goal.delta0)
    return FailingGaussian(failure, mu) if mu < math.inf else None


def _guarantee(spent: float, goal: LedgerGoal) -> Guarantee:
    """The goal's epsilon, which holds at its delta as long as no client was charged beyond it."""
    kept = spent <= goal.epsilon * REPLAY_ROOM
    return Guarantee(
        epsilon=goal.epsilon if kept else math.inf,
        delta=goal.delta,
        but_for=RING_FAILURES if goal.aggregation is None else "",
    )


def _at_any_stop(pair: FailingGaussian | None, goal: LedgerGoal) -> float | None:
    """Epsilon of the releases so far by an odometer that the goal alone decides."""
    if pair is None:
        return None
    left = goal.delta - goal.rounds * goal.failures
    try:
        odometer = Odometer(gaussian_mu(goal.epsilon, left) ** 2, left)
    except ValueError:  # no noise reaches so small a goal, or none is needed for so large a one
        return None
    return odometer.epsilon((pair.mu * REPLAY_ROOM) ** 2)


def _labels(entries: Sequence[ReplayedEntry]) -> set[str]:
    return {name for entry in entries for name in listed_cohort(entry.metadata) or ()}


def _written(entry: ReplayedEntry) -> list[Release]:
    """The releases of an entry, as the server met them."""
    return list(flattened(entry.event))


def _reading(
    entries: Sequence[ReplayedEntry],
    goal: LedgerGoal | None,
    delta: float,
    left: Callable[[ReplayedEntry], Sequence[Release]] = _written,
) -> tuple[str, list[Release], float]:
    """The client that has spent most by what is left of the releases, those, and their epsilon."""
    if goal is None:
        rank = partial(_spent, delta0=delta / 64.0)
        client, releases = _busiest(entries, rank, math.inf, left)
        return client, releases, replayed_epsilon(releases, delta)
    rank = partial(_spent, delta0=goal.delta0, order=goal.moment_order)
    client, releases = _busiest(entries, rank, goal.rounds, left)
    return client, releases, goal.spent(releases, delta)


def _busiest(
    entries: Sequence[ReplayedEntry],
    rank: Callable[[Sequence[Release]], float],
    most: float,
    releases: Callable[[ReplayedEntry], Sequence[Release]] = _written,
) -> tuple[str, list[Release]]:
    """The client that has spent most, as ``rank`` has it, and what it took part in.

    Entries without a list of clients are charged to everybody. Whoever took part in more than
    ``most`` releases has spent everything: the goal has set nothing aside for them.
    """
    mine: dict[str, list[Release]] = defaultdict(list)
    common: list[Release] = []
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


def _spent(events: Sequence[Release], delta0: float, order: float | None = None) -> float:
    """The sum of the squared mus of releases, or of their moments if an order is given."""
    if any(event["tag"] == "non-private" for event in events):
        return math.inf
    if order is not None:
        return math.fsum(release_moment(event, delta0, order) for event in events)
    return math.fsum(release_mu(event, delta0) ** 2 for event in events)


def _local_epsilon(events: Sequence[Release], delta: float) -> float:
    """Epsilon of one client's local reports, in whatever order it made them."""
    return _composed_reports(frozenset(Counter(map(decode_event, events)).items()), delta)


@lru_cache(maxsize=4096)
def _composed_reports(counts: frozenset[tuple[Event, int]], delta: float) -> float:
    """Epsilon of reports; kept, as many clients of a ledger have made the same."""
    accountant = LocalAccountant()
    for event, count in counts:
        accountant.compose(event, count)
    return accountant.epsilon(delta)
