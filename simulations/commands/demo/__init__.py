"""The verb `demo`."""
