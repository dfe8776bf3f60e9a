"""A survey: questions with integer weights, and what one client changes at most.

The canonical bytes of a survey are what clients receive, and their hash is bound into the round as
that of a model is: a client that was told another survey contributes noise.

Source: docs/statistics.md, "Several questions".
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dp.records import canonical_json
from dp.rounding import largest_square
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.noise.calibration import noise_of_integers
from protocol.round.parameters import RoundParameters
from protocol.round.policy import ClientPolicy
from protocol.statistics.answers import Answer
from protocol.statistics.codebooks import MOST_TOKENS, Codebook, Tokens, Uniform, Word
from protocol.statistics.evaluation import Evaluation
from protocol.statistics.items import Items
from protocol.statistics.questions import (
    MOST_CELLS,
    Categories,
    Count,
    GroupMeans,
    Histogram,
    Mean,
    Quantiles,
    Question,
    Record,
    Summed,
    Table,
    records_of,
)
from secagg import ParameterError
from secagg.checks import require_int
from secagg.keys import os_random
from secagg.shamir import Rand

KINDS: Final[Mapping[str, type[Question]]] = {
    kind.KIND: kind
    for kind in (
        Count,
        Histogram,
        Categories,
        Table,
        Mean,
        GroupMeans,
        Quantiles,
        Evaluation,
        Items,
    )
}
WEIGHTS: Final = ("client", "record")

_LABEL: Final = b"veilsum/stats/1"
_CLOSE: Final = 1.01
"""Standard deviation of a sum's noise over that of the Gaussian mechanism at the same epsilon; and
the weighted error of integer weights over that of real ones."""
MOST_CHANGE: Final = 1 << 16
"""In one place: what policies accept if they are not told otherwise."""
_MOST_DOUBLINGS: Final = 16


_UNREADABLE: Final = (
    *(msgspec.MsgspecError, TypeError, ValueError, KeyError, AttributeError),
    *(ArithmeticError, RecursionError),
)


def uniforms(rand: Rand) -> Uniform:
    """Secret uniform numbers, of 53 bits."""
    return lambda: (int.from_bytes(rand(8)) >> 11) * 2.0**-53


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What all clients are asked in one round.

    Args:
        questions: with names of their own.
        weights: a positive integer for each; see `weighted`.
        weight: whether every client weighs alike, or every record.
        max_records: tokens of a client: of clients that weigh alike, the parts that their records
            share; of records that do, the most of one client that count.

    Raises:
        ParameterError: no such survey.
    """

    questions: tuple[Question, ...]
    weights: tuple[int, ...] = ()
    weight: str = "client"
    max_records: int = 1

    def __post_init__(self) -> None:
        questions = tuple(self.questions)
        object.__setattr__(self, "questions", questions)
        object.__setattr__(self, "weights", tuple(self.weights) or (1,) * len(questions))
        if not questions or not all(isinstance(each, Question) for each in questions):
            valid = f"at least one question, of {', '.join(k.__name__ for k in KINDS.values())}"
            raise ParameterError("questions", self.questions, valid)
        names = [question.name for question in questions]
        if len(set(names)) < len(names) or not all(isinstance(n, str) and n for n in names):
            raise ParameterError("questions", f"named {names}", "a name of its own for each")
        if self.weight not in WEIGHTS:
            raise ParameterError("weight", self.weight, f"one of {', '.join(WEIGHTS)}")
        for question in questions:
            if not all(isinstance(column, str) for column in question.columns):
                raise ParameterError(f"column of {question.name!r}", question.columns, "a str")
        require_int("max_records", self.max_records, 1, MOST_TOKENS)
        if len(self.weights) != len(questions):
            raise ParameterError("weights", len(self.weights), "one for each question")
        for weight in self.weights:
            require_int("weights", weight, 1, MOST_CHANGE)
        if self.max_records > 1 and any(isinstance(each, Items) for each in questions):
            raise ParameterError("max_records", self.max_records, "1 beside items, which are a set")
        if not self.length <= MOST_CELLS:
            raise ParameterError("questions", f"{self.length} numbers", f"at most {MOST_CELLS}")

    @property
    def columns(self) -> frozenset[str]:
        """What its questions ask for."""
        return frozenset(column for each in self.questions for column in each.columns)

    @property
    def tokens(self) -> Tokens:
        """How a client's records share its vote."""
        return Tokens(self.max_records, self.weight == "record")

    @cached_property
    def books(self) -> list[Codebook]:
        """Of all questions."""
        return [question.book(self.max_records) for question in self.questions]

    @cached_property
    def length(self) -> int:
        """Integers of a client."""
        return sum(book.length for book in self.books)

    @property
    def square(self) -> int:
        """The square of what one client changes at most, in either sense."""
        pairs = zip(self.weights, self.books, strict=True)
        return self.max_records**2 * sum(weight**2 * book.square for weight, book in pairs)

    @property
    def l2_bound(self) -> float:
        """The least float whose exact square is not below `square`."""
        bound = math.sqrt(self.square)
        while Fraction(bound) ** 2 < self.square:
            bound = math.nextafter(bound, math.inf)
        return bound

    @property
    def linf_bound(self) -> int:
        """What one client changes in one place at most."""
        pairs = zip(self.weights, self.books, strict=True)
        return self.max_records * max(weight * book.largest for weight, book in pairs)

    def check(self, parameters: RoundParameters) -> None:
        """See that a round takes these integers, with noise for all that one client changes.

        A client elsewhere does so before it joins: its policy does not know the survey.

        Raises:
            PolicyError: it does not. This depends on no data.
        """
        if not parameters.integers:
            raise PolicyError("integers", False, "rounds of integers for a survey")
        square = largest_square(parameters.l2_bound)
        for name, announced, lowest in (
            ("l2_bound squared", square, self.square),
            ("linf_bound", parameters.linf_bound, self.linf_bound),
        ):
            if announced < lowest:
                raise PolicyError(name, announced, f"at least the survey's {lowest}")

    def policy(self, policy: ClientPolicy) -> ClientPolicy:
        """What a client insists on in its round: its clip is what one client changes, in integers.

        Everything else is as in training, the goal and its equal shares among it.
        """
        return dataclasses.replace(policy, largest_clip_l2=self.l2_bound, dimension=self.length)

    def check_columns(self, columns: Iterable[str]) -> None:
        """See that somebody's tables have what is asked for; clients elsewhere are never checked.

        Raises:
            ParameterError: a question asks for a column that nobody has.
        """
        known = set(columns)
        for question in self.questions:
            for column in question.columns:
                if column not in known:
                    valid = f"one of {', '.join(sorted(map(str, known)))}"
                    raise ParameterError(f"column of {question.name!r}", column, valid)

    def encode(self, table: Mapping[str, Any], rand: Rand = os_random) -> NDArray[np.int64]:
        """A client's answers to all questions: int64[length]. Bad data never raises.

        Args:
            table: columns by name, each one value or a sequence of them.
            rand: secret; draws tokens, and rounds.
        """
        uniform, parts = uniforms(rand), []
        for question, book, weight in zip(self.questions, self.books, self.weights, strict=True):
            part = np.zeros(book.length, np.int64)
            for word in self._words(question, book, table, uniform):
                for index, value in word:
                    part[index] += value
            parts.append(weight * part)
        return np.concatenate(parts)

    def _words(
        self, question: Question, book: Codebook, table: Mapping[str, Any], uniform: Uniform
    ) -> Iterator[Word]:
        places = _places(question, table)
        if isinstance(question, Items):
            yield question.words_of(places, uniform)
            return
        # In order, so that what is drawn is spread over them.
        known = sorted(place for place in places if place is not None)
        known += [None] * (len(places) - len(known))
        for chosen in self.tokens.chosen(len(known), uniform):
            place = None if chosen is None else known[chosen]
            yield book.missing if place is None else question.word(book, place, uniform)

    def answers(self, total: NDArray[np.float64], deviation: float, clients: int) -> list[Answer]:
        """What the sum over so many clients says.

        Args:
            total: float64[length].
            deviation: of its noise, in each place.
        """
        found, start = [], 0
        for question, book, weight in zip(self.questions, self.books, self.weights, strict=True):
            summed = Summed(
                total[start : start + book.length] / weight,
                deviation / weight,
                clients,
                self.max_records,
                self.tokens.by_record,
            )
            found.append(question.answer(summed))
            start += book.length
        return found

    def even(self, clients: int) -> NDArray[np.float64]:
        """A sum of so many clients, spread evenly over all codewords: float64[length]."""
        parts = []
        for book, weight in zip(self.books, self.weights, strict=True):
            part, words = np.zeros(book.length), list(book.words())
            for word in words:
                for index, value in word:
                    part[index] += value
            parts.append(part * (weight * clients * self.max_records / len(words)))
        return np.concatenate(parts)

    def written(self) -> bytes:
        """The canonical bytes, which clients receive."""
        questions = [{"kind": each.KIND, **dataclasses.asdict(each)} for each in self.questions]  # type: ignore[call-overload]
        return canonical_json(
            {
                "questions": questions,
                "weights": self.weights,
                "weight": self.weight,
                "max_records": self.max_records,
            }
        )

    @staticmethod
    def declared_digest(data: bytes) -> bytes:
        """The digest that the survey of canonical bytes has while all its weights are 1.

        Nothing is made of them: a question may ask for more memory than its bytes.

        Raises:
            ParameterError: they are none.
        """
        try:
            fields = dict(msgspec.json.decode(data))
            fields["weights"] = [1] * len(fields["questions"])
            return hashlib.sha256(_LABEL + canonical_json(fields)).digest()
        except _UNREADABLE as error:
            raise ParameterError("survey", f"({error})", "the bytes of a survey") from None

    @classmethod
    def read(cls, data: bytes) -> Survey:
        """The survey of canonical bytes.

        Raises:
            ParameterError: they are none.
        """
        try:
            fields = msgspec.json.decode(data)
            questions = tuple(question_of(each) for each in fields.pop("questions"))
            survey = cls(questions=questions, **fields)
        except _UNREADABLE as error:
            raise ParameterError("survey", f"({error})", "the bytes of a survey") from None
        if survey.written() != data:
            raise ParameterError("survey", "written otherwise", "its canonical bytes")
        return survey

    @property
    def digest(self) -> bytes:
        """What is bound into the round: 32 bytes."""
        return hashlib.sha256(_LABEL + self.written()).digest()


