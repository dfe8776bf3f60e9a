"""Cohorts that clients' own coins choose: who comes, what is refused, and what is said of it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from protocol.errors import ConfigurationError
from protocol.planning.configuration import parse
from protocol.round.pipeline import Pipeline
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.data import load_digits_dataset
from simulations.learning.federated import Federation
from simulations.learning.run.experiment import RunResult, run_experiment
from simulations.learning.run.folder import RunFolder
from simulations.learning.run.forecast import forecast
from simulations.learning.run.overrides import with_changes
from simulations.learning.run.view import LiveView
from simulations.reports.run.folders import find_runs
from simulations.reports.run.page import write_page

CENTRAL = [
    ("engine.aggregator", "central"),
    ("cohort.choice", "allocation"),
    ("faults.dropout", 0.0),
]
NAMED = {"kind": "named", "size": 20, "corrupt": 2, "away": 2}
SUMS = [
    ("cohort.choice", "allocation"),
    ("task.clients", "iid"),
    ("task.minimum_examples", 1),
    ("task.model", "logistic"),
    ("task.population", 960),
    ("cohort.size", 320),
    ("cohort.tolerated_dropouts", 24),
    ("faults.dropout", 0.005),
    ("scheme", {"kind": "one-shot", "committee": NAMED}),
    ("rounds", 3),
]
ALONE = {
    "powersgd": {"rank": 1},
    "clipping": {"smallest": 0.1},
    "denoise": {},
    "evaluation": {"every": 2},
    "attackers": {"fraction": 0.1},
}


def config_of(changes: Sequence[tuple[str, Any]]) -> RunConfig:
    return parse(with_changes(demo_config().model_dump(exclude_none=True), changes), RunConfig)


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ([("cohort.choice", "allocation")], "cohort.tolerated_dropouts", "at least 33"),
        ([*SUMS, ("task.population", 192), ("cohort.size", 64)], "cohort.choice", "larger cohorts"),
        ([*SUMS, ("noise", {"mechanism": "skellam"})], "cohort.choice", "binomial"),
        ([*SUMS, ("noise", {"exact": False})], "cohort.choice", "exactly"),
        ([*CENTRAL, ("cohort.size", 60)], "cohort.size", "divides"),
        ([*CENTRAL, ("cohort.size", 192)], "cohort.size", "smaller"),
        ([*CENTRAL, ("engine.aggregator", "plain")], "cohort.choice", "turns"),
        ([*CENTRAL, ("noise", {"kind": "banded"})], "cohort.choice", "turns"),
        ([*CENTRAL, ("task.population", 8), ("cohort.size", 4)], "task.population", "nobody"),
        *(([*SUMS, (name, table)], "cohort.choice", name) for name, table in ALONE.items()),
    ],
)
def test_what_would_tell_a_cohort_is_refused(
    changes: list[tuple[str, Any]], key: str, said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config_of(changes).check()
    assert caught.value.key == key
    assert said in str(caught.value)


def test_everybody_comes_once_in_each_block_and_is_lost_by_itself() -> None:
    config = config_of([*CENTRAL, ("faults.dropout", 0.1)])
    federation = Federation(config, load_digits_dataset())
    cohorts = [federation._cohort(number) for number in range(6)]
    for block in (cohorts[:3], cohorts[3:]):
        assert sorted(client for cohort in block for client in cohort) == list(range(192))
    assert cohorts[0] != cohorts[3]
    assert len({len(cohort) for cohort in cohorts}) > 1
    # Who else is lost, and where, does not change with one client more.
    for cohort in cohorts:
        whole, fewer = federation._lose(0, cohort), federation._lose(0, cohort[1:])
        assert {cohort[i]: s for i, s in whole.items() if i} == {
            cohort[i + 1]: s for i, s in fewer.items()
        }


def _run(changes: Sequence[tuple[str, Any]], out: Path) -> tuple[RunResult, str]:
    config = config_of(changes)
    said = io.StringIO()
    view = LiveView(config, Console(file=said, width=400))
    with RunFolder(out, config) as folder:
        return run_experiment(config, load_digits_dataset(), folder, [view]), said.getvalue()


CENTRAL_RUN = [
    *CENTRAL,
    ("privacy.epsilon", 5.0),
    ("faults.dropout", 0.0),
    ("rounds", 12),
    ("engine.evaluate_every", 12),
]


def test_the_demo_with_hidden_cohorts(tmp_path: Path) -> None:
    found, said = _run(CENTRAL_RUN, tmp_path / "run")
    records = found.records
    assert len({record["cohort"] for record in records}) > 3
    # Neither the noise nor what a sum is divided by tells how many came: sizes of sketches are
    # all that changes, and these follow from released values.
    assert len({record["noise_variance"] for record in records}) == 1
    last = records[-1]["epsilons"]
    assert last["hidden_cohorts"] == pytest.approx(2.9, abs=0.1)
    assert (last["server"], last["guaranteed"]) == ("inf", 5.0)
    assert last["outsider"] == pytest.approx(5.0, abs=0.01)  # cohorts told: no part of it
    assert "it never holds against the server" in said
    assert "No part of that: epsilon 2.892" in said
    page = write_page(find_runs([tmp_path / "run"]), "hidden", tmp_path / "page.html").read_text()
    assert "never told who came" in page


def test_sums_of_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, decode = list[bytes](), Pipeline.decode

    def decodes(self: Pipeline, *args: Any) -> Any:
        seeds.extend((args[-1].seed.material, self._setup.parameters.public_seed.value))
        return decode(self, *args)

    monkeypatch.setattr(Pipeline, "decode", decodes)
    config = config_of(SUMS)
    figures = json.loads(json.dumps(forecast(config, Federation(config, load_digits_dataset()))))
    records = _run(SUMS, tmp_path / "run")[0].records
    # The server's coins are its secret: of no public seed, and of another in every round.
    assert len(set(seeds)) == 2 * len(records) == len(seeds)
    planned, spent = figures["epsilons"], records[-1]["epsilons"]
    assert planned["hidden_cohorts"] == spent["hidden_cohorts"] < planned["outsider"]
    assert figures["fewest_clients"] <= min(r["cohort"] for r in records)
    assert max(r["cohort"] for r in records) <= figures["most_clients"]
    assert len({record["cohort"] for record in records}) > 1
    variances = [float(np.asarray(record["noise_variance"])) for record in records]
    assert len(set(variances)) == 1
    assert spent["guaranteed"] == 8.0
