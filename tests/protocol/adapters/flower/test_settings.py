"""Configuration, from tables that Flower flattens: every error names the key and what is valid."""

from __future__ import annotations

import contextlib
import re
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import World
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from flwr.common.config import flatten_dict, parse_config_args
from flwr.serverapp.strategy import FedAvg
from typer.testing import CliRunner, Result

from protocol.adapters.flower import SecureGrid, SettingsError, StrategyError
from protocol.adapters.flower.digest import in_order, input_digest
from protocol.adapters.flower.folders import (
    new_client,
    policy_text,
    rules_of,
    write_registry,
)
from protocol.adapters.flower.home import (
    SIMULATION_ENGINE,
    SIMULATION_VARIABLE,
    ClientHome,
    ClientRules,
    CommitteeRules,
    PairwiseRules,
    ReturnedRules,
    home_of,
    may_be_simulated,
    read_identity,
    read_registry,
)
from protocol.adapters.flower.remedy import EXAMPLE, hyphened, mended
from protocol.adapters.flower.settings import read_settings, values_of
from protocol.errors import ConfigurationError
from protocol.planning.configuration import load
from protocol.round.clauses import PairwiseClauses
from protocol.schemes.pairwise import pairwise_of
from secagg import Mode, ParameterError
from simulations.commands.cli import app
from sketch.controllers import AdaptNorm, FixedRate

GOOD = {
    "rounds": 5,
    "simulation-dir": "/srv/simulated",
    "privacy": {"epsilon": 8, "delta": 1e-5, "clip-l2": 1.0},
    "cohort": {"size": 10, "tolerated-dropouts": 2, "tolerated-colluders": 1},
}


RETURNED: dict[str, float | str | None] = {
    "rounds": 3,
    "horizon": 12,
    "noise__kind": "returned",
    "noise__apart": 4,
    "scheme__kind": "one-shot",
    "scheme__committee__size": 8,
    "scheme__committee__corrupt": 1,
    "scheme__committee__away": 1,
    "sketch__controller": "fixed",
}


def config(**changes: Any) -> dict[str, float | str]:
    """The good configuration as Flower flattens it, with dotted keys replaced; None removes."""
    flat = flatten_dict({"veilsum": GOOD, "lr": 0.1})
    for key, value in changes.items():
        name = "veilsum." + key.replace("__", ".")
        if value is None:
            flat.pop(name, None)
        else:
            flat[name] = value
    return flat


def pasted(error: SettingsError) -> dict[str, float | str]:
    """What a run's configuration is once somebody has copied the table of an error."""
    return flatten_dict(tomllib.loads(error.table)["tool"]["flwr"]["app"]["config"])


