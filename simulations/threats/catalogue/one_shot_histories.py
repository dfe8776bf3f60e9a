"""A48, A49 and A65: what one-shot rounds leave to a client's policy, and to everybody's history.

Whole rounds of the product: announcements, policies, histories, noise. A server that names the
committee itself reads a single upload, and nothing in a context shows it. One that has two contexts
of one round opens two sums, if clients or members do not remember the first. And one that asks for
an upload again while it is being charged gets it without the charge, if the client does not wait.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from protocol import ClientHistory, ClientPolicy, PolicyError, PrivacyGoal, TrainingPlan
from protocol.planning.policies import client_policy
from protocol.round.member import MemberPolicy, RoundMember
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.setup import RoundEncoding
from protocol.schemes import OneShot
from protocol.schemes.committee import Named
from protocol.schemes.one_shot import one_shot_setup
from secagg.oneshot.messages import Upload, decode_upload, largest_upload_bytes
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.server import OneShotServer
from simulations.audits.base import Figures, noise_seed
from simulations.threats.attack import (
    Attack,
    Effort,
    Findings,
    either,
    parameter_refused,
    refused_with,
    tried,
    twins,
)
from simulations.threats.one_shot.opened import read_alone
from simulations.threats.one_shot.returning import KeyedParties
from sketch import PublicSeed, SketchSpec

_DIMENSION: Final = 40
_CLIENTS, _MEMBERS = 10, 8
_MODEL: Final = hashlib.sha256(b"model").digest()
_GOAL: Final = PrivacyGoal(8.0, 1e-5, 3)
_TARGET: Final = 0


@lru_cache(maxsize=1)
def _plan() -> TrainingPlan:
    return TrainingPlan(
        goal=_GOAL,
        cohort=_CLIENTS,
        tolerated_dropouts=2,
        tolerated_colluders=1,
        clip_l2=1.0,
        scheme=OneShot(committee=Named(size=_MEMBERS, corrupt=1, away=1)),
    )


class _World(KeyedParties):
    """They outlast a round only where their histories do."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, _CLIENTS, _MEMBERS)
        self.plan = _plan()

    def setup(self, committee: int, model: bytes = _MODEL) -> OneShotSetup:
        """Round 0 with one of the committees."""
        parameters = self.plan.calibrate(
            SketchSpec.identity(_DIMENSION), model, PublicSeed(bytes(32))
        )
        return one_shot_setup(self.plan, parameters, *self.invited(committee), 0)

    def policy(self, *committees: int) -> ClientPolicy:
        """A client's, that pins the members of some committees."""
        return client_policy(self.plan, _DIMENSION, self.named(*committees))

    def upload(
        self, u: int, setup: OneShotSetup, policy: ClientPolicy, history: ClientHistory, seed: int
    ) -> bytes:
        """What a client of the product sends."""
        client = OneShotRoundClient(self.clients[u], self.registry, policy, history)
        client.join(setup.announce(u), _MODEL)
        update = np.random.default_rng([seed, u]).normal(size=_DIMENSION) / 10.0
        return client.submit(update, noise_seed(seed, "rounding", u))


# -- A48 ------------------------------------------------------------------------------------------


def _own_committee(world: _World, policy: ClientPolicy, seed: int) -> bool:
    """The target's upload alone, read with the keys of a committee of the server's own."""
    setup = world.setup(1)
    context = setup.context
    data = world.upload(_TARGET, setup, policy, ClientHistory(_GOAL), seed)
    upload: Upload = decode_upload(data, _TARGET, largest_upload_bytes(context))
    keys = {j: each.key for j, each in enumerate(world.keys[1])}
    return read_alone(context, upload, keys) is not None


def _made_up(rounds: int, seed: int, pinned: int = 0) -> Figures:
    """Rounds of a client that pins the members of one of the committees."""

    def attempt(number: int) -> bool:
        world = _World(seed + number)
        return _own_committee(world, world.policy(pinned), seed + number)

    return tried(attempt, rounds)


# -- A49 ------------------------------------------------------------------------------------------

Second = Callable[[_World], tuple[OneShotSetup, int]]
"""The second context of the round, and its committee."""


def _another_committee(world: _World) -> tuple[OneShotSetup, int]:
    return world.setup(1), 1


def _same_committee(world: _World) -> tuple[OneShotSetup, int]:
    """The same members, and a context that differs in when it was opened."""
    setup = world.setup(0)
    return replace(setup, context=replace(setup.context, opened_at=1, lifetime_seconds=60)), 0


class _Histories:
    """The histories of all clients and members, which outlast a round."""

    def __init__(self) -> None:
        self.clients = [ClientHistory(_GOAL) for _ in range(_CLIENTS)]
        self.members = [[ClientHistory() for _ in range(_MEMBERS)] for _ in range(2)]


