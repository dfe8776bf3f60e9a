"""Rounds with an adversary for a server: who plays, what it comes to know, and when it wins."""
