"""Malicious clients: what they send, what of it a sum has, and rules that withstand some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from one_shot_worlds import World, ideal, plan_of, update
from small_runs import BARE, config_of, run

from protocol.errors import ConfigurationError
from protocol.noise.noise import Independent
from protocol.planning.configuration import parse
from protocol.round.losses import Stage
from protocol.schemes import Validated
from protocol.schemes.committee import Named
from secagg import centre
from secagg.oneshot.committee import CommitteeKind
from simulations.learning.attackers import (
    MARKED,
    TARGET,
    AttackedAggregator,
    AttackedUpdates,
    Attackers,
)
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Split, load_dataset
from simulations.learning.sources.robust import RULES

KINDS = ("sign-flip", "scaled", "spike", "direction", "backdoor")


def attacked(**table: Any) -> RunConfig:
    """A small run with attackers."""
    return parse({**BARE, "attackers": table}, RunConfig)


@pytest.mark.parametrize("kind", KINDS)
def test_attackers_send_vectors_of_the_length_that_is_said(kind: str) -> None:
    config = attacked(fraction=0.2, kind=kind, length=3.0)
    attackers, again = Attackers(config), Attackers(config)
    assert len(attackers.clients) == 6 and attackers.clients == again.clients
    assert attackers.clients != Attackers(config.model_copy(update={"seed": 4})).clients
    trained = np.random.default_rng(1).normal(size=50).astype(np.float32)
    sent = attackers.vector(trained)
    assert np.linalg.norm(sent) == pytest.approx(3.0 * 0.25)
    assert np.array_equal(sent, again.vector(trained))
    along = float(sent @ trained) / float(np.linalg.norm(sent) * np.linalg.norm(trained))
    ways = {"sign-flip": along < -0.999, "scaled": along > 0.999, "backdoor": along > 0.999}
    assert ways.get(kind, abs(along) < 0.7)
    assert (np.count_nonzero(sent) == 1) == (kind == "spike")
    asked = AttackedUpdates(lambda _: trained, attackers, range(30))
    for client in range(30):
        assert np.array_equal(asked(client), sent if client in attackers.clients else trained)


def sums_of(world: World, length: float, attacker: int = 3) -> tuple[Any, NDArray[np.int64]]:
    """The outcome with an attacker, and what differs in its sum from one that keeps to the clip."""
    setup = world.setup()

    def updates(index: int) -> NDArray[Any]:
        return -9.0 * update(index) if index == attacker else update(index)

    honest = ideal(setup).run(setup, updates, {})
    aggregator = AttackedAggregator(ideal(setup), [world.keys[attacker]], length)
    outcome = aggregator.run(setup, updates, {})
    vectors = [centre(each.total.vector) for each in (outcome, honest)]
    return outcome, vectors[0] - vectors[1]


@pytest.mark.parametrize("length", [2.0, 3.5])
def test_what_is_beyond_the_clip_is_added_to_the_sum(length: float) -> None:
    world = World(plan_of(CommitteeKind.NAMED, noise=Independent(mechanism="discrete-gaussian")))
    outcome, beyond = sums_of(world, length)
    parameters = world.setup().parameters
    units = parameters.scale * parameters.sketch_clip_l2
    assert np.linalg.norm(beyond) == pytest.approx((length - 1.0) * units, rel=0.01)
    assert outcome.total.survivors == tuple(range(10))


@pytest.mark.parametrize(("share", "kept"), [(0.99, True), (1.01, False)])
def test_validated_rounds_leave_out_what_is_beyond_the_bound(share: float, kept: bool) -> None:
    scheme = Validated(committee=Named(size=8, corrupt=1, away=1))
    noise = Independent(mechanism="discrete-gaussian")
    world = World(plan_of(CommitteeKind.NAMED, scheme=scheme, noise=noise))
    setup: Any = world.setup()
    units = setup.parameters.scale * setup.parameters.sketch_clip_l2
    outcome, _ = sums_of(world, share * setup.context.bound**0.5 / units)
    assert (3 in outcome.total.survivors) is kept


def test_whoever_is_lost_adds_nothing() -> None:
    world = World(plan_of(CommitteeKind.NAMED))
    setup = world.setup()
    aggregator = AttackedAggregator(ideal(setup), [world.keys[3]], 5.0)
    lost = aggregator.run(setup, update, {3: Stage.INPUT})
    expected = ideal(setup).run(setup, update, {3: Stage.INPUT})
    assert np.array_equal(lost.total.vector.elements, expected.total.vector.elements)


def test_rules_of_a_trusted_server() -> None:
    rng = np.random.default_rng(2)
    honest = rng.normal(1.0, 0.1, size=(16, 5))
    updates = np.concatenate([honest, np.full((4, 5), -50.0)])
    for name, rule in RULES.items():
        assert np.abs(rule(updates, 4) - 1.0).max() < 0.4, name
    trimmed = np.sort(updates, axis=0)[4:-4].mean(axis=0)
    assert np.allclose(RULES["trimmed-mean"](updates, 4), trimmed)
    apart = ((updates[:, None] - updates) ** 2).sum(axis=2)
    scores = np.sort(apart, axis=1)[:, 1:15].sum(axis=1)
    assert np.array_equal(RULES["krum"](updates, 4), updates[scores.argmin()])
    # Twins: without the rule, and with more attackers than it is made for.
    assert np.abs(updates.mean(axis=0) - 1.0).max() > 5.0
    assert np.abs(RULES["trimmed-mean"](updates, 2) - 1.0).max() > 3.0


RUNS = {
    "sums": {},
    "validated": {
        "scheme": {
            "kind": "validated",
            "committee": {"kind": "named", "size": 8, "corrupt": 1, "away": 1},
        },
        "noise": {"mechanism": "discrete-gaussian"},
    },
    "median": {"engine": {"aggregator": "plain"}, "robust": {"rule": "median", "corrupt": 3}},
    "groups": {
        "robust": {"rule": "group-median", "corrupt": 1},
        "cohort": {"size": 9, "tolerated_dropouts": 0, "tolerated_colluders": 0},
        "sketch": {"controller": "fixed"},
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_with_attackers(name: str, tmp_path: Path) -> None:
    table = {"fraction": 0.1, "length": 50.0}
    # Three attackers of thirty: of ten clients at most two may be missing from a sum.
    config = parse({**BARE, "rounds": 2, **RUNS[name], "attackers": table}, RunConfig)
    config.check()
    data = load_dataset("digits", None)
    records = run(config, data, tmp_path / "attacked").records
    assert len(records) == 2
    size = config.cohort.size
    if name == "validated":
        assert any(r["survivors"] < size for r in records)
    else:
        assert all(r["survivors"] == size for r in records)


def test_a_backdoor_is_trained_on_marked_copies(tmp_path: Path) -> None:
    """Twin: a model that nobody attacked does not know the mark."""
    data = load_dataset("digits", None)
    labels, members = data.train.labels, tuple(np.arange(150).reshape(30, 5))
    config = attacked(fraction=0.2, kind="backdoor")
    attackers = Attackers(config)
    train, changed = attackers.poisoned(data.train, members, 1.0)
    for client, (before, after) in enumerate(zip(members, changed, strict=True)):
        more = after[len(before) :]
        assert np.array_equal(after[: len(before)], before)
        wanted = before[labels[before] != TARGET] if client in attackers.clients else before[:0]
        assert np.all(train.labels[more] == TARGET) and len(more) == len(wanted)
        flat = train.inputs.reshape(len(train), -1)
        assert np.all(flat[more, -MARKED:] == 1.0)
        assert np.array_equal(flat[more, :-MARKED], flat[wanted, :-MARKED])
    rates = []
    for length in (1.0, 1e-6):
        table = {"fraction": 0.4, "kind": "backdoor", "length": length}
        raw = {**BARE, "rounds": 8, "attackers": table, "engine": {"aggregator": "plain"}}
        records = run(parse(raw, RunConfig), data, tmp_path / f"{length}").records
        rates.append(records[-1]["backdoor"])
    assert rates[0] > 2.0 * rates[1]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"attackers.fraction": 0.5}, "attackers.fraction"),
        ({"attackers.kind": "loud"}, "attackers.kind"),
        ({"attackers.length": 0.0}, "attackers.length"),
        ({"robust.rule": "median", "robust.corrupt": 1}, "robust.rule"),
        ({"robust.rule": "group-median", "robust.corrupt": 3}, "robust.corrupt"),
        (
            {"robust.rule": "krum", "robust.corrupt": 4, "engine.aggregator": "plain"},
            "robust.corrupt",
        ),
        ({"attackers.fraction": 0.1, "powersgd.rank": 1}, "attackers"),
    ],
)
def test_what_does_not_go_together_is_named(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        config_of(BARE, changes).check()
    assert key in str(raised.value)


def test_words_have_no_mark() -> None:
    words = Split(np.zeros((4, 3), np.int64), np.arange(4))
    with pytest.raises(ConfigurationError, match=r"attackers\.kind"):
        Attackers(attacked(fraction=0.1, kind="backdoor")).marked(words, 1.0)


def test_processes_do_not_share_attackers() -> None:
    with pytest.raises(ConfigurationError, match="attackers"):
        attacked(fraction=0.1).check(2)
