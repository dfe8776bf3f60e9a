"""Denoise as a filter of whatever a source releases.

It sees released values only, so it costs no privacy, whatever mechanism they come from.

Source: the study of compression under differential privacy, Algorithm 1; docs/compression.md.
"""

from __future__ import annotations

from protocol.training.private import TrainingState
from simulations.learning.configuration import RunConfig, Server
from simulations.learning.federated import Invitation
from simulations.learning.records import Facts
from simulations.learning.sources.base import Arrays, Floats, RecordedSource
from sketch import LayerShapes
from sketch.compressors import Denoise, DenoiseFilter, TopK
from sketch.compressors.base import Stateless
from sketch.compressors.denoise import DenoiseSender

_NAMES = ("velocity", "received", "residual")
_PREFIX = "denoise/"

EXACT_BITS = 64
"""Bits of a number: nothing is sent from one end of the filter to the other."""


class DenoisedMean:
    """A source whose means pass through a filter."""

    def __init__(
        self, source: RecordedSource, config: RunConfig, layers: LayerShapes, arrays: Arrays
    ) -> None:
        if config.denoise is None:
            raise ValueError("the configuration has no table denoise")
        self._source = source
        denoise = Denoise(
            TopK(layers, config.denoise.rate, value_bits=EXACT_BITS),
            momentum=config.denoise.momentum,
            residual_decay=config.denoise.residual_decay,
            clip_l2=config.privacy.clip_l2,
        )
        state = None
        if _PREFIX + _NAMES[0] in arrays:
            velocity, received, residual = (arrays[_PREFIX + name] for name in _NAMES)
            state = DenoiseSender(velocity, received, residual, Stateless(), Stateless())
        self._filter = DenoiseFilter(denoise, state)

    @property
    def state(self) -> TrainingState | None:
        """The state of the source."""
        return self._source.state

    @property
    def arrays(self) -> Arrays:
        """The arrays of the source and of the filter."""
        state = self._filter.state
        own = {_PREFIX + name: getattr(state, name) for name in _NAMES}
        return {**self._source.arrays, **own}

    def mean(self, invitation: Invitation) -> Floats:
        """What the filter makes of the source's mean."""
        return self._filter.step(self._source.mean(invitation))

    def rate(self, server: Server, number: int, rounds: int) -> float:
        """The learning rate of the source."""
        return self._source.rate(server, number, rounds)

    def facts(self, invitation: Invitation) -> Facts:
        """What the source tells of a round."""
        return self._source.facts(invitation)


def of_source(arrays: Arrays) -> Arrays:
    """What of stored arrays belongs to the source behind a filter."""
    return {name: array for name, array in arrays.items() if not name.startswith(_PREFIX)}
