"""The attack catalogue: each with its defence and without.

Every module of this package holds attacks on one topic, as `ATTACKS`.

Source: the attacks that papers on secure aggregation and private federated learning describe; which
ones, and what stops them, is in docs/threat-model.md.
"""

from importlib import import_module
from pkgutil import iter_modules

from simulations.threats.attack import Attack, Effort, Findings

_BY_TOPIC: dict[str, tuple[Attack, ...]] = {
    module.name: import_module(f"{__name__}.{module.name}").ATTACKS
    for module in iter_modules(__path__)
}

CATALOGUE: tuple[Attack, ...] = tuple(
    sorted(
        (attack for attacks in _BY_TOPIC.values() for attack in attacks),
        key=lambda attack: int(attack.id[1:]),
    )
)
"""All attacks, by number."""


def table() -> list[str]:
    """The rows of docs/threat-model.md's table of attacks."""
    topics = {attack: topic for topic, attacks in _BY_TOPIC.items() for attack in attacks}
    return [attack.row(topics[attack]) for attack in CATALOGUE]


__all__ = ["CATALOGUE", "Attack", "Effort", "Findings", "table"]
