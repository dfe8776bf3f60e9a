"""The uploads of a one-shot round divided among ranks, each of which plays some of the clients.

A rank spools and adds the uploads of its own clients. All are told the headers, some 160 bytes an
upload and 32 for each removable seed; a member's seals go to the rank that plays it, a column at a
time; and the sums become one. With that the server of every rank comes to the same state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol.exchange.ranks import Ranks
from secagg import LocalProtocolError
from secagg.framing import split_items
from secagg.merkle import HASH_BYTES
from secagg.oneshot.collection import UploadCollection
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.masking import Accumulator
from secagg.oneshot.messages import HEADER_BYTES


class DividedUploads(UploadCollection):
    """This rank's part of the uploads of a round. All ranks must ask for the same things in step.

    Args:
        folder: where this rank's part is spooled; None for the system's place.
    """

    def __init__(
        self, context: OneShotContext, cohort: Cohort, ranks: Ranks, folder: Path | None = None
    ) -> None:
        super().__init__(context, cohort, folder)
        self._ranks = ranks
        self._all_headers: dict[int, Header] = {}
        self._all_commitments: dict[int, list[bytes]] = {}
        self._places: list[NDArray[np.int64]] = []
        self._closed = False

    @property
    def headers(self) -> Mapping[int, Header]:
        """By client: of the uploads here, and after `close` of those of all ranks."""
        return self._all_headers if self._closed else self._headers

    @property
    def commitments(self) -> Mapping[int, list[bytes]]:
        """By client, likewise."""
        return self._all_commitments if self._closed else self._commitments

    def close(self) -> None:
        """Tell the other ranks who uploaded here, and hear who did there."""
        own = tuple(sorted(self._headers))
        headers = b"".join(self._headers[sender].encode() for sender in own)
        commitments = b"".join(b"".join(self._commitments[sender]) for sender in own)
        gathered = self._ranks.gather((own, headers, commitments))
        for senders, *facts in gathered:
            if again := self._all_headers.keys() & set(senders):
                raise LocalProtocolError(f"client {min(again)} uploaded on two ranks")
            self._learn(senders, *facts)
        everybody = np.array(sorted(self._all_headers), np.int64)
        self._places = [np.searchsorted(everybody, senders) for senders, *_ in gathered]
        self._closed = True

    def serves(self, member: int) -> bool:
        """Whether this rank plays a member: they take turns."""
        return member % self._ranks.size == self._ranks.rank

    def columns(self) -> Iterator[tuple[int, bytes]]:
        """Each member that is served here, and its seals of all ranks' uploads, by sender."""
        ranks, members = self._ranks, self._context.committee.size
        own = self._columns(sorted(self._headers))
        for first in range(0, members, ranks.size):
            row = list(islice(own, ranks.size))
            # In the last row some ranks serve nobody, and give what they have all the same.
            pieces = ranks.swap([*row, *[b""] * (ranks.size - len(row))])
            if (member := first + ranks.rank) < members:
                yield member, self._in_order(pieces)

    def total(self) -> Accumulator:
        """The sum over all ranks."""
        here = self._sum
        sums, count = self._ranks.add(here.sums, np.array([here.count]))
        return Accumulator.together(here.packing, here.length, sums, int(count[0]))

    def _learn(self, senders: Sequence[int], headers: bytes, commitments: bytes) -> None:
        """Take in what a rank has told of its uploads."""
        count, each = len(senders), self._context.seeds * HASH_BYTES
        for place, (sender, header) in enumerate(
            zip(senders, split_items(headers, HEADER_BYTES, count), strict=True)
        ):
            own = commitments[place * each : (place + 1) * each]
            self._all_headers[sender] = Header.decode(sender, header)
            self._all_commitments[sender] = split_items(own, HASH_BYTES, self._context.seeds)

    def _in_order(self, pieces: Sequence[bytes]) -> bytes:
        """One member's seals by sender, from those of each rank by sender."""
        column = np.empty((len(self._all_headers), self._seal_bytes), np.uint8)
        for places, piece in zip(self._places, pieces, strict=True):
            column[places] = np.frombuffer(piece, np.uint8).reshape(-1, self._seal_bytes)
        return column.tobytes()
