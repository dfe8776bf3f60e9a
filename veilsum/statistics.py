"""Private statistics in one call, as a simulation in this process."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from protocol import PrivacyGoal, TrainingPlan
from protocol.round.losses import NOBODY, Dropouts
from protocol.schemes import Scheme
from protocol.statistics.answers import Answer, Estimate
from protocol.statistics.evaluation import Evaluation
from protocol.statistics.local import Cost, LocalSurveys
from protocol.statistics.private import PlannedSurvey
from protocol.statistics.questions import (
    Categories,
    Count,
    GroupMeans,
    Histogram,
    Mean,
    Quantiles,
    Question,
    Table,
    real,
)
from protocol.statistics.survey import Survey
from protocol.statistics.top import listed, open_rounds, opened
from secagg import ParameterError
from secagg.checks import require_int
from veilsum.mean import people_of, plan_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Categories",
    "Count",
    "Evaluation",
    "GroupMeans",
    "Histogram",
    "Mean",
    "PrivateAnswer",
    "PrivateTop",
    "Quantiles",
    "Statistics",
    "Table",
    "private_evaluation",
    "private_histogram",
    "private_quantile",
    "private_statistics",
    "private_top",
]

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, eq=False)
class PrivateAnswer:
    """The answer to one question, and what it cost.

    Attributes:
        answer: as `protocol.statistics.answers.Answer` has it.
        cost: of the round, of which other answers may have been a part.
    """

    answer: Answer
    cost: Cost

    def __getattr__(self, name: str) -> Any:
        """What the answer or its cost has: `value`, `standard_error`, `parts`, `epsilon`, ..."""
        if name.startswith("_"):
            raise AttributeError(name)
        source = self.answer if hasattr(Answer, name) else self.cost
        return getattr(source, name)

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        """Unpack as `numpy.histogram`: counts and edges."""
        if not self.answer.edges.size:
            raise TypeError(f"{self.answer.name!r} has no bins to unpack; see its value")
        yield from (self.answer.value, self.answer.edges)

    def to_dict(self) -> dict[str, Any]:
        """All estimates and the cost, of plain values."""
        return {"rows": self.answer.rows(), "epsilon": self.cost.epsilon, "delta": self.cost.delta}

    def to_pandas(self) -> Any:
        """All estimates as a data frame, with a row for each number; needs pandas."""
        import pandas

        return pandas.DataFrame(self.answer.rows())

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the main estimate with intervals; needs the extra sim."""
        from simulations.reports.answers import draw

        return draw(self.answer, axes)

    def __str__(self) -> str:
        """One line for people."""
        values = np.atleast_1d(self.answer.value)
        errors = np.broadcast_to(self.answer.standard_error, values.shape)
        shown = [f"{v:.4g} ± {e:.2g}" for v, e in zip(values[:4], errors, strict=False)]
        more = f", ... ({values.size})" if values.size > len(shown) else ""
        return f"{self.answer.name}: {', '.join(shown)}{more}, at epsilon {self.cost.epsilon:.3g}"


