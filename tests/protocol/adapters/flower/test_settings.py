"""Configuration, from tables that Flower flattens: every error names the key and what is valid."""

from __future__ import annotations

import stat
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from flwr.common.config import flatten_dict, parse_config_args
from flwr.serverapp.strategy import FedAvg

from protocol.adapters.flower import SecureGrid
from protocol.adapters.flower.digest import in_order, input_digest
from protocol.adapters.flower.folders import new_client, policy_text, rules_of
from protocol.adapters.flower.home import (
    SIMULATION_ENGINE,
    SIMULATION_VARIABLE,
    ClientRules,
    home_of,
    may_be_simulated,
    read_identity,
    read_registry,
)
from protocol.adapters.flower.provision import main
from protocol.adapters.flower.settings import read_settings, values_of
from protocol.config import load
from protocol.errors import ConfigurationError
from secagg import Mode, ParameterError
from sketch.controllers import AdaptNorm, FixedRate

GOOD = {
    "rounds": 5,
    "privacy": {"epsilon": 8, "delta": 1e-5, "clip-l2": 1.0},
    "cohort": {"size": 10, "tolerated-dropouts": 2, "tolerated-colluders": 1},
}


def config(**changes):
    """The good configuration as Flower flattens it, with dotted keys replaced; None removes."""
    flat = flatten_dict({"veilsum": GOOD, "lr": 0.1})
    for key, value in changes.items():
        name = "veilsum." + key.replace("__", ".")
        if value is None:
            del flat[name]
        else:
            flat[name] = value
    return flat


def test_a_good_configuration_becomes_a_plan():
    settings = read_settings(config())
    plan = settings.plan()
    assert plan.goal.epsilon == 8.0 and plan.goal.rounds == 5 and plan.clip_l2 == 1.0
    assert plan.cohort == 10 and plan.minimum_survivors == 8 and plan.mode is Mode.ACTIVE
    assert isinstance(settings.controller(), AdaptNorm)
    fixed = read_settings(config(sketch__controller="fixed", sketch__rate=4.0))
    assert fixed.controller() == FixedRate(4.0)


@pytest.mark.parametrize(
    ("changes", "key", "text"),
    [
        ({"privacy__delta": None}, "veilsum.privacy.delta", "missing"),
        ({"cohort__size": None}, "veilsum.cohort.size", "missing"),
        ({"rounds": None}, "veilsum.rounds", "missing"),
        ({"rounds": "5"}, "veilsum.rounds", "value '5'"),
        ({"privacy__epsilon": -1.0}, "veilsum.privacy.epsilon", "greater than 0"),
        ({"privacy__epsilom": 1.0}, "veilsum.privacy.epsilom", "clip_l2, delta, epsilon"),
        ({"spice": 1.0}, "veilsum.spice", "unknown key"),
        ({"cohort__mode": "trusting"}, "veilsum.cohort.mode", "'active' or 'semi_honest'"),
        ({"privacy": 3}, "veilsum.privacy", "a value"),
        ({"sketch__controller": "genius"}, "veilsum.sketch.controller", "adapt_norm"),
        ({"stage-seconds": 0.0}, "veilsum.stage_seconds", "greater than 0"),
        ({"lifetime-seconds": 700_000}, "veilsum.lifetime_seconds", "less than or equal to 604800"),
        ({"lifetime-seconds": -1}, "veilsum.lifetime_seconds", "greater than or equal to 0"),
        ({"cohort__security-bits": 0}, "veilsum.cohort.security_bits", "greater than or equal"),
    ],
)
def test_a_bad_key_is_named_with_what_is_valid(changes, key, text):
    with pytest.raises(ConfigurationError) as caught:
        read_settings(config(**changes))
    assert str(caught.value).startswith(key) and text in str(caught.value)


def test_no_settings_at_all_say_where_they_go():
    with pytest.raises(ConfigurationError, match=r"tool\.flwr\.app\.config\.veilsum"):
        read_settings({"lr": 0.1})


