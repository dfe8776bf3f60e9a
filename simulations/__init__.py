"""Populations, tasks, reports and benches; may use torch, files and plots."""
