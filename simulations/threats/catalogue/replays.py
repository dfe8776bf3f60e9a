"""A7: messages of an earlier round are sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np

from secagg import SERVER, ClientSession, FieldVector, ProtocolError, ServerSession, SessionContext
from secagg.framing import encode_message
from secagg.pairwise.messages import (
    AnyMessage,
    SeedRequest,
    SurvivorSet,
    context_tag,
    decode_from_client,
    decode_from_server,
)
from secagg.pairwise.transitions import ServerPhase
from simulations.threats.attack import Attack, Effort, Findings, rate, refused_with
from simulations.threats.game.contexts import Integers, new_session, random_inputs
from simulations.threats.game.games import Setting
from simulations.threats.game.victims import refusal
from simulations.threats.game.weak_clients import unbound

_SETTING = Setting(removal=(0b1, 0b1, 0b1))

_UNSIGNED = (SurvivorSet, SeedRequest)
"""Messages that carry nothing but a set."""

Key = tuple[type, int, bool]
"""A message's type, its client, and whether it went up."""


@dataclass(slots=True)
class _Recorded:
    """One honest round; before each message is delivered, an old one is tried in its place."""

    context: SessionContext
    inputs: Integers
    salt: bytes
    old: Mapping[Key, bytes]
    sent: dict[Key, bytes] = field(default_factory=dict)
    tried: int = 0
    accepted: int = 0
    refusals: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        """All stages, one client's last message withheld so that its seeds are asked for."""
        server = ServerSession(self.context)
        sessions = {u: new_session(self.context, u, self.salt) for u in range(self.context.size)}
        upward = {u: session.begin_bytes() for u, session in sessions.items()}
        while True:
            if server.phase is ServerPhase.UNMASKING:
                del upward[0]
            for u, data in upward.items():
                if self._up(server, u, data):
                    # The true message would be a second one: this round is lost.
                    return
            if server.phase is ServerPhase.RECOVERING:
                break
            upward = {}
            for u, data in server.close_round_bytes():
                sessions[u] = self._down(sessions[u], u, data)
                answer = sessions[u].receive_bytes(data)
                if answer is None:
                    vector = FieldVector(self.context.field, self.inputs[u].copy())
                    answer = sessions[u].submit_bytes(vector)
                upward[u] = answer
        server.unmask()

    def _up(self, server: ServerSession, u: int, data: bytes) -> bool:
        """Try the old message, then send the true one; whether the old one was taken."""
        message = decode_from_client(data, u, len(data))
        self.sent[type(message), u, True] = data
        old = self.old.get((type(message), u, True))
        if old is not None and self._takes(partial(server.receive_bytes, u), old, data, u):
            return True
        server.receive_bytes(u, data)
        return False

    def _down(self, session: ClientSession, u: int, data: bytes) -> ClientSession:
        """Try the old message on a copy of the session; returns one that has not seen it."""
        message = decode_from_server(data, SERVER, len(data))
        self.sent[type(message), u, False] = data
        old = self.old.get((type(message), u, False))
        if old is None:
            return session
        party, state = session.hand_over()
        self._takes(ClientSession.from_state(party, state).receive_bytes, old, data, None)
        return ClientSession.from_state(party, state)

    def _takes(
        self, receive: Callable[[bytes], object], old: bytes, due: bytes, sender: int | None
    ) -> bool:
        """Whether an old message is taken; its context tag, which is no secret, is made to fit."""
        message: AnyMessage
        if sender is None:
            message = decode_from_server(old, SERVER, len(old))
        else:
            message = decode_from_client(old, sender, len(old))
        fitted = msgspec.structs.replace(message, context=context_tag(self.context))
        replayed = encode_message(fitted)
        if replayed == due and isinstance(message, _UNSIGNED):
            return False
        self.tried += 1
        try:
            receive(replayed)
        except ProtocolError as error:
            self.refusals[refusal(error)] += 1
            return False
        self.accepted += 1
        return True


def _replayed(trials: int, seed: int, *, bound: bool) -> tuple[int, int, Counter[str]]:
    """Messages accepted and tried, and refusals, over pairs of rounds.

    In every other pair clients draw the same secrets again, as after a restored snapshot: then keys
    do not tell the rounds apart, and what was signed or sealed is all there is.
    """
    accepted = tried = 0
    refusals: Counter[str] = Counter()
    for number in range(trials):
        rng = np.random.default_rng([seed, number])
        old: Mapping[Key, bytes] = {}
        salts = [rng.bytes(8), rng.bytes(8)][:: 1 + number % 2] * 2
        for salt, round_number in zip(salts, (2 * number, 2 * number + 1), strict=False):
            context = _SETTING.context(round_number)
            if not bound:
                context = unbound(context)
            inputs = random_inputs(rng, context)
            recorded = _Recorded(context, inputs, salt, old, refusals=refusals)
            recorded.run()
            old = recorded.sent
        accepted, tried = accepted + recorded.accepted, tried + recorded.tried
    return accepted, tried, refusals


def _replays(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(4, 60)
    accepted, tried, refusals = _replayed(trials, seed, bound=True)
    real = {**rate(accepted, tried), **refused_with(refusals)}
    accepted, tried, _ = _replayed(trials, seed, bound=False)
    return Findings(real, rate(accepted, tried))


ATTACKS = (
    Attack(
        id="A7",
        promise="P2",
        name="replayed messages",
        title="No message of another round is accepted in its place",
        says="replays messages of another session or round",
        stopped_by="session, round and context in every signature and seal; states that are used "
        "once",
        refused_with="RemoteProtocolError BAD_SIGNATURE",
        run=_replays,
    ),
)
