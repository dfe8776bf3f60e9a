"""The server's rounds: from what a strategy wants trained to a model moved by the private mean."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from flwr.app import ArrayRecord

from dp import FourEpsilons, Ledger
from protocol.adapters.flower.arrays import Layout
from protocol.adapters.flower.carrier import Carrier, Job, Patience, Post
from protocol.adapters.flower.errors import RoundLostError, TooFewNodesError, told
from protocol.adapters.flower.nodes import NodeBook
from protocol.adapters.flower.waiting import Clock, Wait
from protocol.errors import ConfigurationError
from protocol.exchange.remote import RemoteAggregator
from protocol.exchange.stages import Outbound, Refusal, Stage
from protocol.planning.training_plan import TrainingPlan
from protocol.training.private import PrivateTraining, RoundResult
from secagg import RemoteProtocolError, TooFewSurvivorsError
from sketch.controllers import Controller


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """What is known of a finished round, and may be told to anybody.

    Attributes:
        number: of finished rounds before it.
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

    def metrics(self) -> dict[str, int | float]:
        """The figures of the round for a Flower `MetricRecord`."""
        return {
            "survivors": self.survivors,
            "epsilon": self.epsilons.guaranteed,
            "epsilon-spent": self.epsilons.server,
            "sketch-size": self.sketch_size,
            "bytes-per-survivor": self.bytes_per_survivor,
        }


class SecureRounds:
    """Runs private rounds over a `Post`.

    Args:
        post: to the nodes.
        clock: of the waits.
        plan: what stays the same.
        controller: chooses the sketch.
        ledger: open; every release is in it before any client hears who survived.
        registry: identity keys of all clients.
        run_id: Flower's.
        patience: the longest waits for a stage.
        executor: optional, for unmasking.

    Raises:
        ConfigurationError: the registry is smaller than a cohort.
    """

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
    ) -> None:
        if len(registry) < plan.cohort:
            raise ConfigurationError(
                "registry", f"{len(registry)} identities", f"at least the cohort's {plan.cohort}"
            )
        self._post = post
        self._clock = clock
        self._plan = plan
        self._controller = controller
        self._ledger = ledger
        self._registry = frozenset(registry)
        self._patience = patience
        self._run_id = run_id
        self._book = NodeBook(run_id, self._registry)
        self._aggregator = RemoteAggregator(self._exchange, executor, self._note)
        self._carrier: Carrier | None = None
        self._training: tuple[Layout, PrivateTraining] | None = None

    def arrays(self, record: ArrayRecord) -> ArrayRecord:
        """A model in the types of the first round's."""
        layout = self._trainer(record)[0]
        return record if Layout.of(record) == layout else layout.restored(record)

    def run(
        self, job: Job, arrays: ArrayRecord, nodes: Sequence[int], seconds: float
    ) -> tuple[ArrayRecord, RoundReport]:
        """One round.

        Args:
            job: what the nodes train on.
            arrays: the model in it.
            nodes: that the strategy invites; more than a cohort are thinned out at random.
            seconds: the longest wait for everything together.

        Returns:
            the model moved by the mean update, and the report.

        Raises:
            TooFewNodesError, RoundLostError: too few nodes are here, or stayed.
            RemoteProtocolError: the sum cannot be opened.
            BudgetExceededError: the clients have nothing left to spend.
        """
        whole, before = Wait(self._clock, seconds), self._post.exchanges
        members, strangers = self._members(job, nodes, whole)
        cohort = self._cohort(members)
        here = [members.get(key) for key in cohort]
        self._carrier = Carrier(self._post, job, here, self._patience, whole)
        layout, training = self._trainer(arrays)
        setup = training.next_setup(cohort, job.digest)
        try:
            result = training.run_setup(setup, notes={"run": str(self._run_id)})
        except TooFewSurvivorsError as error:
            # Its notes number clients as the cohort does, which nobody here can look up.
            lost, away = strangers | self._carrier.lost, here.count(None)
            stage, survivors, needed = error.stage, error.survivors, error.needed
            raise RoundLostError(stage, survivors, needed, lost, away) from None
        except RemoteProtocolError as error:
            if error.party in range(len(here)):
                error.add_note(f"client {error.party} of the cohort is node {here[error.party]}")
            error.add_note("lost before" + (told(strangers | self._carrier.lost) or ": nobody"))
            raise
        report = _report(result, strangers | self._carrier.lost, self._post.exchanges - before)
        return layout.moved(arrays, result.release.update), report

    def _members(
        self, job: Job, nodes: Sequence[int], whole: Wait
    ) -> tuple[dict[bytes, int], dict[int, str]]:
        """Who can take part, by identity, and why the others cannot."""
        seconds = min(self._patience.stage, whole.left)
        members, strangers = self._book.identify(self._post, nodes, job.message_type, seconds)
        if len(members) < self._plan.minimum_survivors:
            raise TooFewNodesError(
                f"{len(members)} of {len(nodes)} invited nodes can take part, and a round needs "
                f"{self._plan.minimum_survivors}{self._spare(nodes)}{told(strangers)}"
            )
        return members, strangers

    def _spare(self, nodes: Sequence[int]) -> str:
        more = len(nodes) > len(self._registry)
        cure = f"; only {len(self._registry)} clients are registered: in a simulation, set "
        return f"{cure}simulated-clients = {len(nodes)}" if more else ""

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
                ),
            )
        return self._training

    def _cohort(self, members: Collection[bytes]) -> list[bytes]:
        """As many identities as planned.

        Noise must not depend on who happens to be here: clients that are away fill the gaps, and
        count as lost.
        """
        size, chooser = self._plan.cohort, secrets.SystemRandom()
        chosen = chooser.sample(sorted(members), min(size, len(members)))
        away = sorted(self._registry - set(members))
        return chosen + chooser.sample(away, size - len(chosen))

    def _exchange(self, stage: Stage, outbound: Outbound) -> Iterator[tuple[int, bytes | Refusal]]:
        if self._carrier is None:
            raise RuntimeError("no round is under way")
        return self._carrier.exchange(stage, outbound)

    def _note(self, index: int, reason: str) -> None:
        if self._carrier is not None:
            self._carrier.note(index, reason)


def _report(result: RoundResult, lost: Mapping[int, str], exchanges: int) -> RoundReport:
    sketch = result.setup.parameters.sketch
    return RoundReport(
        number=result.number,
        survivors=result.release.survivors,
        cohort=result.setup.context.invited,
        lost=dict(lost),
        epsilons=result.epsilons,
        sketch_size=sketch.size,
        dimension=sketch.dimension,
        bytes_per_survivor=result.outcome.bytes_per_survivor(),
        exchanges=exchanges,
        why=result.rationale.words,
    )
