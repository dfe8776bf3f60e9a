"""What members add to ideal sums, and what the records of their run then say.

In the place of what members remember, every seed is asked for by its round and its member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from dp import NoiseSeed
from protocol.round.member_noise import AddedNoise, noise_vector
from protocol.round.setup import RoundEncoding
from secagg import TooFewSurvivorsError
from secagg.field import Words, add_into
from secagg.oneshot.records import RoundRecord

MemberSource = Callable[[bytes, int, int], NoiseSeed]
"""Gives the seed of what a member adds: in a session, in the round of a number, by its index."""

AwaySource = Callable[[int], Collection[int]]
"""Gives the members of whom nothing is heard in the round of a number."""


class RememberedSeeds:
    """Fresh seeds of members' noise, remembered until the round after the next."""

    def __init__(self) -> None:
        self._seeds: dict[tuple[bytes, int, int], NoiseSeed] = {}

    def __call__(self, session_id: bytes, round_number: int, member: int) -> NoiseSeed:
        """The same seed for the same question."""
        asked = (session_id, round_number, member)
        if asked not in self._seeds:
            latest = max((number for _, number, _ in self._seeds), default=round_number)
            if round_number > latest:
                kept = {key: seed for key, seed in self._seeds.items() if key[1] == latest}
                self._seeds = kept
            self._seeds[asked] = NoiseSeed.fresh()
        return self._seeds[asked]


def nobody(round_number: int) -> Collection[int]:
    """For committees that are always there."""
    del round_number
    return ()


def ideal_record(
    setup: RoundEncoding, survivors: Sequence[int], away: AwaySource
) -> RoundRecord | None:
    """What the round adds to the records of its run; None if clients alone upload."""
    context = setup.context
    uploads = setup.member_uploads
    if uploads is None:
        return None
    missing = set(away(context.round_number))
    entered = tuple(each for each in range(setup.adding_members) if each not in missing)
    before = uploads.records[-1].entered if uploads.records and uploads.returning else ()
    returned = tuple(each for each in entered if each in before)
    for count, needed in (
        (len(entered), uploads.fewest),
        (len(returned), uploads.fewest_returning),
    ):
        if count < needed:
            raise TooFewSurvivorsError("upload", count, needed)
    return RoundRecord(context.round_number, len(survivors), entered, returned)


def add_members_noise(
    setup: RoundEncoding, record: RoundRecord, total: Words, seed_of: MemberSource
) -> None:
    """Add what members upload to a sum, in place."""
    context, returned = setup.context, setup.parameters.returned
    uploads = setup.member_uploads
    if uploads is None or returned is None:
        return

    def noise(number: int, member: int) -> AddedNoise:
        seed = seed_of(context.session_id, number, member)
        return AddedNoise(number, returned.variance, seed.material)

    taking = set(record.returned)
    for member in record.entered:
        added, taken = noise(record.round_number, member), None
        if member in taking:
            taken = noise(uploads.records[-1].round_number, member)
        add_into(total, noise_vector(context.field, context.length, added, taken))
