"""Bytes of the real protocol for runs that only imagined its messages."""

from __future__ import annotations

from itertools import pairwise

import pytest

from protocol.errors import ConfigurationError
from protocol.planning.configuration import build_plan
from protocol.planning.deployment import plan_deployment
from secagg import ParameterError
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.run.overrides import changed
from simulations.reproduce.engine.wire import Protocol, deployed, mean_bytes
from sketch import spec_for_size

DIMENSION, ROWS = 900, 3
PROTOCOLS: list[Protocol] = ["pairwise", "one-shot"]


@pytest.fixture(scope="module")
def config() -> RunConfig:
    """Sixteen clients and three rows."""
    small = {"rounds": 4, "cohort.size": 16, "cohort.tolerated_dropouts": 2}
    return changed(demo_config(), [*small.items(), ("sketch.rows", ROWS)])


def planned(config: RunConfig, protocol: Protocol, size: int) -> int:
    """What the deployment of one size plans, with no part of the code under test."""
    cohort = config.cohort.model_copy(update={"protocol": protocol})
    plan = build_plan(config.privacy, cohort, config.participations)
    spec = spec_for_size(DIMENSION, size, config.sketch.rows)
    return plan_deployment(plan, spec, 0).bytes_per_client


@pytest.mark.parametrize("protocol", PROTOCOLS)
class TestBytes:
    @pytest.mark.parametrize("size", [ROWS, 64, 512, DIMENSION])
    def test_what_is_planned_where_it_was_planned(
        self, config: RunConfig, protocol: Protocol, size: int
    ) -> None:
        """At powers of two, rounded down to whole rows as sketches are, and without compression."""
        sent = spec_for_size(DIMENSION, size, ROWS).size
        assert mean_bytes(config, protocol, DIMENSION, [sent]) == planned(config, protocol, size)

    def test_between_its_neighbours_elsewhere(self, config: RunConfig, protocol: Protocol) -> None:
        """And less than a bit for each number from what a plan of that very size says."""
        low, high = (planned(config, protocol, size) for size in (256, 512))
        for size in (258, 300, 399, 501):
            found = mean_bytes(config, protocol, DIMENSION, [size])
            assert low < found < high
            assert abs(found - planned(config, protocol, size)) <= size / 8.0

    def test_longer_is_dearer(self, config: RunConfig, protocol: Protocol) -> None:
        sizes = [3, 15, 63, 64, 300, 512, 600, 899, 900]
        costs = [mean_bytes(config, protocol, DIMENSION, [size]) for size in sizes]
        assert all(one <= other for one, other in pairwise(costs))
        assert costs[0] < costs[4] < costs[-1]

    def test_a_run_is_the_mean_of_its_rounds(self, config: RunConfig, protocol: Protocol) -> None:
        alone = [mean_bytes(config, protocol, DIMENSION, [size]) for size in (63, 900, 900)]
        both = mean_bytes(config, protocol, DIMENSION, [63, 900, 900])
        assert both == pytest.approx(sum(alone) / 3.0)


def test_the_protocols_differ(config: RunConfig) -> None:
    """The configuration's own protocol does not count."""
    one_shot = changed(config, [("cohort.protocol", "one-shot")])
    found = {name: mean_bytes(config, name, DIMENSION, [900]) for name in PROTOCOLS}
    assert found["pairwise"] != found["one-shot"]
    assert found == {name: mean_bytes(one_shot, name, DIMENSION, [900]) for name in PROTOCOLS}


def test_each_sum_is_charged(config: RunConfig) -> None:
    """Two sums of a round are charged as twice the rounds: each has more noise."""
    spec = spec_for_size(DIMENSION, 300, ROWS)
    one, two = (deployed(config, spec, sums).error.noise for sums in (1, 2))
    assert two > one


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_cannot_run_is_refused(config: RunConfig, protocol: Protocol) -> None:
    many = changed(config, [("cohort.tolerated_colluders", 13)])
    with pytest.raises((ConfigurationError, ParameterError)):
        mean_bytes(many, protocol, DIMENSION, [900])
