"""Populations, tasks, reports and benches; may use torch, files and plots."""

__part_of__ = "veilsum"
