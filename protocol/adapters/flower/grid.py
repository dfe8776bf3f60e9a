"""The server's half: a grid that turns a strategy's TRAIN messages into one private round.

    with SecureGrid.from_context(grid, context, strategy) as secure:
        strategy.start(grid=secure, initial_arrays=arrays, num_rounds=5)

The strategy stays what it is. For its TRAIN messages it gets one reply: the model that it sent,
moved by the noisy mean of all updates. Where an evaluation is declared, it gets one reply to its
EVALUATE messages too: the metrics that a survey of all clients says, with their errors. Other
evaluations and queries, whose answers nothing here makes private, pass through if they are allowed
to by name, and are refused otherwise.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Self

from flwr.app import (
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from dp import Ledger, LedgerError
from protocol.adapters.evaluation import metrics_of
from protocol.adapters.flower.carrier import Job, Patience, Post
from protocol.adapters.flower.clear import EVALUATION, QUERIES, in_the_clear, permission
from protocol.adapters.flower.client import only_arrays
from protocol.adapters.flower.connecting import Connecting
from protocol.adapters.flower.digest import input_digest
from protocol.adapters.flower.errors import (
    SettingsError,
    StrategyError,
    TooFewNodesError,
    by_reason,
)
from protocol.adapters.flower.log import warn
from protocol.adapters.flower.places import announcer_of, places_of
from protocol.adapters.flower.record import KEY, category
from protocol.adapters.flower.rounds import RoundReport, SecureRounds, numbers_of
from protocol.adapters.flower.settings import LEDGER_KEY, PREFIX, FlowerSettings, read_settings
from protocol.adapters.flower.strategies import check_strategy, require_linear, weight_key
from protocol.adapters.flower.waiting import Clock
from protocol.adapters.stage_times import CONNECT_SECONDS
from protocol.allocation import Allocation
from protocol.authority.session import Announcer
from protocol.errors import ConfigurationError
from protocol.planning.training_plan import TrainingPlan
from protocol.statistics.private import PlannedSurvey
from secagg import OpeningFailedError, RemoteProtocolError, TooFewSurvivorsError
from sketch.controllers import Controller

LOST = (TooFewNodesError, TooFewSurvivorsError, RemoteProtocolError, OpeningFailedError)
"""What makes a round a lost one."""

LOST_IN_A_ROW = 3
"""So many lost rounds in a row end a run; or as many as the plan has, if they are fewer."""

DEFAULT_PATIENCE = Patience()
ROUND_LOST = 5
"""Flower's error code for nodes that are not available."""


