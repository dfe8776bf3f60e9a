"""The questions of a survey: what a client's records become, and what the sum of all says.

A question knows its columns and its codebook. On a client bad data never raises: what cannot be
read is no answer, and is counted as `missing`. At the caller everything that is no question raises.

Not here: weights, and how many tokens a client has; see `survey`.
"""

from __future__ import annotations

import math
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from protocol.statistics.answers import (
    FEWEST_ERRORS,
    Answer,
    Estimate,
    QuantileEstimate,
    ratio,
    stacked,
)
from protocol.statistics.codebooks import (
    Cells,
    Codebook,
    Grouped,
    Moments,
    Paths,
    Uniform,
    Word,
    moments,
    unit_of,
)
from protocol.statistics.tree import BRANCHES, isotonic, prefixes
from secagg import ParameterError

Floats = NDArray[np.float64]
Record = Sequence[Any]
"""What a client has in the columns of a question."""

MOST_CELLS: Final = 1 << 20
MOST_LABEL: Final = 1 << 10
"""Letters of a category."""
_ROUND: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Summed:
    """The sum of all clients' codewords to one question.

    Attributes:
        values: float64[length].
        deviation: of the noise in each of them.
        clients: who are in the sum.
        tokens: of each client.
        by_record: whether records weigh alike.
    """

    values: Floats
    deviation: float
    clients: int
    tokens: int
    by_record: bool

    @property
    def each(self) -> float:
        """Tokens of what is counted: a client's, or a record's."""
        return 1.0 if self.by_record else float(self.tokens)

    @property
    def drawn(self) -> float:
        """Largest variance that the draw of tokens gives the count of a cell.

        For each client a quarter: ordered records make it one of two neighbouring integers. With
        one token a client is taken to have one record, and nothing is drawn.
        """
        return 0.25 * self.clients if self.tokens > 1 else 0.0


class Question(ABC):
    """One question. Its fields are its canonical form, as JSON."""

    KIND: ClassVar[str]
    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Of a client's table, that it asks for."""
        return (getattr(self, "column", "") or self.name,)

    @property
    def numbers(self) -> int:
        """Of its main estimate, whose errors decide on its weight."""
        return 1

    @abstractmethod
    def book(self, tokens: int) -> Codebook:
        """Its codewords, where a client has so many tokens."""

    @abstractmethod
    def place(self, record: Record) -> Any:
        """Where a record belongs, in an order of places; None if it is no answer."""

    @abstractmethod
    def word(self, book: Any, place: Any, uniform: Uniform) -> Word:
        """The codeword of a place."""

    @abstractmethod
    def answer(self, summed: Summed) -> Answer:
        """What a sum says."""


def real(value: Any) -> float | None:
    """A finite number, whatever it comes as; None for anything else."""
    if value is np.ma.masked:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def plain(value: Any) -> Any:
    """A category as Python has it; text in Unicode's normal form."""
    value = value.item() if isinstance(value, np.generic) else value
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def take_tuples(question: Question, *names: str) -> None:
    """Have lists and arrays as tuples of plain values, which are hashed and written down."""
    for name in names:
        value = getattr(question, name)
        value = value.tolist() if hasattr(value, "tolist") else value
        object.__setattr__(question, name, tuple(value) if isinstance(value, list) else value)


def _check_range(name: str, value: object) -> None:
    valid = "two finite numbers, the smaller first; choose it without looking at the data"
    ends = list(value) if isinstance(value, Sequence) else []
    if len(ends) != 2 or any(
        isinstance(end, bool) or not isinstance(end, int | float) for end in ends
    ):
        raise ParameterError(name, value, valid)
    low, high = (real(end) for end in ends)
    # As wide as bins can divide, and no wider than a float.
    if low is None or high is None or not 1e-300 < high - low < math.inf:
        raise ParameterError(name, value, valid)


def check_categories(name: str, given: object) -> None:
    """See that categories are plain values of one kind, each once."""
    valid = "at least one category, each once: plain str, int or bool, text in the form NFC"
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ParameterError(name, given, valid)
    for each in given:
        plain_text = isinstance(each, str) and plain(each) == each and len(each) <= MOST_LABEL
        if not (plain_text or type(each) in (int, bool)):
            raise ParameterError(name, each, valid)
    if len(set(given)) < len(given):
        raise ParameterError(name, "with one that comes twice", valid)


