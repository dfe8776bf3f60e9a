"""Membership inference: was a client in the sum, was an example in the training of the model."""
