"""What a client insists on where members of a committee are drawn by lot.

The server chooses sessions, rounds, and which of the candidates it seats. All else is the client's:
the registry's root, the odds, and how many identities in the registry may be corrupt. From these it
computes how many members may be. docs/one-shot-security.md, "Drawn committees", has the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from protocol.checks import RANGES
from protocol.errors import PolicyError
from secagg import ParameterError
from secagg.checks import require_int
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.draw_bound import (
    BITS_WITH_BEACON,
    BITS_WITHOUT_BEACON,
    corrupt_bound,
    draw_failure,
)
from secagg.oneshot.sortition import BEACON_BYTES, Draw, Places

BeaconSource = Callable[[bytes, int], bytes]
"""Gives the beacon, 32 bytes, that belongs to a session and round; asked for one that a party has
from elsewhere than the server. Nobody may have known it when the registry was fixed, and which one
belongs to a round must not be for the server to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPolicy:
    """Draws that a client accepts.

    Args:
        odds: of each to be a candidate, in units of 2^-64.
        beacon_of: where beacons come from; None if a draw has none.
        security_bits: chance that one draw has more corrupt candidates than the committee
            tolerates, as bits: 128 without a beacon, 64 with one, and no fewer.
    """

    registry_root: bytes
    registry_size: int
    odds: int
    corrupt_identities: int
    smallest: int
    beacon_of: BeaconSource | None = None
    security_bits: int | None = None

    def __post_init__(self) -> None:
        self._draw(b"")
        require_int("corrupt_identities", self.corrupt_identities, 0, self.registry_size)
        RANGES["size"].require("smallest", self.smallest)
        require_int("security_bits", self.bits, self._fewest_bits, 256)
        _ = self.corrupt

    @property
    def bits(self) -> int:
        """Security bits of one draw."""
        return self._fewest_bits if self.security_bits is None else self.security_bits

    @property
    def failure(self) -> float:
        """Chance that any draw breaks, in all rounds together."""
        return draw_failure(self.bits, beacon=self.beacon_of is not None)

    @property
    def corrupt(self) -> int:
        """The fewest corrupt members that a committee has to tolerate."""
        return corrupt_bound(self.corrupt_identities, self.odds, self.bits)

    def check(self, context: CommitteeContext, places: Places | None) -> None:
        """Accept the draw of a round's committee or refuse it."""
        committee, announced = context.committee, context.committee.draw
        if announced is None:
            raise PolicyError("committee", committee.kind.value, "drawn only")
        beacon = b""
        if self.beacon_of is not None:
            beacon = self.beacon_of(context.session_id, context.round_number)
            if len(beacon) != BEACON_BYTES:
                raise ParameterError("beacon_of", f"{len(beacon)} bytes", f"{BEACON_BYTES} bytes")
        expected = self._draw(beacon)
        for name in ("registry_root", "registry_size", "odds", "beacon"):
            theirs, ours = getattr(announced, name), getattr(expected, name)
            if theirs != ours:
                raise PolicyError(name, _shown(theirs), f"{_shown(ours)} only")
        if committee.size < self.smallest:
            valid = f"at least {self.smallest}"
            raise PolicyError("committee", f"{committee.size} members", valid)
        identities = [member.identity for member in committee.members]
        if places is None or not places.hold(expected, identities):
            raise PolicyError(
                "committee", "one with a stranger", "members of the registry, in its order"
            )

    @property
    def _fewest_bits(self) -> int:
        return BITS_WITH_BEACON if self.beacon_of else BITS_WITHOUT_BEACON

    def _draw(self, beacon: bytes) -> Draw:
        root, size = self.registry_root, self.registry_size
        return Draw(registry_root=root, registry_size=size, odds=self.odds, beacon=beacon)


def _shown(value: bytes | int) -> str:
    if isinstance(value, int):
        return str(value)
    return value.hex() or "none"