def test_a_good_configuration_becomes_a_plan() -> None:
    settings = read_settings(config())
    plan = settings.plan()
    assert plan.goal.epsilon == 8.0 and plan.goal.rounds == 5 and plan.clip_l2 == 1.0
    assert (
        plan.cohort == 10 and plan.minimum_survivors == 8 and pairwise_of(plan).mode is Mode.ACTIVE
    )
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
        ({"privacy__epsilom": 1.0}, "veilsum.privacy.epsilom", "clip-l2, delta, epsilon"),
        ({"spice": 1.0}, "veilsum.spice", "unknown key"),
        ({"insecure-seed": 7}, "veilsum.insecure-seed", "secrets are never configured"),
        ({"privacy__insecure-seed": 7}, "veilsum.privacy.insecure-seed", "never configured"),
        ({"engine__insecure-seed": 7}, "veilsum.engine", "unknown key"),
        ({"scheme__mode": "trusting"}, "veilsum.scheme.mode", "'active' or 'semi_honest'"),
        ({"sketch__controller": "genius"}, "veilsum.sketch.controller", "adapt_norm"),
        ({"lifetime-seconds": 700_000}, "veilsum.lifetime-seconds", "less than or equal to 604800"),
        ({"lifetime-seconds": -1}, "veilsum.lifetime-seconds", "greater than or equal to 0"),
        ({"scheme__security-bits": 0}, "veilsum.scheme.security-bits", "greater than or equal"),
        ({"stage-seconds": 0.0}, "veilsum.stage-seconds", "greater than 0"),
        ({"cohort__tolerated-dropouts": 9}, "veilsum.cohort.tolerated-dropouts", "at most"),
        (
            {
                "sketch__controller": "adapt_progress",
                "sketch__gamma-low": 2.0,
                "sketch__gamma-high": 1.0,
            },
            "veilsum.sketch",
            "gamma_high must be",
        ),
        ({"privacy__noise-multiplier": 1.0}, "veilsum.privacy", "exactly one of epsilon and"),
        ({"privacy__epsilon": None}, "veilsum.privacy", "exactly one of epsilon and"),
        ({"simulation-dir": "here"}, "veilsum.simulation-dir", "absolute"),
        ({"simulation-dir": None}, "veilsum.simulation-dir", "in a simulation, an absolute path"),
        ({"simulation-dir": 7}, "veilsum.simulation-dir", "string"),
        ({"simulation-dir": "", "ledger": "/l"}, "veilsum.registry", "simulation-dir in its place"),
        ({"simulation-dir": "", "ledger": "/l", "registry": "r"}, "veilsum.registry", "absolute"),
        (RETURNED | {"horizon": None}, "veilsum.horizon", "missing where noise comes back"),
        (RETURNED | {"noise__apart": None}, "veilsum.noise.apart", "missing where noise comes"),
        (RETURNED | {"noise__share": 0.5}, "veilsum.noise.share", "left out: it is planned"),
        (RETURNED | {"noise__apart": 9}, "veilsum.noise.apart", "rounds"),
        (RETURNED | {"sketch__controller": "adapt_norm"}, "veilsum.sketch.controller", "fixed"),
        (RETURNED | {"evaluation__seen__kind": "count"}, "veilsum.evaluation", "comes back"),
        ({"horizon": 9}, "veilsum.horizon", "no noise comes back; valid: left out"),
        ({"simulated-clients": 9}, "veilsum.simulated-clients", "as many as num-supernodes"),
        (
            {
                "simulation-dir": "",
                "ledger": "/l",
                "registry": "/r",
                "simulated-clients": 10,
            },
            "veilsum.simulated-clients",
            "left out",
        ),
    ],
)
def test_a_bad_key_is_named_with_what_is_valid_and_a_table_that_is(
    changes: dict[str, float | str | None], key: str, text: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(config(**changes))
    assert str(caught.value).startswith(key) and text in str(caught.value)
    assert len(caught.value.problems) == 1
    settings = read_settings(pasted(caught.value))
    # What was not wrong is kept.
    if not key.startswith("veilsum.privacy"):
        assert settings.privacy == read_settings(config()).privacy


def test_a_table_that_is_a_value_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"veilsum\.privacy\.\S+: privacy is a value"):
        read_settings(config(privacy=3))
    flat = {key: value for key, value in config().items() if "privacy" not in key}
    with pytest.raises(SettingsError, match=r"veilsum\.privacy: value 3") as caught:
        read_settings({**flat, "veilsum.privacy": 3})
    read_settings(pasted(caught.value))


def test_everything_wrong_is_said_at_once() -> None:
    changes = {
        "rounds": 0,
        "simulation-dir": None,
        "privacy__delta": None,
        "privacy__clip-l2": -1.0,
        "cohort__tolerated-dropouts": 9,
        "cohort__cohort": 5,
        "sketch__controller": "fixed",
        "sketch__gamma": 1.0,
        "other-messages": "pass",
    }
    with pytest.raises(SettingsError) as caught:
        read_settings(config(**changes))
    assert [problem.key for problem in caught.value.problems] == [
        "veilsum.privacy.delta",
        "veilsum.privacy.clip-l2",
        "veilsum.cohort.cohort",
        "veilsum.rounds",
        "veilsum.sketch.gamma",
        "veilsum.other-messages",
        "veilsum.simulation-dir",
    ]
    assert all(str(problem) in str(caught.value) for problem in caught.value.problems)
    mended = read_settings(pasted(caught.value))
    # 9 of 10 are too many to lose, and that is mended too, though a wrong table hid it.
    assert mended.cohort.size == 10 and mended.plan().tolerated_dropouts < 9
    assert mended.cohort.tolerated_colluders == GOOD["cohort"]["tolerated-colluders"]


