"""What can go wrong between Flower and a private round."""

from __future__ import annotations

from secagg import LocalProtocolError


class StrategyError(ValueError):
    """A strategy, or the messages it makes, cannot work with one mean; says what can."""


class TooFewNodesError(RuntimeError):
    """Too few nodes are connected, or have a registered identity, after a bounded wait."""


class AmbiguousMessageError(LocalProtocolError):
    """A message that training would see holds no model, or several."""
