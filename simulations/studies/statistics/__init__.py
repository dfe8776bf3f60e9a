"""Surveys beside a trusted server's noise and local privacy."""
