"""Stands in for `torchvision`, whose transforms an app of `flwr new` uses."""
