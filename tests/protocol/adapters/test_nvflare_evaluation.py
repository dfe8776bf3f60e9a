"""Private evaluation over NVFlare's tasks: rounds of a survey that the agreement declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="nvflare is not installed; make test-nvflare has a place")

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare_doubles import AGREEMENT, NAMES, Federation

from dp import Ledger
from protocol.adapters.evaluation import accepted, survey_of
from protocol.adapters.nvflare import MaskedTraining, PrivateAveraging
from protocol.adapters.nvflare.messages import SURVEYED, OneShotTask, task_name
from protocol.errors import ConfigurationError, PolicyError
from protocol.round.losses import Stage
from protocol.statistics.survey import Survey
from secagg import RemoteProtocolError

METRICS = """
[evaluation.loss]
low = 0.0
high = 4.0

[evaluation.seen]
kind = "count"

[evaluation.classifier]
kind = "evaluation"
bins = 8
"""
# Little noise, so that six clients say something.
DECLARED = AGREEMENT.replace("noise_multiplier = 0.5", "noise_multiplier = 0.1") + METRICS
ONE_SHOT = (
    DECLARED.replace("tolerated_colluders = 1", "tolerated_colluders = 0")
    + '[scheme]\nkind = "one-shot"\n'
)


def of_client(name: str) -> dict[str, Any]:
    number = 1 + NAMES.index(name)
    truth, scores = np.array([1, 0, 1, 0]), np.array([0.9, 0.1, 0.8, 0.2])
    return {"loss": 0.5 * number, "seen": number % 2, "y_true": truth, "y-score": scores}


class Validator(Executor):
    """Answers a validation, as NVFlare's own do."""

    def __init__(self, metrics: Mapping[str, Any]) -> None:
        super().__init__()
        self.metrics, self.models = metrics, []

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        assert task_name == "validate"
        self.models.append(shareable)
        return DXO(DataKind.METRICS, dict(self.metrics)).to_shareable()


def evaluating(
    root: Path,
    agreement: str = DECLARED,
    answer: Callable[[str], Any] = of_client,
    *,
    function: bool = False,
    **options: Any,
) -> Federation:
    """A federation whose clients answer so; with a function in place of an executor, or with it."""
    federation = Federation(root, agreement, **{"evaluate_every": 1, **options})
    for name, engine in federation.engines.items():
        metrics = answer(name)
        engine.components["check"] = (
            (lambda _, metrics=metrics: metrics) if function else Validator(metrics)
        )
        federation.executors[name] = MaskedTraining("trainer", evaluator="check")
    return federation


@pytest.mark.parametrize("agreement", [DECLARED, ONE_SHOT], ids=["pairwise", "one-shot"])
@pytest.mark.parametrize("function", [False, True])
def test_an_evaluation_is_a_round_of_the_agreement_like_any_other(
    tmp_path: Path, agreement: str, function: bool
) -> None:
    federation = evaluating(tmp_path, agreement, function=function, num_rounds=2)
    assert federation.run() == []
    assert len(federation.persistor.saved) == 2
    for _, facts in federation.persistor.saved:
        found = facts["evaluation"]
        assert found["survivors"] == 6
        for key, truth in {"loss": 1.75, "seen": 0.5, "accuracy": 1.0}.items():
            error = found[f"eval_{key}_se"]
            assert 0.0 < error < 1.0
            assert abs(found[f"eval_{key}"] - truth) < 6.0 * error
    with Ledger.open(federation.folder("server") / "ledger.jsonl") as ledger:
        entries = list(ledger.entries())
    assert ["survey" in entry.metadata["notes"] for entry in entries] == [False, True] * 2
    assert [entry.metadata["attempt"] for entry in entries] == [0, 1, 2, 3]
    assert len({entry.metadata["session"] for entry in entries}) == 1


def test_bad_values_count_as_missing_and_a_silent_client_is_lost(tmp_path: Path) -> None:
    def answer(name: str) -> dict[str, Any]:
        return of_client(name) if name < "site-4" else {"loss": float("nan"), "seen": 7}

    federation = evaluating(tmp_path, answer=answer)
    federation.engines["site-6"].components["check"] = lambda _: 1 / 0
    assert federation.run() == []
    ((_, facts),) = federation.persistor.saved
    found = facts["evaluation"]
    assert found["survivors"] == 5
    assert abs(found["eval_loss"] - 1.0) < 6.0 * found["eval_loss_se"]
    assert abs(found["eval_loss_missing"] - 2.0) < 2.0


