"""Searching the seeds of a generator whose seeds are too few."""

from simulations.threats.seed_search.peeled import LOOKED_AT, Peeled, PeeledUpload, recovers, unmask
from simulations.threats.seed_search.search import (
    Numbers,
    SearchResult,
    mersenne_outputs,
    search_seeds,
)

__all__ = [
    "LOOKED_AT",
    "Numbers",
    "Peeled",
    "PeeledUpload",
    "SearchResult",
    "mersenne_outputs",
    "recovers",
    "search_seeds",
    "unmask",
]
