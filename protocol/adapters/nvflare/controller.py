"""The server's controller: federated averaging in which the server sees noisy sums only.

It takes the place of NVFlare's `FedAvg`: same model, same persistor, same events. The mean is over
clients, not over samples: a count of samples is private, and so is its weight. Where an evaluation
was agreed to, a job may have clients evaluate its models, in rounds of the same kind.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from secrets import SystemRandom
from typing import Any, TypeVar

import numpy as np
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.workflows.model_controller import ModelController

from dp import Ledger
from protocol.adapters.evaluation import bound_digest, metrics_of, planned_survey
from protocol.adapters.nvflare.exchange import Answer, TaskExchange
from protocol.adapters.nvflare.messages import (
    TASK_OF_MEMBERS,
    WITH_MODEL,
    Assignment,
    OneShotTask,
    Step,
    outgoing,
)
from protocol.adapters.nvflare.models import changed, dimension_of
from protocol.adapters.nvflare.site import Agreement, Site
from protocol.adapters.stage_times import TRAINING_SECONDS, StageTimes, require_size
from protocol.adapters.turns import Turns
from protocol.checks import of_kind
from protocol.errors import ConfigurationError
from protocol.exchange.one_shot import Announcements, MemberMessages, MemberStage
from protocol.exchange.remote import open_answer
from protocol.exchange.sealing_book import SealingBook
from protocol.exchange.stages import Outbound, Refusal
from protocol.planning.configuration import Sketch, parse
from protocol.round.losses import Stage
from protocol.round.lottery import Members
from protocol.round.setup import RoundEncoding
from protocol.schemes.scheme import Answers, KeyHolders
from protocol.statistics.private import Surveyed, SurveySum
from protocol.statistics.survey import Survey
from protocol.training.charged_sums import Sums
from protocol.training.private import PrivateTraining, RoundResult
from secagg import (
    LocalProtocolError,
    OpeningFailedError,
    RemoteProtocolError,
    TooFewSurvivorsError,
)

R = TypeVar("R")

META = "veilsum"
"""Of a model's meta data: what is public about the round that made it."""


