"""What compressing a vector costs, beside a copy, a partition and a matrix product."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from simulations.bench.timing import Figures, interleaved_seconds
from simulations.common.threads import one_thread
from simulations.learning.models.recurrent import PAPER_VOCABULARY, LstmTask
from sketch import LayerShapes, PublicSeed
from sketch.compressors import (
    DeepGradientCompression,
    Denoise,
    DenoiseFilter,
    ErrorFeedback,
    PowerSgd,
    TopK,
)
from sketch.factors import FactorShapes

BATCH = 32
"""Texts of the training step."""
TEXT = 80
"""Characters of a text, as in LEAF's Shakespeare."""
SEED = PublicSeed(bytes(32))
MOMENTUM, RESIDUAL_DECAY, CLIP_L2, LEARNING_RATE = 0.9, 0.9, 1.0, 0.1

Work = Callable[[], object]


def bench_compress(dim: int, rate: float, rank: int, repeats: int) -> Figures:
    """Time the compressors on one thread, beside what such work must cost at least.

    Top-k and its limits see `dim` normal values as one layer. PowerSGD, Denoise and the training
    step see the two-layer LSTM of arXiv 2307.10999, Appendix F.1; the step is a gradient of one
    plain batch of 32 texts of 80 characters. A private step, which clips the gradient of each text,
    takes longer. Matrix products may use the threads that BLAS takes.

    Median seconds. `copy`: of the values; `partition`: of their magnitudes by NumPy, which finds
    the border of top-k alone; `product`: of each factored layer with a ready thin matrix, of which
    PowerSGD takes two. `denoise_overhead` is a server's filter, both of its compressions included,
    over the training step.
    """
    generator = np.random.default_rng(0)
    task = LstmTask()
    layers = LayerShapes(task.layout.shapes)
    values, update = generator.normal(size=dim), generator.normal(size=layers.dimension)
    top, factors = TopK(LayerShapes.flat(dim), rate), PowerSgd(layers, rank, SEED)
    with one_thread():
        taken = interleaved_seconds(
            {
                **_sparse(top, rate, values),
                **_factored(factors, layers, rank, update),
                "denoise": _denoising(layers, rate, update),
                "step": _training_step(task),
            },
            repeats,
        )
    return {
        "dim": dim,
        "rate": rate,
        "topk_bytes": top.form.size_bytes,
        "model_dim": layers.dimension,
        "rank": rank,
        "powersgd_bytes": factors.size_bytes,
        **{f"{name}_seconds": seconds for name, seconds in taken.items()},
        "topk_ratio_to_copy": taken["topk"] / taken["copy"],
        "topk_ratio_to_partition": taken["topk"] / taken["partition"],
        "powersgd_ratio_to_product": taken["powersgd"] / taken["product"],
        "denoise_overhead": taken["denoise"] / taken["step"],
    }


def _sparse(top: TopK, rate: float, values: NDArray[np.float64]) -> dict[str, Work]:
    """Top-k, the same with momentum and feedback, and their limits."""
    gradient = DeepGradientCompression(LayerShapes.flat(values.size), rate, momentum=MOMENTUM)
    magnitudes, place = np.abs(values), values.size - top.form.count
    return {
        "topk": partial(top.compress, values, top.initial()),
        "dgc": partial(gradient.compress, values, gradient.initial()),
        "copy": values.copy,
        "partition": partial(np.partition, magnitudes, place),
    }


def _factored(
    factors: PowerSgd, layers: LayerShapes, rank: int, update: NDArray[np.float64]
) -> dict[str, Work]:
    """PowerSGD, the same with feedback, and one product of each matrix."""
    feedback = ErrorFeedback(factors)
    matrices = [
        (update[start:stop].reshape(shape), np.ones((shape[1], rank)))
        for (start, stop), shape in zip(
            layers.bounds, FactorShapes(layers, rank).factored, strict=True
        )
        if shape is not None
    ]
    return {
        "powersgd": partial(factors.compress, update, factors.initial()),
        "powersgd_feedback": partial(feedback.compress, update, feedback.initial()),
        "product": lambda: [matrix @ thin for matrix, thin in matrices],
    }


def _denoising(layers: LayerShapes, rate: float, update: NDArray[np.float64]) -> Work:
    """One step of a server's filter, which goes on from call to call."""
    denoise = Denoise(
        TopK(layers, rate), momentum=MOMENTUM, residual_decay=RESIDUAL_DECAY, clip_l2=CLIP_L2
    )
    return partial(DenoiseFilter(denoise).step, update)


def _training_step(task: LstmTask) -> Work:
    """One step of stochastic gradient descent on made-up characters."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.from_numpy(task.initial(generator)).requires_grad_()
    texts = torch.randint(1, PAPER_VOCABULARY, (BATCH, TEXT + 1), generator=generator)
    inputs, labels, weights = texts[:, :-1], texts[:, -1], torch.ones(BATCH)

    def step() -> None:
        loss = task.loss_of(task.layout.unflatten(vector), inputs, labels, weights)
        (gradient,) = torch.autograd.grad(loss, vector)
        with torch.no_grad():
            vector.sub_(LEARNING_RATE * gradient)

    return step
