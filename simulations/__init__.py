"""Populations, tasks, reports and benches; may use torch, files and plots."""

# It sees that all packages below are ours.
import veilsum.extras  # noqa: F401

__part_of__ = "veilsum"
