"""What is measured: one function for each kind of result.

Sums have Gaussian noise of the very variance that a planned survey gives; that surveys of the real
protocol are such sums is a matter of tests. All arms have one adjacency, a client that answers
otherwise or is left out, and one epsilon.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dp import noise_multiplier_for_epsilon
from protocol import PrivacyGoal, TrainingPlan
from protocol.statistics.answers import Answer
from protocol.statistics.evaluation import Evaluation
from protocol.statistics.items import Items, largest
from protocol.statistics.private import PlannedSurvey
from protocol.statistics.questions import Count, Histogram, Mean, Quantiles, Question
from protocol.statistics.survey import Survey
from protocol.statistics.top import listed, open_rounds, opened
from simulations.studies.statistics.sources import column, scored, words

DELTA: Final = 1e-6
BINS: Final = 16
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
FOUND: Final = (10, 50)  # of the most frequent items, how many are asked for


def planned(survey: Survey, clients: int, epsilon: float, rounds: int = 1) -> PlannedSurvey:
    """Return a survey with its noise: a tenth may be lost, a twentieth colludes."""
    plan = TrainingPlan(
        goal=PrivacyGoal(epsilon, DELTA, rounds),
        cohort=clients,
        tolerated_dropouts=clients // 10,
        tolerated_colluders=clients // 20,
        clip_l2=1.0,
    )
    return PlannedSurvey.of(survey, plan)


class Asked:
    """A planned survey of all clients, whose noise is drawn as often as it is answered."""

    def __init__(
        self, ours: PlannedSurvey, tables: Sequence[Mapping[str, Any]], rng: np.random.Generator
    ) -> None:
        self._ours, self._tables, self._rng = ours, tables, rng
        self._deviation = ours.deviation(len(tables))
        self.round_anew()

    def round_anew(self) -> None:
        """Draw tokens, votes and rounding of the sum, which has no noise yet."""
        self._sums = np.zeros(self._ours.survey.length)
        for table in self._tables:
            self._sums += self._ours.survey.encode(table, self._rng.bytes)

    def answers(self) -> list[Answer]:
        """Answer all questions, with fresh noise."""
        noisy = self._sums + self._rng.normal(0.0, self._deviation, self._sums.size)
        return self._ours.survey.answers(noisy, self._deviation, len(self._tables))


def histograms(source: str, clients: int, epsilon: float, repeats: int, seed: int) -> list[Any]:
    """Return the root mean square error of a count in a bin, by several ways."""
    values, (low, high) = column(source, clients, seed)
    truth = np.histogram(values, BINS, (low, high + 1.0))[0]
    question = Histogram(name="x", bins=BINS, range=(low, high + 1.0))
    ours = planned(Survey(questions=(question,)), clients, epsilon)
    rng = np.random.default_rng([seed, clients, round(100 * epsilon)])
    asked = Asked(ours, [{"x": v} for v in values], rng)
    sigma = noise_multiplier_for_epsilon(epsilon, DELTA, 1)
    odds = 1.0 / (1.0 + math.exp(epsilon))  # of a one that is none

    def unary() -> np.ndarray:
        # A one is sent as such half of the time.
        ones = rng.binomial(truth, 0.5) + rng.binomial(clients - truth, odds)
        return (ones - clients * odds) / (0.5 - odds)

    ways: dict[str, Callable[[], np.ndarray]] = {
        "survey": lambda: np.asarray(asked.answers()[0].value),
        "central Gaussian": lambda: truth + rng.normal(0.0, math.sqrt(2.0) * sigma, BINS),
        "central Laplace": lambda: truth + rng.laplace(0.0, 2.0 / epsilon, BINS),
        "local OUE": unary,
    }
    rows = []
    for way, draw in ways.items():
        errors = [float(np.sqrt(np.mean((draw() - truth) ** 2))) for _ in range(repeats)]
        rows.append({"way": way, "clients": clients, "epsilon": epsilon, "errors": errors})
    return rows


def ranks(source: str, clients: int, epsilon: float, repeats: int, seed: int) -> list[Any]:
    """Return errors of medians, in ranks over sigma: of a tree, equal bins, and a search."""
    values, (low, high) = column(source, clients, seed)
    tree = Quantiles(name="x", q=(0.5,), bounds=(low, high), levels=5, integers=True)
    flat = Histogram(name="x", bins=tuple(tree.points), column="x")
    sigma = noise_multiplier_for_epsilon(epsilon, DELTA, 1)
    rng, order = np.random.default_rng(seed + 1), np.sort(values)
    tables = [{"x": value} for value in values]

    def off(value: float) -> float:
        # No ranks apart where the median is among equal values.
        first, last = (np.searchsorted(order, value, side) for side in ("left", "right"))
        middle = 0.5 * clients
        return float(max(first - middle, middle - last, 0.0)) / sigma

    def asked(question: Question, value_of: Callable[[Answer], float]) -> list[float]:
        survey = Asked(planned(Survey(questions=(question,)), clients, epsilon), tables, rng)
        return [off(value_of(survey.answers()[0])) for _ in range(repeats)]

    def of_bins(answer: Answer) -> float:
        below = np.cumsum(answer.value)
        return float(tree.points[int(np.argmax(below >= 0.5 * clients))])

    # Half of those below less those above: of two cells, in one of so many equal rounds.
    steps = math.ceil(math.log2((high - low + 1.0) / tree.width))
    half = planned(Survey(questions=(Count(name="x"),)), clients, epsilon, steps)
    of_count = half.deviation(clients) / half.survey.weights[0] / math.sqrt(2.0)

    def searched() -> float:
        start, end = low, high + 1.0
        for _ in range(steps):
            middle = 0.5 * (start + end)
            below = np.searchsorted(order, middle, "left") + rng.normal(0.0, of_count)
            start, end = (start, middle) if below >= 0.5 * clients else (middle, end)
        return start

    return [
        {"way": "tree", "source": source, "errors": asked(tree, lambda a: float(a.value[0]))},
        {"way": "equal bins", "source": source, "errors": asked(flat, of_bins)},
        {"way": "search", "source": source, "errors": [off(searched()) for _ in range(repeats)]},
    ]


def items(source: str, epsilon: float, votes: int, seed: int) -> list[Any]:
    """Return recall and precision of the most frequent words, by several ways."""
    spoken = words(source, seed)
    tables = [{"w": each} for each in spoken]
    counts = Counter(word for each in spoken for word in each)
    known, clients = sorted(counts), len(tables)
    rng = np.random.default_rng(seed + 1)
    rows = []

    def asker(rounds: int) -> Callable[[Survey, float], list[Answer]]:
        plan = planned(Survey(questions=(Count(name="x"),)), clients, epsilon, rounds).plan

        def ask(survey: Survey, share: float) -> list[Answer]:
            return Asked(PlannedSurvey.of(survey, plan, share=share), tables, rng).answers()

        return ask

    def once(k: int) -> list[Any]:
        question = Items(name="w", candidates=tuple(known), votes=votes)
        (answer,) = asker(1)(Survey(questions=(question,)), 1.0)
        return [known[at] for at in largest(answer, k)]

    for k in FOUND:
        wanted = {word for word, _ in counts.most_common(k)}
        rounds = len(open_rounds(8, len(LETTERS), k)) + 1
        ways: dict[str, Callable[[int], Sequence[Any]]] = {
            "list, one round": once,
            "list, two rounds": lambda k: listed(asker(2), known, k, votes=votes, column="w").items,
            "open, by prefixes": lambda k, rounds=rounds: (  # type: ignore[misc]
                opened(asker(rounds), k, votes=votes, column="w", alphabet=LETTERS, longest=8).items
            ),
        }
        for way, find in ways.items():
            found = find(k)
            right = len(wanted & set(found))
            precision = right / len(found) if found else math.nan
            row = {"way": way, "k": k, "epsilon": epsilon, "recall": right / k}
            rows.append({**row, "precision": precision})
    return rows


def coverage(source: str, clients: int, epsilon: float, repeats: int, seed: int) -> list[Any]:
    """Return how many 95 % intervals hold the truth, for each kind of number."""
    values, (low, high) = column(source, clients, seed)
    tables: list[dict[str, Any]] = [{"x": value, "yes": value > 40.0} for value in values]
    questions: tuple[Question, ...] = (
        Histogram(name="count in a bin", column="x", bins=BINS, range=(low, high + 1.0)),
        Count(name="share", column="yes"),
        Mean(name="mean", column="x", range=(low, high)),
        Quantiles(name="median", column="x", q=(0.5,), bounds=(low, high), integers=True),
    )
    yes = np.mean(values > 40.0)
    truths: dict[tuple[str, str], Any] = {
        ("count in a bin", ""): np.histogram(values, BINS, (low, high + 1.0))[0],
        ("share", "share"): yes,
        ("mean", ""): values.mean(),
        ("mean", "variance"): values.var(),
        ("median", ""): np.quantile(values, 0.5, method="inverted_cdf"),
    }
    if source != "made":
        from sklearn.metrics import roc_auc_score

        labels, scores = scored(1)
        chosen = np.random.default_rng(seed).choice(labels.size, clients, replace=False)
        for table, at in zip(tables, chosen, strict=True):
            table |= {"label": int(labels[at]), "score": float(scores[at])}
        questions += (Evaluation(name="evaluation"),)
        mine, said = labels[chosen], scores[chosen]
        truths["evaluation", ""] = roc_auc_score(mine, said)
        truths["evaluation", "accuracy"] = np.mean((said >= 0.5) == (mine == 1))
    rng, rows = np.random.default_rng([seed, clients, round(100 * epsilon), 1]), []
    for question in questions:
        asked = Asked(planned(Survey(questions=(question,)), clients, epsilon), tables, rng)
        tallies = {each: np.zeros(3, np.int64) for each in truths if each[0] == question.name}
        for number in range(repeats):
            if number and number % 50 == 0:
                asked.round_anew()
            (answer,) = asked.answers()
            for each, tally in tallies.items():
                estimate = answer.parts[each[1]] if each[1] else answer.estimate
                low_end, high_end = estimate.interval()
                held = (low_end <= truths[each]) & (truths[each] <= high_end)
                told = np.isfinite(np.asarray(estimate.value, np.float64))
                tally += (np.sum(held & told), np.sum(told), np.size(told))
        for (name, part), tally in tallies.items():
            shown = part if part and name != "mean" else f"{name} {part}".strip()
            row = {"number": shown, "clients": clients, "epsilon": epsilon}
            rows.append(row | dict(zip(("held", "told", "of"), tally.tolist(), strict=True)))
    return rows
