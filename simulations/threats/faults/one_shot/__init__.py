"""The fault campaign of one-shot rounds: hostile wires, clients, members and servers."""
