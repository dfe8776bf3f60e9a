"""Compilation is timed where it happens, and only while somebody listens."""

from __future__ import annotations

import numpy as np
from numba import njit

from simulations.common.compiling import CompileTimer


def test_only_what_is_compiled_while_it_listens_counts() -> None:
    double = njit(lambda value: 2 * value)
    timer = CompileTimer()
    assert timer.seconds == 0.0
    with timer.listening():
        double(1)
        first = timer.seconds
        double(2)
    assert first > 0.0
    # Compiled already; then another type, which nobody listens to.
    assert timer.seconds == first
    double(np.float32(1.0))
    assert timer.seconds == first
