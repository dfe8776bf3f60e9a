"""Frozen test vectors of the one-shot protocol: docs/test-vectors.md."""
