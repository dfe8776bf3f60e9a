"""Ways to a cohort's mean update.

The whole protocol, a trusted server, reports that every client privatises by itself, or no privacy
at all.

The private source is what the project is for; the others are baselines on the same tasks. The plain
one averages floats without clipping them, and has a learning rate of its own.
"""

from __future__ import annotations

from simulations.learning.sources.base import Arrays, RecordedSource, uploaders
from simulations.learning.sources.central import CentralMean
from simulations.learning.sources.plain import PlainMean
from simulations.learning.sources.private import PrivateMean

__all__ = [
    "Arrays",
    "CentralMean",
    "PlainMean",
    "PrivateMean",
    "RecordedSource",
    "uploaders",
]
