"""Controllers that choose the next sketch size from released values."""