def _opened(
    world: _World,
    setup: OneShotSetup,
    which: int,
    histories: _Histories,
    lost: Sequence[int],
    seed: int,
) -> OpenedSum:
    """A round of the product to its end."""
    server = OneShotServer(setup.context, setup.known_cohort())
    for u in range(_CLIENTS):
        data = world.upload(u, setup, world.policy(0, 1), histories.clients[u], seed)
        if u not in lost:
            server.receive_upload(u, data)
    numbers = setup.context
    policy = MemberPolicy(
        minimum_survivors=numbers.minimum_survivors,
        tolerated_colluders=numbers.tolerated_colluders,
        corrupt=numbers.committee.corrupt,
        registry=world.registry,
    )
    members = []
    for j, identity in enumerate(world.committees[which]):
        member = RoundMember(identity, world.keys[which][j], policy, histories.members[which][j])
        member.join(setup.announce_to_member())
        members.append(member)
    for _ in range(3):
        for j, message in list(server.close_round_bytes()):
            server.receive_from_member(j, members[j].receive(message))
    opened = server.open()
    assert isinstance(opened, OpenedSum)  # noqa: S101 - what a one-shot server opens
    return opened


def _twice(rounds: int, seed: int, remembers: Callable[[_Histories], _Histories]) -> Figures:
    def attempt(number: int) -> bool:
        second = (_another_committee, _same_committee)[number % 2]
        world, histories = _World(seed + number // 2), _Histories()
        _opened(world, world.setup(0), 0, histories, (), seed + number // 2)
        setup, which = second(world)
        _opened(world, setup, which, remembers(histories), [_TARGET], seed + number // 2)
        return True

    return tried(attempt, 2 * rounds)


def _two_contexts(effort: Effort, seed: int) -> Findings:
    rounds = effort.choose(1, 15)

    def clients_forget(histories: _Histories) -> _Histories:
        histories.clients = _Histories().clients
        return histories

    def members_forget(histories: _Histories) -> _Histories:
        histories.members = _Histories().members
        return histories

    real = _twice(rounds, seed, lambda histories: histories)
    forgotten = _twice(rounds, seed, members_forget)
    return Findings(
        either(real, forgotten, members_forgot_successes=forgotten["successes"]),
        _twice(rounds, seed, clients_forget),
    )


# -- A65 ------------------------------------------------------------------------------------------

_SOON: Final = 0.25
"""Seconds that a charge waits for an answer that should not come before it."""


class _SlowHistory(ClientHistory):
    """The product's, on a host whose client is asked for its upload again while it charges."""

    client: OneShotRoundClient

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__(_GOAL)
        self._pool = pool
        self.asked: list[Future[bytes]] = []

    def charge(self, setup: RoundEncoding) -> None:
        """After whoever asked has had time to be answered."""
        self.asked.append(self._pool.submit(self.client.resend))
        wait(self.asked, _SOON)
        super().charge(setup)


class _Hasty(OneShotRoundClient):
    """The twin: answers with whatever its session has."""

    def resend(self) -> bytes:
        """Without waiting for the charge."""
        return self._joined()[0].resend_bytes()


def _uncharged(kind: type[OneShotRoundClient], seed: int) -> Figures:
    """A client joins one round more than its goal has, and is asked again in each."""
    world, clients, refusals = _World(seed), list[OneShotRoundClient](), Counter[str]()
    policy, setup = world.policy(0), world.setup(0)
    with ThreadPoolExecutor(1) as pool:
        history = _SlowHistory(pool)
        for number in range(_GOAL.rounds + 1):
            client = kind(world.clients[_TARGET], world.registry, policy, history)
            numbered = replace(setup, context=replace(setup.context, round_number=number))
            client.join(numbered.announce(_TARGET), _MODEL)
            clients.append(client)
        for history.client in clients:
            try:
                history.client.submit(np.zeros(_DIMENSION))
            except PolicyError as error:
                refusals[parameter_refused(error)] += 1
    sent = sum(future.exception() is None for future in history.asked)
    figures: Figures = {"uploads": sent, "goal_rounds": _GOAL.rounds}
    return {"succeeded": sent > _GOAL.rounds, **figures, **refused_with(refusals)}


def _asked_again(effort: Effort, seed: int) -> Findings:
    del effort
    return Findings(_uncharged(OneShotRoundClient, seed), _uncharged(_Hasty, seed))


ATTACKS: Final = (
    Attack(
        id="A48",
        promise="P11",
        name="the server's own committee",
        title="No client entrusts its upload to a committee of the server's own",
        says="names its own identities, whose keys open every share, as members",
        stopped_by="the identities that a client's policy names",
        refused_with="PolicyError committee",
        run=twins(_made_up, 3, 40, pinned=1),  # takes the server's word for whom it trusts
    ),
    Attack(
        id="A49",
        promise="P11",
        name="two contexts of one round",
        title="Two contexts of one round never open two sums",
        says="uses one round number in two contexts, with the same committee or another one, and "
        "all but the target in the second sum",
        stopped_by="clients' histories: one upload for each number, whatever the context; "
        "members' own histories",
        refused_with="PolicyError round_number",
        run=_two_contexts,
    ),
    Attack(
        id="A65",
        promise="P6",
        name="an upload before its charge",
        title="No upload leaves a client before its charge is written",
        says="asks a client again for its upload while it is being charged, in one round more "
        "than the goal has",
        stopped_by="a lock around the upload and its charge",
        refused_with="PolicyError epsilon",
        run=_asked_again,
    ),
)