def test_figures_of_different_tables_that_do_not_fit_are_named_together(tmp_path: Path) -> None:
    changes = {"cohort__tolerated-dropouts": 9, "ledger": "ledger.jsonl", "simulated-clients": 2}
    with pytest.raises(SettingsError) as caught:
        read_settings(config(**changes))
    assert [problem.key for problem in caught.value.problems] == [
        "veilsum.cohort.tolerated-dropouts",
        "veilsum.ledger",
        "veilsum.simulated-clients",
    ]


def test_the_table_marks_what_is_not_the_user_s_own() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(config(privacy__delta=None, **{"stage-seconds": 7.5}))
    lines = caught.value.table.splitlines()
    assert "epsilon = 8" in lines and "stage-seconds = 7.5" in lines
    assert [line for line in lines if "example" in line] == [
        f"delta = {EXAMPLE['privacy']['delta']}  # an example: choose your own"
    ]


def test_any_text_survives_the_table() -> None:
    odd = '/srv/"odd"\\päth\t🌼'
    with pytest.raises(SettingsError) as caught:
        read_settings(config(rounds=None, **{"simulation-dir": odd}))
    assert read_settings(pasted(caught.value)).simulation_dir == odd


def test_if_nothing_can_be_kept_the_table_is_the_example() -> None:
    """A check that nothing but the example satisfies."""
    example = mended({}, lambda values: [])
    refuse = ConfigurationError("cohort.clip_l2", "wrong", "right")
    found = mended({"rounds": 7}, lambda values: [] if values == example else [refuse])
    assert found == example


def test_no_settings_at_all_say_where_they_go() -> None:
    with pytest.raises(SettingsError, match=r"tool\.flwr\.app\.config\.veilsum") as caught:
        read_settings({"lr": 0.1})
    assert len(caught.value.problems) == 1
    assert read_settings(pasted(caught.value)).plan().cohort == EXAMPLE["cohort"]["size"]


def test_rounds_live_a_day_unless_told_otherwise() -> None:
    assert read_settings(config()).plan().lifetime_seconds == 86_400
    assert read_settings(config(**{"lifetime-seconds": 0})).plan().lifetime_seconds == 0
    settings = read_settings(config(**{"lifetime-seconds": 7200, "scheme__security-bits": 88}))
    plan = settings.plan()
    assert (plan.lifetime_seconds, pairwise_of(plan).ring_bits(plan)) == (7200, 88)


def test_a_round_lives_as_long_as_its_stages_may_take() -> None:
    waits = {"stage-seconds": 100.0, "training-seconds": 3000.5}
    assert read_settings(config(**waits, **{"lifetime-seconds": 3501})).plan()
    with pytest.raises(
        SettingsError, match=r"veilsum\.lifetime-seconds: .* at least 3501"
    ) as caught:
        read_settings(config(**waits, **{"lifetime-seconds": 3500}))
    assert read_settings(pasted(caught.value)).plan().lifetime_seconds == 86_400


def test_an_empty_string_is_a_key_left_out() -> None:
    """`flwr run` overrides only keys that the app has."""
    flat = config(ledger="", registry="")
    assert "ledger" not in values_of(flat)
    assert read_settings(flat).ledger is None


def test_paths_begin_at_the_root_or_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_settings(config(ledger="~/l")).path("ledger") == tmp_path / "l"


def context(
    node_config: dict[str, int | str], run_config: dict[str, float | str] | None = None
) -> Context:
    return Context(7, 1, node_config, RecordDict(), run_config or {})


def test_a_home_is_named_by_the_node_or_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    def __init__(self, initialized: bool, actor: str) -> None:
        self.is_initialized = lambda: initialized
        self.get_runtime_context = lambda: SimpleNamespace(get_actor_id=lambda: actor)


@pytest.mark.parametrize("value", [None, "", "0", "true"])
@pytest.mark.parametrize("ray", [None, Ray(False, None), Ray(True, None)])
def test_no_run_names_the_folder_of_a_node_that_is_not_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, ray: Ray | None
) -> None:
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


