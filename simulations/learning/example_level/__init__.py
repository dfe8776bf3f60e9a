"""Differential privacy of single examples, by a trusted trainer: DP-SGD and what follows it."""
