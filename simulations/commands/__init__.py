"""Every verb of the command line, and nothing else."""
