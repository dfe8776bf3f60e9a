"""Compressors of layered updates: what is sent, and what the receiver reads from it."""

from __future__ import annotations

from sketch.compressors.base import Compressor, Message
from sketch.compressors.denoise import Denoise, DenoiseFilter
from sketch.compressors.dense import NoCompression
from sketch.compressors.feedback import ErrorFeedback
from sketch.compressors.gradient import DeepGradientCompression
from sketch.compressors.power_sgd import PowerSgd
from sketch.compressors.random_k import RandomK
from sketch.compressors.sparse import TopK

__all__ = [
    "Compressor",
    "DeepGradientCompression",
    "Denoise",
    "DenoiseFilter",
    "ErrorFeedback",
    "Message",
    "NoCompression",
    "PowerSgd",
    "RandomK",
    "TopK",
]