class SecureGrid(Grid):
    """Wraps a grid for strategies that average.

    Args:
        grid: Flower's own.
        plan: the goal, the cohort, and what it tolerates.
        controller: chooses the sketch of each round.
        ledger: open; it is closed with this grid.
        registry: identity keys of all clients.
        strategy: that will use this grid; None if your own code sends the messages and takes the
            one reply for what it is.
        run_config: of the run: training functions see it, so clients check it.
        patience: the longest waits for a stage.
        connect_seconds: the longest wait for nodes.
        allow_evaluation_in_the_clear: EVALUATE messages are sent, and clients answer them with
            nothing to protect it, if their policies say the same. No epsilon covers that.
        allow_queries_in_the_clear: likewise, QUERY messages.
        clock: of all waits.
        executor: optional, for unmasking.
        committee: identity keys of a named committee, in one-shot rounds that have one.
        evaluation: the survey that EVALUATE messages ask, as planned for this plan.
        announcer: signs every round, for clients whose policies say by whom.
        allocation: who comes when, if cohorts are hidden; the plan is then one of `hiding_plan`.

    Raises:
        StrategyError: the strategy needs more than a mean, or asks clients to evaluate and that is
            not allowed.
        ConfigurationError: the registry is smaller than a cohort, or the committee not as planned;
            or hidden cohorts are given another registry, or an evaluation.
    """

    def __init__(
        self,
        grid: Grid,
        plan: TrainingPlan,
        controller: Controller,
        ledger: Ledger,
        registry: Collection[bytes],
        *,
        strategy: Strategy | None,
        run_config: Mapping[str, Any] | None = None,
        patience: Patience = DEFAULT_PATIENCE,
        connect_seconds: float = CONNECT_SECONDS,
        allow_evaluation_in_the_clear: bool = False,
        allow_queries_in_the_clear: bool = False,
        clock: Clock | None = None,
        executor: Executor | None = None,
        committee: Collection[bytes] = (),
        evaluation: PlannedSurvey | None = None,
        announcer: Announcer | None = None,
        allocation: Allocation | None = None,
    ) -> None:
        if allocation is not None and evaluation is not None:
            valid = "none: an evaluation would use up turns of clients"
            raise ConfigurationError("evaluation", "given with hidden cohorts", valid)
        if strategy is not None:
            check_strategy(strategy, allow_evaluation_in_the_clear, evaluation is not None)
            if plan.noise.remembered:
                require_linear(strategy)
        self._evaluation = evaluation
        self._private = {MessageType.TRAIN} | ({MessageType.EVALUATE} if evaluation else set())
        self._grid = grid
        self._ledger = ledger
        self._weight_key = weight_key(strategy)
        self._run_config = dict(run_config or {})
        self._patience = patience
        clock = clock or Clock()
        post, run_id = Post(grid, clock), grid.run.run_id
        most, needed = numbers_of(plan, allocation)
        self._connecting = Connecting(grid, most, needed, connect_seconds, clock)
        self._rounds = SecureRounds(
            post,
            clock,
            plan,
            controller,
            ledger,
            registry,
            run_id,
            patience,
            executor,
            committee,
            announcer,
            allocation,
        )
        self._allowed = {
            EVALUATION: allow_evaluation_in_the_clear,
            QUERIES: allow_queries_in_the_clear,
        }
        self._lost_in_a_row, self._most_lost = 0, min(LOST_IN_A_ROW, plan.goal.rounds)
        self.reports: list[RoundReport] = []
        self.evaluations: list[RoundReport] = []

    @classmethod
    def from_context(
        cls,
        grid: Grid,
        context: Context,
        strategy: Strategy | None,
        executor: Executor | None = None,
    ) -> Self:
        """As the run's configuration says (`veilsum.*`, see `FlowerSettings`).

        In a simulation, this also writes all clients' folders, policies included.

        Raises:
            SettingsError: all that is wrong with the settings, or with the files that they name;
                with keys, values, what is valid, and a table to be copied.
            StrategyError: the strategy needs more than a mean, or asks clients to evaluate and
                that is not allowed.
            LedgerError: the ledger was altered.
        """
        settings = read_settings(context.run_config)
        if strategy is not None:
            # Before folders are made, and a ledger opened.
            check_strategy(
                strategy, settings.allow_evaluation_in_the_clear, bool(settings.evaluation)
            )
        return cls.from_settings(grid, context, strategy, settings, settings.plan(), executor)

    @classmethod
    def from_settings(
        cls,
        grid: Grid,
        context: Context,
        strategy: Strategy | None,
        settings: FlowerSettings,
        plan: TrainingPlan,
        executor: Executor | None = None,
        controller: Controller | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """As settings say that are read already; `plan` and `controller` count for theirs.

        Raises:
            SettingsError: what is wrong with the files that the settings name, or who uses them.
            StrategyError: as `from_context` does.
            LedgerError: the ledger was altered.
        """
        evaluation = settings.planned_survey(plan)
        places = places_of(settings, plan, context.run_id)
        announcer = announcer_of(settings, grid.run, clock or Clock())
        try:
            ledger = Ledger.open(places.ledger)
        except LedgerError as error:
            if isinstance(error.__cause__, BlockingIOError):
                raise _in_use(places.ledger) from error
            raise
        secure = cls(
            grid,
            plan,
            controller or settings.controller(),
            ledger,
            places.registry,
            strategy=strategy,
            run_config=context.run_config,
            patience=Patience(settings.stage_seconds, settings.training_seconds),
            connect_seconds=settings.connect_seconds,
            allow_evaluation_in_the_clear=settings.allow_evaluation_in_the_clear,
            allow_queries_in_the_clear=settings.allow_queries_in_the_clear,
            clock=clock,
            executor=executor,
            committee=places.committee,
            evaluation=evaluation,
            announcer=announcer,
            allocation=settings.hidden,
        )
        # Whoever hands the grid to a strategy and keeps none has nothing left to close.
        weakref.finalize(secure, ledger.close)
        return secure

    @property
    def ledger(self) -> Path:
        """The file that every release is written to."""
        return self._ledger.path

    def close(self) -> None:
        """Close the ledger. The wrapped grid is Flower's."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """One private round for TRAIN messages, and the one reply; others go to Flower's grid.

        EVALUATE messages are a private round as well where an evaluation is declared.

        A round that is lost is an error reply, which strategies skip.

        Raises:
            StrategyError: the messages are not the same for every node, or their answers would come
                in the clear and that is not allowed.
            TooFewNodesError, RoundLostError, RemoteProtocolError, OpeningFailedError: the third
                round in a row was lost, or as many as the plan has; says which nodes left, at which
                stage, and why.
            BudgetExceededError: the clients have nothing left to spend.
        """
        batch = list(messages)
        self._connecting.done()
        kinds = set(map(_kind, batch))
        if kinds.isdisjoint(self._private):
            self._check_allowed(batch)
            return self._grid.send_and_receive(batch, timeout=timeout)
        if len(kinds) > 1:
            kind = min(kinds & self._private).upper()
            raise StrategyError(
                f"{kind} messages are mixed with others; valid: {kind} messages only, or none"
            )
        try:
            content = self._round(batch, timeout)
        except LOST as error:
            self._lost_in_a_row += 1
            if self._lost_in_a_row >= self._most_lost:
                raise
            reason = "; ".join([str(error), *getattr(error, "__notes__", [])])
            warn(f"lost a round: {reason}")
            return [Message(Error(ROUND_LOST, reason), reply_to=batch[0])]
        self._lost_in_a_row = 0
        return [Message(content, reply_to=batch[0])]

    def _round(self, batch: list[Message], timeout: float | None) -> RecordDict:
        content = same_content(batch)
        sent = only_arrays(content)
        arrays = self._rounds.arrays(sent)
        name = next(name for name, record in content.items() if record is sent)
        content = RecordDict({**content, name: arrays})
        about = batch[0].metadata
        nodes = list(dict.fromkeys(message.metadata.dst_node_id for message in batch))
        seconds = timeout if timeout is not None else self._patience.whole
        digest = input_digest(content, about.message_type, about.group_id, self._run_config)
        planned = self._evaluation if _kind(batch[0]) == MessageType.EVALUATE else None
        survey = planned.survey if planned else None
        job = Job(content, about.message_type, about.group_id, digest, survey)
        if planned is None:
            moved, report = self._rounds.run(job, arrays, nodes, seconds)
            self.reports.append(report)
            return RecordDict({name: moved, "metrics": self._metrics(report, "round")})
        answers, report = self._rounds.evaluate(planned, job, arrays, nodes, seconds)
        self.evaluations.append(report)
        metrics = self._metrics(report, "evaluation")
        metrics.update(metrics_of(planned.survey, answers, report.survivors))
        return RecordDict({"metrics": metrics})

    def _metrics(self, report: RoundReport, what: str) -> MetricRecord:
        if report.lost:
            warn(f"{what} {report.number} went on without some nodes{by_reason(report.lost)}")
        return MetricRecord({self._weight_key: report.weight, **report.metrics()})

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """To Flower's grid, but for messages of private rounds: a client would refuse them.

        Raises:
            StrategyError: there is one among them, or answers would come in the clear and that is
                not allowed.
        """
        batch = list(messages)
        for kind in sorted(self._private.intersection(map(_kind, batch))):
            raise StrategyError(
                f"{kind.upper()} messages are not pushed one by one; use send_and_receive"
            )
        self._check_allowed(batch)
        return self._grid.push_messages(batch)

    def _check_allowed(self, batch: Iterable[Message]) -> None:
        for kind in {message.metadata.message_type for message in batch}:
            key = permission(kind)
            if key is None:
                raise StrategyError(f"a message of type {kind!r}; valid: train, evaluate or query")
            if not self._allowed[key]:
                raise StrategyError(in_the_clear(f"clients are asked to {category(kind)}", key))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pull messages from Flower's grid, as they are."""
        return self._grid.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Connected nodes, after a bounded wait for as many as a round needs.

        Raises:
            TooFewNodesError: there are not so many, or the strategy waits for still more.
        """
        return self._connecting.nodes()

    def get_nodes(self) -> Any:
        """The nodes of Flower's grid."""
        return self._grid.get_nodes()

    def create_message(self, *args: Any, **details: Any) -> Message:
        """Create a message of Flower's grid."""
        return self._grid.create_message(*args, **details)

    def set_run(self, run: Any) -> None:
        """Set the run of Flower's grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of Flower's grid."""
        return self._grid.run


def _in_use(ledger: Path) -> SettingsError:
    valid = (
        "a ledger that is not already open. If an earlier protect call of this ServerApp has it, "
        "give its grid to both strategies, or close it first (with protect(...) as secure:); "
        "rounds are those of both together"
    )
    return SettingsError(
        [ConfigurationError(f"{PREFIX}{LEDGER_KEY}", f"{ledger} is in use", valid)]
    )


def _kind(message: Message) -> str:
    return category(message.metadata.message_type)


def same_content(batch: list[Message]) -> RecordDict:
    """What all nodes are to train on."""
    first = batch[0]
    if KEY in first.content:
        raise StrategyError(f"a record is named {KEY!r}; valid: any other name")
    # Strategies pass one object to all; only those that do not are worth hashing.
    others = [each for each in batch[1:] if _job(each) != _job(first)]
    if others and {_digest(each) for each in others} != {_digest(first)}:
        raise StrategyError(
            "the messages are not the same for every node; valid: the same model and "
            "configuration for all. What works: strategies that average"
        )
    return first.content


def _job(message: Message) -> tuple[int, str, str]:
    return id(message.content), message.metadata.message_type, message.metadata.group_id


def _digest(message: Message) -> bytes:
    about = message.metadata
    return input_digest(message.content, about.message_type, about.group_id, {})
