"""A client of a validated round that sends a vector of any length, and claims the bound."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secagg import Identity
from secagg.field import lift
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.validated import client
from secagg.validated.client import ValidatedClient, squared_norm
from secagg.validated.context import ValidatedContext
from secagg.validated.proof import Rows


class _Clamped(Rows):
    """Rows whose products are in the range that is asked for, whatever the vector."""

    def products(self, vector: NDArray[np.int64]) -> NDArray[np.int64]:
        """The products, cut off."""
        tau = self._p.tau
        return np.clip(super().products(vector), -tau, tau - 1)


def upload_of_any_length(
    context: ValidatedContext,
    index: int,
    identity: Identity,
    proof: bytes,
    vector: NDArray[np.int64],
    rand: Rand = os_random,
) -> bytes:
    """The upload of a client that claims to be at the bound if it is beyond; all else is right."""
    session = ValidatedClient(context, index, identity, proof, 0, rand)
    session.seeds(vector.tobytes())

    def claimed(blocks: NDArray[np.int64], longest: int) -> int:
        return min(squared_norm(blocks, longest), context.bound_of(index))

    with patch.multiple(client, Rows=_Clamped, squared_norm=claimed):
        return session.submit_bytes(lift(vector, context.field))
