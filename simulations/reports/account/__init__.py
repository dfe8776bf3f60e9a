"""What a mechanism costs, and what a ledger adds up to."""
