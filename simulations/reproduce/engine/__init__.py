"""What every campaign shares: its cells, their store and pool, tuning, claims, and the page."""
