"""Statistics whose `+` is addition in GF(p), so that pfl's aggregator adds field elements exactly.

pfl adds users with `+`, which is exact here. Everything else that it does to statistics goes
through `get_weights`, which is float32 by its contract: a field element may have 62 bits and
float32 keeps 24. So elements are taken apart into limbs of 24 bits, which survive a copy, and what
comes back is refused if it is not limbs of field elements: whatever scaled, clipped, noised or
averaged them did so as if they were real numbers.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from pfl.internal.ops.selector import get_default_framework_module as get_ops
from pfl.stats import TrainingStatistics

from secagg import FieldVector, LocalProtocolError, ParameterError
from secagg.field import Words, add_into

LIMB_BITS = 24
"""Whole numbers below 2^24 are float32 numbers."""


class FieldStatistics(TrainingStatistics):
    """The encoded updates of some users, added up in GF(p). Immutable.

    Args:
        vector: their sum.
        users: how many of the cohort went through; those whose update was refused added zero.
    """

    def __init__(self, vector: FieldVector, users: int) -> None:
        self._vector = vector
        self._users = users

    @property
    def vector(self) -> FieldVector:
        """The sum over the users."""
        return self._vector

    @property
    def users(self) -> int:
        """How many went through."""
        return self._users

    @property
    def num_parameters(self) -> int:
        """L, the length of the vector."""
        return len(self._vector)

    def __add__(self, other: FieldStatistics) -> FieldStatistics:
        """The sum in GF(p)."""
        if not isinstance(other, FieldStatistics) or other.vector.field != self._vector.field:
            raise ParameterError("other", repr(other), f"like {self!r}")
        total = self._vector.elements.copy()
        add_into(total, other.vector)
        total.flags.writeable = False
        return FieldStatistics(FieldVector(self._vector.field, total), self._users + other.users)

    def __repr__(self) -> str:
        bits, length = self._vector.field.bits, len(self._vector)
        return f"FieldStatistics(users={self._users}, length={length}, bits={bits})"

    def reweight(self, new_weight: float) -> NoReturn:
        """Refused: one user counts as one.

        Raises:
            LocalProtocolError: always.
        """
        raise LocalProtocolError("field elements cannot be weighted; leave weighting out")

    def get_weights(self) -> tuple[Any, list[Any]]:
        """The number of users, and the elements as limbs: float32[limbs, L], least first."""
        tensor = get_ops().to_tensor
        return tensor([self._users]), [tensor(_limbs(self._vector.elements, self._count))]

    def from_weights(self, metadata: Any, weights: list[Any]) -> FieldStatistics:
        """Inverse of `get_weights`.

        Raises:
            LocalProtocolError: these are not limbs of field elements.
        """
        numpy = get_ops().to_numpy
        limbs = np.asarray(numpy(weights[0])) if len(weights) == 1 else np.empty(0)
        shape = (self._count, len(self._vector))
        # NaN is in no range.
        whole = limbs.shape == shape and bool(
            np.all((limbs >= 0) & (limbs < 1 << LIMB_BITS) & (np.rint(limbs) == limbs))
        )
        # The last limb holds the bits that are left: more would be cut off below.
        top = self._vector.field.bits - LIMB_BITS * (self._count - 1)
        if not whole or int(limbs[-1].max(initial=0)) >> top:
            raise LocalProtocolError(_CHANGED)
        words = limbs.astype(np.uint64) << _shifts(self._count)
        elements = words.sum(axis=0, dtype=np.uint64).astype(self._vector.field.dtype)
        try:
            vector = FieldVector(self._vector.field, elements)
        except ParameterError:
            raise LocalProtocolError(_CHANGED) from None
        return FieldStatistics(vector, int(np.asarray(numpy(metadata))[0]))

    @property
    def _count(self) -> int:
        return -(-self._vector.field.bits // LIMB_BITS)


_CHANGED = (
    "encoded updates were changed as if they were real numbers: clip, weigh and noise before "
    "PrivateMean, make it the last postprocessor, and use one worker process"
)


def _shifts(count: int) -> Words:
    return (np.arange(count, dtype=np.uint64) * np.uint64(LIMB_BITS))[:, None]


def _limbs(elements: Words, count: int) -> Words:
    return (elements.astype(np.uint64) >> _shifts(count)) & np.uint64((1 << LIMB_BITS) - 1)
