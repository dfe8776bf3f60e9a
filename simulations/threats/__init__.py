"""The untrusted server: attacks, games, and checks of what the protocol promises."""
