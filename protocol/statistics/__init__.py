"""Private statistics: surveys of clients by one charged sum, and what their answers say."""
