"""Private statistics in one call: what they give, and what they refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import veilsum
from dp.errors import RoundsUsedUpError
from protocol.round.losses import Stage
from secagg import ParameterError
from veilsum.statistics import Categories, Count, GroupMeans, Mean, Quantiles, Table

AGES = np.random.default_rng(0).integers(17, 91, 60)
LOUD: dict[str, Any] = {"epsilon": 50.0, "cryptography": False}


def test_a_histogram_unpacks_like_that_of_numpy() -> None:
    """With real cryptography, dropouts, and an error that is what it says."""
    lost = dict.fromkeys((1, 5), Stage.INPUT)
    found = veilsum.private_histogram(AGES, 5, range=(0, 100), epsilon=20.0, dropouts=lost)
    counts, edges = found
    truth, ends = np.histogram(np.delete(AGES, (1, 5)), 5, (0, 100))
    assert edges.tolist() == ends.tolist()
    assert (abs(counts - truth) < 6 * found.standard_error).all()
    assert (found.survivors, found.epsilon) == (58, 20.0)
    assert set(found.parts) == {"below", "above", "missing"}
    assert "at epsilon 20" in str(found)
    assert [row["label"] for row in found.to_dict()["rows"][:2]] == ["0 .. 20", "20 .. 40"]
    assert found.plot().get_title() == "histogram"
    with pytest.raises(AttributeError):
        _ = found.median


def test_quantiles_have_the_shape_of_what_was_asked() -> None:
    question = {"bounds": (17, 90), "integers": True, "epsilon": 400.0, "cryptography": False}
    found = veilsum.private_quantile(AGES, [0.25, 0.5], **question)
    truth = np.quantile(AGES, [0.25, 0.5], method="inverted_cdf")
    assert (abs(found.value - truth) <= 2).all()
    with pytest.raises(TypeError, match="no bins"):
        _ = [*found]


def test_top_items_of_a_list_and_of_an_open_domain() -> None:
    baskets = [["tea", "milk"] if index % 3 else ["tea", "salt"] for index in range(300)]
    given: dict[str, Any] = {"epsilon": 20.0, "max_items": 2, "cryptography": False}
    listed = veilsum.private_top(baskets, 2, candidates=["milk", "salt", "tea"], **given)
    opened = veilsum.private_top(baskets, 2, longest=4, alphabet="aeiklmst", **given)
    assert listed.items == opened.items == ("tea", "milk")
    assert listed.cost.spent <= 20.0 >= opened.cost.spent
    assert (listed.rounds, opened.rounds) == (1, 2)
    with pytest.raises(ParameterError, match="max_items"):
        veilsum.private_top(baskets, 2, **given | {"max_items": 0})


def test_an_evaluation_has_errors() -> None:
    rng = np.random.default_rng(1)
    labels = [list(rng.integers(0, 2, 30)) for _ in range(400)]
    scores = [[float(np.clip(0.4 * y + 0.6 * rng.random(), 0, 1)) for y in each] for each in labels]
    found = veilsum.private_evaluation(
        labels, scores, max_records=30, epsilon=8.0, cryptography=False
    )
    flat, said = np.concatenate(labels), np.concatenate(scores)
    area = found["evaluation"]
    low, high = area.interval(1 - 1e-6)
    from sklearn.metrics import roc_auc_score

    assert low < roc_auc_score(flat, said) < high
    accuracy = area.parts["accuracy"]
    assert abs(accuracy.value - np.mean((said >= 0.5) == flat)) < 6 * accuracy.standard_error
    loss = -np.log(np.where(flat == 1, said, 1 - said)).clip(None, 4).mean()
    assert abs(found["loss"].value - loss) < 6 * found["loss"].standard_error
    assert len(found) == 3
    with pytest.raises(KeyError):
        _ = found["recall"]
    wrong = [[math.nan, 7.0, 0.9]] * 40
    odd = veilsum.private_evaluation([[0, 0, 1]] * 40, wrong, max_records=3, **LOUD)
    assert odd["confusion"].value == pytest.approx([0, 0, 0, 40 / 3], abs=1.5)
    with pytest.raises(ParameterError, match="names"):
        veilsum.private_evaluation(labels, scores, names=["a", "b"] * 200, **LOUD)
    with pytest.raises(ParameterError, match="y_score"):
        veilsum.private_evaluation(labels, scores[1:], **LOUD)


def test_all_calls_on_one_ledger_keep_one_promise(tmp_path: Path) -> None:
    goal = veilsum.PrivacyGoal(epsilon=4.0, delta=1e-6, rounds=2)
    clients = {f"c{index}": {"age": int(age)} for index, age in enumerate(AGES)}
    path = tmp_path / "ledger.jsonl"
    question = [Mean(name="age", range=(0, 100))]

    def asked() -> Any:
        return veilsum.private_statistics(
            clients, question, goal=goal, ledger=path, cryptography=False
        )

    assert asked().cost.spent < asked().cost.spent <= 4.0
    with pytest.raises(RoundsUsedUpError):
        asked()


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({}, "epsilon"),
        ({"epsilon": 1.0, "share": 0.5}, "share"),
        ({"goal": veilsum.PrivacyGoal(1.0, 1e-6, 2)}, "goal"),
        ({"epsilon": 1.0, "goal": veilsum.PrivacyGoal(1.0, 1e-6, 2)}, "epsilon"),
        ({"epsilon": 1.0, "ledger": "ledger.jsonl"}, "ledger"),
        ({"epsilon": 1.0, "scheme": "one-shot", "cryptography": False}, "scheme"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(
    given: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        veilsum.private_statistics([{"x": 1}] * 9, [Count(name="x")], **given)
    assert refused.value.argument == argument


@pytest.mark.parametrize(
    ("clients", "argument"),
    [([{"x": 1}], "clients"), ([1, 2, 3], "clients[0]"), ([{"y": 1}] * 9, "column of 'x'")],
)
def test_what_is_no_table_is_refused(clients: Any, argument: str) -> None:
    with pytest.raises(ParameterError) as refused:
        veilsum.private_statistics(clients, [Count(name="x")], **LOUD)
    assert refused.value.argument == argument


def test_tables_may_be_files_or_have_columns(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("age,town\n30,a\n50,\n")

    class Rows:
        column_names = ("age", "town")

        def __getitem__(self, name: str) -> list[Any]:
            return {"age": [40, 40], "town": ["b", "b"]}[name]

    tables = [path, Rows(), {"age": 20, "town": "a"}] * 20
    questions = [
        Mean(name="age", range=(0, 100)),
        Categories(name="town", categories=("a", "b")),
        GroupMeans(name="by", column="age", by="town", groups=("a", "b"), range=(0, 100)),
        Table(name="t", row="town", rows=("a", "b"), column="age", columns_of=(20, 40)),
        Quantiles(name="q", column="age", q=(0.5,), bounds=(0, 100)),
    ]
    found = veilsum.private_statistics(
        tables, questions, max_records=2, epsilon=2000.0, cryptography=False
    )
    assert found["age"].value == pytest.approx(100 / 3, abs=2.0)
    assert found["town"].value == pytest.approx([30.0, 20.0], abs=2.0)
    assert found["town"].parts["missing"].value == pytest.approx(10.0, abs=2.0)