def test_an_actor_of_flower_s_own_engine_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SIMULATION_VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "ray", Ray(True, "5f1c"))
    monkeypatch.delitem(sys.modules, SIMULATION_ENGINE, raising=False)
    assert not may_be_simulated()
    monkeypatch.setitem(sys.modules, SIMULATION_ENGINE, SimpleNamespace())
    assert may_be_simulated()


def test_the_node_config_of_the_command_line_is_read(tmp_path: Path) -> None:
    line = f'partition-id=0 num-partitions=4 veilsum.home="{tmp_path}"'
    assert home_of(context(parse_config_args([line]))).folder == tmp_path


def test_a_server_set_up_from_its_context_writes_a_simulation_s_folders(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world()
    run_config = config(**{"simulation-dir": str(tmp_path / "sim"), "cohort__size": 6})
    with SecureGrid.from_context(world.grid, context({}, run_config), strategy()) as secure:
        assert secure.run.run_id == 77
    homes = sorted((tmp_path / "sim" / "7").glob("client-*"))
    assert len(homes) == 6
    for home in homes:
        rules = load(home / "policy.toml", ClientRules)
        assert rules == rules_of(read_settings(run_config).plan(), name_refused_clauses=True)
        assert stat.S_IMODE((home / "identity.key").stat().st_mode) == 0o600
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
    registry = read_registry(tmp_path / "sim" / "7" / "registry.txt")
    assert registry == {read_identity(home / "identity.key").public for home in homes}


def strategy() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0)


@pytest.mark.parametrize("allowed", [False, True])
def test_a_simulation_s_clients_allow_what_its_settings_do(
    make_world: Callable[..., World], tmp_path: Path, allowed: bool
) -> None:
    world = make_world()
    changes = {"simulation-dir": str(tmp_path / "sim")}
    if allowed:
        changes["allow-evaluation-in-the-clear"] = True
    run_config = config(**changes)
    with contextlib.ExitStack() as stack:
        if not allowed:
            stack.enter_context(pytest.raises(StrategyError, match="fraction_evaluate"))
        made = SecureGrid.from_context(world.grid, context({}, run_config), FedAvg())
        stack.enter_context(made)
    homes = sorted((tmp_path / "sim").glob("7/client-*"))
    # Nothing is made for a run that does not begin.
    assert len(homes) == (10 if allowed else 0)
    for home in homes:
        rules = load(home / "policy.toml", ClientRules)
        assert rules.allow_evaluation_in_the_clear and not rules.allow_queries_in_the_clear


def deployed(tmp_path: Path, **changes: Any) -> dict[str, float | str]:
    paths = {"ledger": str(tmp_path / "l.jsonl"), "registry": str(tmp_path / "r.txt")}
    return config(**{"simulation-dir": None, **paths, **changes})


