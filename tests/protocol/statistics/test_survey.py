"""Surveys: exact bounds, weights, canonical bytes; their rounds, on one ledger with others."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statistics_kit import exact, people

from dp import Ledger
from dp.errors import BudgetExceededError, SensitivityExceededError
from dp.rounding import largest_square
from protocol import PrivacyGoal, PrivateTraining, TrainingPlan
from protocol.errors import PolicyError
from protocol.exchange.aggregators import IdealAggregator
from protocol.planning.policies import client_policy
from protocol.round.losses import Stage
from protocol.round.pipeline import Pipeline
from protocol.schemes import SCHEMES
from protocol.statistics.items import Items
from protocol.statistics.local import LocalSurveys
from protocol.statistics.private import PlannedSurvey, ask
from protocol.statistics.questions import Count, GroupMeans, Histogram, Mean, Quantiles, Question
from protocol.statistics.survey import Survey, noise_ratio, weighted
from protocol.statistics.top import listed, opened
from protocol.training.local import local_aggregator, named_identities
from secagg import ParameterError, TooFewSurvivorsError
from sketch.controllers import FixedRate

GOAL = PrivacyGoal(1.0, 1e-6, 1)
AGE = Histogram(name="age", bins=16, range=(0.0, 100.0))
MEAN = Mean(name="mean", column="age", range=(0.0, 100.0))
MEDIAN = Quantiles(name="median", column="age", q=(0.5,), bounds=(0.0, 100.0), levels=3)
LABEL = Count(name="label")
BY_TOWN = GroupMeans(name="by town", column="age", by="town", groups=("a", "b"), range=(0.0, 100.0))
ALL = Survey(questions=(AGE, MEAN, MEDIAN, LABEL, BY_TOWN), weights=(7, 1, 3, 9, 2), max_records=3)


def plan(cohort: int, goal: PrivacyGoal = GOAL, scheme: str = "pairwise") -> TrainingPlan:
    lost, corrupt = cohort // 10, cohort // 20
    return TrainingPlan(
        goal=goal,
        cohort=cohort,
        tolerated_dropouts=lost,
        tolerated_colluders=corrupt,
        clip_l2=1.0,
        scheme=SCHEMES[scheme](),
    )


def test_the_bound_is_the_least_float_that_is_not_too_small() -> None:
    # The roots of 6, 12, 22 and 24 are rounded down.
    several = [Items(name="x", candidates=tuple(range(99)), votes=votes) for votes in range(1, 14)]
    for survey in (ALL, *(Survey(questions=(each,)) for each in (*ALL.questions, *several))):
        bound = survey.l2_bound
        assert Fraction(bound) ** 2 >= survey.square == largest_square(bound)
        assert Fraction(math.nextafter(bound, 0.0)) ** 2 < survey.square


def test_what_one_client_changes_is_within_the_bounds() -> None:
    """Also where tokens and questions add up, if a client is left out or answers otherwise."""
    rng = np.random.default_rng(1)
    ends = [[0.0] * 3, [100.0] * 3, [50.0], [None], [0.0, 100.0, 50.0]]
    tables = [
        {"age": e, "town": [t] * 3, "label": [y] * 3} for e in ends for t in "ab" for y in (0, 1)
    ]
    rows = [ALL.encode(table, rng.bytes) for table in (*tables, {})]
    rows.append(np.zeros(ALL.length, np.int64))
    apart = max(int(((a - b) ** 2).sum()) for a in rows for b in rows)
    assert 0.5 * ALL.square < apart <= ALL.square
    assert max(int(abs(a - b).max()) for a in rows for b in rows) <= ALL.linf_bound


def test_weights_are_those_of_the_formula() -> None:
    """Its error at the spec's sensitivities and dimensions, beside equal weights."""
    s, d, c = np.array([0.5, 1, 2**0.5, 3]), np.array([1, 16, 30, 100]), np.array([1, 1, 1, 0.01])
    w = np.sqrt(np.sqrt(c * d) / s)
    w /= np.sqrt(np.sum((w * s) ** 2))
    assert np.sum(c * d / w**2) == pytest.approx(232.4395, abs=1e-4)
    survey = Survey(questions=(AGE, LABEL, MEAN))
    found = weighted(survey, GOAL, fewest_honest=900, importance={"label": 16.0})
    weights = np.array(found.weights) * [1, 1, 1024]
    ratios = np.sqrt(np.sqrt([16 / 2, 16 / 2, 1 / 1.0034]))
    assert weights / weights[0] == pytest.approx(ratios / ratios[0], rel=0.01)


