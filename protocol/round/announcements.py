"""Which round with a committee an announcement is of: the only place that knows their kinds."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.round.one_shot_setup import OneShotAnnouncement
from protocol.round.validated_setup import ValidatedAnnouncement

_KINDS: Mapping[bytes, type[OneShotAnnouncement]] = {
    kind.head(): kind for kind in (OneShotAnnouncement, ValidatedAnnouncement)
}


def read_announcement(data: bytes) -> OneShotAnnouncement:
    """An announcement of either kind from the server; `RemoteProtocolError` if it is none."""
    found = (kind for head, kind in _KINDS.items() if data[: len(head)] == head)
    return next(found, OneShotAnnouncement).read(data)
