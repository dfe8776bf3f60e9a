"""A pairwise round as its server sees it."""

from __future__ import annotations

from protocol.exchange.stages import CLIENT, Script, Step
from protocol.round.losses import Stage, stages_of
from secagg import Mode, ServerSession


def pairwise_script(server: ServerSession, mode: Mode) -> Script:
    """Clients answer at every step; survivors are those whose masked inputs are in."""
    return Script(
        steps=[
            Step(stage, CLIENT, server.receive_bytes, decides=stage is Stage.INPUT)
            for stage in stages_of(mode)
        ],
        close=server.close_round_bytes,
        decided=lambda: (server.survivors, None),
        total=server.unmask,
    )