@dataclass(frozen=True, slots=True, eq=False)
class Statistics(Mapping[str, PrivateAnswer]):
    """Answers by the names of their questions.

    Attributes:
        answers: in the order of the questions.
        cost: of all of them together.
    """

    answers: tuple[Answer, ...]
    cost: Cost

    def __getitem__(self, name: str) -> PrivateAnswer:
        for answer in self.answers:
            if answer.name == name:
                return PrivateAnswer(answer, self.cost)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (answer.name for answer in self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """All estimates and the cost, of plain values."""
        rows = [row for answer in self.answers for row in answer.rows()]
        return {"rows": rows, "epsilon": self.cost.epsilon, "delta": self.cost.delta}

    def to_pandas(self) -> Any:
        """All estimates as a data frame, with a row for each number; needs pandas."""
        import pandas

        return pandas.DataFrame(self.to_dict()["rows"])

    def __str__(self) -> str:
        return "\n".join(str(each) for each in self.values())


@dataclass(frozen=True, slots=True, eq=False)
class PrivateTop:
    """The most frequent items, the most frequent first.

    Attributes:
        items: of a list the largest counts, though noise may have made them; of an open domain
            those that are hardly chance (at most one search in twenty names one that nobody has),
            perhaps fewer than were asked for.
        counts: estimates of clients who voted for them.
        rounds: sums that were asked for.
        cost: of all rounds.
    """

    items: tuple[str | int | bool, ...]
    counts: Estimate
    rounds: int
    cost: Cost


def _plan(
    clients: int, goal: PrivacyGoal, scheme: str | Scheme, plan: Mapping[str, Any]
) -> TrainingPlan:
    """The plan of a call; its clip follows from the survey."""
    if clients < 2:
        raise ParameterError("clients", f"{clients} of them", "at least two")
    return plan_of(clients, goal, 1.0, scheme, plan)


def _goal(
    epsilon: float | None,
    delta: float,
    goal: PrivacyGoal | None,
    share: float | None,
    ledger: str | Path | None,
    rounds: int = 1,
) -> PrivacyGoal:
    """The goal of a call: its own, or that of the ledger it shares with others."""
    if goal is not None:
        if epsilon is not None:
            raise ParameterError("epsilon", epsilon, "left out beside goal=, which has it")
        if ledger is None:
            raise ParameterError("goal", goal, "given with ledger=, which counts it")
        return goal
    if share is not None:
        raise ParameterError("share", share, "given with goal=: a share of it")
    if epsilon is None:
        raise ParameterError("epsilon", epsilon, "given; or goal= and share= on a ledger")
    return PrivacyGoal(epsilon=epsilon, delta=delta, rounds=rounds)


def private_statistics(
    clients: Mapping[str, Any] | Sequence[Any],
    questions: Sequence[Question],
    *,
    epsilon: float | None = None,
    delta: float = 1e-6,
    goal: PrivacyGoal | None = None,
    share: float | None = None,
    ledger: str | Path | None = None,
    weight: str = "client",
    max_records: int = 1,
    importance: Mapping[str, float] | None = None,
    dropouts: Dropouts = NOBODY,
    scheme: str | Scheme = "pairwise",
    cryptography: bool = True,
    **plan: Any,
) -> Statistics:
    """Ask clients several questions in one round, as an untrusted server would learn the answers.

    This is a simulation: all clients and the server are in this process. It shows what the protocol
    releases and costs, and protects nobody, since this process has all data.

    Args:
        clients: the table of each client: columns by name, each one value or several; mappings,
            data frames, tables of `datasets`, or paths of CSV or parquet files. A mapping from
            names to tables where a ledger counts, as a person has the same name in every call.
            What cannot be read is no answer, and counted as `missing`. Where clients have several
            values, set ``max_records``: with 1, errors say nothing of which one is drawn.
        questions: of `Count`, `Histogram`, `Categories`, `Table`, `Mean`, `GroupMeans`,
            `Quantiles`, `Evaluation`. Choose ranges, bins and categories without looking at the
            data: they are public.
        epsilon: of the promise to every client, for this call alone; what several calls tell of a
            client adds up.
        delta: of that guarantee; take one well below 1 / clients.
        goal, share: in place of `epsilon`, on a ledger that training or other calls share: its
            goal, and the share of it that this call takes, in (0, 1]; 1 / ``goal.rounds`` if left
            out.
        ledger: file of what was released; kept nowhere if left out.
        weight: "client", so that all weigh alike however many records they have, or "record".
        max_records: the parts that a client's records share its vote in; or, where records weigh
            alike, the most of one client that count. The noise grows with it there.
        importance: of a question's squared error, by name; 1 if left out.
        dropouts: clients by index, and the stage before which each is lost.
        scheme: as of `private_mean`.
        cryptography: leave keys and masks out if False, which changes no sum, for many clients.
        plan: other arguments of `TrainingPlan`, as of `private_mean`.

    Raises:
        ParameterError: no such questions, or figures that do not fit together.
        ProtocolError, PrivacyError: as `PrivateTraining.run_round`.
    """
    if hasattr(clients, "columns") or hasattr(clients, "column_names"):
        valid = "the table of each client: see `simulations.common.client_tables.clients_of`"
        raise ParameterError("clients", f"one {type(clients).__name__}", valid)
    names = list(clients) if isinstance(clients, Mapping) else None
    given = list(clients.values()) if isinstance(clients, Mapping) else list(clients)
    tables = [_table(each, index) for index, each in enumerate(given)]
    survey = Survey(questions=tuple(questions), weight=weight, max_records=max_records)
    survey.check_columns(column for table in tables for column in columns_of(table))
    goal = _goal(epsilon, delta, goal, share, ledger)
    known = names if ledger is not None else None
    if ledger is not None and names is None:
        valid = "given with clients by name, a mapping: it counts by them"
        raise ParameterError("ledger", "given without names", valid)
    chosen = _plan(len(tables), goal, scheme, plan)
    session = LocalSurveys(
        chosen,
        people_of(known, len(tables), ledger),
        tables,
        ledger=ledger,
        cryptography=cryptography,
        dropouts=dropouts,
    )
    planned = PlannedSurvey.of(survey, chosen, share=share, importance=importance)
    return Statistics(tuple(session.run(planned)), session.cost)


def columns_of(table: Any) -> Iterable[str]:
    """The names of a table's columns."""
    names: Iterable[str] | None = getattr(table, "column_names", None)
    return table if names is None else names


def _table(given: Any, index: int) -> Mapping[str, Any]:
    if isinstance(given, str | Path):
        from simulations.common.client_tables import read_table

        return read_table(given)
    if not hasattr(given, "__getitem__") or isinstance(given, Sequence | np.ndarray):
        valid = "a table: a mapping from columns to values, a data frame, or a path"
        raise ParameterError(f"clients[{index}]", type(given).__name__, valid)
    found: Mapping[str, Any] = given
    return found


def _one(
    sample: Any, question: Question, names: Sequence[str] | None, options: Mapping[str, Any]
) -> PrivateAnswer:
    """One question about one value, or several, of each client."""
    values = sample.tolist() if hasattr(sample, "tolist") else list(sample)
    tables: Any = [{question.name: value} for value in values]
    return private_statistics(_named(tables, names), [question], **options)[question.name]


def _named(tables: list[Any], names: Sequence[str] | None) -> Any:
    """Tables by the names of their clients, if they have any."""
    if names is None:
        return tables
    if len(set(names)) < len(names) or len(names) != len(tables):
        valid = f"{len(tables)}, one of its own for each client"
        raise ParameterError("names", f"{len(names)} of them", valid)
    return dict(zip(names, tables, strict=True))


def private_histogram(
    sample: Sequence[Any] | NDArray[Any],
    bins: int | Sequence[float] = 10,
    *,
    range: tuple[float, float] | None = None,
    names: Sequence[str] | None = None,
    **options: Any,
) -> PrivateAnswer:
    """Count clients in bins; unpacks to counts and edges, as `numpy.histogram` returns them.

    Args:
        sample: of each client one value, or a sequence of them.
        bins, range: as of `numpy.histogram`; chosen without looking at the sample. Values outside
            are counted in the parts `below` and `above`.
        names: of the clients, with a ledger.
        options: of `private_statistics`.
    """
    edges = bins if isinstance(bins, int) else tuple(float(edge) for edge in bins)
    return _one(sample, Histogram(name="histogram", bins=edges, range=range), names, options)


def private_quantile(
    array: Sequence[Any] | NDArray[Any],
    q: float | Sequence[float],
    *,
    bounds: tuple[float, float],
    method: str = "inverted_cdf",
    integers: bool = False,
    levels: int | None = None,
    names: Sequence[str] | None = None,
    **options: Any,
) -> PrivateAnswer:
    """Estimate quantiles over clients; its value has the shape of `q`, as of `numpy.quantile`.

    Args:
        array: of each client one value, or a sequence of them.
        q: in [0, 1].
        bounds: ends that values are clipped to; chosen without looking at them.
        method, integers: as of `Quantiles`.
        levels: of a tree with 4 to its power bins. Left out, 4, or as many as integers within the
            bounds need, 8 at most.
        names: of the clients, with a ledger.
        options: of `private_statistics`.
    """
    if levels is None:
        levels = 4
        if integers and len(bounds) == 2:
            many = min(max(float(bounds[1]) - float(bounds[0]) + 1.0, 4.0), 4.0**8)
            levels = math.ceil(math.log(many, 4.0) - 1e-9)
    question = Quantiles(
        name="quantile",
        q=tuple(np.atleast_1d(q).tolist()),
        bounds=bounds,
        method=method,
        integers=integers,
        levels=levels,
    )
    return _one(array, question, names, options)


def private_top(
    items: Sequence[Sequence[str | int]],
    k: int,
    *,
    epsilon: float,
    delta: float = 1e-6,
    candidates: Sequence[str | int] | None = None,
    alphabet: str = LETTERS,
    longest: int = 8,
    max_items: int = 32,
    dropouts: Dropouts = NOBODY,
    scheme: str | Scheme = "pairwise",
    cryptography: bool = True,
    **plan: Any,
) -> PrivateTop:
    """Find the items that most clients have: of a list in two rounds, or letter by letter.

    Args:
        items: of each client.
        k: items to find.
        epsilon, delta: of the promise to every client, over all rounds of the call.
        candidates: all that are counted; an open domain if left out.
        alphabet, longest: of an open domain: letters, and how many an item has at most.
        max_items: votes of a client. The noise grows with the root of it.
        dropouts, scheme, cryptography, plan: as of `private_statistics`.

    Raises:
        ParameterError: figures that do not fit together.
    """
    require_int("max_items", max_items, 1)
    if candidates is None:
        rounds = len(open_rounds(longest, len(set(alphabet)), k)) + 1
    else:
        rounds = 2
    goal = PrivacyGoal(epsilon=epsilon, delta=delta, rounds=rounds)
    tables = [{"item": list(each)} for each in items]
    with tempfile.TemporaryDirectory(prefix="veilsum-top-") as folder:
        session = LocalSurveys(
            _plan(len(tables), goal, scheme, plan),
            people_of(None, len(tables), None),
            tables,
            ledger=Path(folder) / "ledger.jsonl",
            cryptography=cryptography,
            dropouts=dropouts,
        )
        if candidates is None:
            find = partial(opened, alphabet=alphabet, longest=longest)
            found = find(session.shared, k, votes=max_items, column="item")
        else:
            found = listed(session.shared, candidates, k, votes=max_items, column="item")
        return PrivateTop(found.items, found.counts, found.rounds, session.cost)


def private_evaluation(
    y_true: Sequence[Any] | NDArray[Any],
    y_score: Sequence[Any] | NDArray[Any],
    *,
    bins: int = 32,
    loss_bounds: tuple[float, float] = (0.0, 4.0),
    names: Sequence[str] | None = None,
    **options: Any,
) -> Statistics:
    """Evaluate a binary classifier on records that no client shows.

    The answers are `evaluation`, whose value is the area under the curve, with accuracy, precision,
    recall and calibration as its parts; `confusion`, a table of labels and predictions at 0.5,
    which is more exact; and `loss`, the mean log loss, clipped.

    Args:
        y_true: of each client one label of 0 and 1, or a sequence of them.
        y_score: likewise, probabilities of 1.
        bins: of the score.
        loss_bounds: that the log loss of a record is clipped to.
        names: of the clients, with a ledger.
        options: of `private_statistics`; `max_records` where clients have several records.
    """
    if len(y_true) != len(y_score):
        raise ParameterError("y_score", len(y_score), f"{len(y_true)}, as many as y_true")
    tables: Any = []
    for labels, scores in zip(y_true, y_score, strict=True):
        pairs = zip(np.atleast_1d(labels), np.atleast_1d(scores), strict=False)
        rows = [_judged(real(label), real(score)) for label, score in pairs]
        tables.append({key: [row[key] for row in rows] for key in _JUDGED})
    tables = _named(tables, names)
    questions = (
        Evaluation(name="evaluation", bins=bins),
        Table(name="confusion", row="label", rows=(0, 1), column="said", columns_of=(0, 1)),
        Mean(name="loss", range=loss_bounds),
    )
    # An area takes many cells, and the table of four is the more exact one anyhow.
    return private_statistics(tables, questions, **{"importance": {"evaluation": 16.0}, **options})


_JUDGED: Final = ("label", "score", "said", "loss")


def _judged(label: float | None, score: float | None) -> dict[str, float | None]:
    """One record as it is asked about; no answer at all where label or score is none."""
    if label not in (0.0, 1.0) or score is None or not 0.0 <= score <= 1.0:
        return dict.fromkeys(_JUDGED)
    p = score if label == 1.0 else 1.0 - score
    said, loss = float(score >= 0.5), -math.log(max(p, 1e-300))
    return {"label": label, "score": score, "said": said, "loss": loss}
