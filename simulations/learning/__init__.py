"""Federated training: data, models, what turns updates into a mean, and runs of it."""
