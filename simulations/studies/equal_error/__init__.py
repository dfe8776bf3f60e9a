"""Epsilon of this system and of others, when all make the same error."""