def _places(question: Question, table: Mapping[str, Any]) -> list[Any]:
    """The places of a client's records; None for each that is no answer.

    Whatever is raised on the way hangs on the client's data, and must not be told by silence.
    """
    try:
        records = list(records_of(table, question.columns))
    except Exception:
        return []
    return [_place(question, record) for record in records]


def _place(question: Question, record: Record) -> Any:
    try:
        return question.place(record)
    except Exception:
        return None


def question_of(fields: Mapping[str, Any]) -> Question:
    """A question from its fields, the kind among them.

    Raises:
        ParameterError: no such question.
    """
    fields = {name: _frozen(value) for name, value in fields.items()}
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        raise ParameterError("kind", kind, f"one of {', '.join(KINDS)}")
    known = {each.name for each in dataclasses.fields(KINDS[kind])}  # type: ignore[arg-type]
    for name in fields:
        if name not in known:
            raise ParameterError(name, fields[name], f"one of {', '.join(sorted(known))}")
    try:
        return KINDS[kind](**fields)
    except TypeError as error:
        raise ParameterError("question", f"({error})", f"a {kind} with all it needs") from None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def noise_ratio(
    survey: Survey, goal: PrivacyGoal, fewest_honest: int, mechanism: str, errors: float
) -> float:
    """Standard deviation of the noise, with the fewest honest, over that of a central Gaussian."""
    noise = noise_of_integers(goal, mechanism, survey.l2_bound, survey.linf_bound, fewest_honest)
    deviation = math.sqrt(fewest_honest * (noise.variance + errors))
    return deviation / (goal.noise_multiplier * survey.l2_bound)


