"""Gradient inversion: private pictures from updates, from sums, and from noised sums."""
