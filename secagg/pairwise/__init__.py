"""Exact sums of vectors under pairwise masks: five exchanges, and any of the clients may leave."""
