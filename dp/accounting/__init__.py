"""Accountants: events in, epsilon out."""