def test_importance_counts_however_small_it_is() -> None:
    """Units of means are fine enough for the noise at a weight of 1, and too coarse for this."""
    two = Survey(questions=(MEAN, Mean(name="other", range=(0.0, 1.0))))
    for importance in (4.0, 20.0):
        found = weighted(two, GOAL, fewest_honest=900, importance={"other": importance})
        low, high = found.weights
        assert high / low == pytest.approx(importance**0.25, rel=0.1), importance


# Of clients, with 10 % lost and 5 % colluding at epsilon 1; K = 1 as in the spec, so of one vote.
SCALES = {
    "binomial": {200: (16, 1.0023), 1000: (32, 1.0058), 32500: (128, 1.0077)},
    "skellam": {200: (2, 1.0044)},
    "discrete-gaussian": {200: (4, 1.002), 1000: (16, 1.002)},
}


@pytest.mark.parametrize("mechanism", SCALES)
def test_integers_are_as_fine_as_the_noise_needs(mechanism: str) -> None:
    question = Items(name="x", candidates=("a",), votes=1)
    for clients, (scale, ratio) in SCALES[mechanism].items():
        honest = clients - clients // 10 - clients // 20
        found = weighted(
            Survey(questions=(question,)), GOAL, fewest_honest=honest, mechanism=mechanism
        )
        assert found.weights == (scale,)
        assert noise_ratio(found, GOAL, honest, mechanism, 0.0) == pytest.approx(ratio, abs=1e-3)


def test_canonical_bytes_are_read_and_no_others() -> None:
    data = ALL.written()
    assert Survey.read(data) == ALL
    assert Survey.read(data).digest == ALL.digest
    changed = json.loads(data)
    changed["weights"][0] += 1
    other = json.dumps(changed, sort_keys=True, separators=(",", ":")).encode()
    assert Survey.read(other).digest != ALL.digest
    loose = json.dumps(json.loads(data)).encode()
    for wrong in (
        b"",
        b"{}",
        b"[]",
        data[:-1],
        data + b" ",
        loose,
        data.replace(b"count", b"cuont"),
    ):
        with pytest.raises(ParameterError, match="survey"):
            Survey.read(wrong)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"questions": ()}, "questions"),
    ({"questions": (AGE, AGE)}, "questions"),
    ({"questions": (AGE,), "weights": (0,)}, "weights"),
    ({"questions": (AGE,), "weights": (1, 2)}, "weights"),
    ({"questions": (AGE,), "weight": "row"}, "weight"),
    ({"questions": (AGE,), "max_records": 0}, "max_records"),
    (
        {"questions": (Items(name="x", candidates=("a",), votes=1),), "max_records": 2},
        "max_records",
    ),
]


@pytest.mark.parametrize(("fields", "argument"), REFUSED)
def test_what_is_no_survey_is_refused_by_name(fields: dict[str, Any], argument: str) -> None:
    with pytest.raises(ParameterError) as refused:
        Survey(**fields)
    assert refused.value.argument == argument


@pytest.mark.parametrize("name", ["age", "nobody"])
def test_importance_is_of_a_question(name: str) -> None:
    with pytest.raises(ParameterError, match="importance"):
        weighted(Survey(questions=(AGE,)), GOAL, fewest_honest=9, importance={name: -1.0})


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_schemes_give_the_answers_and_charge_alike(scheme: str, tmp_path: Path) -> None:
    """With as many dropouts as are tolerated, at an epsilon that shows the counts."""
    tables, goal = people(40), PrivacyGoal(20.0, 1e-6, 1)
    planned = PlannedSurvey.of(Survey(questions=(AGE, MEAN)), plan(40, goal, scheme))
    people_of = named_identities([f"client {index}" for index in range(40)])
    lost = dict.fromkeys((3, 17, 20, 39), Stage.INPUT)
    path = tmp_path / "ledger.jsonl"
    session = LocalSurveys(planned.plan, people_of, tables, ledger=path, dropouts=lost)
    found = session.run(planned)
    assert session.cost.survivors == 36
    assert session.cost.epsilon == 20.0
    truth = exact(planned.survey, [t for i, t in enumerate(tables) if i not in lost])
    for answer, expected in zip(found, truth, strict=True):
        error = 6.0 * np.asarray(answer.standard_error) + 0.1
        assert (abs(answer.value - expected.value) <= error).all()
    with Ledger.open(path) as ledger:
        (entry,) = ledger.entries()
    assert (entry.event.l2_sensitivity, entry.event.linf_sensitivity) == (
        planned.survey.l2_bound,
        planned.survey.linf_bound,
    )
    assert entry.metadata["notes"]["survey"] == planned.survey.digest.hex()
    if scheme != "validated":  # which has errors of its own, and so less noise
        of_pairwise = PlannedSurvey.of(Survey(questions=(AGE, MEAN)), plan(40, goal))
        assert planned.parameters == of_pairwise.parameters


