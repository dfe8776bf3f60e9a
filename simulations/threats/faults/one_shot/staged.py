"""Schedules of one-shot rounds with an honest server: hostile wires, parties that leave or lie.

Or whose clients encode real updates; then the sum is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp import NoiseSeed
from protocol.round.field_size import bits_for
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.setup import announced_removal
from secagg import FieldVector
from secagg.framing import encode_message
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.messages import Answer, Complaints, Confirmation, Upload
from simulations.threats.faults.behaviours import Lie, Tally, Verdict, Wire, must_end_well, on_half
from simulations.threats.faults.encoded import EncodingClient, decoded, random_parameters
from simulations.threats.faults.one_shot.liars import LyingClient, LyingMember
from simulations.threats.faults.one_shot.parties import (
    HonestClient,
    HonestMember,
    Input,
    plain_input,
    random_context,
    random_vectors,
)
from simulations.threats.faults.one_shot.rounds import Round, Wires
from simulations.threats.game.contexts import Integers, Wanted, until_it_fits


class Cast:
    """The parties of a round, all of them honest until somebody is made to leave or to lie."""

    CLIENT: ClassVar[type[HonestClient]] = HonestClient
    MEMBER: ClassVar[type[HonestMember]] = HonestMember
    CHEAT: ClassVar[type[LyingClient]] = LyingClient
    LIAR: ClassVar[type[LyingMember]] = LyingMember
    ROUND: ClassVar[type[Round]] = Round
    STAGES: ClassVar[tuple[type, ...]] = (Complaints, Confirmation, Answer)

    def __init__(
        self, rng: np.random.Generator, number: int, tally: Tally, wanted: Wanted | None = None
    ) -> None:
        self._rng, self._tally = rng, tally
        self.context, self.vectors = self.drawn(rng, number, wanted or Wanted())
        self.inputs: dict[int, Integers] = dict(enumerate(self.vectors))
        self.salt = rng.bytes(4)
        self.clients: dict[int, HonestClient | LyingClient] = {
            **honest_clients(self.context, self.vectors, self.salt, self.CLIENT)
        }
        self.members = honest_members(self.context, rng, self.MEMBER)
        self.spare = self.context.size - self.context.minimum_survivors

    def drawn(self, rng: np.random.Generator, number: int, wanted: Wanted) -> tuple[Any, Integers]:
        """A context, and the clients' vectors."""
        context = random_context(rng, number, wanted)
        return context, random_vectors(rng, context)

    def most_away(self) -> int:
        """Members that may leave."""
        return int(self.context.committee.corrupt)

    def old(self) -> Sequence[bytes]:
        """What the wires know of another round of the same parties."""
        return _old_uploads(self.context, self.vectors)

    def some(self, parties: Mapping[int, Any], count: int) -> list[int]:
        """Some of them, by index."""
        return [int(i) for i in self._rng.permutation(len(parties))[:count]]

    def play(self, rate: float, old: Sequence[bytes] = ()) -> Verdict:
        """The round on wires with this rate of faults, which know some old messages."""
        wires = hostile_wires(self._rng, rate, self._tally, old)
        parties = (self.context, self.clients, self.members, self.inputs)
        return self.ROUND(*parties, wires, self._tally).verdict()

    @classmethod
    def play_wire(cls, rng: np.random.Generator, number: int, rate: float, tally: Tally) -> Verdict:
        """Honest parties on hostile wires."""
        cast = cls(rng, number, tally)
        return cast.play(rate, cast.old())

    @classmethod
    def play_leavers(
        cls, rng: np.random.Generator, number: int, rate: float, tally: Tally
    ) -> Verdict:
        """Clients and members that vanish at every stage; as many as are tolerated cost no sum."""
        cast = cls(rng, number, tally)
        rate, most = on_half(rng, rate), cast.most_away()
        lost, away = int(rng.integers(0, cast.spare + 2)), int(rng.integers(0, most + 2))
        for u in cast.some(cast.clients, lost):
            cast.clients[u].leaves = True
        for j in cast.some(cast.members, away):
            cast.members[j].leaves_before = cls.STAGES[rng.integers(len(cls.STAGES))]
        bearable = lost <= cast.spare and away <= most and not rate
        return must_end_well(cast.play(rate), bearable, f"{lost} clients and {away} members away")

    @classmethod
    def play_liar(
        cls, lie: Lie, rng: np.random.Generator, number: int, rate: float, tally: Tally
    ) -> Verdict:
        """One or two lying clients; on half of the schedules the wires are hostile too."""
        cast = cls(rng, number, tally, lie.wanted)
        rate, count = on_half(rng, rate), int(rng.integers(1, 3))
        for u in cast.some(cast.clients, count):
            vector = cast.inputs.pop(u)
            cast.clients[u] = cls.CHEAT(cast.context, u, lie, vector, cast.salt, rng)
        tolerated = min(cast.context.tolerated_colluders, cast.spare)
        bearable = lie.bearable and count <= tolerated and not rate
        return must_end_well(cast.play(rate), bearable, f"{count} lying clients")

    @classmethod
    def play_lying_member(
        cls, lie: Lie, rng: np.random.Generator, number: int, rate: float, tally: Tally
    ) -> Verdict:
        """Lying members: mostly as many as the committee stands, sometimes up to all of them."""
        cast = cls(rng, number, tally, lie.wanted)
        rate = on_half(rng, rate)
        committee, spare = cast.context.committee, cast.spare
        most = committee.corrupt if rng.random() < 0.7 else committee.size
        count = int(rng.integers(1, most + 1))
        for j in cast.some(cast.members, count):
            cast.members[j] = cls.LIAR(cast.context, j, lie, rng)
        if lie.company_leaves_before is not None:
            cast.clients[cast.some(cast.clients, 1)[0]].leaves = True
            spare -= 1
        # Complaints may leave out w honest clients for each member that lies.
        weight = max(-(-cast.context.tolerated_colluders // committee.corrupt), 1)
        room = cls.STAGES[0] not in lie.edits or weight * count <= spare
        bearable = lie.bearable and count <= committee.corrupt and room and not rate
        return must_end_well(cast.play(rate), bearable, f"{count} lying members")


def honest_clients(
    context: OneShotContext, inputs: Integers, salt: bytes, kind: type[HonestClient] = HonestClient
) -> dict[int, HonestClient]:
    """All clients, with these inputs."""
    return {u: kind(context, u, plain_input(context, inputs[u]), salt) for u in range(context.size)}


def honest_members(
    context: OneShotContext, rng: np.random.Generator, kind: type[HonestMember] = HonestMember
) -> dict[int, HonestMember]:
    """The committee; in half of the rounds it restarts for every message."""
    members = {j: kind(context, j) for j in range(context.committee.size)}
    restart = rng.random() < 0.5
    for member in members.values():
        member.restarts = restart
    return members


def hostile_wires(
    rng: np.random.Generator, rate: float, tally: Tally, old: Sequence[bytes] = ()
) -> Wires:
    """Both directions; upward, messages may be exchanged for old ones."""
    return Wires(Wire(rng, rate, tally, old), Wire(rng, rate, tally))


def _old_uploads(context: OneShotContext, inputs: Integers) -> list[bytes]:
    """What the clients uploaded in the round before."""
    before = replace(context, round_number=context.round_number + 1)
    heard: dict[int, Upload] = {}
    for client in honest_clients(before, inputs, b"before").values():
        client.open(heard)
    return [encode_message(upload) for upload in heard.values()]


def play_encoded(rng: np.random.Generator, number: int, rate: float, tally: Tally) -> Verdict:
    """Honest clients with real updates on hostile wires."""
    setup = until_it_fits(_random_setup, rng, number)
    context = setup.context
    clients = [EncodingClient(setup, u, rng) for u in range(context.size)]
    # On the wire nothing is hidden from the checks, so a vector is known once it is made.
    inputs: dict[int, NDArray[Any]] = {}

    def input_of(u: int) -> Input:
        def make(session: OneShotClient) -> tuple[FieldVector, tuple[bytes, ...]]:
            removable: list[bytes] = []

            def seeds(rounded: bytes) -> list[NoiseSeed]:
                drawn = [seed.expose() for seed in session.seeds(rounded)]
                removable.extend(drawn[1:])
                return [NoiseSeed(seed) for seed in drawn]

            vector = clients[u].encode(seeds)
            inputs[u] = vector.elements
            return vector, tuple(removable)

        return make

    parties = {
        u: HonestClient(context, u, input_of(u), b"encoded %d" % number)
        for u in range(context.size)
    }
    wires = hostile_wires(rng, rate, tally)
    round_ = Round(context, parties, honest_members(context, rng), inputs, wires, tally)
    return decoded(round_.verdict(), round_.total, setup, clients)


def _random_setup(rng: np.random.Generator, number: int) -> OneShotSetup:
    """A round with or without compression, removable noise and colluders."""
    context = random_context(rng, number)
    parameters = random_parameters(rng, context.size - context.minimum_survivors)
    removal = announced_removal(
        parameters.mechanism,
        context.size,
        context.minimum_survivors,
        context.tolerated_colluders,
        removable=bool(rng.random() < 0.7),
    )
    fitting = replace(
        context,
        removal=removal,
        bits=bits_for(parameters, context.size, max(removal, default=0).bit_length()),
        length=parameters.length,
        application_digest=parameters.digest(),
    )
    return OneShotSetup(fitting, parameters)
