"""Exact sums in GF(p) from an untrusted server; knows nothing of privacy budgets or learning."""
