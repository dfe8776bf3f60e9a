"""How often a server can try another ring before the clients give up, and what that is worth to it.

The order of the ring and the committee follow from a hash. A server that has the clients'
advertisements can compute that hash for one roster after the other, by itself: with another client
left out each time, or with another nonce of a client of its own. It shows the clients the roster it
likes best. So the probability that one ring is bad counts as often as there is time to try. What
ends that time is the expiry of the round, which clients with a clock enforce.

Source: docs/security.md, "Grinding the ring".
"""

from __future__ import annotations

TRIES_PER_SECOND = 2.0**40
"""What a server is taken to be capable of: half a million cores. A try does not compute the ring,
only where the colluders stand on it, until it is clear that they stand badly: some twenty AES
blocks and ten SHA-256 compressions, half a microsecond, however many the clients."""

CLOCK_SKEW_SECONDS = 300
"""By how much a server's clock may be ahead of a client's; it lengthens the time to try."""

LARGEST_LIFETIME_SECONDS = 7 * 24 * 3600
"""A week. A round that is to live longer has no expiry to speak of."""

MOST_TRIES = 2.0**60
"""What is counted where nothing expires: twelve days at that rate."""


def most_tries(lifetime_seconds: int) -> float:
    """Rings that a server can try while a client still answers."""
    if lifetime_seconds == 0:
        return MOST_TRIES
    return TRIES_PER_SECOND * (lifetime_seconds + CLOCK_SKEW_SECONDS)


def ring_failure(clients: int, security_bits: int, lifetime_seconds: int, *, active: bool) -> float:
    """Bound on the probability that a server finds a ring that breaks a round on a sparse graph.

    One ring is bad with a probability of at most 2^-(sigma + 1) for somebody's corrupt neighbours,
    and as much for its connectivity. Against an active server n 2^-(sigma + 2) is added for two
    stretches that cut out a smaller sum, and 2^-sigma for the committee; and it is multiplied by
    the rings that there is time to try. A curious server takes the first.
    """
    one = 2.0**-security_bits
    if not active:
        return one
    return min(1.0, most_tries(lifetime_seconds) * (2.0 + clients / 4.0) * one)
