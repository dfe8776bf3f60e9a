"""Whole rounds on Flower's Ray simulation: plain averaging, ours, and Flower's own SecAgg+."""

from simulations.bench.flower.order import FlowerOrder
from simulations.bench.flower.report import bench_flower

__all__ = ["FlowerOrder", "bench_flower"]
