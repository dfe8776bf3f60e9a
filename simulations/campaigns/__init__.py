"""What a campaign is: its cells, their store and pool, tuning, claims, plots and the page."""