class PrivateAveraging(ModelController):
    """Workflow: `num_rounds` private means, each added to the model, evaluated and saved.

    Privacy and cohort are those of the site's agreement (`protocol.adapters.nvflare.site`), which
    clients hold as well; the job adds what needs no trust. Who is missing when a stage's time is up
    is lost, so no round takes longer than its timeouts together.

    Args:
        num_rounds: of training; with those of evaluations at most as many as agreed. Where noise
            comes back, at most those of the whole run, which is one job.
        sketch: the compression, as in the table `sketch` of a configuration; none if left out.
        learning_rate: the mean update is multiplied with it.
        stage_timeout: seconds for each message that needs no training, the start of a client's
            process included; if left out, by what it sends and how long a trip takes.
        train_timeout: seconds for the message that does.
        failed_rounds: rounds in a row that may fail before the job ends with an error.
        persistor_id: component that loads and saves the model.
        task_check_period: seconds between two looks of NVFlare at its tasks.
        evaluate_every: clients evaluate the model after every so many rounds; never, if left out.
    """

    def __init__(
        self,
        num_rounds: int,
        sketch: dict[str, Any] | None = None,
        learning_rate: float = 1.0,
        stage_timeout: int | None = None,
        train_timeout: int = int(TRAINING_SECONDS),
        failed_rounds: int = 3,
        persistor_id: str = AppConstants.DEFAULT_PERSISTOR_ID,
        task_check_period: float = 0.2,
        evaluate_every: int = 0,
    ) -> None:
        super().__init__(persistor_id=persistor_id, task_check_period=task_check_period)
        for name, value in (("stage_timeout", stage_timeout), ("train_timeout", train_timeout)):
            # NVFlare takes 0 for "wait without an end".
            if (name, value) != ("stage_timeout", None) and (type(value) is not int or value < 1):
                raise ConfigurationError(name, f"value {value!r}", "whole seconds, at least 1")
        if type(evaluate_every) is not int or evaluate_every < 0:
            valid = "a whole number of rounds; 0 for never"
            raise ConfigurationError("evaluate_every", f"value {evaluate_every!r}", valid)
        self.num_rounds = num_rounds
        self.evaluate_every = evaluate_every
        self.sketch = sketch
        self.learning_rate = learning_rate
        self.stage_timeout = stage_timeout
        self.train_timeout = train_timeout
        self.failed_rounds = failed_rounds
        self._times = StageTimes(stage_timeout)
        self._setup: RoundEncoding | None = None
        self._transport: TaskExchange | None = None
        self._to_members: TaskExchange | None = None
        self._book = SealingBook(b"")
        self._members: list[str] = []
        self._here = frozenset[bytes]()
        self._holders: KeyHolders | None = None
        self._turns: Turns | None = None
        self._noise_seconds = 0.0

    def run(self) -> None:
        """The whole job; what it raises ends the job, with its message in the server's log."""
        site = Site.of(self.fl_ctx)
        agreement = site.agreement
        self._check_rounds(agreement)
        if agreement.returns:
            self._take_turns(site)
        waits = (len(Stage) - 1) * self._timeout(Stage.SHARE) + self.train_timeout
        waits += math.ceil(self._noise_seconds)
        if 0 < agreement.lifetime_seconds < waits:
            problem = f"{waits} seconds together, and a round lasts {agreement.lifetime_seconds}"
            valid = "at most the agreed lifetime"
            raise ConfigurationError("stage_timeout, train_timeout", problem, valid)
        model = self.load_model()
        self._check_dimension(model, agreement)
        controller = parse({"controller": "fixed", **(self.sketch or {})}, Sketch)
        plan, named = agreement.plan, site.committee.values()
        survey = agreement.survey() if self.evaluate_every else None
        planned = planned_survey(survey, plan) if survey is not None else None
        self._holders = plan.scheme.key_holders(plan, named, site.registry.values())
        with Ledger.open(site.ledger, recover=True) as ledger:
            if agreement.returns and (spent := len(ledger.entries())):
                valid = "an empty ledger: where noise comes back, a goal is spent in one job"
                raise ConfigurationError("ledger.jsonl", f"{spent} sums of an earlier job", valid)
            training = PrivateTraining(
                plan,
                agreement.dimension,
                controller.build(self.num_rounds),
                plan.scheme.remote(self),
                ledger,
                clock=time.time,
            )
            self._book = SealingBook(training.state.session_id, time.time)
            for number in range(self.num_rounds):
                self.fl_ctx.set_prop(AppConstants.CURRENT_ROUND, number, private=True, sticky=False)
                self.event(AppEventType.ROUND_STARTED)
                result, clients = self._played(training, training, site, model, number)
                model = self._stepped(model, result, clients)
                try:
                    if planned is not None and (number + 1) % self.evaluate_every == 0:
                        asked = SurveySum(planned, training.sums)
                        done, _ = self._played(training, asked, site, model, number, planned.survey)
                        model = self._evaluated(model, planned.survey, done)
                finally:  # the model is paid for, whatever becomes of its evaluation
                    self.save_model(model)
                self.event(AppEventType.ROUND_DONE)

    def _check_dimension(self, model: FLModel, agreement: Agreement) -> None:
        dimension = dimension_of(model.params)
        if dimension != agreement.dimension:
            problem = f"the agreement says {agreement.dimension}, and the model has {dimension}"
            raise ConfigurationError("dimension", problem, "the number of values that are averaged")

    def _take_turns(self, site: Site) -> None:
        """See that the job can be a run whose noise comes back."""
        agreement, plan = site.agreement, site.agreement.plan
        if self.evaluate_every:
            valid = "0, because noise comes back: answers are summed once"
            raise ConfigurationError("evaluate_every", f"value {self.evaluate_every}", valid)
        if (kind := (self.sketch or {}).get("controller", "fixed")) != "fixed":
            problem = f"value {kind!r}: noise of another sketch does not cancel"
            raise ConfigurationError("sketch.controller", problem, "fixed")
        uploads = self.num_rounds * plan.cohort
        fewest = max(plan.noise.population(plan), math.ceil(uploads / agreement.rounds))
        if len(site.registry) < fewest:
            valid = f"at least {fewest}, cohorts enough for rounds that are far apart, and few"
            raise ConfigurationError("registry.json", f"{len(site.registry)} clients", valid)
        self._turns = Turns.of(plan)
        self._noise_seconds = agreement.noise_after_seconds

    def _check_rounds(self, agreement: Agreement) -> None:
        every = self.evaluate_every
        if every and agreement.survey() is None:
            valid = "0, because the agreement has no table evaluation"
            raise ConfigurationError("evaluate_every", f"value {every}", valid)
        if every > self.num_rounds:
            raise ConfigurationError("evaluate_every", f"value {every}", f"0 .. {self.num_rounds}")
        evaluations = self.num_rounds // every if every else 0
        rounds = agreement.horizon or agreement.rounds
        if not 1 <= self.num_rounds <= rounds - evaluations:
            problem = f"value {self.num_rounds}"
            if evaluations:
                problem += f", and {evaluations} evaluations"
            valid = f"1 .. {rounds} rounds together, as agreed"
            raise ConfigurationError("num_rounds", problem, valid)

    def _played(
        self,
        training: PrivateTraining,
        sums: Sums[R],
        site: Site,
        model: FLModel,
        number: int,
        survey: Survey | None = None,
    ) -> tuple[R, list[str]]:
        """One of these sums, with its cohort: it is tried again with a new one if it fails.

        Args:
            training: whose session it is in.
            survey: that it asks; None if clients train.
        """
        what = f"round {number}" if survey is None else f"the evaluation of round {number}"
        assignment = Assignment(model.params, number, self.num_rounds, survey)
        for failures in range(self.failed_rounds + 1):
            if self._holders is not None:
                self._ask_for_keys(site, training.state.attempts)
            clients = self._cohort(site, training)
            try:
                return self._attempt(sums, site, clients, assignment), clients
            except (TooFewSurvivorsError, RemoteProtocolError, OpeningFailedError) as error:
                why = "; ".join([str(error), *getattr(error, "__notes__", ())])
                why += f"; numbers of clients are places in {clients}"
                if self._members:
                    why += f", those of members in {self._members}"
                self.warning(f"{what} failed, {failures + 1} in a row: {why}")
                if failures == self.failed_rounds:
                    raise LocalProtocolError(f"{what}: {why}") from error
        raise LocalProtocolError("failed_rounds must be at least 0")

    def _attempt(self, sums: Sums[R], site: Site, clients: list[str], assignment: Assignment) -> R:
        seen = assignment.seen
        data = partial(outgoing, assignment=assignment, seen=seen)
        self._transport = self._exchange_with(clients, data)
        cohort, self._members = [site.registry[name] for name in clients], []
        self._here = frozenset(
            site.registry[each.name]
            for each in self.engine.get_clients()
            if each.name in site.registry and self.get_client_disconnect_time(each.name) is None
        )
        try:
            self._setup = sums.next_setup(cohort, bound_digest(seen, assignment.survey))
        except TooFewSurvivorsError as error:
            error.add_note("connect more clients, or agree on higher odds of the committee")
            raise
        if self._turns is not None:
            self._turns.invite(self._setup.context.round_number, cohort)
        require_size(self._setup)
        names = {key: name for name, key in {**site.registry, **site.committee}.items()}
        self._members = [names[key] for key in self._setup.members]
        self._to_members = self._exchange_with(self._members, data)
        return sums.run_setup(self._setup)

    def _timeout(self, step: Step) -> int:
        """Whole seconds for a task."""
        if step in WITH_MODEL:
            return self.train_timeout
        settling = self._noise_seconds if step is OneShotTask.NOISE else 0.0
        return math.ceil(self._times.seconds(self._setup) + settling)

    def _exchange_with(
        self, clients: Sequence[str], data: Callable[[Step], Shareable]
    ) -> TaskExchange:
        return TaskExchange(
            self,
            self.fl_ctx,
            self.abort_signal,
            clients,
            data,
            self._timeout,
            self._times.measure,
        )

    def exchange(self, stage: Stage, messages: Outbound, /) -> Answers:
        """As `Carrier.exchange` says."""
        return self._exchange(stage, messages)

    def collect(self, messages: Announcements, /) -> Answers:
        """As `Carrier.collect` says."""
        return self._exchange(OneShotTask.UPLOAD, messages)

    def consult(self, stage: MemberStage, messages: MemberMessages, /) -> Answers:
        """As `Carrier.consult` says."""
        return self._exchange(TASK_OF_MEMBERS[stage], messages)

    def members(self, session_id: bytes, cohort: Sequence[bytes], number: int, /) -> Members:
        """As `Carrier.members` says."""
        holders = of_kind("holders", self._holders, KeyHolders)
        entries = self._book.entries(number)
        return holders.members(session_id, cohort, number, entries, self._here)

    def note(self, index: int, reason: str, /) -> None:
        """Nothing: what a failed round says of its losses has the reason."""

    def note_member(self, index: int, reason: str, /) -> None:
        """Nothing: see `note`; the same holds for members."""

    def _exchange(self, step: Step, messages: Iterable[tuple[int, bytes]]) -> Iterator[Answer]:
        to_members = step in TASK_OF_MEMBERS.values()
        transport = self._to_members if to_members else self._transport
        if transport is None:
            raise LocalProtocolError("no round is running")
        return transport(step, messages)

    def _ask_for_keys(self, site: Site, next_round: int) -> None:
        """Ask members for sealing keys that are not known yet, and for those that come next."""
        keys = site.committee or site.registry
        names = [each.name for each in self.engine.get_clients() if each.name in keys]
        wanted = {name: self._book.wanted(keys[name], next_round) for name in names}
        asked = [(name, number) for name, number in wanted.items() if number is not None]
        empty = partial(outgoing, assignment=Assignment({}, 0, 0), seen=bytes(32))
        exchange = self._exchange_with([name for name, _ in asked], empty)
        messages = ((i, self._book.request(number)) for i, (_, number) in enumerate(asked))
        for index, answer in exchange(OneShotTask.KEYS, messages):
            name, number = asked[index]
            entry = answer if isinstance(answer, Refusal) else open_answer(answer)
            if isinstance(entry, bytes):
                refusal = self._book.add(keys[name], entry, number)
            else:
                refusal = entry
            if refusal is not None:
                self.warning(f"no sealing key of {name}: {refusal.reason}")

    def _cohort(self, site: Site, training: PrivateTraining) -> list[str]:
        """Who is invited: registered clients whose turn it is, connected ones first."""
        size, next_round = site.agreement.cohort.size, training.state.attempts
        names = [client.name for client in self.engine.get_clients()]
        known = [name for name in names if name in site.registry]
        strangers = sorted(set(names) - set(known) - site.committee.keys())
        if strangers:
            self.warning(f"not invited, because registry.json does not have them: {strangers}")
        entries = self._book.entries(next_round)
        keyless = sorted(name for name, key in site.committee.items() if key not in entries)
        if keyless:
            problem = f"no sealing key of {keyless} in this job"
            raise ConfigurationError("committee", problem, "one of each member, handed over once")
        if self._holders is not None and self._holders.everyone:
            known = [name for name in known if site.registry[name] in entries]
            if len(known) < size:
                problem = f"{len(known)} registered clients have sent a sealing key in this job"
                valid = f"{size}, as agreed: in one-shot rounds everyone is on the committee"
                raise ConfigurationError("cohort", problem, valid)
        taken = Counter[bytes]()
        whose = ""
        if self._turns is not None:
            taken, resting = self._turns.taken(training.sums.records)
            known = [name for name in known if site.registry[name] not in resting]
            whose = " whose turn it is"
        if len(known) < size:
            problem = f"the job has {len(known)} registered clients of {len(names)}{whose}"
            raise ConfigurationError("cohort", problem, f"{size}, as agreed; missing: {strangers}")
        SystemRandom().shuffle(known)

        def last(name: str) -> tuple[bool, int]:
            """Who is away comes last, and counts as lost if it has to be taken."""
            away = self.get_client_disconnect_time(name) is not None
            return away, taken[site.registry[name]]

        return sorted(known, key=last)[:size]

    def _stepped(self, model: FLModel, result: RoundResult, clients: list[str]) -> FLModel:
        """The model after a round, with what is public about the round."""
        step = np.float64(self.learning_rate) * result.release.update
        outcome = result.outcome
        facts = {
            "round": result.number,
            "survivors": result.release.survivors,
            "epsilon": result.epsilons.guaranteed,
            "epsilon_spent": result.epsilons.server,
            "bytes_per_client": outcome.bytes_per_survivor(),
            "sketch_size": result.setup.parameters.length,
            "refused": {clients[index]: why for index, why in outcome.refused.items()},
        }
        self.info(f"round {result.number}: {facts}")
        return FLModel(
            params_type=ParamsType.FULL,
            params=changed(model.params, step),
            meta={**model.meta, META: facts},
        )

    def _evaluated(self, model: FLModel, survey: Survey, done: Surveyed) -> FLModel:
        """The same model, with what its clients' evaluation says."""
        survivors = len(done.outcome.total.survivors)
        metrics = metrics_of(survey, done.answers, survivors)
        facts = {
            **model.meta[META],
            "epsilon_spent": done.epsilons.server,
            "evaluation": {"survivors": survivors, **metrics},
        }
        self.info(f"evaluation of round {facts['round']}: {facts['evaluation']}")
        model.meta[META], model.metrics = facts, metrics
        return model
