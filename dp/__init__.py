"""Sensitivity, integer noise and accounting; knows nothing of networks or cryptographic protocols."""
