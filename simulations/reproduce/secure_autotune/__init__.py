"""Autotuned sketches behind real secure sums: `veilsum reproduce secure-autotune`."""
