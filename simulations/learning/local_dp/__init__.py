"""Training in which every client makes its own report private: sqSGD and FedSel, client side."""

from __future__ import annotations

from simulations.learning.local_dp.base import LocalAlgorithm
from simulations.learning.local_dp.memory import ClientMemory

__all__ = ["ClientMemory", "LocalAlgorithm"]
