"""Pages and figures: of runs and audits, of what ledgers and mechanisms cost, and of plans."""
