"""Simulated training with secure encoding, beside other simulators at the same work."""
