"""A client of a validated round that sends a vector of any length, and claims the bound."""

from __future__ import annotations

import copy
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secagg import Identity
from secagg.field import lift
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.validated import client
from secagg.validated.client import ValidatedClient
from secagg.validated.context import ValidatedContext
from secagg.validated.proof import Rows

_ENDLESS = 1 << 50


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
    """The upload of a client that knows no bound; all else is as it should be.

    The bits of what is left to the bound are the lowest ones of a negative number.
    """
    # The hash was taken: it is that of the announced context.
    terms = copy.copy(context)
    object.__setattr__(terms, "bound", _ENDLESS)
    session = ValidatedClient(terms, index, identity, proof, 0, rand)
    session.seeds(vector.tobytes())
    with patch.object(client, "Rows", _Clamped):
        return session.submit_bytes(lift(vector, terms.field))