def test_a_deployed_server_names_everything_wrong_with_its_files(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world()
    run_config = deployed(tmp_path, ledger=str(tmp_path / "none" / "l.jsonl"))
    with pytest.raises(SettingsError) as caught:
        SecureGrid.from_context(world.grid, context({}, run_config), strategy())
    ledger, registry = caught.value.problems
    assert "no folder" in str(ledger) and "r.txt: No such file" in str(registry)
    # The settings themselves are as they should be.
    assert not caught.value.table and "This would do" not in str(caught.value)


def test_a_deployed_server_counts_its_registry(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world()
    write_registry(tmp_path / "r.txt", world.registry)
    run_config = deployed(tmp_path)
    with pytest.raises(SettingsError, match=r"6 identities; valid: at least cohort.size = 10"):
        SecureGrid.from_context(world.grid, context({}, run_config), strategy())
    run_config = deployed(tmp_path, cohort__size=6)
    with SecureGrid.from_context(world.grid, context({}, run_config), strategy()):
        assert (tmp_path / "l.jsonl").exists()


def test_a_folder_that_cannot_be_made_is_named(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world()
    (tmp_path / "file").write_text("")
    run_config = config(**{"simulation-dir": str(tmp_path / "file")})
    with pytest.raises(SettingsError, match=r"veilsum\.simulation-dir: .*file.*Not a directory"):
        SecureGrid.from_context(world.grid, context({}, run_config), strategy())


RULES: dict[str, Any] = {
    "clients": 6,
    "epsilon": 8.0,
    "delta": 1e-6,
    "rounds": 5,
    "clip_l2": 0.5,
    "minimum_survivors": 2,
    "tolerated_colluders": 1,
}
NAMED = {"committee": "named", "committee_size": 6}
DRAWN = {"committee": "drawn", "committee_size": 6, "committee_odds": 0.9, "committee_corrupt": 1}
TURNS = {"clients": 10, "tolerated_colluders": 0, "committee": "named", "committee_size": 4}


def provision(*words: object, **options: object) -> Result:
    """How `veilsum provision` ends."""
    given = [str(x) for key, value in options.items() for x in (f"--{hyphened(key)}", value)]
    return CliRunner().invoke(app, ["provision", *map(str, words), *given])


def test_the_command_makes_a_network(tmp_path: Path) -> None:
    also = "--allow-declared-evaluation", "--evaluation", "0a" * 32
    done = provision("network", *also, out=tmp_path, **RULES)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'registry.txt'}\n")
    text = (tmp_path / "client-002" / "policy.toml").read_text()
    rules = load(tmp_path / "client-002" / "policy.toml", ClientRules)
    policy = rules.policy()
    assert (rules.epsilon, rules.delta, policy.largest_clip_l2) == (8.0, 1e-6, 0.5)
    assert rules.allow_declared_evaluation and rules.evaluations == ["0a" * 32]
    assert policy.minimum_survivors == 2 and policy.registry_colluders == 1
    assert policy.goal.rounds == 5 and policy.schemes == (PairwiseClauses(),)
    # Every key is there, and none without what it means.
    for model in (ClientRules, PairwiseRules):
        for name, field in model.model_fields.items():
            assert f"# {field.description}\n" in text and re.search(rf"^#?\[?{name}\b", text, re.M)
    # Nobody's key is ever written over.
    error = provision("network", out=tmp_path, **RULES).exception
    assert isinstance(error, ConfigurationError) and error.key == "out"


def test_a_signed_network_has_who_signs_and_whose_histories_they_are(tmp_path: Path) -> None:
    named = {**NAMED, "committee_size": 4, "committee_corrupt": 0}
    done = provision("network", "--signed", out=tmp_path, **RULES, **named)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'registry.json'}\n")
    homes = [ClientHome(tmp_path / f"client-{number:03d}") for number in range(6)]
    keys = [home.identity.public for home in homes]
    for home in homes:
        assert home.rules.authority.announcers == [announcer(tmp_path).hex()]
        assert home.registry == frozenset(keys) and home.committee == frozenset(keys[:4])
        with home.history(home.policy) as history:
            assert history.epsilon == 0.0


def announcer(network: Path) -> bytes:
    return read_identity(network / "announcer.key").public


@pytest.mark.parametrize(
    ("changes", "name", "mended"),
    [
        ({"epsilon": -1}, "epsilon", {"epsilon": 1}),
        ({"epsilon": 1e-4}, "epsilon", {"epsilon": 0.05}),
        ({"clients": 1}, "clients", {"clients": 2}),
        ({"evaluation": "0a"}, "evaluations.0", {"evaluation": "0a" * 32}),
        ({"minimum_survivors": 7}, "minimum_survivors", {"minimum_survivors": 6}),
        ({"block": 4}, "block", {"block": 3}),
        ({"block": 6}, "block", {"block": 2}),
        ({"tolerated_colluders": 6}, "tolerated_colluders", {"tolerated_colluders": 5}),
        ({**NAMED, "committee_size": 7}, "committee_size", NAMED),
        ({"committee_size": 3}, "committee", NAMED),
        ({"committee": "everyone", "committee_size": 3}, "committee", NAMED),
        ({**NAMED, "committee_odds": 0.5}, "committee", DRAWN),
        ({**DRAWN, "committee_size": 7}, "committee_size", DRAWN),
        ({**DRAWN, "committee_odds": 1.0}, "committee.odds", DRAWN),
        ({**DRAWN, "committee_odds": 0.83}, "committee.odds", {**DRAWN, "committee_odds": 0.84}),
        ({**DRAWN, "committee_corrupt": 2}, "committee.corrupt", DRAWN),
        ({**DRAWN, "committee_corrupt": 7}, "committee.corrupt", DRAWN),
        ({**DRAWN, "committee_corrupt": 0}, "committee.corrupt", DRAWN),
        ({**DRAWN, "committee_threshold": 4}, "committee.threshold", DRAWN),
        ({"committee": "drawn", "committee_size": 4}, "committee", DRAWN),
        ({**NAMED, "committee_corrupt": 2}, "committee.corrupt", {**NAMED, "committee_corrupt": 1}),
        (
            {**NAMED, "committee_threshold": 4},
            "committee.threshold",
            {**NAMED, "committee_threshold": 3},
        ),
        (
            {"committee": "everyone", "tolerated_colluders": 2},
            "committee.corrupt",
            {"committee": "everyone", "tolerated_colluders": 1},
        ),
        ({"returned_apart": 3}, "returned", {**TURNS, "returned_apart": 2}),
        ({**TURNS, "returned_apart": 4}, "returned.apart", {**TURNS, "returned_apart": 3}),
    ],
)
def test_a_policy_that_no_round_can_meet_is_refused(
    tmp_path: Path, changes: dict[str, Any], name: str, mended: dict[str, Any]
) -> None:
    """By name, with what would be valid: that value is tried."""
    error = provision("network", out=tmp_path / "refused", **{**RULES, **changes}).exception
    assert isinstance(error, ConfigurationError | ParameterError)
    assert (error.key if isinstance(error, ConfigurationError) else error.argument) == name
    assert not (tmp_path / "refused").exists()
    done = provision("network", out=tmp_path / "made", **{**RULES, **mended})
    assert done.exit_code == 0, done.exception


def test_a_goal_that_needs_hardly_any_noise_is_met_with_more(tmp_path: Path) -> None:
    done = provision("network", out=tmp_path / "made", **{**RULES, "epsilon": 10_000, "rounds": 1})
    assert done.exit_code == 0, done.exception


def test_the_command_makes_one_client_and_only_shows_it_again(tmp_path: Path) -> None:
    first, again = (provision("client", home=tmp_path / "home").stdout for _ in range(2))
    assert first == again == f"{new_client(tmp_path / 'home').public.hex()}\n"


def test_rules_survive_being_written(tmp_path: Path) -> None:
    rules = ClientRules(
        epsilon=0.1,
        delta=1e-12,
        rounds=3,
        clip_l2=2.5,
        minimum_survivors=4,
        tolerated_colluders=0,
        lifetime_seconds=7200,
        dimension=650,
        mechanism="discrete-gaussian",
        pairwise=PairwiseRules(security_bits=88, allow_semi_honest=True),
        committee=CommitteeRules(kind="named", corrupt=2),
        returned=ReturnedRules(apart=4, fewest_members=3, kept_multiplier=0.5),
        allow_evaluation_in_the_clear=True,
        name_refused_clauses=True,
    )
    (tmp_path / "policy.toml").write_text(policy_text(rules))
    assert load(tmp_path / "policy.toml", ClientRules) == rules


def test_a_policy_has_no_seed_for_secrets(tmp_path: Path) -> None:
    rules = ClientRules(
        epsilon=1.0, delta=1e-5, rounds=3, clip_l2=1.0, minimum_survivors=2, tolerated_colluders=0
    )
    path = tmp_path / "policy.toml"
    path.write_text("insecure_seed = 7\n" + policy_text(rules))
    with pytest.raises(ConfigurationError, match=r"insecure_seed: unknown key.* never configured"):
        load(path, ClientRules)


def records(**changes: bool) -> RecordDict:
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
def test_every_value_and_its_type_is_in_the_digest(changes: dict[str, Any]) -> None:
    one = input_digest(records(), "train", "", {})
    assert one == input_digest(records(), "train", "", {})
    assert one != input_digest(records(**changes), "train", "", {})


def test_the_order_of_everything_is_in_the_digest() -> None:
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
def test_an_array_of_another_form_has_another_digest(array: np.ndarray) -> None:
    def digest(value: np.ndarray) -> bytes:
        content = RecordDict({"m": ArrayRecord({"a": Array(value)})})
        return input_digest(content, "train", "", {})

    assert digest(array) != digest(np.zeros((), np.float32))


def test_everything_around_the_records_is_in_the_digest() -> None:
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