def test_figures_that_do_not_fit_together_are_named():
    settings = read_settings(config(**{"cohort__tolerated-dropouts": 9}))
    with pytest.raises(ConfigurationError, match=r"veilsum\.cohort\.tolerated_dropouts"):
        settings.plan()
    gammas = {"sketch__gamma-low": 2.0, "sketch__gamma-high": 1.0}
    settings = read_settings(config(sketch__controller="adapt_progress", **gammas))
    with pytest.raises(ConfigurationError, match=r"veilsum\.sketch: gamma_high must be"):
        settings.controller()


def test_rounds_live_a_day_unless_told_otherwise():
    assert read_settings(config()).plan().lifetime_seconds == 86_400
    assert read_settings(config(**{"lifetime-seconds": 0})).plan().lifetime_seconds == 0
    settings = read_settings(config(**{"lifetime-seconds": 7200, "cohort__security-bits": 88}))
    assert (settings.plan().lifetime_seconds, settings.plan().ring_bits) == (7200, 88)


def test_a_round_lives_as_long_as_its_stages_may_take():
    waits = {"stage-seconds": 100.0, "training-seconds": 3000.5}
    assert read_settings(config(**waits, **{"lifetime-seconds": 3501})).plan()
    settings = read_settings(config(**waits, **{"lifetime-seconds": 3500}))
    with pytest.raises(ConfigurationError, match=r"veilsum\.lifetime_seconds: .* at least 3501"):
        settings.plan()


def test_an_empty_string_is_a_key_left_out():
    """`flwr run` overrides only keys that the app has."""
    flat = config(ledger="", registry="")
    assert "ledger" not in values_of(flat)
    assert read_settings(flat).ledger is None


def test_paths_are_absolute(tmp_path):
    assert read_settings(config(ledger=str(tmp_path / "l"))).path("ledger") == tmp_path / "l"
    with pytest.raises(ConfigurationError, match=r"veilsum\.ledger: missing"):
        read_settings(config()).path("ledger")
    with pytest.raises(ConfigurationError, match=r"veilsum\.ledger: value 'l'"):
        read_settings(config(ledger="l")).path("ledger")


def context(node_config, run_config=None):
    return Context(7, 1, node_config, RecordDict(), run_config or {})


def test_a_home_is_named_by_the_node_or_simulated(tmp_path, monkeypatch):
    monkeypatch.setenv(SIMULATION_VARIABLE, "1")
    with pytest.raises(ConfigurationError, match=r"veilsum\.home: missing"):
        home_of(context({}))
    with pytest.raises(ConfigurationError, match=r"veilsum\.home: value 'x'"):
        home_of(context({"veilsum.home": "x"}))
    with pytest.raises(ConfigurationError, match="no folder"):
        home_of(context({"veilsum.home": str(tmp_path / "none")}))
    simulated = {"veilsum.simulation-dir": str(tmp_path)}
    (tmp_path / "7" / "client-003").mkdir(parents=True)
    home = home_of(context({"partition-id": 3, "num-partitions": 4}, simulated))
    assert home.folder == tmp_path / "7" / "client-003"


class Ray:
    """Ray in a process that is, or is not, one of its workers."""

    def __init__(self, initialized, actor):
        self.is_initialized = lambda: initialized
        self.get_runtime_context = lambda: SimpleNamespace(get_actor_id=lambda: actor)