def test_one_dropout_too_many_releases_nothing(tmp_path: Path) -> None:
    planned = PlannedSurvey.of(Survey(questions=(AGE,)), plan(40))
    lost = dict.fromkeys(range(5), Stage.INPUT)
    identities = named_identities([str(index) for index in range(40)])
    path = tmp_path / "ledger.jsonl"
    session = LocalSurveys(planned.plan, identities, people(40), ledger=path, dropouts=lost)
    with pytest.raises(TooFewSurvivorsError):
        session.run(planned)
    with Ledger.open(path) as ledger:
        assert not ledger.entries()


def test_integers_enter_and_leave_a_round_as_they_are() -> None:
    planned = PlannedSurvey.of(ALL, plan(40, PrivacyGoal(400.0, 1e-6, 1)))
    assert planned.parameters.integers
    assert planned.parameters.rounding_variance == 0.0
    with pytest.raises(ParameterError, match="int64"):
        setup_of(planned, lambda setup: Pipeline(setup).clip(np.zeros(ALL.length)))
    long = np.zeros(ALL.length, np.int64)
    long[:] = planned.survey.linf_bound
    with pytest.raises(SensitivityExceededError, match="square_bound"):
        setup_of(planned, lambda setup: Pipeline(setup).clip(long))


def setup_of(planned: PlannedSurvey, use: Callable[[Any], object]) -> object:
    from protocol.training.local import imagined_setup

    return use(imagined_setup(planned.plan, planned.parameters))


def test_a_client_that_was_told_another_survey_spoils_the_sum(tmp_path: Path) -> None:
    """Its digest is not that of the round, so it refuses; nobody adds up two questions."""
    planned = PlannedSurvey.of(Survey(questions=(AGE,)), plan(40))
    other = Survey(questions=(dataclasses.replace(AGE, range=(0.0, 50.0)),))
    assert other.digest != planned.survey.digest

    def announced(setup: Any) -> None:
        from protocol.round.setup import RoundSetup

        heard = RoundSetup.from_announcement(setup.announce(), other.digest)
        assert heard.context_hash != setup.context_hash

    setup_of(planned, announced)


def test_clients_refuse_a_survey_that_takes_more_than_its_share() -> None:
    goal = PrivacyGoal(1.0, 1e-6, 4)
    quarter = PlannedSurvey.of(Survey(questions=(AGE,)), plan(40, goal))
    half = PlannedSurvey.of(Survey(questions=(AGE,)), plan(40, goal), share=0.5)
    policy = client_policy(quarter.of_clients, None)
    setup_of(quarter, policy.check)
    with pytest.raises(PolicyError, match="noise_multiplier"):
        setup_of(half, policy.check)


def test_training_and_surveys_share_one_ledger(tmp_path: Path) -> None:
    """The spec's case: 200 clients, a training round, then a histogram of 16 bins; goal of 2."""
    goal = PrivacyGoal(epsilon=2.123, delta=1e-6, rounds=2)
    chosen, count = plan(200, goal), 200
    keys = [person.public for person in named_identities([str(i) for i in range(count)])]
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        training = PrivateTraining(chosen, 50, FixedRate(1.0), IdealAggregator(), ledger)
        first = training.run_round(keys, bytes(32), lambda _: np.zeros(50))
        planned = PlannedSurvey.of(Survey(questions=(AGE,)), chosen)
        tables = people(count)
        second = ask(planned, IdealAggregator(), ledger, keys, tables.__getitem__)
        assert first.epsilons.server == pytest.approx(1.443, abs=0.02)
        assert second.epsilons.server == pytest.approx(2.122, abs=0.01)
        assert second.epsilons.guaranteed == 2.123
        with pytest.raises(BudgetExceededError):
            ask(planned, IdealAggregator(), ledger, keys, tables.__getitem__)


def test_shares_are_spent_by_squares(tmp_path: Path) -> None:
    goal, keys = PrivacyGoal(1.0, 1e-6, 5), [p.public for p in named_identities([*"abcdefghijkl"])]
    chosen = plan(12, goal)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        for share in (0.5, 0.3, 0.2):
            planned = PlannedSurvey.of(Survey(questions=(LABEL,)), chosen, share=share)
            ask(planned, IdealAggregator(), ledger, keys, lambda _: {"label": 1})
        again = PlannedSurvey.of(Survey(questions=(LABEL,)), chosen, share=0.05)
        with pytest.raises(BudgetExceededError):
            ask(again, IdealAggregator(), ledger, keys, lambda _: {"label": 1})
    for share in (0.0, 1.5, math.nan):
        with pytest.raises(ParameterError, match="share"):
            PlannedSurvey.of(Survey(questions=(LABEL,)), chosen, share=share)


