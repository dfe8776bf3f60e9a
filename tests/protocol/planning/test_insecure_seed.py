"""Nobody but a simulation takes its secrets from a number in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import protocol
from protocol.errors import ConfigurationError
from protocol.planning.configuration import Cohort, Privacy, Section, Sketch, parse

GOOD: dict[type[Section], dict[str, Any]] = {
    Privacy: {"epsilon": 1.0, "delta": 1e-5, "clip_l2": 1.0},
    Cohort: {"size": 10, "tolerated_dropouts": 1, "tolerated_colluders": 1},
    Sketch: {},
}
"""The tables that configurations of deployments are made of."""


@pytest.mark.parametrize("section", GOOD)
def test_the_tables_of_a_deployment_refuse_it_by_name(section: type[Section]) -> None:
    parse(GOOD[section], section)
    with pytest.raises(ConfigurationError) as caught:
        parse({**GOOD[section], "insecure_seed": 7}, section)
    assert str(caught.value) == (
        "insecure_seed: unknown key; valid: left out: secrets are never configured, but for "
        "simulations by the key engine.insecure_seed"
    )


def test_another_unknown_key_is_told_which_there_are() -> None:
    with pytest.raises(ConfigurationError, match="colour: unknown key; valid: size, "):
        parse({**GOOD[Cohort], "colour": 7}, Cohort)


def test_no_package_below_simulations_knows_it() -> None:
    """But for the module that refuses it: none reads it, by whatever way it may come."""
    top = Path(protocol.__file__).parent.parent
    packages = ("secagg", "dp", "sketch", "protocol")
    files = [file for name in packages for file in (top / name).rglob("*.py")]
    knowing = {file.relative_to(top) for file in files if "insecure" in file.read_text().lower()}
    assert len(files) > 100
    # And the one that names a connection without TLS as Flower does.
    named = Path("protocol/adapters/flower/site/tasks.py")
    assert knowing - {named} == {Path("protocol/planning/configuration.py")}
    text = (top / named).read_text()
    assert text.count("insecure") == text.count("insecure=self._certificates is None") == 1
