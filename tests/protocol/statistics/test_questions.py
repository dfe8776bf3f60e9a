"""Questions: without noise they say what NumPy and scikit-learn say; intervals hold the truth."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import scipy
from statistics_kit import exact, people, total

from protocol.statistics.evaluation import Evaluation
from protocol.statistics.items import Items
from protocol.statistics.questions import (
    Categories,
    Count,
    GroupMeans,
    Histogram,
    Mean,
    Quantiles,
    Question,
    Table,
)
from protocol.statistics.survey import Survey, question_of
from secagg import ParameterError

TABLES = people(2000)
AGES = np.array([table["age"] for table in TABLES])
LABELS = np.array([table["label"] for table in TABLES])
SCORES = np.array([table["score"] for table in TABLES])
RANGE = (0.0, 100.0)
TOWNS = ("a", "b", "c")
AGE = Histogram(name="age", bins=10, range=RANGE)
QUESTIONS: dict[str, Question] = {
    "count": Count(name="label"),
    "histogram": AGE,
    "categories": Categories(name="town", categories=TOWNS),
    "table": Table(name="t", row="town", rows=TOWNS, column="label", columns_of=(0, 1)),
    "mean": Mean(name="age", range=RANGE),
    "group-means": GroupMeans(name="age", by="town", groups=TOWNS, range=RANGE),
    "quantiles": Quantiles(name="age", q=(0.1, 0.5, 0.9), bounds=RANGE, levels=4),
    "evaluation": Evaluation(name="e", bins=32),
    "items": Items(name="town", candidates=TOWNS, votes=1),
}


def of(kind: str, tables: list[dict[str, Any]] = TABLES) -> Any:
    (answer,) = exact(Survey(questions=(QUESTIONS[kind],)), tables)
    return answer


def test_counts_are_those_of_numpy() -> None:
    assert of("count").value == pytest.approx(LABELS.sum())
    assert of("count").parts["share"].value == pytest.approx(LABELS.mean())
    assert of("histogram").value == pytest.approx(np.histogram(AGES, 10, RANGE)[0])
    towns = np.array([table["town"] for table in TABLES])
    counts = [np.count_nonzero(towns == town) for town in TOWNS]
    assert of("categories").value == pytest.approx(counts)
    assert of("items").value == pytest.approx(counts)
    pairs = [np.count_nonzero((towns == t) & (LABELS == y)) for t in TOWNS for y in (0, 1)]
    assert of("table").value == pytest.approx(pairs)
    means = [AGES[towns == town].mean() for town in TOWNS]
    assert of("group-means").value == pytest.approx(means, abs=0.1)
    assert of("group-means").parts["count"].value == pytest.approx(counts)


@pytest.mark.parametrize("edges", [(0.0, 10.0, 30.0, 90.0), (20.0, 20.5, 61.0)])
def test_bins_are_those_of_numpy(edges: tuple[float, ...]) -> None:
    """Also where values are edges: 20, 20.5, 61 and 90 are some."""
    values = [*AGES[:200], 0.0, 10.0, 20.0, 20.5, 61.0, 90.0, 91.0]
    survey = Survey(questions=(Histogram(name="x", bins=edges),))
    (answer,) = exact(survey, [{"x": value} for value in values])
    assert answer.value == pytest.approx(np.histogram(values, edges)[0])
    assert answer.parts["below"].value == pytest.approx(np.sum(np.array(values) < edges[0]))
    assert answer.parts["above"].value == pytest.approx(np.sum(np.array(values) > edges[-1]))


def test_arrays_and_lists_are_written_down_like_tuples() -> None:
    edges = np.linspace(0, 100, 5)
    survey = Survey(
        questions=(
            Histogram(name="a", bins=edges),  # type: ignore[arg-type]
            Quantiles(name="b", q=np.array([0.5]), bounds=[0, 100]),  # type: ignore[arg-type]
            Categories(name="c", categories=list(TOWNS)),
        )
    )
    assert Survey.read(survey.written()) == survey
    assert survey.questions[0].bins == (0.0, 25.0, 50.0, 75.0, 100.0)  # type: ignore[attr-defined]


def test_means_and_quantiles_are_those_of_numpy() -> None:
    mean = of("mean")
    # Rounding has standard deviations of half a unit in 512, and in 852, for each client.
    assert mean.value == pytest.approx(AGES.mean(), abs=6 * 50 * 0.5 / 512 / 2000**0.5)
    assert mean.parts["variance"].value == pytest.approx(AGES.var(), abs=1.0)
    assert mean.parts["deviation"].value == pytest.approx(AGES.std(), abs=0.1)
    quantiles = of("quantiles")
    truth = np.quantile(AGES, (0.1, 0.5, 0.9), method="inverted_cdf")
    assert np.abs(quantiles.value - truth).max() <= quantiles.bias_bound.max() == 50 / 256
    low, high = quantiles.interval()
    assert ((low <= truth) & (truth <= high)).all()


@pytest.mark.parametrize("q", [0.0, 0.01, 0.25, 0.5, 0.99, 1.0])
def test_quantiles_of_integers_are_exact(q: float) -> None:
    values = [int(age) for age in AGES]
    question = Quantiles(name="x", q=(q,), bounds=(0, 255), integers=True)
    (answer,) = exact(Survey(questions=(question,)), [{"x": value} for value in values])
    assert answer.value[0] == np.quantile(values, q, method="inverted_cdf")
    assert answer.bias_bound[0] == 0.0


def test_an_evaluation_is_that_of_scikit_learn() -> None:
    from sklearn import metrics

    answer = of("evaluation")
    said = SCORES >= 0.5
    parts = {
        "accuracy": metrics.accuracy_score(LABELS, said),
        "precision": metrics.precision_score(LABELS, said),
        "recall": metrics.recall_score(LABELS, said),
        "positives": LABELS.mean(),
    }
    for name, value in parts.items():
        assert answer.parts[name].value == pytest.approx(value), name
    assert answer.parts["confusion"].value == pytest.approx(
        metrics.confusion_matrix(LABELS, said).ravel()
    )
    area = metrics.roc_auc_score(LABELS, SCORES)
    assert abs(answer.value - area) <= answer.bias_bound < 0.05


class Vague:
    """As a value of pandas that is missing: nobody knows whether it equals anything."""

    def __eq__(self, other: object) -> bool:
        raise TypeError

    __hash__ = None  # type: ignore[assignment]


BAD = [
    *(Vague(), np.ma.masked, Decimal("sNaN"), list, np.zeros(()), object(), b"\xff"),
    *(None, math.nan, math.inf, "", "x", [], {}, 10**400, -3),
]


@pytest.mark.parametrize("kind", QUESTIONS)
def test_bad_data_on_a_client_is_no_answer(kind: str) -> None:
    columns = QUESTIONS[kind].columns
    bad = [dict.fromkeys(columns, value) for value in BAD if not isinstance(value, list | dict)]
    bad += [{}, {columns[0]: []}]
    survey = Survey(questions=(QUESTIONS[kind],))
    for table in bad:
        survey.encode(table)  # raises nothing
    (answer,) = exact(survey, [{}] * 7)
    if "missing" in answer.parts:
        assert answer.parts["missing"].value == pytest.approx(7.0)
    elif "answered" in answer.parts:
        assert answer.parts["answered"].value == pytest.approx(0.0, abs=1e-6)


def test_missing_answers_bias_neither_shares_nor_means_nor_medians() -> None:
    tables = [{"label": 1, "age": 80.0}] * 90 + [{"label": 0, "age": 80.0}] * 10 + [{}] * 43
    kinds = ("count", "mean", "quantiles")
    share, mean, median = exact(Survey(questions=tuple(map(_renamed, kinds))), tables)
    assert share.parts["share"].value == pytest.approx(0.9)
    assert mean.value == pytest.approx(80.0, abs=0.2)
    assert median.value[1] == pytest.approx(80.0, abs=0.4)


def _renamed(kind: str) -> Question:
    import dataclasses

    question = QUESTIONS[kind]
    return dataclasses.replace(question, name=kind, column=question.columns[0])  # type: ignore[type-var]


def test_many_records_of_a_client_share_its_vote() -> None:
    rng = np.random.default_rng(3)
    tables = [{"x": list(rng.integers(0, 4, rng.integers(1, 200)))} for _ in range(40)]
    shares = np.mean([[np.mean(np.array(t["x"]) == c) for c in range(4)] for t in tables], axis=0)
    question = Categories(name="x", categories=(0, 1, 2, 3))
    (alike,) = exact(Survey(questions=(question,), max_records=64), tables)
    assert alike.value / 40 == pytest.approx(shares, abs=6 * 0.5 / 64 / 40**0.5)
    (records,) = exact(Survey(questions=(question,), max_records=256, weight="record"), tables)
    counts = np.bincount(np.concatenate([t["x"] for t in tables]), minlength=4)
    assert records.value == pytest.approx(counts)


REFUSED = [
    (dict(kind="histogram", name="x"), "range"),
    (dict(kind="histogram", name="x", bins=5, range=[1, 1]), "range"),
    (dict(kind="histogram", name="x", bins=5, range=[0, math.inf]), "range"),
    (dict(kind="mean", name="x", range=[-1e308, 1e308]), "range"),
    (dict(kind="mean", name="x", range=["0", "1"]), "range"),
    (dict(kind="quantiles", name="x", q=[0.5], bounds=[0, 5e-324]), "bounds"),
    (dict(kind="histogram", name="x", bins="auto", range=[0, 1]), "bins"),
    (dict(kind="histogram", name="x", bins=[1, 3, 2]), "bins"),
    (dict(kind="histogram", name="x", bins=[1, 2], range=[1, 2]), "range"),
    (dict(kind="histogram", name="x", bins=0, range=[0, 1]), "bins"),
    (dict(kind="histogram", name="x", bins=1 << 21, range=[0, 1]), "bins"),
    (dict(kind="categories", name="x", categories=["a", "a"]), "categories"),
    (dict(kind="categories", name="x", categories=[]), "categories"),
    (dict(kind="categories", name="x", categories=["e\u0301"]), "categories"),
    (dict(kind="categories", name="x", categories=["a" * 2000]), "categories"),
    (dict(kind="quantiles", name="x", q=[1.5], bounds=[0, 1]), "q"),
    (dict(kind="quantiles", name="x", q=[], bounds=[0, 1]), "q"),
    (dict(kind="quantiles", name="x", q=[0.5], bounds=[0, 1], method="median"), "method"),
    (dict(kind="quantiles", name="x", q=[0.5], bounds=[0, 1.5], integers=True), "bounds"),
    (dict(kind="quantiles", name="x", q=[0.5], bounds=[0, 1], levels=12), "levels"),
    (dict(kind="evaluation", name="x", bins=7), "bins"),
    (dict(kind="items", name="x", candidates=["a"], votes=0), "votes"),
    (dict(kind="median", name="x"), "kind"),
    (dict(kind="count", name="x", colum="y"), "colum"),
    (dict(kind="mean", name="x"), "question"),
]


@pytest.mark.parametrize(("fields", "argument"), REFUSED)
def test_what_is_no_question_is_refused_by_name(fields: dict[str, Any], argument: str) -> None:
    with pytest.raises(ParameterError) as refused:
        question_of(fields)
    assert refused.value.argument == argument


# Of 2,000 sums, as many intervals may miss as a binomial law allows at alpha = 1e-6.
SUMS, ALPHA = 2000, 1e-6


def misses(kind: str, truths: dict[str, Any], deviation: float, told: float = 1.0) -> list[int]:
    """For each number, how many 95 % intervals do not hold it."""
    survey, rng = Survey(questions=(QUESTIONS[kind],)), np.random.default_rng(4)
    missed: dict[str, Any] = {name: 0 for name in truths}
    for seed in range(SUMS // 250):
        whole = total(survey, TABLES, seed)
        for _ in range(250):
            noisy = whole + rng.normal(0.0, deviation, whole.size)
            (answer,) = survey.answers(noisy, told * deviation, len(TABLES))
            for name, truth in truths.items():
                part = answer.parts[name] if name else answer.estimate
                low, high = part.interval()
                missed[name] = missed[name] + ((truth < low) | (high < truth))
    return [int(each) for count in missed.values() for each in np.atleast_1d(count)]


CASES: dict[str, tuple[dict[str, Any], float]] = {
    "count": ({"": LABELS.sum(), "share": LABELS.mean(), "missing": 0.0}, 20.0),
    "histogram": ({"": np.histogram(AGES, 10, RANGE)[0], "below": 0.0}, 20.0),
    "mean": ({"": AGES.mean(), "variance": AGES.var(), "answered": 2000.0}, 20000.0),
    "evaluation": ({"accuracy": np.mean((SCORES >= 0.5) == LABELS)}, 5.0),
}


@pytest.mark.parametrize("kind", CASES)
def test_intervals_hold_the_truth_as_often_as_they_say(kind: str) -> None:
    truths, deviation = CASES[kind]
    most = scipy.stats.binom.isf(ALPHA, SUMS, 0.05)
    least = scipy.stats.binom.ppf(ALPHA, SUMS, 0.05)
    for missed in misses(kind, truths, deviation):
        assert least <= missed <= most
    # The twin: errors that are told a third too small.
    assert max(misses(kind, truths, deviation, told=2.0 / 3.0)) > most


def test_intervals_of_quantiles_and_areas_hold_the_truth_at_least_as_often() -> None:
    most = scipy.stats.binom.isf(ALPHA, SUMS, 0.05)
    truth = np.quantile(AGES, (0.1, 0.5, 0.9), method="inverted_cdf")
    assert max(misses("quantiles", {"": truth}, 20.0)) <= most
    from sklearn.metrics import roc_auc_score

    assert max(misses("evaluation", {"": roc_auc_score(LABELS, SCORES)}, 10.0)) <= most


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_intervals_of_quantiles_hold_where_nobody_is_near(q: float) -> None:
    """A thousand at 10 and a thousand at 90; and the ends, which nobody is beyond."""
    values = [10] * 1000 + [90] * 1000
    question = Quantiles(name="x", q=(q,), bounds=(0, 127), integers=True)
    survey, rng = Survey(questions=(question,)), np.random.default_rng(6)
    whole = total(survey, [{"x": value} for value in values])
    truth, missed = np.quantile(values, q, method="inverted_cdf"), 0
    for _ in range(400):
        noisy = whole + rng.normal(0.0, 4.2, whole.size)
        (answer,) = survey.answers(noisy, 4.2, 2000)
        (low,), (high,) = answer.interval()
        missed += not low <= truth <= high
        assert 0.0 <= low <= high <= 127.0
        assert 0.0 <= answer.value[0] <= 127.0
    assert missed <= scipy.stats.binom.isf(ALPHA, 400, 0.05)


def test_errors_cover_the_draw_of_records() -> None:
    """Of clients with six, of whom four count: errors are no smaller than what is seen."""
    tables = [{"x": [0, 0, 1, 1, 1, 1], "g": ["a"] * 6}] * 300
    questions = (
        Mean(name="x", range=(0, 1)),
        Count(name="c", column="x"),
        GroupMeans(name="g", column="x", by="g", groups=("a", "b"), range=(0, 1)),
    )
    survey = Survey(questions=questions, max_records=4)
    found = [survey.answers(total(survey, tables, seed), 1e-9, 300) for seed in range(40)]
    for at, name in enumerate(("x", "c", "g")):
        values = [np.atleast_1d(answers[at].value)[0] for answers in found]
        assert np.std(values) < 1.6 * np.atleast_1d(found[0][at].standard_error)[0], name
        assert np.std(values) > 0.0


def test_nothing_is_said_of_what_is_nobody() -> None:
    """A ratio over noise, a class without members."""
    survey = Survey(questions=(QUESTIONS["evaluation"], _renamed("count"), _renamed("mean")))
    some = [{"label": 0, "score": 0.3}] * 50
    found = survey.answers(total(survey, some), 30.0, 50)
    assert math.isnan(found[0].value) and math.isinf(found[0].standard_error)
    assert math.isnan(found[1].parts["share"].value)
    noise = np.random.default_rng(5).normal(0, 5000, survey.length)
    assert math.isnan(survey.answers(noise, 5000.0, 50)[2].value)