def test_predicted_errors_are_those_of_the_round() -> None:
    planned = PlannedSurvey.of(Survey(questions=(AGE,)), plan(200))
    deviation = planned.deviation(200)
    of_cell = deviation / planned.survey.weights[0] * math.sqrt(1 - 1 / 19)
    (answer,) = planned.predicted()
    assert answer.standard_error == pytest.approx(of_cell)
    # 4.2247 for each unit at epsilon 1, sqrt 2 units; and noise for those who stay away.
    assert deviation / planned.survey.weights[0] < 1.02 * 4.2247 * 2**0.5 * math.sqrt(200 / 170)


def noisy(tables: list[dict[str, Any]], seed: int, deviation: float) -> Any:
    """Asks clients with Gaussian noise in place of a round."""
    rng = np.random.default_rng(seed)

    def asked(survey: Survey, share: float) -> list[Any]:
        whole = np.sum([survey.encode(table, rng.bytes) for table in tables], axis=0)
        spread = deviation / math.sqrt(share)
        return survey.answers(whole + rng.normal(0, spread, whole.size), spread, len(tables))

    return asked


WORDS = ("the", "and", "of", "zebra", "quay", "x")
ODDS = (0.4, 0.3, 0.2, 0.06, 0.03, 0.01)


def shoppers(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    return [{"w": [str(w) for w in rng.choice(WORDS, 2, p=ODDS)]} for _ in range(count)]


def test_a_client_has_no_more_votes_than_the_noise_is_made_for() -> None:
    question = Items(name="x", candidates=tuple(range(20)), votes=3)
    survey = Survey(questions=(question,))
    rand = np.random.default_rng(9).bytes
    votes = np.array([survey.encode({"x": [*range(10), 3, 3]}, rand) for _ in range(300)])
    assert set(votes.sum(axis=1)) == {3}
    assert votes[:, :10].any(axis=0).all() and not votes[:, 10:].any()
    # Each of ten as likely as the others: a binomial law at alpha = 1e-6, for each.
    assert abs(votes[:, :10].sum(axis=0) - 90).max() < 5.5 * math.sqrt(300 * 0.3 * 0.7)


def test_the_most_frequent_of_a_list_are_found_in_two_rounds() -> None:
    tables = shoppers(1500)
    many = [*WORDS, *(f"nobody {index}" for index in range(200))]
    found = listed(noisy(tables, 1, 8.0), many, 3, votes=2, column="w")
    assert found.items == ("the", "and", "of")
    assert found.rounds == 2
    truth = [sum(word in table["w"] for table in tables) for word in found.items]
    assert (abs(found.counts.value - truth) <= 6 * np.asarray(found.counts.standard_error)).all()
    # Votes that the first round spent on nobody's words are counted in the second.
    assert listed(noisy(tables, 1, 5000.0), many, 3, votes=2, column="w").items != found.items


def test_the_most_frequent_of_an_open_domain_are_found_letter_by_letter() -> None:
    letters = "".join(sorted(set("".join(WORDS))))
    options: dict[str, Any] = {"votes": 2, "column": "w", "alphabet": letters, "longest": 5}
    found = opened(noisy(shoppers(1500), 2, 6.0), 4, **options)
    assert found.items == ("the", "and", "of", "zebra")
    assert opened(noisy([{}] * 50, 2, 6.0), 4, **options).items == ()


@pytest.mark.parametrize("aggregator", ["real", "ideal"])
def test_surveys_of_the_real_protocol_are_those_of_the_ideal_one(
    aggregator: str, tmp_path: Path
) -> None:
    planned = PlannedSurvey.of(Survey(questions=(LABEL,)), plan(20, PrivacyGoal(900.0, 1e-6, 1)))
    identities = named_identities([str(index) for index in range(20)])
    adder: Any = IdealAggregator()
    if aggregator == "real":
        adder = local_aggregator(planned.of_clients, identities, planned.survey.length)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        keys = [each.public for each in identities]
        done = ask(planned, adder, ledger, keys, lambda index: {"label": index < 13})
    assert done.answers[0].value == pytest.approx(13.0, abs=1.0)


def test_a_question_is_one(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="questions"):
        Survey(questions=(object(),))  # type: ignore[arg-type]
    assert isinstance(AGE, Question)
    with pytest.raises(ParameterError, match="column of 'label'"):
        ALL.check_columns(["age", "town"])
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(ParameterError, match="scheme"):
        LocalSurveys(plan(40, scheme="one-shot"), [], [], ledger=path, cryptography=False)
