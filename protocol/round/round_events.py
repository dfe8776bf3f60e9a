"""What one sum releases, as each adversary meets it."""

from __future__ import annotations

from dataclasses import dataclass

from dp import Event


@dataclass(frozen=True, slots=True)
class RoundEvents:
    """What one sum releases, as each adversary meets it; none of them gains from sampling.

    Attributes:
        server: the noise of the tolerated colluders does not count, because the server knows it.
        outsider: who sees only the result knows no noise.
        sybil: of a server that made up all other clients, `RoundEncoding.own_noise` is left.
        without_members: of a server that knows what all members of a standing committee added,
            although too few of them work for it to open single uploads, the honest clients' own
            noise is left; None where members add none. Of one that can open them, `sybil` is.
        absent: what a client that took no part is charged for, as against `server`; None where a
            round costs such a client nothing.

    Source: docs/accounting.md.
    """

    server: Event
    outsider: Event
    sybil: Event
    without_members: Event | None = None
    absent: Event | None = None
