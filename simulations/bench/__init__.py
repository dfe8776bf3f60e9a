"""Benchmarks: each prints its figures, the physical limit measured in the same run, the ratio."""
