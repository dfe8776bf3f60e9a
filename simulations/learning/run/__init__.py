"""Whole experiments: a configuration, a folder that survives a crash, a live view, sweeps."""
