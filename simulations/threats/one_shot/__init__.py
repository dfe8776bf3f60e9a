"""One-shot rounds under attack: real clients and members, and what a server makes of them."""
