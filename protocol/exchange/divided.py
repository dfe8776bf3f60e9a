"""The uploads of a round with a committee divided among ranks, each of which plays some clients.

A rank spools and adds the uploads of its own clients. All are told the headers, some 200 bytes an
upload and 32 for each removable seed; a member's part of them goes to the rank that plays it, a
column at a time; and the sums become one. With that the server of every rank comes to the same
state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.exchange.ranks import Ranks
from secagg import LocalProtocolError
from secagg.framing import split_items
from secagg.merkle import HASH_BYTES
from secagg.oneshot.collection import UploadCollection
from secagg.oneshot.header import Header


class DividedUploads:
    """An `UploadCollection` of all ranks. All of them must ask for the same things in step.

    Args:
        here: what this rank's clients upload, which is collected as in one process.
        members: of the committee.
        seeds: removable ones of each client.
    """

    def __init__(self, here: UploadCollection, ranks: Ranks, members: int, seeds: int) -> None:
        self._here, self._ranks, self._members, self._seeds = here, ranks, members, seeds
        self.take, self.clear = here.take, here.clear
        self._headers: Mapping[int, Header] = here.headers
        self._commitments: Mapping[int, list[bytes]] = here.commitments
        self._places: list[NDArray[np.int64]] = []

    @property
    def headers(self) -> Mapping[int, Header]:
        """By client: of the uploads here, and after `close` of those of all ranks."""
        return self._headers

    @property
    def commitments(self) -> Mapping[int, list[bytes]]:
        """By client, likewise."""
        return self._commitments

    def close(self) -> None:
        """Tell the other ranks who uploaded here, and hear who did there."""
        own = tuple(sorted(self._headers))
        headers = b"".join(self._headers[sender].encode() for sender in own)
        commitments = b"".join(b"".join(self._commitments[sender]) for sender in own)
        everybody: dict[int, Header] = {}
        known: dict[int, list[bytes]] = {}
        gathered = self._ranks.gather((own, headers, commitments))
        for senders, encoded, seeds in gathered:
            if again := everybody.keys() & set(senders):
                raise LocalProtocolError(f"client {min(again)} uploaded on two ranks")
            count, each = len(senders), self._seeds * HASH_BYTES
            items = split_items(encoded, self._here.HEADER_BYTES, count)
            for place, (sender, header) in enumerate(zip(senders, items, strict=True)):
                everybody[sender] = self._here.HEADER.decode(sender, header)
                of_sender = seeds[place * each : (place + 1) * each]
                known[sender] = split_items(of_sender, HASH_BYTES, self._seeds)
        self._headers, self._commitments = everybody, known
        order = np.array(sorted(everybody), np.int64)
        self._places = [np.searchsorted(order, senders) for senders, *_ in gathered]

    def serves(self, member: int) -> bool:
        """Whether this rank plays a member: they take turns."""
        return member % self._ranks.size == self._ranks.rank

    def columns(self) -> Iterator[tuple[int, bytes]]:
        """Each member that is served here, and its part of all ranks' uploads, by sender."""
        ranks, own = self._ranks, self._here.columns()
        for first in range(0, self._members, ranks.size):
            row = [column for _, column in islice(own, ranks.size)]
            # In the last row some ranks serve nobody, and give what they have all the same.
            pieces = ranks.swap([*row, *[b""] * (ranks.size - len(row))])
            if (member := first + ranks.rank) < self._members:
                yield member, self._in_order(pieces)

    def leave_out(self, clients: Collection[int]) -> None:
        """Take the uploads of some clients off the sum of the rank that has them."""
        self._here.leave_out(clients)

    def total(self) -> Any:
        """The sum over all ranks."""
        return self._here.total().together(self._ranks.add)

    def _in_order(self, pieces: Sequence[bytes]) -> bytes:
        """One member's part by sender, from those of each rank by sender."""
        count = len(self._headers)
        size = sum(map(len, pieces)) // count if count else 0
        column = np.empty((count, size), np.uint8)
        for places, piece in zip(self._places, pieces, strict=True):
            column[places] = np.frombuffer(piece, np.uint8).reshape(-1, size)
        return column.tobytes()
