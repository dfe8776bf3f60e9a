"""The attack catalogue, A1 to A25: each with its defence and without."""

from simulations.threats.catalogue.base import Attack, Effort, Findings, rate, refusal

__all__ = ["Attack", "Effort", "Findings", "rate", "refusal"]
