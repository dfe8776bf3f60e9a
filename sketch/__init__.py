"""Linear maps and what chooses their size; knows nothing of noise samplers or protocols."""
