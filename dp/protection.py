"""Who is protected from whom: the four epsilons that every report states.

The same run protects differently against different adversaries, and an epsilon without its
adversary says nothing. So four are stated together:

* **server**: against the server and the clients it controls. Only noise of honest clients that
  remained in the sum counts, and sampling hides nothing.
* **outsider**: against somebody who sees the released models only. Amplified only where the
  events themselves say that sampling took place.
* **sybil**: against a server that made up all other clients. Only the client's own noise counts.
* **secure aggregation alone**: what hiding single inputs would give without noise: no epsilon.

If what was released decides when to stop, or what is released next, then a figure about the
releases so far is an estimate: it depends on the results, and promises nothing. What is promised at
every stop is the goal that the run keeps to. See docs/accounting.md, "What a stop may look at".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dp.accounting.failing_gaussian import FailingGaussian
from dp.accounting.local import LocalAccountant
from dp.accounting.outsider import OutsiderAccountant
from dp.checks import require_at_least, require_between_0_and_1
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event, SampledRelease
from dp.events import Adjacency, leaves
from dp.report import Counted, epsilons, json_number, under, with_counts


@dataclass(frozen=True, slots=True)
class FourEpsilons:
    """Epsilon of a run against four adversaries, all at one delta and one adjacency.

    Attributes:
        server: against the server and ``colluders`` clients.
        outsider: against who sees released models only.
        sybil: against a server that controls every other client.
        secagg_alone: of secure aggregation without noise: infinite.
        delta: of all four.
        colluders: T_C, the colluding clients that ``server`` takes into account.
        amplified: whether ``outsider`` rests on sampling.
        adjacency: what all four are about.
        goal: epsilon against the server that the run never goes beyond, fixed before its first
            release; the four are then readings of what is spent so far. None if everything was
            fixed beforehand, the end as well.
        gaussian: what dominates the run for the server, which says more than an epsilon: see
            ``FailingGaussian``; None where that is unknown, or there is no such pair.
        without_members: where members of a committee add a part of the noise, against a server that
            knows all of theirs, but cannot open single uploads; None where clients alone add noise.
        hidden_cohorts: against who sees released models only and is never told who came, or how
            many; None where cohorts are not drawn by secret coins. No part of what is guaranteed.
    """

    server: float
    outsider: float
    sybil: float
    secagg_alone: float
    delta: float
    colluders: int
    amplified: bool
    adjacency: Adjacency = Adjacency.ZERO_OUT
    goal: float | None = None
    gaussian: FailingGaussian | None = None
    without_members: float | None = None
    hidden_cohorts: float | None = None

    @property
    def guaranteed(self) -> float:
        """Epsilon against the server at whatever point the run stops: the goal.

        Without a goal that of the releases, which are then all there are; infinite if the goal was
        overrun.
        """
        if self.goal is None:
            return self.server
        return self.goal if self.server <= self.goal else math.inf

    def as_json(self) -> dict[str, Any]:
        """Return JSON values; infinity is the string "inf"."""
        pair = self.gaussian
        known = {} if pair is None else {"gaussian": {"failure": pair.failure, "mu": pair.mu}}
        return {
            "server": json_number(self.server),
            "outsider": json_number(self.outsider),
            "sybil": json_number(self.sybil),
            **(
                {}
                if self.without_members is None
                else {"without_members": json_number(self.without_members)}
            ),
            **(
                {}
                if self.hidden_cohorts is None
                else {"hidden_cohorts": json_number(self.hidden_cohorts)}
            ),
            "secagg_alone": json_number(self.secagg_alone),
            "delta": self.delta,
            "colluders": self.colluders,
            "amplified": self.amplified,
            "adjacency": str(self.adjacency),
            **({} if self.goal is None else {"guaranteed": json_number(self.guaranteed)}),
            **known,
        }

    def rows(self) -> list[tuple[str, float]]:
        """Return (against whom, epsilon) with the preposition, the promises first."""
        sampling = "amplified by sampling" if self.amplified else "no amplification"
        server = f"against the server with {self.colluders} colluding clients"
        goal, spent = [], ""
        if self.goal is not None:
            goal, spent = [(f"guaranteed {server}", self.guaranteed)], "spent so far "
        return [
            *goal,
            (spent + server, self.server),
            (
                f"{spent}against an outsider who sees released models only ({sampling})",
                self.outsider,
            ),
            *(
                []
                if self.without_members is None
                else [
                    (
                        f"{spent}against a server that knows all members' noise (the clients' own "
                        "noise only)",
                        self.without_members,
                    )
                ]
            ),
            (
                f"{spent}against a server that made up all other clients (own noise only)",
                self.sybil,
            ),
            *(
                []
                if self.hidden_cohorts is None
                else [
                    (
                        f"{spent}against an outsider who is never told who came, or how many (not "
                        "against the server)",
                        self.hidden_cohorts,
                    )
                ]
            ),
            ("of secure aggregation alone, without noise", self.secagg_alone),
        ]

    def text(self) -> str:
        """Return the four figures as lines to print, with delta and adjacency."""
        lines = [f"epsilon {_written(epsilon)} {who}" for who, epsilon in self.rows()]
        return "\n".join([*lines, f"delta {self.delta:g}; {self.adjacency}"])


def _written(epsilon: float) -> str:
    return "infinite" if math.isinf(epsilon) else f"{epsilon:.4g}"


def four_epsilons(
    server: Sequence[Event | Counted],
    outsider: Sequence[Event | Counted],
    sybil: Sequence[Event | Counted],
    delta: float,
    colluders: int = 0,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
) -> FourEpsilons:
    """State the four epsilons of a run, each from the events as its adversary meets them.

    Args:
        server: with the noise of honest surviving clients only; nothing sampled.
        outsider: with all noise that remained in the sums; sampled events where the run really
            samples and keeps the cohort to itself.
        sybil: with one client's own noise; see ``own_noise``.
        delta: in (0, 1).
        colluders: T_C, how many colluding clients ``server`` leaves out.
        adjacency: zero-out, or replace-one, under which nothing sampled has a theorem.

    Raises:
        UnsupportedEventError: an event has no theorem for its adversary.
    """
    require_between_0_and_1("delta", delta)
    accountant = OutsiderAccountant()
    counted = under(adjacency, outsider)
    for event, count in counted:
        accountant.compose(event, count)
    sampled = (isinstance(leaf, SampledRelease) for event, _ in counted for leaf in leaves(event))
    return FourEpsilons(
        server=epsilons(server, delta, adjacency).epsilon,
        outsider=accountant.epsilon(delta),
        sybil=epsilons(sybil, delta, adjacency).epsilon,
        secagg_alone=math.inf,
        delta=delta,
        colluders=colluders,
        amplified=any(sampled),
        adjacency=adjacency,
    )


def local_epsilons(
    reports: Sequence[Event | Counted], delta: float, colluders: int = 0
) -> FourEpsilons:
    """State the four epsilons of one client's local reports: the first three are the same.

    A report is private by itself. So it makes no difference whether the server colludes with
    others, or made all of them up; an outsider who sees less than the reports is promised as
    much, and no more, since who reports is not hidden.

    Args:
        reports: of one client, in order; a pair (event, count) stands for repetitions.
        delta: in (0, 1).
        colluders: T_C, to be printed.

    Raises:
        UnsupportedEventError: an event is no local report.
    """
    accountant = LocalAccountant()
    for event, count in with_counts(reports):
        accountant.compose(event, count)
    epsilon = accountant.epsilon(delta)
    return FourEpsilons(
        server=epsilon,
        outsider=epsilon,
        sybil=epsilon,
        secagg_alone=math.inf,
        delta=delta,
        colluders=colluders,
        amplified=False,
        adjacency=Adjacency.ANY_INPUT,
    )


def own_noise(event: Event, contributors: int) -> Event:
    """Return a release with one client's share of its noise: the Sybil worst case."""
    require_at_least("contributors", contributors, 1)
    if not isinstance(event, Event):
        raise UnsupportedEventError(f"no event: {type(event).__name__}")
    return event.own_noise(contributors)
