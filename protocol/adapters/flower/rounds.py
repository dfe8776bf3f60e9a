"""The server's rounds: from what a strategy wants trained to a model moved by the private mean."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from flwr.app import ArrayRecord

from dp import FourEpsilons, Ledger
from protocol.adapters.flower.arrays import Layout
from protocol.adapters.flower.carrier import Carrier, Job, Patience, Post
from protocol.adapters.flower.errors import RoundLostError, TooFewNodesError, by_reason
from protocol.adapters.flower.nodes import NodeBook
from protocol.adapters.flower.waiting import Clock, Wait
from protocol.adapters.stage_times import StageTimes, require_size
from protocol.adapters.turns import Turns
from protocol.allocation import Allocation
from protocol.authority.session import Announcer
from protocol.checks import of_kind
from protocol.errors import ConfigurationError
from protocol.exchange.sealing_book import SealingBook
from protocol.planning.configuration import named_members
from protocol.planning.training_plan import TrainingPlan
from protocol.round.lottery import Members
from protocol.round.setup import RoundEncoding
from protocol.round.turns import Question
from protocol.schemes.scheme import KeyHolders
from protocol.statistics.answers import Answer
from protocol.statistics.private import PlannedSurvey, Surveyed, SurveySum
from protocol.training.charged_sums import Sums
from protocol.training.private import PrivateTraining, RoundResult
from secagg import OpeningFailedError, RemoteProtocolError, TooFewSurvivorsError
from secagg.oneshot.committee import Member
from sketch.controllers import Controller

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """What is known of a finished round, and may be told to anybody.

    Of a hidden cohort, only `metrics` may: all else follows who came.

    Attributes:
        number: of finished rounds before it; of an evaluation, in the session.
        survivors: clients in the mean.
        cohort: clients that the round was made for, away or not.
        lost: why, by node; a client that was away has no node.
        epsilons: spent so far by the client that spent most, against four adversaries, and what is
            guaranteed wherever the rounds stop.
        sketch_size: numbers that each client sent.
        dimension: numbers of its update.
        bytes_per_survivor: of the protocol, up and down, without the model.
        exchanges: round trips to the nodes.
        why: the controller's reason for the size of the sketch.
        divisor: what the sum of a hidden cohort is divided by; None if cohorts are not hidden.
    """

    number: int
    survivors: int
    cohort: int
    lost: Mapping[int, str]
    epsilons: FourEpsilons
    sketch_size: int
    dimension: int
    bytes_per_survivor: float
    exchanges: int
    why: str
    divisor: int | None = None

    @property
    def weight(self) -> int:
        """Of the mean, for a strategy."""
        return self.survivors if self.divisor is None else self.divisor

    def metrics(self) -> dict[str, int | float]:
        """The figures of the round for a Flower `MetricRecord`."""
        if (hidden := self.epsilons.hidden_cohorts) is not None:
            # What was spent against the server follows how many came, by the noise that they kept.
            return {
                "epsilon": self.epsilons.guaranteed,
                "epsilon-outsider-hidden-cohorts": hidden,
                "sketch-size": self.sketch_size,
            }
        return {
            "survivors": self.survivors,
            "epsilon": self.epsilons.guaranteed,
            "epsilon-spent": self.epsilons.server,
            "sketch-size": self.sketch_size,
            "bytes-per-survivor": self.bytes_per_survivor,
        }


def numbers_of(plan: TrainingPlan, allocation: Allocation | None) -> tuple[int, int]:
    """How many clients a first round waits for, and how many every round needs."""
    if allocation is None:
        return plan.cohort, plan.minimum_survivors
    return allocation.population, allocation.present


class SecureRounds:
    """Runs private rounds over a `Post`."""

    def __init__(
        self,
        post: Post,
        clock: Clock,
        plan: TrainingPlan,
        controller: Controller,
        ledger: Ledger,
        registry: Collection[bytes],
        run_id: int,
        patience: Patience,
        executor: Executor | None = None,
        committee: Collection[bytes] = (),
        announcer: Announcer | None = None,
        allocation: Allocation | None = None,
    ) -> None:
        # Members who add noise are no clients of the run.
        self._clients = frozenset(registry) - frozenset(committee if plan.noise.remembered else ())
        fewest = plan.noise.population(plan)
        if len(self._clients) < fewest:
            problem, least = f"{len(self._clients)} identities", f"at least the cohort's {fewest}"
            if plan.noise.remembered:
                problem += " that are no members"
                least = f"at least {fewest}, cohorts enough for rounds that are far apart"
            raise ConfigurationError("registry", problem, least)
        if allocation is not None and len(registry) != allocation.population:
            valid = f"those of the population, {allocation.population}: each comes once in a block"
            raise ConfigurationError("registry", f"{len(registry)} identities", valid)
        planned = named_members(plan)
        if len(committee) != planned:
            raise ConfigurationError(
                "committee", f"{len(committee)} identities", f"{planned}, as planned"
            )
        self._post = post
        self._clock = clock
        self._plan = plan
        self._controller = controller
        self._ledger = ledger
        self._registry = frozenset(registry)
        self._training_seconds = patience.training
        self._times = StageTimes(patience.stage)
        self._run_id = run_id
        drawn_from = announcer.registered if announcer else self._registry
        self._holders = plan.scheme.key_holders(plan, committee, drawn_from)
        self._announcer = announcer
        self._allocation = allocation
        self._needed = numbers_of(plan, allocation)[1]
        self._here = self._valid = frozenset[bytes]()
        self._came: dict[bytes, int] = {}  # the last round to which a client said that it comes
        self._book = NodeBook(run_id, self._registry, committee, announcer)
        self._carrier = Carrier(post, self._members)
        self._aggregator = plan.scheme.remote(self._carrier, executor)
        self._training: tuple[Layout, PrivateTraining] | None = None
        self._turns = Turns.of(plan)
        self._session_id = b""

    def arrays(self, record: ArrayRecord) -> ArrayRecord:
        """A model in the types of the first round's."""
        return self._trainer(record)[0].restored(record)

    def run(
        self, job: Job, arrays: ArrayRecord, nodes: Sequence[int], seconds: float
    ) -> tuple[ArrayRecord, RoundReport]:
        """Run one round and return the new model with its report."""
        layout, training = self._trainer(arrays)
        result, lost, trips = self._played(training, job, nodes, seconds)
        report = _report(result, result.rationale.words, lost, trips, self._allocation)
        return layout.moved(arrays, result.release.update), report

    def evaluate(
        self,
        planned: PlannedSurvey,
        job: Job,
        arrays: ArrayRecord,
        nodes: Sequence[int],
        seconds: float,
    ) -> tuple[list[Answer], RoundReport]:
        """Ask a survey in one round, and return the answers with a report.

        It is the next round of the training's session, which members' sealing keys are for; so
        training goes on behind it, whatever becomes of it.
        """
        survey = SurveySum(planned, self._trainer(arrays)[1].sums)
        done, lost, trips = self._played(survey, job, nodes, seconds)
        return done.answers, _report(done, "an evaluation, as declared", lost, trips)

    def _played(
        self, sums: Sums[R], job: Job, nodes: Sequence[int], seconds: float
    ) -> tuple[R, dict[int, str], int]:
        """Play the next of these sums: what came of it, who was lost, and in how many trips."""
        whole, before = Wait(self._clock, seconds), self._post.exchanges
        known, strangers = self._identified(job, nodes, whole)
        self._here = frozenset(known)
        if self._allocation is None:
            cohort = self._cohort(known)
        else:
            cohort = self._coming(self._allocation, job, known, strangers, whole)
        here = [known.get(key) for key in cohort]
        setup = self._announced(sums, cohort, job.bound)
        members = [known.get(key) for key in setup.members]
        if self._turns is not None:
            self._turns.invite(setup.context.round_number, cohort)
        patience = Patience(self._times.seconds(setup), self._training_seconds)
        signed = self._announcer.envelope(setup.context_hash) if self._announcer else b""
        self._carrier.begin(job, here, patience, whole, members, signed)
        try:
            result = sums.run_setup(setup, notes={"run": str(self._run_id)})
        except OpeningFailedError as error:
            error.add_note(f"lost before{by_reason(strangers | self._carrier.lost) or ': nobody'}")
            raise
        except TooFewSurvivorsError as error:
            # Its notes number clients as the cohort does, which nobody here can look up.
            lost, away = strangers | self._carrier.lost, here.count(None)
            stage, survivors, needed = error.stage, error.survivors, error.needed
            raise RoundLostError(stage, survivors, needed, lost, away) from None
        except RemoteProtocolError as error:
            if error.party in range(len(here)):
                error.add_note(f"client {error.party} of the cohort is node {here[error.party]}")
            error.add_note(f"lost before{by_reason(strangers | self._carrier.lost) or ': nobody'}")
            raise
        return result, strangers | self._carrier.lost, self._post.exchanges - before

    def _announced(self, sums: Sums[R], cohort: Sequence[bytes], bound: bytes) -> RoundEncoding:
        """The next round's setup, with its committee."""
        try:
            setup = sums.next_setup(cohort, bound)
        except TooFewSurvivorsError as error:
            raise TooFewNodesError(
                f"{error.survivors} of those drawn for a committee have handed over a sealing key, "
                f"and it takes {error.needed}: connect more clients, or raise the odds, here as "
                "scheme.committee.odds and in every client's policy as committee.odds"
            ) from None
        require_size(setup)
        return setup

    def _identified(
        self, job: Job, nodes: Sequence[int], whole: Wait
    ) -> tuple[dict[bytes, int], dict[int, str]]:
        """Who can take part, by identity, and why the others cannot."""
        seconds, asked = min(self._times.seconds(), whole.left), self._post.exchanges
        known, strangers = self._book.identify(
            self._post, nodes, job.message_type, seconds, self._next_round
        )
        if self._post.exchanges > asked and self._post.trip is not None:
            self._times.measure(self._post.trip)
        clients = len(known.keys() & self._clients)
        if clients < self._needed:
            raise TooFewNodesError(
                f"{clients} of {len(nodes)} invited nodes can take part, and a round needs "
                f"{self._needed}{self._spare(nodes)}{by_reason(strangers)}"
            )
        if self._holders is not None:
            self._require_keys(self._holders, strangers)
        return known, strangers

    def _require_keys(self, holders: KeyHolders, strangers: Mapping[int, str]) -> None:
        """See that the keys of a whole committee are known; nobody is made up for one."""
        found = len(self._sealing_keys().keys() & holders.keys)
        if found < holders.needed:
            clients = holders.everyone or holders.lottery
            whose = "clients" if clients else "members of the named committee"
            raise TooFewNodesError(
                f"{found} {whose} have handed over a sealing key in this run, and a committee of "
                f"one-shot rounds takes {holders.needed}: each has to be connected once; it may be "
                f"away afterwards{by_reason(strangers)}"
            )

    def _sealing_keys(self) -> dict[bytes, Member]:
        """Members' entries that are valid in the next round, by identity."""
        return self._book.sealing.entries(self._next_round) if self._book.sealing else {}

    @property
    def _next_round(self) -> int:
        """The number that the next round will have."""
        return self._training[1].state.attempts if self._training else 0

    def _members(self, session_id: bytes, cohort: Sequence[bytes], number: int) -> Members:
        """Of the committee of the next round."""
        holders = of_kind("holders", self._holders, KeyHolders)
        entries = self._book.sealing.entries(number) if self._book.sealing else {}
        if holders.lottery is not None and self._announcer is not None:
            # Clients would refuse one that was revoked since it was registered.
            entries = {key: entry for key, entry in entries.items() if key in self._valid}
        return holders.members(session_id, cohort, number, entries, self._here)

    def _spare(self, nodes: Sequence[int]) -> str:
        more = len(nodes) > len(self._registry)
        remedy = f"; only {len(self._registry)} clients are registered: in a simulation, set "
        return f"{remedy}simulated-clients = {len(nodes)}" if more else ""

    def _trainer(self, record: ArrayRecord) -> tuple[Layout, PrivateTraining]:
        if self._training is None:
            layout = Layout.of(record)
            self._training = (
                layout,
                PrivateTraining(
                    self._plan,
                    layout.dimension,
                    self._controller,
                    self._aggregator,
                    self._ledger,
                    clock=self._clock.unix,
                    session_id=self._announcer.session_id if self._announcer else None,
                    allocation=self._allocation,
                ),
            )
            self._session_id = self._training[1].state.session_id
            if self._holders is not None:
                self._book.sealing = SealingBook(self._session_id, self._clock.unix)
        return self._training

    def _cohort(self, known: Collection[bytes]) -> list[bytes]:
        """As many identities as planned.

        Noise must not depend on who happens to be here: clients that are away fill the gaps, and
        count as lost. Where everybody is on the committee, they have been here before. Whoever was
        revoked since the session began is left out, as every other client would refuse.
        """
        size, chooser = self._plan.cohort, secrets.SystemRandom()
        taken, resting = Counter[bytes](), set[bytes]()
        if self._turns is not None and self._training is not None:
            taken, resting = self._turns.taken(self._training[1].sums.records)
        may = self._candidates() - resting
        if len(may) < size:
            raise TooFewNodesError(
                f"{len(may)} clients are valid in the registry and can be in a cohort, and a "
                f"round is planned for {size}"
            )
        order = chooser.sample(sorted(may), len(may))
        return sorted(order, key=lambda key: (key not in known, taken[key]))[:size]

    def _candidates(self) -> frozenset[bytes]:
        """Who can be in a cohort."""
        may = self._clients
        if self._holders is not None and self._holders.everyone:
            may = may & self._sealing_keys().keys()
        if self._announcer is None:
            return may
        # Once for cohort and committee: what is signed with the round is what both are of.
        self._valid = self._announcer.clients()
        return may & self._valid

    def _coming(
        self,
        allocation: Allocation,
        job: Job,
        known: Mapping[bytes, int],
        strangers: dict[int, str],
        whole: Wait,
    ) -> list[bytes]:
        """Who is here and says that this is its round: all of them, and nobody in a gap.

        Whether there is a round may follow who is here, and what their policies say, but not who
        comes. If too few are here, nothing is announced, and the same round is asked about again.

        Args:
            strangers: why nodes cannot take part; those that did not say are entered.
        """
        may = self._candidates()
        asked = {key: node for key, node in known.items() if key in may}
        question = Question(self._session_id, self._next_round, allocation.block)
        seconds = min(self._times.seconds(), whole.left)
        said, silent = self._book.turns(self._post, asked, question, job.message_type, seconds)
        strangers |= silent
        number, block = question.round_number, allocation.block
        for key in [key for key, comes in said.items() if comes]:
            before = self._came.setdefault(key, number)
            if before != number and before // block == number // block:
                # Else its budget would be spent before the last block, and end everybody's run.
                said[key] = False
                strangers[asked[key]] = f"says that it comes, and came to round {before}"
            else:
                self._came[key] = number
        if len(said) < allocation.present:
            raise TooFewNodesError(
                f"{len(said)} of {allocation.population} clients have said whether they come, and "
                f"a round of hidden cohorts needs {allocation.present}{by_reason(strangers)}"
            )
        return sorted(key for key, comes in said.items() if comes)


def _report(
    result: RoundResult | Surveyed,
    why: str,
    lost: Mapping[int, str],
    exchanges: int,
    allocation: Allocation | None = None,
) -> RoundReport:
    sketch = result.setup.parameters.sketch
    return RoundReport(
        number=result.number,
        survivors=len(result.outcome.total.survivors),
        cohort=result.setup.context.invited,
        lost=dict(lost),
        epsilons=result.epsilons,
        sketch_size=sketch.size,
        dimension=sketch.dimension,
        bytes_per_survivor=result.outcome.bytes_per_survivor(),
        exchanges=exchanges,
        why=why,
        divisor=allocation.divisor if allocation else None,
    )
