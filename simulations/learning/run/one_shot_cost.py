"""What the real one-shot protocol takes of whoever plays all of it, from a few of its clients.

A round is played by ranks: each plays its share of the clients, and members take turns. What a rank
spends on clients falls with the number of ranks, and so does what it spends on members, until each
rank has one; the headers of all uploads are on every rank.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from numpy.typing import NDArray

from protocol.exchange.local_committee import fresh_key
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.history import ClientHistory
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.parameters import RoundParameters
from protocol.round.validated_setup import ValidatedSetup
from protocol.schemes.one_shot import local_committee, one_shot_of, one_shot_setup, trusted_of
from secagg import Identity
from secagg.framing import encode_message, split_items
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.merkle import HASH_BYTES
from secagg.oneshot.header import Header
from secagg.oneshot.member import share_of
from secagg.oneshot.spool import IN_MEMORY_BYTES
from secagg.oneshot.states import MemberParty
from secagg.terms import SESSION_ID_BYTES
from secagg.validated.member import checked

SAMPLE: Final = 15
"""Clients that are played, after a first that compiles."""
_SESSION: Final = bytes(SESSION_ID_BYTES)
_COPIES: Final = 3
"""Of a delivery that is being made or read: its parts, the message, and what is cut out of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCost:
    """What one rank takes for one round; `disk` and `memory` in bytes."""

    seconds: float  # of one processor
    disk: int  # of uploads that are spooled until complaints are in
    memory: int  # that grows with the clients; Python, model and data come on top


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShotCost:
    """What one upload takes."""

    members: int  # s
    client_seconds: float  # of one processor, from the update to the server's sum
    member_seconds: float  # for one member
    delivery_seconds: float  # for one member, once a round, mostly for the cohort's hash
    ciphertext_bytes: int  # spooled by the server
    seals_bytes: int  # likewise, those for all members together
    share_bytes: int  # that one member keeps, with the header
    header_bytes: int  # that every rank keeps, with commitments
    delivery_bytes: int  # of a message to one member

    def of_rank(self, clients: int, ranks: int) -> RankCost:
        """What a round takes of the rank that has most to do."""
        own, members = -(-clients // ranks), -(-self.members // ranks)
        spooled = (own * self.ciphertext_bytes, own * self.seals_bytes)
        each = self.header_bytes + members * self.share_bytes + _COPIES * self.delivery_bytes
        return RankCost(
            seconds=own * self.client_seconds
            + members * (self.delivery_seconds + clients * self.member_seconds),
            disk=sum(max(0, size - IN_MEMORY_BYTES) for size in spooled),
            memory=clients * each + sum(min(size, IN_MEMORY_BYTES) for size in spooled),
        )


def one_shot_cost(
    plan: TrainingPlan, parameters: RoundParameters, update: NDArray[Any]
) -> OneShotCost:
    """Play a few clients and a member of a round of a plan, on one thread.

    Seconds are of the processor, so that other work on this machine changes little. What opening
    the sum takes is left out: it is little, and once a round.

    Args:
        update: float32|float64[d].
    """
    identities = [Identity.generate() for _ in range(plan.cohort)]
    keys = [identity.public for identity in identities]
    named = one_shot_of(plan).committee.STANDS
    size = one_shot_of(plan).numbers(plan).size
    seats = [Identity.generate() for _ in range(size)] if named else identities
    sealing: dict[bytes, AgreementKey] = {}

    def key_of(session_id: bytes, key: bytes) -> AgreementKey:
        return sealing.setdefault(key, fresh_key(session_id, key))

    committee = local_committee(plan, identities, seats, key_of)
    members = committee.members(_SESSION, keys, 0)
    setup = one_shot_setup(plan, parameters, keys, members, _SESSION, 0)
    trusted, registry = trusted_of(plan, committee), frozenset(keys)
    policy = client_policy(plan, None, trusted.named, trusted.draw)
    context, uploads = setup.context, setup.uploads()
    server = setup.server(uploads)
    # The last member, who is none of the clients that are played.
    last = context.committee.size - 1
    key = context.committee.members[last].identity
    seat = next(each for each in seats if each.public == key)
    others = (index for index, each in enumerate(keys) if each != key)
    played = list(islice(others, 1 + SAMPLE))

    def play(index: int) -> None:
        history = ClientHistory(policy.goal)
        client = OneShotRoundClient(identities[index], registry, policy, history)
        client.join(setup.announce(index), parameters.model_digest)
        server.receive_upload(index, client.submit(update))

    clients = [_seconds(partial(play, index)) for index in played]
    party = MemberParty(context, last, seat, sealing[key], None, registry)
    column = dict(uploads.columns())[last]
    width, opened = len(column) // len(played), _OPENED[setup.KIND]
    kept: list[NDArray[Any]] = []

    def look(index: int, part: bytes) -> None:
        kept.append(opened(party, uploads.headers[index], keys[index], part))

    shares = [
        _seconds(partial(look, index, part))
        for index, part in zip(played, split_items(column, width, len(played)), strict=True)
    ]
    member = committee.member(_SESSION, key)
    member.join(setup.announce_to_member(last if setup.adding_members else None))
    message = encode_message(dict(server.deliveries())[last])
    delivery = _seconds(partial(member.receive, message))
    header = uploads.headers[played[0]]
    return OneShotCost(
        members=context.committee.size,
        client_seconds=statistics.median(clients[1:]),
        member_seconds=statistics.median(shares[1:]),
        delivery_seconds=delivery,
        ciphertext_bytes=setup.vector_bytes,
        seals_bytes=uploads.bytes_for_members,
        share_bytes=kept[0].nbytes + _held(header),
        header_bytes=_held(header) + context.seeds * sys.getsizeof(bytes(HASH_BYTES)),
        delivery_bytes=KEY_BYTES + len(header.encode()) + width,
    )


_OPENED: Final[Mapping[str, Callable[..., NDArray[Any]]]] = {
    OneShotSetup.KIND: share_of,
    ValidatedSetup.KIND: lambda *about: checked(*about)[0],
}
"""What a member does with each upload, by scheme: the share that it keeps."""


def _held(header: Header) -> int:
    """Bytes of a header and what it refers to, in memory."""
    parts = (header.ephemeral_key, header.ciphertext_hash, header.seals_hash, header.signature)
    return sum(map(sys.getsizeof, (header, *parts)))


def _seconds(work: Callable[[], object]) -> float:
    """Of this process's processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start
