"""Transports: how the sans-I/O parts meet a network, or the memory of one process."""
