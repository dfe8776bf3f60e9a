"""Where this adapter speaks to the operator of the machine it runs on: the logger `veilsum`.

A transport has to: Flower's own answers to errors go to the other side.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from protocol.errors import ConfigurationError
from protocol.exchange.stages import PEER_ERRORS

_log = logging.getLogger("veilsum")


def warn(text: str, error: Exception | None = None) -> None:
    """Say something to whoever runs this side.

    Args:
        error: with its trace, if it is none of ours, or another one is behind it.
    """
    expected = error is None or isinstance(error, (*PEER_ERRORS, ConfigurationError))
    trace = error if error is not None and (not expected or error.__cause__ is not None) else None
    _log.warning("%s", text, exc_info=trace)


def say(event: str, about: Mapping[str, object]) -> None:
    """Log that something went as it should, and what it was about."""
    _log.info("%s %s", event, about, extra={"veilsum": {"event": event, **about}})
