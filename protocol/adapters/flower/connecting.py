"""Waits for nodes to connect, and not for ever.

Flower's strategies ask for the connected nodes once a second until there are enough. So the grid
counts the time since it was first asked, and gives up for them.
"""

from __future__ import annotations

from flwr.serverapp import Grid

from protocol.adapters.flower.errors import TooFewNodesError
from protocol.adapters.flower.waiting import Clock, Wait

_FORGOTTEN_SECONDS = 30.0
"""Whoever asks after so long a silence was not waiting, but busy."""


class Connecting:
    """The nodes of a grid.

    The first round waits for all that one can have; later ones for the fewest that it needs, as
    somebody who left may not come back.
    """

    def __init__(self, grid: Grid, most: int, needed: int, seconds: float, clock: Clock) -> None:
        self._grid = grid
        self._most = self._wanted = most
        self._needed = needed
        self._seconds = seconds
        self._clock = clock
        self._wait: Wait | None = None
        self._asked = clock.now()

    def done(self) -> None:
        """Whoever waited has what it waited for."""
        self._wait = None

    def nodes(self) -> list[int]:
        """The connected nodes, once enough are there."""
        if self._wait is None or self._clock.now() - self._asked > _FORGOTTEN_SECONDS:
            self._wait = Wait(self._clock, self._seconds)
        wait, asked_again = self._wait, self._wait.left == 0.0
        nodes = list(self._grid.get_node_ids())
        while len(nodes) < self._wanted and wait.again():
            nodes = list(self._grid.get_node_ids())
        if len(nodes) < self._wanted:
            # We waited, not the strategy: it has the whole time before it if it wants more.
            self._wait = None
        self._asked, self._wanted = self._clock.now(), self._needed
        if len(nodes) < self._needed or asked_again:
            raise TooFewNodesError(
                f"{len(nodes)} nodes connected after {self._seconds:g} s; a round needs "
                f"{self._needed}, and a strategy waits for its min_available_nodes, "
                "min_train_nodes and min_evaluate_nodes. In a simulation: flwr run "
                f"--federation-config num-supernodes={self._most}; in a deployment: start more "
                "SuperNodes, or raise connect-seconds"
            )
        return nodes
