"""Apple's pfl: a `Postprocessor` that makes a simulated cohort's mean update a private one.

Simulation only. Clipping, sketch, quantisation, coins, the field and its wrap are those of a real
round; masks are the identity, so nothing here hides anything from the process that runs it.
"""

from protocol.adapters.pfl.postprocessor import PrivateMean
from protocol.adapters.pfl.statistics import FieldStatistics

__all__ = ["FieldStatistics", "PrivateMean"]
