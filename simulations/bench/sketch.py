"""What compressing and decompressing a vector costs, beside random access with ready tables."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable

import numpy as np

from simulations.bench._kernels import ready_gather, ready_scatter
from simulations.bench.timing import Figures, interleaved_seconds
from sketch import PublicSeed, SketchKind, SketchSpec, median_for_size, spec_for_size
from sketch.hashing import buckets, signs

CLIENTS = 8
"""Vectors that `encode_many` is measured with."""


def bench_sketch(dim: int, rows: int, rate: float, copies: int, repeats: int) -> Figures:
    """Encode one vector and decode its sketch, on one thread.

    The limit is set by random access: one scatter and one gather of `dim` coordinates with a table
    of buckets and one of signs at hand, which a sketch would have to keep for every row.

    Every `*_seconds` but those of whole vectors is for *one row* of one vector: the time of a
    vector over `total_rows`, which counts the rows of all copies. `copy_seconds` is one copy of the
    vector as float64. `encode_many_seconds` is for one row of one of 8 vectors encoded together.
    `*_peak_bytes` is what the call allocates at most, its result included.
    """
    spec = _shape(dim, rows, rate, copies)
    seed = PublicSeed(os.urandom(32))
    built = spec.build(seed)
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(CLIENTS, dim))
    vector = vectors[0].copy()
    sketch = built.encode(vector)

    bucket = buckets(seed, 0, spec.columns, 0, dim)
    sign = signs(seed, 0, 0, dim)
    row, out = np.zeros(spec.columns), np.zeros(dim)
    total_rows = spec.rows * spec.copies

    def for_every_row(work: Callable[[], object]) -> Callable[[], None]:
        # As long as the sketch takes, or a busy machine would interrupt the long candidate alone.
        def repeated() -> None:
            for _ in range(total_rows):
                work()

        return repeated

    taken = interleaved_seconds(
        {
            "encode": lambda: built.encode(vector),
            "decode": lambda: built.decode(sketch),
            "encode_many": lambda: built.encode_many(vectors),
            "copy": for_every_row(vector.copy),
            "scatter": for_every_row(lambda: ready_scatter(vector, bucket, sign, row)),
            "gather": for_every_row(lambda: ready_gather(row, bucket, sign, out)),
        },
        repeats,
    )
    per_row = {name: seconds / total_rows for name, seconds in taken.items()}
    encode, decode, copy = per_row["encode"], per_row["decode"], per_row["copy"]
    many = per_row["encode_many"] / CLIENTS
    return {
        "dim": dim,
        "rows": spec.rows,
        "columns": spec.columns,
        "copies": spec.copies,
        "total_rows": total_rows,
        "size": spec.size,
        "rate": spec.rate,
        "encode_seconds": encode,
        "decode_seconds": decode,
        "copy_seconds": copy,
        "scatter_seconds": per_row["scatter"],
        "gather_seconds": per_row["gather"],
        "encode_ratio_to_copy": encode / copy,
        "decode_ratio_to_copy": decode / copy,
        "encode_ratio_to_limit": encode / per_row["scatter"],
        "decode_ratio_to_limit": decode / per_row["gather"],
        "encode_vector_seconds": taken["encode"],
        "decode_vector_seconds": taken["decode"],
        "encode_many_seconds": many,
        "encode_many_speedup": encode / many,
        "encode_peak_bytes": _peak_bytes(lambda: built.encode(vector)),
        "decode_peak_bytes": _peak_bytes(lambda: built.decode(sketch)),
        "vector_bytes": vector.nbytes,
        "hash_table_bytes": total_rows * (bucket.nbytes + sign.nbytes),
    }


def _shape(dim: int, rows: int, rate: float, copies: int) -> SketchSpec:
    size = max(1, int(dim / rate))
    if copies == 1:
        spec = spec_for_size(dim, size, rows)
    else:
        spec = median_for_size(dim, size, copies, rows)
    if spec.kind is SketchKind.IDENTITY:
        raise ValueError(f"rate must leave a sketch smaller than {dim} coordinates, not {rate}")
    return spec


def _peak_bytes(work: Callable[[], object]) -> int:
    """The most that Python and NumPy hold for a call, beyond what they held before it."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
