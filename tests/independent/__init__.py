"""Clients made from the documents alone."""
