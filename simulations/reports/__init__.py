"""Pages and figures about what has run: runs, audits, and what a ledger or a mechanism costs."""
