"""Sealed shares from bundles by owner to bundles by recipient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from secagg.pairwise.graph import Graph


def route(sealed: Mapping[int, bytes], graph: Graph) -> dict[int, bytes]:
    """Hand every sealed share of every owner to its holder.

    All at once, as one permutation of the rows of a matrix: n k small objects would cost more than
    their bytes.
    """
    owners = sorted(sealed)
    others = np.array([[h for h in graph.holders(owner) if h != owner] for owner in owners])
    if not others.size:
        return dict.fromkeys(owners, b"")
    rows = np.frombuffer(b"".join(sealed[owner] for owner in owners), np.uint8)
    rows = rows.reshape(others.size, -1)
    # Stable, so that the owners stay in order for every recipient.
    order = np.argsort(others, axis=None, kind="stable")
    recipients = others.ravel()[order]
    first = np.array(owners)
    borders = zip(
        np.searchsorted(recipients, first), np.searchsorted(recipients, first + 1), strict=True
    )
    return {
        owner: rows[order[low:high]].tobytes()
        for owner, (low, high) in zip(owners, borders, strict=True)
    }
