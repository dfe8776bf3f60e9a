"""Compression under example-level privacy: `veilsum reproduce compression`."""
