"""One-shot sums: every client speaks once. The arithmetic, from the ring up to masked vectors."""
