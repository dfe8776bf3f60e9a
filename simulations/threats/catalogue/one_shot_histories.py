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
from secagg.oneshot.server import OneShotServer
from simulations.audits.base import Figures, noise_seed
from simulations.threats.attack import (
    Attack,
    Effort,
    Findings,
    either,
    once,
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


_PLAN: Final = TrainingPlan(
    goal=_GOAL,
    cohort=_CLIENTS,
    tolerated_dropouts=2,
    tolerated_colluders=1,
    clip_l2=1.0,
    scheme=OneShot(committee=Named(size=_MEMBERS, corrupt=1, away=1)),
)


class _World(KeyedParties):
    """Clients and two committees, whose histories outlast a round."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, _CLIENTS, _MEMBERS)
        self._seed = seed
        self.forget_clients()
        self.forget_members()

    def forget_clients(self) -> None:
        self.histories = [ClientHistory(_GOAL) for _ in range(_CLIENTS)]

    def forget_members(self) -> None:
        self.member_histories = [[ClientHistory() for _ in range(_MEMBERS)] for _ in range(2)]

    def setup(self, committee: int) -> OneShotSetup:
        """Round 0 with one of the committees."""
        sketch = SketchSpec.identity(_DIMENSION)
        parameters = _PLAN.calibrate(sketch, _MODEL, PublicSeed(bytes(32)))
        return one_shot_setup(_PLAN, parameters, *self.invited(committee), 0)

    def policy(self, *committees: int) -> ClientPolicy:
        """A client's, that pins the members of some committees."""
        return client_policy(_PLAN, _DIMENSION, self.named(*committees))

    def upload(self, u: int, setup: OneShotSetup, policy: ClientPolicy) -> bytes:
        client = OneShotRoundClient(self.clients[u], self.registry, policy, self.histories[u])
        client.join(setup.announce(u), _MODEL)
        update = np.random.default_rng([self._seed, u]).normal(size=_DIMENSION) / 10.0
        return client.submit(update, noise_seed(self._seed, "rounding", u))


# -- A48 ------------------------------------------------------------------------------------------


def _made_up(rounds: int, seed: int, pinned: int = 0) -> Figures:
    """Rounds of a client that pins the members of one of the committees.

    Its upload alone is read with the keys of a committee of the server's own.
    """

    def attempt(number: int) -> bool:
        world = _World(seed + number)
        setup = world.setup(1)
        data = world.upload(_TARGET, setup, world.policy(pinned))
        upload: Upload = decode_upload(data, _TARGET, largest_upload_bytes(setup.context))
        keys = {j: each.key for j, each in enumerate(world.keys[1])}
        return read_alone(setup.context, upload, keys) is not None

    return tried(attempt, rounds)


# -- A49 ------------------------------------------------------------------------------------------


def _open(world: _World, setup: OneShotSetup, which: int, lost: Sequence[int]) -> None:
    """A round of the product to its end."""
    server = OneShotServer(setup.context, setup.known_cohort())
    for u in range(_CLIENTS):
        data = world.upload(u, setup, world.policy(0, 1))
        if u not in lost:
            server.receive_upload(u, data)
    numbers = setup.context
    policy = MemberPolicy(
        minimum_survivors=numbers.minimum_survivors,
        tolerated_colluders=numbers.tolerated_colluders,
        corrupt=numbers.committee.corrupt,
        registry=world.registry,
    )
    parties = zip(
        world.committees[which], world.keys[which], world.member_histories[which], strict=True
    )
    members = [RoundMember(who, keys, policy, history) for who, keys, history in parties]
    for member in members:
        member.join(setup.announce_to_member())
    for _ in range(3):
        for j, message in list(server.close_round_bytes()):
            server.receive_from_member(j, members[j].receive(message))
    server.open()


def _twice(rounds: int, seed: int, forget: Callable[[_World], None] = lambda _: None) -> Figures:
    """Rounds with a second context, of another committee or the same one, and another sum."""

    def attempt(number: int) -> bool:
        world, which = _World(seed + number // 2), 1 - number % 2
        first, second = world.setup(0), world.setup(which)
        if first.context == second.context:
            reopened = replace(first.context, opened_at=1, lifetime_seconds=60)
            second = replace(first, context=reopened)
        _open(world, first, 0, ())
        forget(world)
        _open(world, second, which, [_TARGET])
        return True

    return tried(attempt, 2 * rounds)


def _two_contexts(effort: Effort, seed: int) -> Findings:
    rounds = effort.choose(1, 15)
    real, forgotten = _twice(rounds, seed), _twice(rounds, seed, _World.forget_members)
    return Findings(
        either(real, forgotten, members_forgot_successes=forgotten["successes"]),
        _twice(rounds, seed, _World.forget_clients),
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


def _resend_at_once(client: OneShotRoundClient) -> bytes:
    """The twin's answer: whatever its session has, without waiting for the charge."""
    return client._joined()[0].resend_bytes()


def _uncharged(seed: int) -> Figures:
    """A client joins one round more than its goal has, and is asked again in each."""
    world, clients, refusals = _World(seed), list[OneShotRoundClient](), Counter[str]()
    policy, setup = world.policy(0), world.setup(0)
    with ThreadPoolExecutor(1) as pool:
        history = _SlowHistory(pool)
        for number in range(_GOAL.rounds + 1):
            client = OneShotRoundClient(world.clients[_TARGET], world.registry, policy, history)
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
        run=once(_uncharged, (OneShotRoundClient, "resend", _resend_at_once)),
    ),
)
