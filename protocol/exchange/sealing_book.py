"""The members' signed sealing keys at the server: whose are known, and who is to be asked for one.

A key serves a range of rounds, and its owner erases it after a time. Members are asked for the next
one some rounds before the range of the present one ends, and again while there is time, so that a
run goes on over it with whoever is away at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.exchange.stages import Refusal
from protocol.round.committee_policy import KEY_ROUNDS, KEY_SECONDS
from protocol.round.rings import UnixClock
from secagg import SERVER, Reason, RemoteProtocolError
from secagg.keys import check_public_key
from secagg.oneshot.committee import MEMBER_BYTES, Member
from secagg.terms import SESSION_ID_BYTES

AHEAD_ROUNDS = 8
"""From so many rounds before a key's end on its owner is asked for the next one."""

ASK_SECONDS = KEY_SECONDS // 4
"""So long after a member has told us its key it is asked again: by then it may have another, which
it makes when half of the time of the first is over."""

_NUMBER_BYTES = 8


class SealingBook:
    """What members have handed over in one session.

    Args:
        session_id: 16 bytes.
        clock: tells unix seconds; with it members are asked again before the time of a key is over.
    """

    def __init__(self, session_id: bytes, clock: UnixClock | None = None) -> None:
        self.session_id = session_id
        self._clock = clock
        self._entries: dict[bytes, list[Member]] = {}
        self._last_added: dict[bytes, float] = {}

    def entries(self, round_number: int) -> dict[bytes, Member]:
        """The entries that are valid in a round, by identity; of members that are away, too."""
        return {
            identity: entry
            for identity, entries in self._entries.items()
            for entry in entries
            if _serves(entry, round_number)
        }

    def wanted(self, identity: bytes, round_number: int) -> int | None:
        """For which round a member is to be asked for a key, before this round; None for none."""
        entries = self._entries.get(identity, [])
        last = max((each.last_round for each in entries if _serves(each, round_number)), default=-1)
        if last < 0 or self._now() - self._last_added[identity] > ASK_SECONDS:
            return round_number
        if round_number + AHEAD_ROUNDS <= last or any(_serves(each, last + 1) for each in entries):
            return None
        return last + 1

    def request(self, round_number: int) -> bytes:
        """What a member is asked, for a key that serves this round."""
        return self.session_id + round_number.to_bytes(_NUMBER_BYTES, "little")

    def add(self, identity: bytes, encoded: bytes, round_number: int) -> Refusal | None:
        """Take in a member's key, or say why it cannot be on a committee.

        One bad entry, or one key under two names, would spoil every committee that it is on.
        """
        others = (each for key, held in self._entries.items() if key != identity for each in held)
        entry = _checked(encoded, identity, self.session_id, round_number, others)
        if isinstance(entry, Refusal):
            return entry
        known = self._entries.get(identity, [])
        # Of two for one round, the later one counts; the key that ends before it may still serve.
        self._entries[identity] = [*(e for e in known if e.last_round < entry.first_round), entry]
        del self._entries[identity][:-2]
        self._last_added[identity] = self._now()
        return None

    def _now(self) -> float:
        return self._clock() if self._clock else 0.0


def read_request(data: bytes) -> tuple[bytes, int]:
    """Session and number of the round that a member is asked to have a key for."""
    if len(data) != SESSION_ID_BYTES + _NUMBER_BYTES:
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, "a request for a sealing key")
    return data[:SESSION_ID_BYTES], int.from_bytes(data[SESSION_ID_BYTES:], "little")


def _serves(entry: Member, round_number: int) -> bool:
    return entry.first_round <= round_number <= entry.last_round


def _checked(
    encoded: bytes, identity: bytes, session_id: bytes, round_number: int, others: Iterable[Member]
) -> Member | Refusal:
    if len(encoded) != MEMBER_BYTES:
        return Refusal("sent no sealing key")
    entry = Member.decode(encoded)
    try:
        check_public_key(entry.sealing_key)
    except ValueError as error:
        return Refusal(f"sent a bad sealing key: {error}")
    rounds = entry.last_round - entry.first_round + 1
    in_range = entry.last_round < 1 << 63 and 1 <= rounds <= KEY_ROUNDS
    if entry.identity != identity or not in_range or not entry.is_signed(session_id):
        return Refusal("sent a sealing key without its own signature, or for too many rounds")
    if not _serves(entry, round_number):
        return Refusal(f"sent a sealing key that does not serve round {round_number}")
    if any(each.sealing_key == entry.sealing_key for each in others):
        return Refusal("sent another client's sealing key")
    return entry