@pytest.mark.parametrize("value", [None, "", "0", "true"])
@pytest.mark.parametrize("ray", [None, Ray(False, None), Ray(True, None)])
def test_no_run_names_the_folder_of_a_node_that_is_not_simulated(tmp_path, monkeypatch, value, ray):
    """A server could name a folder that it knows to be there, of a client with a lax policy."""
    (tmp_path / "7" / "client-003").mkdir(parents=True)
    named = context({"partition-id": 3}, {"veilsum.simulation-dir": str(tmp_path)})
    monkeypatch.setitem(sys.modules, SIMULATION_ENGINE, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv(SIMULATION_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(SIMULATION_VARIABLE, value)
    with pytest.raises(ConfigurationError, match=r"veilsum\.home: missing.*VEILSUM_SIMULATION=1"):
        home_of(named)
    monkeypatch.setenv(SIMULATION_VARIABLE, "1")
    assert home_of(named).folder == tmp_path / "7" / "client-003"


def test_an_actor_of_flower_s_own_engine_is_simulated(monkeypatch):
    monkeypatch.delenv(SIMULATION_VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "ray", Ray(True, "5f1c"))
    monkeypatch.delitem(sys.modules, SIMULATION_ENGINE, raising=False)
    assert not may_be_simulated()
    monkeypatch.setitem(sys.modules, SIMULATION_ENGINE, SimpleNamespace())
    assert may_be_simulated()


def test_the_node_config_of_the_command_line_is_read(tmp_path):
    line = f'partition-id=0 num-partitions=4 veilsum.home="{tmp_path}"'
    assert home_of(context(parse_config_args([line]))).folder == tmp_path


def test_a_server_set_up_from_its_context_writes_a_simulation_s_folders(make_world, tmp_path):
    world = make_world()
    run_config = config(**{"simulation-dir": str(tmp_path / "sim"), "cohort__size": 6})
    with SecureGrid.from_context(world.grid, context({}, run_config), FedAvg()) as secure:
        assert secure.run.run_id == 77
    homes = sorted((tmp_path / "sim" / "7").glob("client-*"))
    assert len(homes) == 6
    for home in homes:
        rules = load(home / "policy.toml", ClientRules)
        assert rules == rules_of(read_settings(run_config).plan())
        assert stat.S_IMODE((home / "identity.key").stat().st_mode) == 0o600
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
    registry = read_registry(tmp_path / "sim" / "7" / "registry.txt")
    assert registry == {read_identity(home / "identity.key").public for home in homes}


def test_a_deployed_server_needs_a_ledger_and_a_registry(make_world, tmp_path):
    world = make_world()
    with pytest.raises(ConfigurationError, match=r"veilsum\.ledger: missing"):
        SecureGrid.from_context(world.grid, context({}, config()), FedAvg())
    paths = {"ledger": str(tmp_path / "l.jsonl"), "registry": str(tmp_path / "r.txt")}
    with pytest.raises(ConfigurationError, match=r"r\.txt: No such file"):
        SecureGrid.from_context(world.grid, context({}, config(**paths)), FedAvg())


def provision(out, **changes):
    values = {
        "out": out,
        "clients": 3,
        "epsilon": 8.0,
        "delta": 1e-6,
        "rounds": 5,
        "clip-l2": 0.5,
        "minimum-survivors": 2,
        "tolerated-colluders": 1,
        **changes,
    }
    return ["network", *[str(x) for key, value in values.items() for x in (f"--{key}", value)]]


def test_the_command_makes_a_network(tmp_path, capsys):
    assert main(provision(tmp_path)) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "registry.txt")
    rules = load(tmp_path / "client-002" / "policy.toml", ClientRules)
    policy = rules.policy()
    assert (rules.epsilon, rules.delta, policy.largest_clip_l2) == (8.0, 1e-6, 0.5)
    assert policy.minimum_survivors == 2 and policy.registry_colluders == 1
    assert policy.goal.rounds == 5 and not policy.allow_semi_honest
    # Nobody's key is ever written over.
    assert main(provision(tmp_path)) == 1
    assert "exists" in capsys.readouterr().err


def test_the_command_names_a_bad_figure(tmp_path, capsys):
    assert main(provision(tmp_path, epsilon=-1)) == 1
    assert "epsilon: value -1.0" in capsys.readouterr().err


def test_the_command_makes_one_client_and_only_shows_it_again(tmp_path, capsys):
    home = str(tmp_path / "home")
    assert main(["client", "--home", home]) == 0
    first = capsys.readouterr().out.strip()
    assert main(["client", "--home", home]) == 0
    assert capsys.readouterr().out.strip() == first
    assert new_client(tmp_path / "home").public.hex() == first


def test_rules_survive_being_written(tmp_path):
    rules = ClientRules(
        epsilon=0.1,
        delta=1e-12,
        rounds=3,
        clip_l2=2.5,
        minimum_survivors=4,
        tolerated_colluders=0,
        security_bits=88,
        lifetime_seconds=7200,
        dimension=650,
        allow_semi_honest=True,
        other_messages="refuse",
    )
    (tmp_path / "policy.toml").write_text(policy_text(rules))
    assert load(tmp_path / "policy.toml", ClientRules) == rules


def records(**changes):
    content = RecordDict(
        {
            "arrays": ArrayRecord(),
            "config": ConfigRecord({"a": 1, "b": [1, 2], "c": "x", "d": b"x", "e": 0.5}),
            "metrics": MetricRecord({"m": 1.5}),
        }
    )
    for name, value in changes.items():
        content["config"][name] = value
    return content


CHANGES = [{"a": True}, {"a": 1.0}, {"b": [12]}, {"b": [1.0, 2.0]}, {"c": b"x"}, {"f": ""}]


@pytest.mark.parametrize("changes", CHANGES)
def test_every_value_and_its_type_is_in_the_digest(changes):
    one = input_digest(records(), "train", "", {})
    assert one == input_digest(records(), "train", "", {})
    assert one != input_digest(records(**changes), "train", "", {})


def test_the_order_of_everything_is_in_the_digest():
    """Training may read records, keys and arrays by position."""
    zeros, ones = Array(np.zeros(3)), Array(np.ones(3))
    orders = [
        {"m": ArrayRecord({"a": zeros, "b": ones}), "c": ConfigRecord({"x": 1, "y": 2})},
        {"m": ArrayRecord({"b": ones, "a": zeros}), "c": ConfigRecord({"x": 1, "y": 2})},
        {"m": ArrayRecord({"a": ones, "b": zeros}), "c": ConfigRecord({"x": 1, "y": 2})},
        {"m": ArrayRecord({"a": zeros, "b": ones}), "c": ConfigRecord({"y": 2, "x": 1})},
        {"c": ConfigRecord({"x": 1, "y": 2}), "m": ArrayRecord({"a": zeros, "b": ones})},
    ]
    digests = {input_digest(RecordDict(each), "train", "", {}) for each in orders}
    assert len(digests) == len(orders)
    # Of a run's configuration Flower keeps no order, so training is not shown one.
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert len({input_digest(records(), "train", "", each) for each in (one, other)}) == 1
    assert list(in_order(one)) == list(in_order(other))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((1,), np.float32),
        np.zeros((1, 1), np.float32),
        np.zeros((), np.float64),
        np.zeros((), np.int32),
        np.array(-0.0, np.float32),
    ],
)
def test_an_array_of_another_form_has_another_digest(array):
    def digest(value):
        content = RecordDict({"m": ArrayRecord({"a": Array(value)})})
        return input_digest(content, "train", "", {})

    assert digest(array) != digest(np.zeros((), np.float32))


def test_everything_around_the_records_is_in_the_digest():
    digests = [
        input_digest(records(), "train", "", {}),
        input_digest(records(), "train.other", "", {}),
        input_digest(records(), "train", "1", {}),
        input_digest(records(), "train", "", {"lr": 0.1}),
        input_digest(records(), "train", "", {"lr": "0.1"}),
        input_digest(RecordDict({"arrays": ArrayRecord()}), "train", "", {}),
    ]
    assert len(set(digests)) == len(digests)
    with pytest.raises(ParameterError, match="odd"):
        input_digest(records(), "train", "", {"odd": SimpleNamespace()})
