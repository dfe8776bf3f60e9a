"""Whole private rounds under attack: servers that tell different stories, clients that cheat."""
