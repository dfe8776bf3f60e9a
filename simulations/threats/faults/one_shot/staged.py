"""Schedules of one-shot rounds with an honest server: hostile wires, parties that leave or lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from secagg.framing import encode_message
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.messages import Answer, Complaints, Confirmation, Upload
from simulations.threats.faults.behaviours import Lie, Verdict
from simulations.threats.faults.one_shot.contexts import random_context
from simulations.threats.faults.one_shot.liars import LyingClient, LyingMember
from simulations.threats.faults.one_shot.parties import (
    HonestClient,
    HonestMember,
    plain_input,
    random_vectors,
)
from simulations.threats.faults.one_shot.rounds import Round, ServerMaker, Wires
from simulations.threats.faults.tally import Tally
from simulations.threats.faults.wire import Wire
from simulations.threats.game.contexts import Integers

_STAGES = (Complaints, Confirmation, Answer)


def play_wire(
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
    server: ServerMaker | None = None,
) -> Verdict:
    """Honest parties on hostile wires, which know another round of the same parties."""
    context = random_context(rng, number)
    inputs = random_vectors(rng, context)
    clients, members = honest_clients(context, inputs, rng.bytes(4)), honest_members(context, rng)
    wires = hostile_wires(rng, rate, tally, _old_uploads(context, inputs))
    round_ = Round(context, clients, members, dict(enumerate(inputs)), wires, tally, server)
    return round_.verdict()


def play_leavers(
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
    server: ServerMaker | None = None,
) -> Verdict:
    """Clients and members that vanish at every stage; with no more than are tolerated, a sum."""
    context = random_context(rng, number)
    inputs = random_vectors(rng, context)
    clients, members = honest_clients(context, inputs, rng.bytes(4)), honest_members(context, rng)
    spare = context.size - context.minimum_survivors
    lost = int(rng.integers(0, spare + 2))
    away = int(rng.integers(0, context.committee.corrupt + 2))
    for u in rng.permutation(context.size)[:lost].tolist():
        clients[u].leaves = True
    for j in rng.permutation(context.committee.size)[:away].tolist():
        members[j].leaves_before = _STAGES[rng.integers(len(_STAGES))]
    wires = hostile_wires(rng, rate if rng.random() < 0.5 else 0.0, tally)
    inputs_of = dict(enumerate(inputs))
    verdict = Round(context, clients, members, inputs_of, wires, tally, server).verdict()
    bearable = lost <= spare and away <= context.committee.corrupt and not wires.up.rate
    return _must_end_well(verdict, bearable, f"{lost} clients and {away} members away")


def play_liar(
    lie: Lie,
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
    server: ServerMaker | None = None,
) -> Verdict:
    """One or two lying clients; on half of the schedules the wires are hostile too."""
    context = random_context(rng, number, lie.wanted)
    inputs = random_vectors(rng, context)
    salt = rng.bytes(4)
    count = int(rng.integers(1, 3))
    liars = rng.permutation(context.size)[:count].tolist()
    clients: dict[int, HonestClient | LyingClient] = {
        **honest_clients(context, inputs, salt),
        **{u: LyingClient(context, u, lie, inputs[u], salt, rng) for u in liars},
    }
    members = honest_members(context, rng)
    wires = hostile_wires(rng, rate if rng.random() < 0.5 else 0.0, tally)
    inputs_of = {u: vector for u, vector in enumerate(inputs) if u not in liars}
    verdict = Round(context, clients, members, inputs_of, wires, tally, server).verdict()
    tolerated = min(context.tolerated_colluders, context.size - context.minimum_survivors)
    bearable = lie.bearable and count <= tolerated and not wires.up.rate
    return _must_end_well(verdict, bearable, f"{count} lying clients")


def play_lying_member(
    lie: Lie,
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
    server: ServerMaker | None = None,
) -> Verdict:
    """Lying members: mostly as many as the committee stands, sometimes up to all of them."""
    context = random_context(rng, number, lie.wanted)
    inputs = random_vectors(rng, context)
    committee = context.committee
    most = committee.corrupt if rng.random() < 0.7 else committee.size
    count = int(rng.integers(1, most + 1))
    clients, members = honest_clients(context, inputs, rng.bytes(4)), honest_members(context, rng)
    for j in rng.permutation(committee.size)[:count].tolist():
        members[j] = LyingMember(context, j, lie, rng)
    spare = context.size - context.minimum_survivors
    if lie.company_leaves_before is not None:
        clients[int(rng.integers(context.size))].leaves = True
        spare -= 1
    wires = hostile_wires(rng, rate if rng.random() < 0.5 else 0.0, tally)
    inputs_of = dict(enumerate(inputs))
    verdict = Round(context, clients, members, inputs_of, wires, tally, server).verdict()
    # Complaints may leave out w honest clients for each member that lies.
    weight = max(-(-context.tolerated_colluders // committee.corrupt), 1)
    room = Complaints not in lie.edits or weight * count <= spare
    bearable = lie.bearable and count <= committee.corrupt and room and not wires.up.rate
    return _must_end_well(verdict, bearable, f"{count} lying members")


def honest_clients(
    context: OneShotContext, inputs: Integers, salt: bytes
) -> dict[int, HonestClient]:
    """All clients, with these inputs."""
    return {
        u: HonestClient(context, u, plain_input(context, inputs[u]), salt)
        for u in range(context.size)
    }


def honest_members(context: OneShotContext, rng: np.random.Generator) -> dict[int, HonestMember]:
    """The committee; in half of the rounds it restarts for every message."""
    members = {j: HonestMember(context, j) for j in range(context.committee.size)}
    restart = rng.random() < 0.5
    for member in members.values():
        member.restarts = restart
    return members


def hostile_wires(
    rng: np.random.Generator, rate: float, tally: Tally, old: list[bytes] | None = None
) -> Wires:
    """Both directions."""
    return Wires(Wire(rng, rate, tally, old or ()), Wire(rng, rate, tally))


def _old_uploads(context: OneShotContext, inputs: Integers) -> list[bytes]:
    """What the clients uploaded in the round before."""
    before = replace(context, round_number=context.round_number + 1)
    heard: dict[int, Upload] = {}
    for client in honest_clients(before, inputs, b"before").values():
        client.open(heard)
    return [encode_message(upload) for upload in heard.values()]


def _must_end_well(verdict: Verdict, bearable: bool, what: str) -> Verdict:
    """The verdict; a round that had to bear something and gave no sum is a failure."""
    if not bearable or verdict.outcome == "exact sum" or verdict.problem:
        return verdict
    return replace(verdict, problem=f"{what} ended the round: {verdict.outcome}")
