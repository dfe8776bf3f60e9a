"""Linear maps and what chooses their size; knows nothing of noise samplers or protocols.

Every function and constructor here raises TypeError for an argument of the wrong type or dtype, and
ValueError for one out of range, of the wrong shape or not finite; the error names the argument and
what would be valid. Docstrings name other causes only.
"""

from __future__ import annotations

from sketch.countmedian import CountMedianSketch
from sketch.countsketch import CountMeanSketch
from sketch.hashing import PublicSeed
from sketch.layers import LayerShapes
from sketch.linear import LinearSketch, NoSketch
from sketch.probed import Probe
from sketch.rotation import Rotation, flat_bound
from sketch.spec import SketchKind, SketchSpec, median_for_size, spec_for_size
from sketch.topk import top_k

__part_of__ = "veilsum"

__all__ = [
    "CountMeanSketch",
    "CountMedianSketch",
    "LayerShapes",
    "LinearSketch",
    "NoSketch",
    "Probe",
    "PublicSeed",
    "Rotation",
    "SketchKind",
    "SketchSpec",
    "flat_bound",
    "median_for_size",
    "spec_for_size",
    "top_k",
]
