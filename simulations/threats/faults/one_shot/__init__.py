"""The fault campaign of one-shot rounds: hostile wires, clients, members and servers."""

from simulations.threats.faults.one_shot.answers import MEMBER_LIES
from simulations.threats.faults.one_shot.lies import CLIENT_LIES
from simulations.threats.faults.one_shot.servers import SERVERS, play_server
from simulations.threats.faults.one_shot.staged import (
    play_encoded,
    play_leavers,
    play_liar,
    play_lying_member,
    play_wire,
)

__all__ = [
    "CLIENT_LIES",
    "MEMBER_LIES",
    "SERVERS",
    "play_encoded",
    "play_leavers",
    "play_liar",
    "play_lying_member",
    "play_server",
    "play_wire",
]
