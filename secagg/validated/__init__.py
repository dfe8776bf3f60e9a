"""Validated sums: one-shot sums of vectors that cannot be longer than a bound."""
