"""Noise that comes back, in training: beside independent noise and a trusted server's matrix."""
