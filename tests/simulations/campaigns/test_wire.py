"""Bytes of the real protocol for runs that only imagined its messages."""

from __future__ import annotations

from itertools import pairwise

import pytest

from protocol.errors import ConfigurationError
from secagg import ParameterError
from simulations.campaigns.federated import data_of, run_of
from simulations.campaigns.wire import Protocol, deployed, mean_bytes, speaking
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.run.overrides import changed
from sketch import spec_for_size

DIMENSION, ROWS = 900, 3
PROTOCOLS: list[Protocol] = ["pairwise", "one-shot"]


@pytest.fixture(scope="module")
def config() -> RunConfig:
    """Sixteen clients and three rows."""
    small = {"rounds": 4, "cohort.size": 16, "cohort.tolerated_dropouts": 2}
    return changed(demo_config(), [*small.items(), ("sketch.rows", ROWS)])


@pytest.mark.parametrize("protocol", PROTOCOLS)
class TestBytes:
    @pytest.mark.parametrize("rate", [1.0, 8.0])
    def test_those_of_a_round_of_the_real_protocol(
        self, config: RunConfig, protocol: Protocol, rate: float
    ) -> None:
        """Trained updates, sketches and all, in real cryptography and as the ideal sum says."""
        fixed = [("sketch.controller", "fixed"), ("sketch.rate", rate)]
        plain = config.model_copy(update={"sketch": type(config.sketch)(rows=ROWS)})
        more = [*fixed, ("engine.aggregator", "real"), ("rounds", 1), ("faults.dropout", 0.0)]
        real = changed(speaking(plain, protocol), more)
        record = run_of(real, data_of(real)).records[0]
        size, dimension = int(record["sketch_size"]), int(record["dimension"])
        found = mean_bytes(real, protocol, dimension, [size])
        # Between powers of two it is interpolated, by less than a bit for each number.
        room = 0.002 * found + (0.0 if rate == 1.0 else size / 8.0)
        assert abs(found - record["bytes_per_client"]) <= room
        ideal = changed(real, [("engine.aggregator", "ideal")])
        said = run_of(ideal, data_of(ideal)).records[0]["bytes_per_client"]
        assert said == pytest.approx(record["bytes_per_client"], rel=0.002)

    def test_between_its_neighbours_elsewhere(self, config: RunConfig, protocol: Protocol) -> None:
        low, high = (mean_bytes(config, protocol, DIMENSION, [size]) for size in (255, 510))
        assert low < mean_bytes(config, protocol, DIMENSION, [399]) < high

    def test_longer_is_dearer(self, config: RunConfig, protocol: Protocol) -> None:
        costs = [mean_bytes(config, protocol, DIMENSION, [size]) for size in (3, 300, 600, 900)]
        assert all(one < other for one, other in pairwise(costs))

    def test_a_run_is_the_mean_of_its_rounds(self, config: RunConfig, protocol: Protocol) -> None:
        alone = [mean_bytes(config, protocol, DIMENSION, [size]) for size in (63, 900, 900)]
        both = mean_bytes(config, protocol, DIMENSION, [63, 900, 900])
        assert both == pytest.approx(sum(alone) / 3.0)


def test_the_protocols_differ(config: RunConfig) -> None:
    """The configuration's own protocol does not count."""
    one_shot = changed(config, [("scheme.kind", "one-shot")])
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
