"""The Span game for small one-shot rounds: everything that a server can do to real members' rules.

docs/span.md has the model. `one_shot_span` goes through every schedule of two contexts of one round
that the modelled members accept, and asks by elimination what the server can solve for.
"""

from simulations.threats.span.one_shot.check import OneShotReport, one_shot_span
from simulations.threats.span.one_shot.rules import (
    OneShotMutant,
    OneShotParameters,
    OneShotRules,
    all_parameters,
)

__all__ = [
    "OneShotMutant",
    "OneShotParameters",
    "OneShotReport",
    "OneShotRules",
    "all_parameters",
    "one_shot_span",
]
