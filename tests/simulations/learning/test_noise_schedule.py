"""Noise that is not independent: what it is planned for, and everything that it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dp.correlated.planning import Optimiser, Schedule
from protocol.errors import ConfigurationError
from protocol.planning.configuration import build_plan
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.noise_schedule import (
    banded_plan,
    noise_weights,
    returned_plan,
    schedule_of,
    training_plan,
)
from simulations.learning.run.overrides import changed
from simulations.learning.server_optimizer import ModelState, optimize

FITTING = {
    "rounds": 60,
    "task.population": 192,
    "cohort.size": 38,
    "cohort.tolerated_dropouts": 4,
    "sketch": {"controller": "fixed", "rate": 1.0},
    "server.learning_rate": 6.0,
    "server.final_learning_rate": 6.0,
    "privacy.epsilon": 5.0,
    "privacy.clip_l2": 0.25,
    "noise.kind": "returned",
    "engine.aggregator": "central",
}


def fitting(**changes: Any) -> RunConfig:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return changed(demo_config(), list({**FITTING, **given}.items()))


def test_it_is_planned_for_what_the_schedule_gives() -> None:
    config = fitting()
    config.check()
    assert schedule_of(config) == Schedule(60, 12, 5)
    assert returned_plan(config).gain == pytest.approx(1.77, abs=0.005)
    assert banded_plan(config).gain == pytest.approx(1.90, abs=0.005)
    assert returned_plan(fitting(noise__apart=4)).gain < returned_plan(config).gain
    assert returned_plan(fitting(noise__share=0.5)).returned_share == 0.5


@pytest.mark.parametrize(
    ("key", "changes", "said"),
    [
        ("sketch.controller", {"sketch": {"controller": "adapt_norm"}}, "other hashes"),
        ("clipping", {"clipping": {"smallest": 0.1}, "engine.aggregator": "ideal"}, "changes"),
        ("powersgd", {"powersgd": {"rank": 2}, "engine.aggregator": "ideal"}, "multiplied"),
        ("denoise", {"denoise": {}}, "comes back in the next"),
        ("server.optimizer", {"server.optimizer": "adam"}, "rates of coordinates"),
        ("noise.kind", {"engine.aggregator": "plain"}, "real or ideal or central"),
        ("noise.kind", {"task.population": 38}, "gains nothing.*in 60 of 60.*1 apart"),
        ("noise.kind", {"noise.share": 0.0}, "gains nothing"),
        ("noise.share", {"noise.share": 0.99999}, "0.9999"),
        ("noise.apart", {"noise.apart": 6}, "at most 5, as cohorts of 38.*192"),
        ("rounds", {"rounds": 5000}, "4096"),
    ],
)
def test_what_does_not_go_together_is_named_with_its_reason(
    key: str, changes: dict[str, Any], said: str
) -> None:
    config = changed(demo_config(), list({**FITTING, **changes}.items()))
    with pytest.raises(ConfigurationError, match=said) as caught:
        config.check()
    assert caught.value.key == key


def test_a_banded_matrix_needs_a_trusted_server() -> None:
    fitting(noise__kind="banded").check()
    with pytest.raises(ConfigurationError, match=r"'banded' for ideal.*aggregator = central"):
        fitting(noise__kind="banded", engine__aggregator="ideal").check()


def test_a_multiplier_of_one_round_is_refused() -> None:
    config = fitting()
    privacy = config.privacy.model_copy(update={"epsilon": None, "noise_multiplier": 4.4})
    with pytest.raises(ConfigurationError, match=r"privacy\.epsilon") as caught:
        config.model_copy(update={"privacy": privacy}).check()
    assert caught.value.key == "privacy.noise_multiplier"


@pytest.mark.parametrize("key", ["noise.share", "noise.apart"])
def test_independent_noise_has_none_of_it(key: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown key; valid: exact, kind") as caught:
        changed(demo_config(), [(key, 0.5)])
    assert caught.value.key == key


def test_the_share_is_planned_where_clients_and_members_add_the_noise() -> None:
    with pytest.raises(ConfigurationError, match="left out") as caught:
        training_plan(fitting(noise__share=0.5))
    assert caught.value.key == "noise.share"


@pytest.mark.parametrize("noise", ["returned", "banded"])
def test_sums_of_clients_have_noise_of_their_own_round(noise: str) -> None:
    config = fitting(noise__kind=noise)
    with pytest.raises(ConfigurationError, match="noise that clients add") as caught:
        build_plan(config, config.participations)
    assert caught.value.key == "noise.kind"


def test_weights_are_what_the_servers_steps_add_up() -> None:
    server = fitting(server__momentum=0.9, server__final_learning_rate=0.5).server
    weights, rounds = noise_weights(server, 7), 7
    for number in range(rounds):
        state = ModelState.initial(np.zeros(rounds, np.float32))
        for now in range(number + 1):
            state = optimize(server, state, np.eye(rounds)[now], server.private_rate(now, rounds))
        assert state.model == pytest.approx(weights[number], rel=1e-6)
    plain = fitting(server__learning_rate=1.0, server__final_learning_rate=1.0).server
    assert np.array_equal(noise_weights(plain, 5), Optimiser.SGD.weights(5))


def test_the_models_of_the_last_rounds_are_averaged() -> None:
    server = fitting(server__average=0.3).server
    assert [server.averages(number, 10) for number in range(10)] == 7 * [False] + 3 * [True]
    state = ModelState.initial(np.zeros(2, np.float32))
    assert np.array_equal(state.released, [0.0, 0.0])
    for value in (1.0, 2.0, 6.0):
        state = optimize(server, state, np.full(2, value), 1.0).with_average()
    assert np.array_equal(state.model, [9.0, 9.0])
    assert state.released == pytest.approx([13.0 / 3.0] * 2)
