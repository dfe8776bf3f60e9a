"""The last type of a client's private path: bounded integers with noise on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp._kernels import extent
from dp.checks import require_integer
from dp.clipping import require_vector
from dp.errors import SensitivityExceededError
from dp.rounding import require_linf_bound


class Noise(Protocol):
    """What one client added to each coordinate: an immutable value that can be compared.

    Whoever accounts for a vector compares this with what the accounting was told.
    """

    @property
    def variance(self) -> float:
        """Variance of the noise of one coordinate, integer units squared."""
        ...

    @property
    def noise_limit(self) -> int | None:
        """Largest absolute value of the noise of one coordinate; None if there is none."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Noised:
    """An integer vector with the client's own noise added.

    Attributes:
        values: int64[d], read-only.
        noise: what was added.
        square_bound: of the squared norm *before* noise, as `Quantized` has it.
        linf_bound: coordinate bound before noise.
    """

    values: NDArray[np.int64]
    noise: Noise
    square_bound: int
    linf_bound: int

    def __post_init__(self) -> None:
        """Check types, and that no coordinate is beyond signal plus noise.

        Noise without a limit excludes no value: then the limit of a *sum* is a matter of
        probability, for ``Mechanism.total_limit`` to state.
        """
        require_vector(self.values, (np.dtype(np.int64),), "values")
        require_integer("square_bound", self.square_bound, 0)
        require_linf_bound(self.linf_bound)
        noise_limit = self.noise.noise_limit
        if noise_limit is not None:
            self._check_limit(self.linf_bound + noise_limit)
        self.values.flags.writeable = False

    def _check_limit(self, limit: int) -> None:
        """Raise unless all magnitudes are within ``limit``; abs(-2**63) is negative."""
        smallest, largest = extent(self.values)
        if not (-limit <= smallest and largest <= limit):
            raise SensitivityExceededError(f"a noised coordinate exceeds {limit}")