def weighted(
    survey: Survey,
    goal: PrivacyGoal,
    *,
    fewest_honest: int,
    importance: Mapping[str, float] | None = None,
    mechanism: str = "binomial",
    errors: float = 0.0,
) -> Survey:
    """The survey with integer weights: the best for the importance, and fine enough for the noise.

    Args:
        goal: of this round.
        importance: c by the question's name, 1 where left out: of the squared error of each number
            of its main estimate.
        errors: variance that the scheme adds to a client's place.

    Raises:
        ParameterError: no such importance, or no weights bring the noise close.
    """
    given = dict(importance or {})
    names = [question.name for question in survey.questions]
    for name, value in given.items():
        if name not in names:
            raise ParameterError("importance", name, f"of a question: {', '.join(names)}")
        if type(value) not in (int, float) or not 1e-6 <= value <= 1e6:
            raise ParameterError(f"importance[{name!r}]", value, "a number in 1e-6 .. 1e6")
    shares = [
        math.sqrt(math.sqrt(given.get(q.name, 1.0) * q.numbers / book.square) / book.unit)
        for q, book in zip(survey.questions, survey.books, strict=True)
    ]
    # The smallest weight is 1 to begin with.
    shares = [share / min(shares) for share in shares]

    def cost(weights: Sequence[float]) -> float:
        """The weighted squared error, over that of the noise, but for a common factor."""
        of = zip(survey.questions, survey.books, weights, strict=True)
        each = [(given.get(q.name, 1.0) * q.numbers, b, weight) for q, b, weight in of]
        change = sum(weight**2 * book.square for _, book, weight in each)
        return change * sum(wanted / (weight * book.unit) ** 2 for wanted, book, weight in each)

    best = None
    for doubling in range(_MOST_DOUBLINGS):
        weights = tuple(round(share * 2**doubling) for share in shares)
        found = dataclasses.replace(survey, weights=weights)
        if not found.linf_bound <= MOST_CHANGE:
            break
        try:
            close = noise_ratio(found, goal, fewest_honest, mechanism, errors) <= _CLOSE
        except ParameterError:
            break  # Larger integers need more noise still.
        best = found if close else best
        if close and cost(weights) <= _CLOSE * cost(shares):
            break
    if best is not None:
        return best
    valid = (
        "larger; or fewer questions, or smaller max_records than "
        f"{survey.max_records}: no noise in integers meets it as it is"
    )
    raise ParameterError("epsilon", goal.epsilon, valid)
