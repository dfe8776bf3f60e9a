"""Frozen test vectors of the wire format, their generator and runner: docs/test-vectors.md."""
