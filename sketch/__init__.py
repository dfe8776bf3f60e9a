"""Linear maps and what chooses their size; knows nothing of noise samplers or protocols."""

from __future__ import annotations

from sketch.countmedian import CountMedianSketch
from sketch.countsketch import CountMeanSketch
from sketch.error import (
    compression_error,
    count_mean_error,
    fixed_point_relative_std,
    noise_error,
    norm_estimate_variance,
    size_for_error_ratio,
    sketched_norm_variance,
)
from sketch.factors import Factors, FactorShapes
from sketch.hashing import PublicSeed
from sketch.layers import LayerShapes
from sketch.linear import Identity, LinearSketch
from sketch.power_factors import LeftFactorMap, RightFactorMap
from sketch.probed import PROBE_SHARE, Probe, ProbedSketch
from sketch.rotation import Rotation, block_length, flat_bound
from sketch.spec import DEFAULT_ROWS, SketchKind, SketchSpec, median_for_size, spec_for_size
from sketch.topk import top_k, top_k_indices

__part_of__ = "veilsum"

__all__ = [
    "DEFAULT_ROWS",
    "PROBE_SHARE",
    "CountMeanSketch",
    "CountMedianSketch",
    "FactorShapes",
    "Factors",
    "Identity",
    "LayerShapes",
    "LeftFactorMap",
    "LinearSketch",
    "Probe",
    "ProbedSketch",
    "PublicSeed",
    "RightFactorMap",
    "Rotation",
    "SketchKind",
    "SketchSpec",
    "block_length",
    "compression_error",
    "count_mean_error",
    "fixed_point_relative_std",
    "flat_bound",
    "median_for_size",
    "noise_error",
    "norm_estimate_variance",
    "size_for_error_ratio",
    "sketched_norm_variance",
    "spec_for_size",
    "top_k",
    "top_k_indices",
]
