"""The attack catalogue: each with its defence and without.

Every module of this package holds attacks on one topic, as `ATTACKS`.

Source: the attacks that papers on secure aggregation and private federated learning describe; which
ones, and what stops them, is in docs/threat-model.md.
"""

from importlib import import_module
from pkgutil import iter_modules

from simulations.threats.attack import Attack, Effort, Findings

CATALOGUE: tuple[Attack, ...] = tuple(
    sorted(
        (
            attack
            for module in iter_modules(__path__)
            for attack in import_module(f"{__name__}.{module.name}").ATTACKS
        ),
        key=lambda attack: int(attack.id[1:]),
    )
)
"""All attacks, by number."""


def table() -> list[str]:
    """The rows of docs/threat-model.md's table of attacks."""
    return [attack.row() for attack in CATALOGUE]


__all__ = ["CATALOGUE", "Attack", "Effort", "Findings", "table"]
