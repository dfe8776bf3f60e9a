"""A real run with dropouts, counted three times: by its records, by `veilsum account`, and here.

What is here knows neither: it takes sketch sizes, coins and survivors from the records of the
rounds, works out by the formulas of docs/dropouts.md which coins were whose, evaluates the
definition of sigma_eff with SciPy, and leaves composition to dp-accounting.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import tomli_w
from command_line import run_json
from dp_accounting.pld import PLDAccountant
from scipy import stats
from scipy.special import ndtri

COHORT, LEAST, COLLUDERS, EPSILON, DELTA = 10, 8, 1, 30.0, 1e-5
CONFIG = {
    "seed": 5,
    "rounds": 5,
    "task": {"population": 20, "hidden": 4, "minimum_examples": 3},
    "local": {"learning_rate": 0.3, "steps": 1, "batch_size": 8},
    "server": {"learning_rate": 2.0},
    "privacy": {"epsilon": EPSILON, "delta": DELTA, "clip_l2": 0.25, "error_share": 0.05},
    "cohort": {
        "size": COHORT,
        "tolerated_dropouts": COHORT - LEAST,
        "tolerated_colluders": COLLUDERS,
    },
    "sketch": {"gamma": 0.1},
    "faults": {"dropout": 0.2},
    "engine": {"aggregator": "real"},
}
AGREEMENT = 2e-3
"""Of dp-accounting's loss distributions, which are put on a grid and rounded up."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recount")
    config = path / "config.toml"
    config.write_text(tomli_w.dumps(CONFIG))
    run_json("run", config, "--out", path / "run", "--quiet")
    return path / "run"


@pytest.fixture(scope="module")
def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def entries(folder: Path) -> list[dict[str, Any]]:
    """Of the ledger, as plain JSON: who was invited, and what was released."""
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [line["content"] for line in lines if line["kind"] == "event"]


def mu(coins: int, l2: float, linf: int, delta0: float) -> np.float64:
    """D2 / sigma_eff: the largest zq(U(x) / (1 - f)) + zq(L(x - k) / (1 - f)), over k, times D2."""
    coins -= coins % 2
    reach = min(coins // 2 + linf, math.ceil(12.0 * math.sqrt(coins / 4.0)) + 2 * linf)
    x = np.arange(-reach - linf, reach + 1)
    upper = stats.binom.sf(x - 1 + coins // 2, coins, 0.5)
    lower = stats.binom.cdf(x - 1 + coins // 2, coins, 0.5)
    found = []
    for k in range(1, min(linf, int(l2)) + 1):
        rest = 1.0 - delta0 * (k / l2) ** 2
        first, second = upper[k:] / rest, lower[:-k] / rest
        inside = (first < 1.0) & (second < 1.0)
        found.append(np.max(-ndtri(first[inside]) - ndtri(second[inside])) / k)
    return l2 * max(found)


def epsilon_of(mus: list[np.float64], goal: dict[str, float]) -> float:
    """dp-accounting's, at what is left of delta."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for each in mus:
        accountant.compose(dp_accounting.GaussianDpEvent(1.0 / each))
    aside = goal["rounds"] * (goal["delta0"] + goal["aggregation"])
    return accountant.get_epsilon(goal["delta"] - aside)


def busiest(entries: list[dict[str, Any]], mus: list[np.float64]) -> list[np.float64]:
    """The mus of the client that paid most: each pays for the rounds it was invited to."""
    mine = defaultdict(list)
    for entry, each in zip(entries, mus, strict=True):
        for client in entry["metadata"]["cohort"]:
            mine[client].append(each)
    return max(mine.values(), key=lambda found: math.fsum(each**2 for each in found))


def left(record: dict[str, Any]) -> tuple[int, int]:
    """Coins of the honest survivors, of all survivors, and of a batch that is never shared."""
    target = record["coins"] * (LEAST - COLLUDERS)
    kept = -(-target // (record["survivors"] - COLLUDERS))
    own = -(-target // (COHORT - COLLUDERS))
    return kept * (record["survivors"] - COLLUDERS), own


def test_clients_were_lost_and_noise_was_taken_off(records: list[dict[str, Any]]) -> None:
    lost = {COHORT - record["survivors"] for record in records}
    assert len(records) == 5 and max(lost) > 0 and len(lost) > 1
    assert all(left(record)[1] < record["coins"] for record in records)


def test_the_ledger_has_the_coins_that_were_there(
    records: list[dict[str, Any]], entries: list[dict[str, Any]]
) -> None:
    for record, entry in zip(records, entries, strict=True):
        honest, own = left(record)
        assert entry["event"]["coins"] == honest
        assert entry["metadata"]["coins_own"] == own
        assert entry["metadata"]["survivors"] == record["survivors"]


def test_three_counts_agree(
    folder: Path, records: list[dict[str, Any]], entries: list[dict[str, Any]]
) -> None:
    figures = run_json("audit-ledger", folder / "ledger.jsonl")
    goal, booked = entries[0]["metadata"]["goal"], records[-1]["epsilons"]
    for place, name in enumerate(("server", "sybil")):
        told = figures["epsilon" if name == "server" else name]
        # The records round up, the second reader to the nearest.
        assert told * (1.0 - 1e-9) <= booked[name] == pytest.approx(told, rel=3e-6)
        mus = [
            mu(
                left(record)[place],
                event["l2_sensitivity"],
                event["linf_sensitivity"],
                goal["delta0"],
            )
            for record, event in zip(records, (each["event"] for each in entries), strict=True)
        ]
        counted = epsilon_of(busiest(entries, mus), goal)
        assert told == pytest.approx(counted, rel=AGREEMENT)
    assert booked["server"] < figures["guaranteed"] == booked["guaranteed"] == EPSILON
    # All coins that stay in the sum, as if none of a client's seeds had ever been shared.
    hopeful = [
        mu(
            entry["metadata"]["coins_each"],
            entry["event"]["l2_sensitivity"],
            entry["event"]["linf_sensitivity"],
            goal["delta0"],
        )
        for entry in entries
    ]
    assert epsilon_of(busiest(entries, hopeful), goal) < figures["sybil"] * (1.0 - 10 * AGREEMENT)
