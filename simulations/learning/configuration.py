"""Configuration of a federated run: the protocol's sections and the simulation's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import Field

from protocol.checks import FRACTION
from protocol.errors import ConfigurationError, Remedy
from protocol.planning.configuration import (
    Cohort,
    IndependentTable,
    PlanTables,
    Section,
    Sketch,
    parse,
    within,
)
from protocol.statistics.codebooks import MOST_TOKENS
from protocol.training.adaptive_clip import RATE, VOTE_SHARE
from secagg.checks import whole
from simulations.common.files import write_whole
from simulations.common.ranks import own_cores
from simulations.learning.insecure import LARGEST
from simulations.learning.local_dp.config import LocalDp
from simulations.learning.noise_schedule import check_plan, noise_problems
from simulations.learning.training.batches import LocalTraining


class Task(Section):
    """The data, how clients share it, and the model."""

    data: str = Field(
        default="digits", description="the data set; all but digits are read from files"
    )
    data_options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="options of the data set, by name"
    )
    clients: Literal["dirichlet", "shards", "iid", "natural"] = Field(
        default="dirichlet",
        description="how the examples are divided: few labels each (dirichlet, shards), at random "
        "(iid), or as the data set itself says (natural)",
    )
    population: int = Field(ge=2, description="number of clients")
    dirichlet_alpha: float = Field(
        default=1.0, gt=0, description="of dirichlet: the smaller, the fewer labels a client has"
    )
    shards_each: int = Field(
        default=2, ge=1, description="of shards: pieces of the sorted examples that a client gets"
    )
    minimum_examples: int = Field(
        default=1, ge=1, description="fewest examples that a client may have"
    )
    model: str = Field(default="mlp", description="the model that is trained")
    hidden: int = Field(default=32, ge=1, description="hidden units of mlp and ngram")
    l2: float = Field(
        default=1e-4, ge=0, description="L2 penalty of the linear models, logistic and svm"
    )


class Local(Section):
    """How a client trains."""

    algorithm: Literal["fedavg", "fedsgd"] = Field(
        default="fedavg",
        description="fedavg: several steps on a client's own examples; fedsgd: a single gradient",
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="of fedavg, which needs it; left out for fedsgd"
    )
    steps: int | None = Field(
        default=None, ge=1, description="batches per round of fedavg; if left out, give epochs"
    )
    epochs: int | None = Field(
        default=None,
        ge=1,
        description="passes over a client's examples per round of fedavg; if left out, give steps",
    )
    batch_size: int | None = Field(
        default=None, ge=1, description="examples per batch; all if left out"
    )

    def build(self) -> LocalTraining:
        """What a client does."""
        if self.algorithm == "fedsgd":
            if (self.learning_rate, self.steps, self.epochs) != (None, None, None):
                raise ConfigurationError(
                    "local",
                    "steps, epochs or a rate for fedsgd",
                    "none of them, as it takes a single step",
                )
            return LocalTraining.fed_sgd(self.batch_size)
        if self.learning_rate is None:
            raise ConfigurationError("local.learning_rate", "missing", "a positive number")
        try:
            return LocalTraining(
                learning_rate=self.learning_rate,
                steps=self.steps,
                epochs=self.epochs,
                batch_size=self.batch_size,
            )
        except ValueError as error:
            raise ConfigurationError("local", str(error), "either steps or epochs") from None


class Server(Section):
    """What the server does with the mean update."""

    optimizer: Literal["sgd", "adam"] = Field(
        default="sgd", description="sgd, with momentum if it is above 0, or adam"
    )
    learning_rate: float = Field(gt=0, description="learning rate of the first round")
    final_learning_rate: float | None = Field(
        default=None,
        gt=0,
        description="learning rate reached linearly in the last round; constant if left out",
    )
    plain_learning_rate: float | None = Field(
        default=None,
        gt=0,
        description="learning rate of plain averaging, whose updates are not clipped and so are "
        "longer; learning_rate if left out",
    )
    momentum: float = Field(
        default=0.0, ge=0, lt=1, description="share of the last step that is kept; beta 1 of adam"
    )
    beta2: float = Field(default=0.99, ge=0, lt=1, description="beta 2 of adam")
    adaptivity: float = Field(
        default=1e-3, gt=0, description="tau of adam, which is added to its denominator"
    )
    average: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="share of the rounds, the last ones, whose models are averaged: their mean is "
        "tested and released, training goes on from the last one; the last one alone if left out",
    )

    def private_rate(self, number: int, rounds: int) -> float:
        """Learning rate of round `number` of a private run."""
        first, last = self.learning_rate, self.final_learning_rate
        if last is None:
            return first
        return first + (last - first) * number / max(rounds - 1, 1)

    def averages(self, number: int, rounds: int) -> bool:
        """Whether the model after round `number` is one of those that are averaged."""
        return self.average is not None and number >= rounds - math.ceil(self.average * rounds)


class Engine(Section):
    """How the simulation is run.

    The sum comes from the real protocol, from the ideal one (the same integers, no cryptography),
    from a trusted server that adds Gaussian noise (central), from reports that every client makes
    private on its own (local), or from a server without any privacy (plain), which neither clips
    nor adds noise.
    """

    aggregator: Literal["real", "ideal", "central", "local", "plain"] = Field(
        default="ideal", description="where the sum comes from, as said above"
    )
    device: str = Field(
        default="cpu",
        description="where clients train; cuda gives each rank one of its own",
        json_schema_extra={"values": "a device that torch knows: cpu, cuda, cuda:1, mps"},
    )
    chunk: int | None = Field(
        default=None,
        ge=1,
        description="clients trained together; by model and cohort if left out",
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        description="threads that train and encode in each process; all its cores if left out",
    )
    strategy: Literal["auto", "vmap", "loop"] = Field(
        default="auto",
        description="train the clients of a chunk together (vmap), one after another (loop), or "
        "whichever is faster for the model and the device (auto)",
    )
    evaluate_every: int = Field(
        default=1, ge=1, description="test the model after every so many rounds, and after the last"
    )
    test_examples: int | None = Field(
        default=None, ge=1, description="examples of a test, chosen once; all if left out"
    )
    insecure_seed: int | None = Field(
        default=None,
        ge=0,
        le=LARGEST,
        description="research only, protects nobody: all secrets follow from it, so that a run can "
        "be repeated bit for bit; fresh secrets if left out",
    )

    @property
    def threads(self) -> int:
        """How many threads train and encode; what comes out does not depend on it."""
        return self.workers or own_cores()


class Faults(Section):
    """What goes wrong in every round."""

    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="share of a cohort lost, at random stages"
    )
    members_away: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the members of a named committee of whom nothing is heard, others in "
        "every round",
    )


class PowerSgd(Section):
    """Low-rank factors in place of a sketch: two secure sums per round."""

    rank: int = Field(ge=1, description="columns of a factor; more are more exact, and longer")


class Clipping(Section):
    """A clip that follows released norms; privacy.clip_l2 is then the largest."""

    smallest: float = Field(gt=0, description="smallest length that an update is shortened to")
    first: float | None = Field(
        default=None, gt=0, description="first clip; the largest if left out"
    )
    step_factor: float = Field(
        default=1.5,
        gt=1,
        description="largest change of the clip from one round to the next, as a factor",
    )
    window: int = Field(
        default=5, ge=1, description="number of last rounds that an estimate averages"
    )
    quantile: Annotated[float, within(FRACTION)] = Field(
        default=0.5, description="quantile of the norms that is followed"
    )
    rate: Annotated[float, within(RATE)] = Field(
        default=0.2, description="rate of the steps towards it"
    )
    vote_share: Annotated[float, within(FRACTION)] = Field(
        default=VOTE_SHARE,
        description="share of the squared clip that is spent on the clients' votes",
    )


class Denoise(Section):
    """A filter of the released means, on the server: a second clip and an average over time."""

    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="share of the average of earlier rounds that is kept"
    )
    residual_decay: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="share of what a round left out that the next one takes up",
    )
    rate: float = Field(
        default=1.0, ge=1, description="one coordinate in so many is used, the largest; 1 for all"
    )


class AttackersTable(Section):
    """Clients who send something else than what they trained, the same ones in all rounds."""

    fraction: float = Field(ge=0, lt=0.5, description="share of all clients")
    kind: Literal["sign-flip", "scaled", "spike", "direction", "backdoor"] = Field(
        default="sign-flip",
        description="what they send: the negative of what they trained; that itself; one "
        "coordinate; one random direction, the same for all; or what they trained on marked copies "
        "of their examples too, with label 0",
    )
    length: float = Field(
        default=1.0,
        gt=0,
        description="of what they send, in clipping norms: above 1 they leave the clip out, and "
        "validated rounds leave them out beyond the bound",
    )


class Robust(Section):
    """A rule in place of the mean that withstands some malicious clients."""

    rule: Literal["median", "trimmed-mean", "krum", "group-median"] = Field(
        description="of the clipped updates, which a trusted server sees (plain); or the median of "
        "the means of disjoint groups, each a secure sum (real, ideal)",
    )
    corrupt: int = Field(
        ge=1, description="malicious clients of a cohort, f; there are 2 f + 1 groups"
    )

    @property
    def groups(self) -> int:
        """Disjoint groups of a cohort."""
        return 2 * self.corrupt + 1


class ClientEvaluation(Section):
    """Evaluation of the model by its clients, in rounds of their own, paid for by the same goal."""

    every: int = Field(
        ge=1,
        description="clients evaluate the model after every so many rounds; each evaluation "
        "is one more round of the goal",
    )
    held_out: int = Field(
        default=5,
        ge=2,
        description="one example in so many of a client is not trained on but kept for evaluations",
    )
    records: Annotated[int, within(whole(2, MOST_TOKENS))] = Field(
        default=16, description="predictions that stand for a client"
    )
    loss_bound: float = Field(
        default=4.0, ge=1e-6, le=1e6, description="losses above count as this"
    )


_ALONE = "local_dp powersgd clipping denoise evaluation attackers robust".split()
"""Tables that nobody has looked at with cohorts that are hidden."""


class ChosenCohort(Cohort):
    """Who takes part in a round, how many may fail or collude, and how they are chosen."""

    choice: Literal["turns", "allocation"] = Field(
        default="turns",
        description="turns: cohorts of one size take turns in a fixed order; allocation: every "
        "client draws one round of each block of task.population / cohort.size, so that size is "
        "what is expected, and an outsider who is never told who came learns less",
    )


class RunConfig(PlanTables):
    """One federated run.

    `seed` fixes the data split, the initial model, the schedule of cohorts, batches and dropouts.
    Masks, coins and rounding are fresh secrets in every run, but for one with
    `engine.insecure_seed`.
    """

    seed: int = Field(ge=0, description="seed of everything that need not be secret")
    rounds: Annotated[int, within("rounds")] = Field(description="rounds of the run")
    task: Task
    cohort: ChosenCohort
    local: Local
    server: Server
    sketch: Sketch = Field(default_factory=Sketch)
    faults: Faults = Field(default_factory=Faults)
    engine: Engine = Field(default_factory=Engine)
    local_dp: LocalDp | None = None
    powersgd: PowerSgd | None = None
    clipping: Clipping | None = None
    denoise: Denoise | None = None
    evaluation: ClientEvaluation | None = None
    attackers: AttackersTable | None = None
    robust: Robust | None = None

    def check(self, ranks: int = 1) -> None:
        """See that the sections fit together; the error tells of all that do not."""
        found = ConfigurationError.together(self._problems(ranks))
        if found:
            raise found
        check_plan(self)

    def _problems(self, ranks: int) -> Iterator[ConfigurationError]:
        size, faults = self.cohort.size, self.faults
        if ranks > 1:
            yield from self._not_divisible(ranks)
        if size > self.task.population:
            valid = f"at most {self.task.population}"
            yield ConfigurationError("cohort.size", f"value {size}", valid, self.task.population)
        if self.lost_per_round > (tolerated := self.cohort.tolerated_dropouts):
            yield ConfigurationError(
                "faults.dropout",
                f"value {faults.dropout} loses {self.lost_per_round} of {size}",
                f"at most cohort.tolerated_dropouts = {tolerated} of them",
                tolerated / size,
            )
        yield from self._misplaced()
        if self.cohort.choice == "allocation":
            yield from self._not_allocated(ranks)
        yield from noise_problems(self)

    def _not_allocated(self, ranks: int) -> Iterator[ConfigurationError]:
        """What cohorts that clients' own coins choose do not go together with."""
        key, population, size = "cohort.choice", self.task.population, self.cohort.size
        if population % size or population < 2 * size:
            valid = f"one that divides task.population = {population}, and is smaller"
            yield ConfigurationError("cohort.size", f"value {size} with allocation", valid)
        given = [name for name in _ALONE if getattr(self, name) is not None]
        problem = ""
        if self.engine.aggregator not in ("real", "ideal", "central"):
            problem = f"for {self.engine.aggregator}"
        elif given:
            problem = f"together with {', '.join(given)}: a round has one sum, which follows none"
        elif not isinstance(self.noise, IndependentTable):
            problem = "with noise that comes back in other rounds"
        elif ranks > 1:
            problem = f"for {ranks} ranks"
        if problem:
            valid = "turns; or real, ideal or central sums by one process, without these"
            yield ConfigurationError(key, f"value 'allocation' {problem}", valid, "turns")

    @property
    def block(self) -> int:
        """Rounds of which a client joins one, by its secret coin."""
        return self.task.population // self.cohort.size

    def _not_divisible(self, ranks: int) -> Iterator[ConfigurationError]:
        """What keeps processes from sharing a cohort."""
        scheme = self.scheme.build()
        for name in ("attackers", "robust", "evaluation"):
            if getattr(self, name) is not None:
                valid = "left out, or one process"
                yield ConfigurationError(name, f"given for {ranks} ranks", valid, Remedy.LEFT_OUT)
        if self.engine.aggregator == "real" and not scheme.DIVISIBLE:
            problem = f"{scheme.KIND} rounds among {ranks} ranks"
            valid = (
                'ideal (the same sum), central, local or plain; scheme.kind = "one-shot"; or one '
                "process"
            )
            yield ConfigurationError("engine.aggregator", problem, valid, "ideal")
        if self.local_dp is not None and self.local_dp.through == "secure_sum":
            problem = f"secure sums of reports among {ranks} ranks"
            valid = "reports that are added up in the clear; or one process"
            yield ConfigurationError("local_dp.through", problem, valid)

    def _misplaced(self) -> Iterator[ConfigurationError]:
        """Optional sections that nothing reads, or that are missing."""
        aggregator = self.engine.aggregator
        if (aggregator == "local") != (self.local_dp is not None):
            problem = "missing" if self.local_dp is None else f"given for {aggregator}"
            yield ConfigurationError("local_dp", problem, 'a table for engine.aggregator = "local"')
        for name in ("powersgd", "clipping"):
            if getattr(self, name) is not None and aggregator not in ("real", "ideal"):
                valid = "left out, unless the aggregator is real or ideal"
                yield ConfigurationError(name, f"given for {aggregator}", valid, Remedy.LEFT_OUT)
        if self.powersgd is not None and self.clipping is not None:
            yield ConfigurationError("clipping", "given together with powersgd", "one of the two")
        added = isinstance(self.noise, IndependentTable) and self.noise.mechanism != "binomial"
        if added and aggregator not in ("real", "ideal"):
            valid = "left out: clients add none"
            problem = f"given for {aggregator}"
            yield ConfigurationError("noise.mechanism", problem, valid, Remedy.LEFT_OUT)
        yield from self._attacked()
        if self.evaluation is not None:
            yield from self._not_evaluated()
        if aggregator == "plain":
            if self.engine.insecure_seed is not None:
                valid = "left out: plain averaging has no secrets, and repeats with seed"
                yield ConfigurationError(
                    "engine.insecure_seed", "given for plain", valid, Remedy.LEFT_OUT
                )
            if self.denoise is not None:
                valid = "left out: plain averaging has no noise"
                yield ConfigurationError("denoise", "given for plain", valid, Remedy.LEFT_OUT)

    def _not_evaluated(self) -> Iterator[ConfigurationError]:
        """What evaluations by clients do not go together with."""
        problem = ""
        if self.evaluation is not None and self.evaluation.every > self.rounds:
            valid = f"at most {self.rounds}, the rounds of the run"
            found = f"value {self.evaluation.every}"
            yield ConfigurationError("evaluation.every", found, valid, self.rounds)
        if self.engine.aggregator not in ("real", "ideal"):
            problem = f"given for {self.engine.aggregator}"
        elif not isinstance(self.noise, IndependentTable):
            problem = "given with noise that comes back, which is planned for sums of one kind"
        elif self.powersgd or self.denoise or self.attackers or self.robust:
            problem = "given together with powersgd, denoise, attackers or robust"
        elif self.privacy.moment_order is not None:
            problem = "given together with privacy.moment_order"
        if problem:
            valid = "left out, or a run of real or ideal sums without these"
            yield ConfigurationError("evaluation", problem, valid, Remedy.LEFT_OUT)

    def _attacked(self) -> Iterator[ConfigurationError]:
        """What attackers, and rules against them, do not go together with."""
        sums = self.engine.aggregator in ("real", "ideal")
        other = self.powersgd or self.clipping or self.local_dp or self.denoise
        for name in ("attackers", "robust"):
            if getattr(self, name) is not None and other is not None:
                problem = "given together with powersgd, clipping, local_dp or denoise"
                yield ConfigurationError(name, problem, "one of them", Remedy.LEFT_OUT)
        robust = self.robust
        if robust is None:
            return
        grouped = robust.rule == "group-median"
        if grouped != sums or self.engine.aggregator not in ("real", "ideal", "plain"):
            problem = f"value {robust.rule!r} for {self.engine.aggregator}"
            valid = "group-median for real or ideal; median, trimmed-mean or krum for plain"
            yield ConfigurationError("robust.rule", problem, valid)
        most = (self.cohort.size // 2 - 1) // 2 if grouped else (self.cohort.size - 3) // 2
        if robust.corrupt > most:
            problem = f"value {robust.corrupt} of {self.cohort.size} clients"
            yield ConfigurationError("robust.corrupt", problem, f"at most {most}", most)

    @property
    def participations(self) -> int:
        """The most rounds that any client is invited to, with cohorts taking turns."""
        return math.ceil(self.rounds * self.cohort.size / self.task.population)

    @property
    def charged_rounds(self) -> int:
        """The same with evaluations, which the cohort of the round before is asked for."""
        evaluations = self.rounds // self.evaluation.every if self.evaluation else 0
        return self.participations + min(self.participations, evaluations)

    def evaluates(self, number: int) -> bool:
        """Whether clients evaluate the model after round `number`."""
        return self.evaluation is not None and (number + 1) % self.evaluation.every == 0

    @property
    def lost_per_round(self) -> int:
        """Clients lost in every round."""
        return round(self.faults.dropout * self.cohort.size)


def demo_config() -> RunConfig:
    """The demo: 192 clients share the bundled digits, 64 of them take part in each of 24 rounds."""
    return parse(
        {
            "seed": 1,
            "rounds": 24,
            "task": {
                "population": 192,
                "dirichlet_alpha": 3.0,
                "minimum_examples": 3,
                "hidden": 32,
            },
            "local": {"learning_rate": 0.3, "steps": 8, "batch_size": 8},
            "server": {
                "learning_rate": 2.0,
                "final_learning_rate": 0.7,
                "plain_learning_rate": 2.0,
            },
            "privacy": {"epsilon": 8.0, "delta": 1e-5, "clip_l2": 0.7},
            "cohort": {"size": 64, "tolerated_dropouts": 8, "tolerated_colluders": 2},
            "sketch": {"gamma": 0.1},
            "faults": {"dropout": 0.1},
        },
        RunConfig,
    )


def write_config(config: RunConfig, path: Path) -> Path:
    """Write a configuration as TOML that `protocol.planning.configuration.load` reads back."""
    write_whole(path, tomli_w.dumps(config.model_dump(exclude_none=True)))
    return path
