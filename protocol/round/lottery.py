"""The server's half of a draw: who are the candidates of a round, and who of them is seated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.round.draw_policy import BeaconSource
from secagg import TooFewSurvivorsError
from secagg.keys import check_public_key
from secagg.oneshot.committee import Member
from secagg.oneshot.sortition import Draw, Places, Registry, ticket


@dataclass(frozen=True, slots=True)
class DrawnMembers:
    """Members of a committee that was drawn.

    Attributes:
        members: in the registry's order.
        draw: how.
        places: of the members in the registry.
    """

    members: tuple[Member, ...]
    draw: Draw
    places: Places


Members = Sequence[Member] | DrawnMembers
"""Of a committee of any kind, with their signed keys."""


@dataclass(frozen=True, slots=True)
class Lottery:
    """Draws the committees of a run.

    Args:
        odds: of each, in units of 2^-64.
        beacon_of: where beacons come from; None if a draw has none.
    """

    registry: Registry
    odds: int
    size: int
    beacon_of: BeaconSource | None = None

    def draw(self, session_id: bytes, round_number: int) -> Draw:
        """That of a round."""
        return Draw(
            registry_root=self.registry.root,
            registry_size=len(self.registry),
            odds=self.odds,
            beacon=self.beacon_of(session_id, round_number) if self.beacon_of else b"",
        )

    def candidates(self, session_id: bytes, round_number: int) -> list[bytes]:
        """Who may be on the committee of a round, by ticket, the lowest first."""
        seed = self.draw(session_id, round_number).seed(session_id, round_number)
        tickets = {key: ticket(seed, key) for key in self.registry.keys}
        return sorted((key for key in tickets if tickets[key] < self.odds), key=tickets.__getitem__)

    def seat(
        self,
        session_id: bytes,
        round_number: int,
        entry_of: Callable[[bytes], Member | None],
    ) -> DrawnMembers:
        """The committee of a round: the candidates with the lowest tickets that have checked in.

        Whoever checks in later waits for another round. An entry that no committee can have is
        passed over: of another identity, for other rounds, not signed, with a bad sealing key or
        with that of a candidate before it.

        Args:
            entry_of: a candidate's signed entry, by its identity key; None if it has not checked
                in.
        """
        seated: dict[bytes, Member] = {}
        sealing = set[bytes]()
        for key in self.candidates(session_id, round_number):
            entry = entry_of(key)
            if entry is None or entry.identity != key or entry.sealing_key in sealing:
                continue
            if not _is_valid(entry, session_id, round_number):
                continue
            seated[key] = entry
            sealing.add(entry.sealing_key)
            if len(seated) == self.size:
                break
        if len(seated) < self.size:
            raise TooFewSurvivorsError("draw", len(seated), self.size)
        keys = self.registry.in_order(seated)
        return DrawnMembers(
            members=tuple(seated[key] for key in keys),
            draw=self.draw(session_id, round_number),
            places=self.registry.places(keys),
        )


def _is_valid(entry: Member, session_id: bytes, round_number: int) -> bool:
    """Whether an entry is its identity's, for a round."""
    try:
        check_public_key(entry.sealing_key)
    except ValueError:
        return False
    in_range = 0 <= entry.first_round <= round_number <= entry.last_round < 1 << 63
    return in_range and entry.is_signed(session_id)
