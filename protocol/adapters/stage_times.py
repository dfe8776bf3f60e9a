"""How long a server waits for a stage of a round, and how large its messages may be.

Nobody can know beforehand how soon a framework brings a message to a client and its answer back:
some poll, some start a process for each. So the first trip, on which clients say who they are or
advertise keys, is measured, and later stages are given a few such trips, and the time in which a
slow line carries what the stage sends.
"""

from __future__ import annotations

from protocol.round.setup import RoundEncoding
from protocol.schemes import SCHEMES
from secagg import ParameterError

FIRST_SECONDS = 300.0
"""Longest wait for the first answers. Later waits are shorter, if these come soon: a client that is
slow on purpose must not make them longer."""
LEAST_SECONDS = 60.0
TRAINING_SECONDS = 3600.0
"""Longest wait for training, unless the server's operator says how long that takes."""
CONNECT_SECONDS = 300.0
_TRIPS = 4.0
_BYTES_PER_SECOND = 1.25e6
"""Of the server's line, in both directions together: ten megabits a second."""

LARGEST_VECTOR_BYTES = (1 << 31) - (1 << 27)
"""Flower's and NVFlare's messages end at 2^31 bytes. An eighth of a gibibyte is left for the rest:
shares, signatures, headers."""


class StageTimes:
    """The longest wait for a stage without training.

    Args:
        given: in seconds, by the server's operator; what is measured then counts no more.
    """

    def __init__(self, given: float | None = None) -> None:
        self._given = given
        self._trip: float | None = None

    def measure(self, seconds: float) -> None:
        """Note how long the slowest answer of a stage took in which there was nothing to do.

        The longest counts: of a few clients, asked later, answers come sooner than of all.
        """
        self._trip = max(self._trip or 0.0, seconds)

    def seconds(self, setup: RoundEncoding | None = None) -> float:
        """The longest wait; without a setup, for what comes before a round."""
        if self._given is not None:
            return self._given
        trips = FIRST_SECONDS if self._trip is None else _TRIPS * self._trip
        wait = min(max(trips, LEAST_SECONDS), FIRST_SECONDS)
        return (
            wait
            if setup is None
            else wait + SCHEMES[setup.KIND].stage_bytes(setup) / _BYTES_PER_SECOND
        )


def require_size(setup: RoundEncoding) -> None:
    """See that a client's vector fits a message; before any client is asked."""
    if setup.vector_bytes > LARGEST_VECTOR_BYTES:
        length, bits = setup.context.length, setup.context.bits
        raise ParameterError(
            "vector",
            f"{length} numbers of {bits} bits in {setup.vector_bytes} bytes",
            f"at most {LARGEST_VECTOR_BYTES} bytes, the largest message: compress it "
            "(the table sketch), or train a part of the model",
        )