@pytest.mark.parametrize(
    ("answered", "word"),
    [
        ({"loss": 1.0, "accuracy": 0.5}, "'accuracy', which is not declared"),
        ({"y-true": [1], "y_true": [1]}, "'y_true' twice"),
        (None, "it must be the id of a component"),
    ],
)
def test_what_is_not_declared_is_refused_and_the_model_is_kept(
    tmp_path: Path, answered: Any, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    federation = evaluating(tmp_path, answer=lambda _: answered)
    if answered is None:
        for engine in federation.engines.values():
            engine.components["check"] = None
    (panic,) = federation.run()
    assert "the evaluation of round 0" in panic and word not in panic
    assert word in caplog.text
    ((_, facts),) = federation.persistor.saved
    assert "evaluation" not in facts and facts["survivors"] == 6


def test_a_survey_that_was_not_agreed_to_is_not_even_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of 64 KiB may ask for gigabytes."""
    wide = survey_of({"loss": {"low": 0.0, "high": 1.0}})
    other = survey_of({"loss": {"low": 0.0, "high": 2.0}})
    assert wide is not None and other is not None
    weighted = replace(wide, weights=(3,)).written()
    assert accepted(weighted, wide, "") == replace(wide, weights=(3,))
    assert accepted(weighted, None, "", [wide.digest.hex()]).weights == (3,)
    monkeypatch.setattr(Survey, "read", None)
    for declared in (None, other):
        with pytest.raises(PolicyError):
            accepted(weighted, declared, "")
    for written in (b"", b"{", b"[]", b"1", bytes(1 << 17)):
        with pytest.raises(RemoteProtocolError):
            accepted(written, wide, "")
    with pytest.raises(ConfigurationError, match="evaluation_records: value 1"):
        survey_of({"any": {"kind": "evaluation"}}, 1)


def test_a_function_that_trains_does_not_evaluate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation, calls = evaluating(tmp_path), list[int]()
    for name, engine in federation.engines.items():
        engine.components["trainer"] = lambda weights: calls.append(1) or dict(weights)
        federation.executors[name] = MaskedTraining("trainer")
    (panic,) = federation.run()
    assert "the evaluation of round 0" in panic and len(calls) == 6
    assert "evaluator 'trainer' is function: it must be" in caplog.text


def test_a_client_answers_what_its_own_agreement_declares(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = evaluating(tmp_path)
    wider = DECLARED.replace("high = 4.0", "high = 5.0")
    (federation.folder("site-2") / "agreement.toml").write_text(wider)
    assert federation.run() == []
    ((_, facts),) = federation.persistor.saved
    assert facts["survivors"] == 6 and facts["evaluation"]["survivors"] == 5
    assert "what agreement.toml declares" in caplog.text


@pytest.mark.parametrize("step", sorted(SURVEYED, key=str), ids=str)
def test_a_round_is_an_evaluation_from_its_first_task_to_its_last(
    tmp_path: Path, step: Stage | OneShotTask
) -> None:
    """Or a model's update could be had with the clip of a survey, and the other way round."""
    one_shot = step is OneShotTask.UPLOAD
    federation = evaluating(tmp_path, ONE_SHOT if one_shot else DECLARED)

    def as_training(name: str, task: str, data: Shareable, message: bytes) -> None:
        if task == task_name(step) and name == "site-3":
            data.pop("veilsum_survey", None)

    federation.on_task = as_training
    assert federation.run() == []
    ((_, facts),) = federation.persistor.saved
    assert facts["survivors"] == 6 and facts["evaluation"]["survivors"] == 5
    assert len(federation.trainers["site-3"].models) == 1


@pytest.mark.parametrize(
    ("agreement", "options", "words"),
    [
        (DECLARED, {"num_rounds": 3}, "3, and 3 evaluations; valid: 1 .. 4 rounds together"),
        (AGREEMENT, {}, "evaluate_every: value 1; valid: 0, because the agreement has no table"),
        (DECLARED.replace("low = 0.0", ""), {}, "evaluation.loss.low"),
        (DECLARED, {"evaluate_every": 2}, "evaluate_every: value 2; valid: 0 .. 1"),
    ],
)
def test_what_does_not_fit_the_agreement_ends_the_job_before_anybody_is_asked(
    tmp_path: Path, agreement: str, options: dict[str, Any], words: str
) -> None:
    federation = evaluating(tmp_path, agreement, **options)
    (panic,) = federation.run()
    assert words in panic and not federation.results


@pytest.mark.parametrize("value", [-1, 1.5, True])
def test_a_number_of_rounds_is_asked_for(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="evaluate_every"):
        PrivateAveraging(1, evaluate_every=value)
