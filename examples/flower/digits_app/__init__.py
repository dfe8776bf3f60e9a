"""Handwritten digits, learned from sums that nobody can take apart."""