def _fixed(summed: Summed) -> tuple[Floats, float]:
    """Counts of cells that add up to all tokens, and the variance of each.

    The sum of all cells is known, so its error is shared out: the projection of Gaussian noise.
    """
    values, length = summed.values, summed.values.size
    surplus = values.sum() - summed.clients * summed.tokens
    variance = summed.deviation**2 * (1.0 - 1.0 / length) + summed.drawn
    return (values - surplus / length) / summed.each, variance / summed.each**2


def _part(values: Floats, variance: float, index: int) -> Estimate:
    return Estimate(float(values[index]), math.sqrt(variance))


class _OneHot(Question):
    """Questions whose records fall into cells."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """Cells, besides that for no answer."""

    def book(self, tokens: int) -> Cells:
        """As `Question.book` says."""
        del tokens
        if not self.cells <= MOST_CELLS:
            raise ParameterError(self.name, f"{self.cells} cells", f"at most {MOST_CELLS}")
        return Cells(self.cells)

    def word(self, book: Cells, place: int, uniform: Uniform) -> Word:
        """As `Question.word` says."""
        return book.word(place)


class _Labelled(_OneHot):
    """Questions that are answered by the counts of all their cells."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """One for each cell."""

    @property
    def numbers(self) -> int:
        """As `Question.numbers` says: one for each cell."""
        return self.cells

    def answer(self, summed: Summed) -> Answer:
        """As `Question.answer` says."""
        counts, variance = _fixed(summed)
        main = Estimate(counts[:-1], np.full(self.cells, math.sqrt(variance)))
        parts = {"missing": _part(counts, variance, -1)}
        return Answer(
            name=self.name, kind=self.KIND, labels=self.labels, estimate=main, parts=parts
        )


@dataclass(frozen=True, kw_only=True)
class Count(_OneHot):
    """How many say yes: values that are true.

    The answer is the count; its parts are `share` of those who answered, and `missing`.
    """

    KIND: ClassVar[str] = "count"

    name: str
    column: str = ""

    @property
    def cells(self) -> int:
        """No and yes."""
        return 2

    def place(self, record: Record) -> int | None:
        """As `Question.place` says: 0 or 1."""
        value = real(record[0])
        return int(value) if value in (0.0, 1.0) else None

    def answer(self, summed: Summed) -> Answer:
        """As `Question.answer` says."""
        counts, variance = _fixed(summed)
        no, yes = float(counts[0]), float(counts[1])
        share = yes / (no + yes) if no + yes else math.nan
        # Cells of a fixed total: their errors have this variance together.
        whole = variance * 3.0 / 2.0
        of = whole * ((1.0 - share) ** 2 + share**2 - (1.0 - 2.0 * share) ** 2 / 3.0)
        parts = {
            "share": ratio(yes, no + yes, math.sqrt(variance), of),
            "missing": _part(counts, variance, 2),
        }
        main = Estimate(yes, math.sqrt(variance))
        return Answer(name=self.name, kind=self.KIND, labels=("yes",), estimate=main, parts=parts)


@dataclass(frozen=True, kw_only=True)
class Histogram(_OneHot):
    """Counts in bins, as `numpy.histogram` has them: the last one has both its ends.

    Its parts are `below` and `above` the range, and `missing`.

    Args:
        bins: how many of equal width within `range`, or all their edges.
        range: ends; left out where `bins` are edges.
    """

    KIND: ClassVar[str] = "histogram"

    name: str
    bins: int | Sequence[float] = 10
    range: Sequence[float] | None = None
    column: str = ""

    def __post_init__(self) -> None:
        take_tuples(self, "bins", "range")
        if isinstance(self.bins, int) and not isinstance(self.bins, bool):
            if not 1 <= self.bins <= MOST_CELLS:
                raise ParameterError("bins", self.bins, f"1 .. {MOST_CELLS}, or edges")
            _check_range("range", self.range)
            return
        valid = "a number of bins, or at least two finite edges that ascend; none from the data"
        ends = [real(e) for e in self.bins] if isinstance(self.bins, Sequence) else []
        if isinstance(self.bins, str) or len(ends) < 2 or None in ends:
            raise ParameterError("bins", self.bins, valid)
        if not (np.diff(np.asarray(ends, np.float64)) > 0.0).all():
            raise ParameterError("bins", self.bins, valid)
        if self.range is not None:
            raise ParameterError("range", self.range, "left out beside edges")

    @property
    def numbers(self) -> int:
        """One for each bin."""
        return int(self.edges.size) - 1

    @cached_property
    def edges(self) -> Floats:
        """float64[bins + 1]."""
        if isinstance(self.bins, int) and self.range is not None:
            return np.linspace(float(self.range[0]), float(self.range[1]), self.bins + 1)
        return np.asarray(self.bins, np.float64)

    @property
    def cells(self) -> int:
        """Bins, below, above."""
        return self.edges.size + 1

    def place(self, record: Record) -> int | None:
        """As `Question.place` says."""
        value = real(record[0])
        if value is None:
            return None
        edges = self.edges
        bins = edges.size - 1
        if value < edges[0] or value > edges[-1]:
            return bins + int(value > edges[-1])
        return min(int(np.searchsorted(edges, value, "right")) - 1, bins - 1)

    def answer(self, summed: Summed) -> Answer:
        """As `Question.answer` says."""
        counts, variance = _fixed(summed)
        edges = self.edges
        bins = edges.size - 1
        names = ("below", "above", "missing")
        parts = {name: _part(counts, variance, bins + at) for at, name in enumerate(names)}
        labels = tuple(f"{low:g} .. {high:g}" for low, high in pairwise(edges))
        main = Estimate(counts[:bins], np.full(bins, math.sqrt(variance)))
        return Answer(
            name=self.name, kind=self.KIND, labels=labels, estimate=main, parts=parts, edges=edges
        )


@dataclass(frozen=True, kw_only=True)
class Categories(_Labelled):
    """How many are in each category, as `pandas.Series.value_counts` in a fixed order.

    Args:
        categories: all that there may be.
        other: count others apart; else they are no answer.
    """

    KIND: ClassVar[str] = "categories"

    name: str
    categories: Sequence[str | int | bool]
    other: bool = False
    column: str = ""

    def __post_init__(self) -> None:
        take_tuples(self, "categories")
        check_categories("categories", self.categories)

    @property
    def cells(self) -> int:
        """Categories, and others."""
        return len(self.categories) + self.other

    def place(self, record: Record) -> int | None:
        """As `Question.place` says."""
        return category(record[0], self.categories, self.other)

    @property
    def labels(self) -> tuple[str, ...]:
        """Categories, and others."""
        return (*map(str, self.categories), *(("other",) if self.other else ()))


def category(value: Any, categories: Sequence[Any], other: bool = False) -> int | None:
    """The place of a category."""
    value = plain(value)
    if (
        value is None
        or value is np.ma.masked
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        return None
    try:
        return categories.index(value)
    except ValueError:
        return len(categories) if other else None


@dataclass(frozen=True, kw_only=True)
class Table(_Labelled):
    """How many are in each pair of categories, as `pandas.crosstab`; the value has rows first.

    Args:
        rows, columns_of: categories of the two columns.
        row, column: names of the columns.
    """

    KIND: ClassVar[str] = "table"

    name: str
    row: str
    rows: Sequence[str | int | bool]
    column: str
    columns_of: Sequence[str | int | bool]

    def __post_init__(self) -> None:
        take_tuples(self, "rows", "columns_of")
        check_categories("rows", self.rows)
        check_categories("columns_of", self.columns_of)

    @property
    def columns(self) -> tuple[str, str]:
        """Of rows, and of columns."""
        return self.row, self.column

    @property
    def cells(self) -> int:
        """One for each pair of categories."""
        return len(self.rows) * len(self.columns_of)

    def place(self, record: Record) -> int | None:
        """As `Question.place` says."""
        row, column = category(record[0], self.rows), category(record[1], self.columns_of)
        return None if row is None or column is None else row * len(self.columns_of) + column

    @property
    def labels(self) -> tuple[str, ...]:
        """One for each pair, rows first."""
        return tuple(f"{row} / {column}" for row in self.rows for column in self.columns_of)


def _unit(value: Any, ends: Sequence[float]) -> float | None:
    """A number on [-1, 1], clipped to its range."""
    number = real(value)
    if number is None:
        return None
    low, high = ends
    return min(max((number - low) / (high - low) * 2.0 - 1.0, -1.0), 1.0)


@dataclass(frozen=True, kw_only=True)
class Mean(Question):
    """Mean of a number that is clipped to a range.

    Its parts are `variance`, `deviation` and `answered`.

    Args:
        range: ends.
    """

    KIND: ClassVar[str] = "mean"

    name: str
    range: Sequence[float]
    column: str = ""

    def __post_init__(self) -> None:
        take_tuples(self, "range")
        _check_range("range", self.range)

    def book(self, tokens: int) -> Moments:
        """As `Question.book` says."""
        return moments(unit_of(tokens))

    def place(self, record: Record) -> float | None:
        """As `Question.place` says."""
        return _unit(record[0], self.range)

    def word(self, book: Moments, place: float, uniform: Uniform) -> Word:
        """As `Question.word` says."""
        return book.word(place, uniform)

    def answer(self, summed: Summed) -> Answer:
        """As `Question.answer` says."""
        book, noise = self.book(summed.tokens), summed.deviation
        counted, linear, square = summed.values
        answered = float(counted) / book.answered
        x = float(linear) / book.linear / answered if answered else math.nan
        offset = book.offset / book.answered
        second = (float(square) + book.offset * answered) / book.quadratic
        x2 = second / answered if answered else math.nan
        # Independent errors of what is answered, of x, and of x^2. Rounding has a variance of a
        # quarter for each token in the last two. The draw has one of 1 for each client in sums of x
        # and of x^2: over ordered records both vary by 2 in all, so their sums stay within 2.
        drawn = math.hypot(noise, 0.5 * math.sqrt(summed.clients * summed.tokens))
        many = math.sqrt(4.0 * summed.drawn)
        of_answered, of_linear = noise / book.answered, math.hypot(drawn / book.linear, many)
        of_square = math.hypot(drawn / book.quadratic, many)
        mean = ratio(x * answered, answered, of_answered, of_linear**2 + (x * of_answered) ** 2)
        # Of x^2 - mean^2: errors of the answered are in both.
        slope = offset * book.answered / book.quadratic - x2 + 2.0 * x * x
        of_variance = of_square**2 + (slope * of_answered) ** 2 + (2.0 * x * of_linear) ** 2
        spread = ratio((x2 - x * x) * answered, answered, of_answered, of_variance)
        half, middle = 0.5 * (self.range[1] - self.range[0]), 0.5 * sum(self.range)
        variance = Estimate(half**2 * spread.value, half**2 * spread.standard_error)
        deviation = math.sqrt(variance.value) if variance.value > 0.0 else math.nan
        parts = {
            "variance": variance,
            "deviation": Estimate(
                deviation,
                variance.standard_error / (2.0 * deviation) if variance.value > 0.0 else math.inf,
            ),
            "answered": Estimate(answered / summed.each, of_answered / summed.each),
        }
        main = Estimate(middle + half * mean.value, half * mean.standard_error)
        return Answer(name=self.name, kind=self.KIND, labels=("mean",), estimate=main, parts=parts)


@dataclass(frozen=True, kw_only=True)
class GroupMeans(Question):
    """Mean of a number in each group, as `DataFrame.groupby(...).mean()`; its part is `count`.

    Means of groups that may be empty, by their noisy count, are NaN.

    Args:
        range: ends that the number is clipped to.
        by: column of the groups.
        groups: all that there may be.
        column: of the number.
    """

    KIND: ClassVar[str] = "group-means"

    name: str
    range: Sequence[float]
    by: str
    groups: Sequence[str | int | bool]
    column: str = ""

    def __post_init__(self) -> None:
        take_tuples(self, "range", "groups")
        _check_range("range", self.range)
        check_categories("groups", self.groups)
        if not 2 * len(self.groups) <= MOST_CELLS:
            raise ParameterError("groups", len(self.groups), f"at most {MOST_CELLS // 2}")

    @property
    def columns(self) -> tuple[str, str]:
        """Of groups, and of the number."""
        return self.by, self.column or self.name

    @property
    def numbers(self) -> int:
        """One for each group."""
        return len(self.groups)

    def book(self, tokens: int) -> Grouped:
        """As `Question.book` says."""
        return Grouped(len(self.groups), unit_of(tokens))

    def place(self, record: Record) -> tuple[int, float] | None:
        """As `Question.place` says."""
        group, x = category(record[0], self.groups), _unit(record[1], self.range)
        return None if group is None or x is None else (group, x)

    def word(self, book: Grouped, place: tuple[int, float], uniform: Uniform) -> Word:
        """As `Question.word` says."""
        return book.word(*place, uniform)

    def answer(self, summed: Summed) -> Answer:
        """As `Question.answer` says."""
        book = self.book(summed.tokens)
        half, middle = 0.5 * (self.range[1] - self.range[0]), 0.5 * sum(self.range)
        each, drawn = summed.deviation / book.one, math.sqrt(0.25 * summed.clients * summed.tokens)
        # A draw moves the sum of a group's x, less its mean, by 4 at most, a variance of 4.
        of_x = math.hypot(math.hypot(summed.deviation, drawn) / book.one, 4 * summed.drawn**0.5)
        of_count = math.sqrt(each**2 + summed.drawn)
        counts, totals = summed.values.reshape(-1, 2).T / book.one
        means = []
        for count, total in zip(counts, totals, strict=True):
            x = total / count if count else math.nan
            found = ratio(total, count, of_count, of_x**2 + (x * each) ** 2)
            means.append(Estimate(middle + half * found.value, half * found.standard_error))
        size = Estimate(counts / summed.each, np.full(counts.size, of_count / summed.each))
        return Answer(
            name=self.name,
            kind=self.KIND,
            labels=tuple(map(str, self.groups)),
            estimate=stacked(means),
            parts={"count": size},
        )


METHODS: Final = ("inverted_cdf", "linear")


@dataclass(frozen=True, kw_only=True)
class Quantiles(Question):
    """Quantiles of a number that is clipped to bounds, by counts along a tree over equal bins.

    Its part is `answered`. The value is that of the bin in which the quantile lies: the integer, or
    the middle; `bias_bound` says how far off that may be.

    Args:
        q: in [0, 1].
        bounds: ends.
        method: of `numpy.quantile`: `inverted_cdf`, or `linear` within the bin.
        integers: whether bins are of one integer, or of several, with their least as the value.
        levels: of the tree; 4 to its power bins.
    """

    KIND: ClassVar[str] = "quantiles"

    name: str
    q: Sequence[float]
    bounds: Sequence[float]
    method: str = "inverted_cdf"
    integers: bool = False
    levels: int = 4
    column: str = ""

    def __post_init__(self) -> None:
        take_tuples(self, "q", "bounds")
        _check_range("bounds", self.bounds)
        valid = "numbers in [0, 1], one at least"
        if isinstance(self.q, str) or not isinstance(self.q, Sequence) or not self.q:
            raise ParameterError("q", self.q, valid)
        if not all((each := real(q)) is not None and 0.0 <= each <= 1.0 for q in self.q):
            raise ParameterError("q", self.q, valid)
        if self.method not in METHODS:
            raise ParameterError("method", self.method, f"one of {', '.join(METHODS)}")
        if type(self.levels) is not int or not 1 <= self.levels <= 9:
            raise ParameterError("levels", self.levels, "1 .. 9: 4 to 262,144 bins")
        if self.integers and any(float(end) != int(end) for end in self.bounds):
            raise ParameterError("bounds", self.bounds, "integers, with integers=True")

    @property
    def numbers(self) -> int:
        """One for each quantile."""
        return len(self.q)

    @property
    def width(self) -> float:
        """Of a bin."""
        low, high = map(float, self.bounds)
        bins = BRANCHES**self.levels
        return float(-(-(int(high - low) + 1) // bins)) if self.integers else (high - low) / bins

    @cached_property
    def points(self) -> Floats:
        """Ends of the bins: float64[bins + 1]."""
        return float(self.bounds[0]) + self.width * np.arange(BRANCHES**self.levels + 1)

    def book(self, tokens: int) -> Paths:
        """As `Question.book` says."""
        root = math.isqrt(self.levels)
        whole = root * root == self.levels
        return Paths(self.levels, 1 if whole else max(1, 16 // tokens))

    def place(self, record: Record) -> int | None:
        """As `Question.place` says."""
        value = real(record[0])
        if value is None:
            return None
        low, high = map(float, self.bounds)
        value = min(max(value, low), high)
        leaf = int((value - low) / self.width * (1.0 + _ROUND))
        return min(leaf, self.points.size - 2)

    def word(self, book: Paths, place: int, uniform: Uniform) -> Word:
        """As `Question.word` says."""
        return book.word(place)

    def answer(self, summed: Summed) -> Answer:
        """As `Question.answer` says."""
        book = self.book(summed.tokens)
        counts, absent = summed.values[:-1] / book.entry, summed.values[-1] / book.absent
        variance = (summed.deviation / book.entry) ** 2 + summed.drawn
        of_absent = (summed.deviation / book.absent) ** 2 + summed.drawn
        total = summed.clients * summed.tokens - absent
        found = prefixes(counts, self.levels, variance, total, of_absent)
        answered, points = float(found.count[-1]), self.points
        # Nobody is beyond the bounds, where bins of integers may reach.
        surely = points > float(self.bounds[1])
        counts = np.where(surely, answered, found.count)
        below, points = isotonic(counts), np.minimum(points, float(self.bounds[1]))
        values, reached = [], []
        for q in map(float, self.q):
            at = q * below[-1]
            leaf = int(np.searchsorted(below[1:], at - _ROUND * abs(at), "left"))
            leaf = min(leaf, points.size - 2)
            values.append(self._value(points, below, leaf, at))
            spread = np.maximum(found.errors(q), _ROUND)
            reached.append(np.where(surely, math.inf, (counts - q * answered) / spread))
            if not answered > FEWEST_ERRORS * math.sqrt(found.total_variance):
                values[-1] = math.nan
        # The least integer of a bin, or its middle.
        bias = self.width - 1.0 if self.integers else 0.5 * self.width
        rough = QuantileEstimate(
            np.array(values), np.zeros(len(values)), 0.0, points, np.array(reached)
        )
        low, high = rough.interval(0.6827)
        errors = np.where(np.isnan(rough.value), math.inf, 0.5 * (high - low))
        return Answer(
            name=self.name,
            kind=self.KIND,
            labels=tuple(f"{float(q):g}" for q in self.q),
            estimate=QuantileEstimate(
                rough.value, errors, np.full(len(values), bias), points, rough.reached
            ),
            parts={
                "answered": Estimate(
                    answered / summed.each, math.sqrt(found.total_variance) / summed.each
                )
            },
        )

    def _value(self, points: Floats, below: Floats, leaf: int, at: float) -> float:
        inside = below[leaf + 1] - below[leaf]
        if self.method == "linear" and inside > 0.0:
            share = min(max((at - below[leaf]) / inside, 0.0), 1.0)
            return min(float(points[leaf] + share * self.width), float(self.bounds[1]))
        return float(points[leaf] if self.integers else points[leaf] + 0.5 * self.width)


def records_of(table: Mapping[str, Any], columns: Sequence[str]) -> Iterator[Record]:
    """A client's records in some columns; a column that is missing has no answers.

    A column is one value, or a sequence of them; of columns of several lengths the shortest counts.
    """
    found = [table.get(column) if hasattr(table, "get") else table[column] for column in columns]
    rows = [_column(each) for each in found]
    # One value goes with each of several.
    longest = max(len(row) for row in rows)
    rows = [[*row] * longest if len(row) == 1 else row for row in rows]
    return zip(*rows, strict=False)


def _column(given: Any) -> Sequence[Any]:
    if given is None:
        return ()
    if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        return (given,)
    if isinstance(given, np.ndarray) and given.ndim == 0:
        return (given.item(),)
    values = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, list | tuple):
        return values
    return list(values) if hasattr(values, "__iter__") else (values,)
