"""Searching the seeds of a generator whose seeds are too few."""
