"""Training with autotuned sketches, beside fixed rates: `veilsum reproduce autotune`."""
