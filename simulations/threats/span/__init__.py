"""The Span game, played out in full for a few clients: can the server solve for too much?

Every output of a mask generator and every honest input is an unknown of its own. All that a
malicious server can hold is then a system of linear equations, and what it learns about the inputs
is what is left when the masks are eliminated. `span_check` goes through every schedule of a round
that the modelled clients accept. docs/span.md has the model, the arguments and the counts.
"""

from simulations.threats.span.check import Counterexample, SpanReport, span_check
from simulations.threats.span.clients import ClientRules, Mutant, Parameters, all_parameters
from simulations.threats.span.schedules import Reduction

__all__ = [
    "ClientRules",
    "Counterexample",
    "Mutant",
    "Parameters",
    "Reduction",
    "SpanReport",
    "all_parameters",
    "span_check",
]
