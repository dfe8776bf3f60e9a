"""Where this adapter speaks to the operator of the machine it runs on: the logger `veilsum`.

A transport has to: Flower's own answers to errors go to the other side.
"""

from __future__ import annotations

import logging

_log = logging.getLogger("veilsum")


def warn(text: str) -> None:
    """Say something to whoever runs this side."""
    _log.warning("%s", text)
