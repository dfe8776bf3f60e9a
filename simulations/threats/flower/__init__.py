"""What is weak in Flower's SecAgg+, shown on its own code, and why ours is not."""

from simulations.threats.flower.weaknesses import flower_weaknesses

__all__ = ["flower_weaknesses"]
