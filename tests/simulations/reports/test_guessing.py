"""How often a guess can be right: the curve's own minimum, and the sentence about it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dp import FailingGaussian
from dp.accounting import gaussian_mu
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.run.overrides import changed
from simulations.reports.guessing import best_guess, best_guess_at, meaning, promised_guess
from simulations.reports.run.trade_off import misses_of_point

ALARMS = np.linspace(0.0, 1.0, 200_001)
RECORD: dict[str, Any] = {"server": 2.0, "delta": 1e-5, "colluders": 2, "guaranteed": 5.0}


def config_of(aggregator: str) -> RunConfig:
    return changed(demo_config(), [("engine.aggregator", aggregator)])


@pytest.mark.parametrize(("failure", "mu"), [(0.0, 0.0), (0.0, 1.1), (0.01, 0.3), (3e-7, 4.0)])
def test_the_best_guess_is_where_the_curve_has_the_fewest_errors(failure: float, mu: float) -> None:
    pair = FailingGaussian(failure, mu)
    errors = (ALARMS + pair.type_two_error(ALARMS)) / 2.0
    assert best_guess(pair) == pytest.approx(1.0 - errors.min(), abs=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.5, 1e-5), (3.0, 0.1), (5.0, 1e-5)])
def test_the_best_guess_at_a_point(epsilon: float, delta: float) -> None:
    errors = (ALARMS + misses_of_point(epsilon, delta, ALARMS)) / 2.0
    assert best_guess_at(epsilon, delta) == pytest.approx(1.0 - errors.min(), abs=1e-5)
    assert best_guess_at(1e6, delta) == 1.0


def test_a_coin_is_right_half_of_the_time() -> None:
    assert best_guess(FailingGaussian(0.0, 0.0)) == 0.5 == best_guess_at(0.0, 0.0)


def test_what_is_promised_is_the_goal_and_not_what_is_spent() -> None:
    pair = {"failure": 1e-6, "mu": 0.1}
    epsilons = {**RECORD, "server": 0.3, "gaussian": pair}
    largest = FailingGaussian(1e-6, gaussian_mu(5.0, 1e-5 - 1e-6))
    assert promised_guess(config_of("real"), epsilons) == best_guess(largest)
    assert promised_guess(config_of("real"), RECORD) == best_guess_at(5.0, 1e-5)
    assert promised_guess(config_of("real"), {**RECORD, "guaranteed": "inf"}) == 1.0


def test_the_sentence_has_its_assumptions_and_rounds_up() -> None:
    told = meaning(config_of("real"), {**RECORD, "gaussian": {"failure": 4e-7, "mu": 1.0}})
    exact = promised_guess(config_of("real"), {**RECORD, "gaussian": {"failure": 4e-7, "mu": 1.0}})
    assert f"right at most {math.ceil(1000 * exact) / 10:.1f}%" in told
    for part in (
        "What epsilon 5 means",
        "knows every update but one client's",
        "all that the server and 2 colluding clients saw",
        "took part in its rounds or sent zeros",
        "equally likely beforehand",
    ):
        assert part in told
    one = meaning(config_of("real"), {**RECORD, "colluders": 1})
    assert "the server and 1 colluding client saw" in one


def test_who_attacks_depends_on_who_is_trusted() -> None:
    central = meaning(config_of("central"), {"server": "inf", "outsider": 2.0})
    assert "somebody with the released models saw" in central and "server" not in central
    assert meaning(config_of("plain"), {"server": "inf"}) == ""
    assert meaning(config_of("real"), {**RECORD, "guaranteed": "inf"}) == ""


def test_nothing_is_promised_by_a_run_whose_secrets_anybody_may_know() -> None:
    known = changed(config_of("ideal"), [("engine.insecure_seed", 7)])
    assert meaning(config_of("ideal"), RECORD) != "" == meaning(known, RECORD)
