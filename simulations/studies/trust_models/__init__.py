"""Local, distributed and central privacy on one task: `veilsum reproduce trust-models`."""
