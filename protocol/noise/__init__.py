"""The noise of a plan: its kinds, and from a goal to the integers of rounds."""
