"""Rounds with an honest server: both ends, a wire, clients that may lie; and the checks after it.

Whatever happens, a round must end in the exact sum over the survivors it names, or in a typed
error. The exact sum is that of the honest survivors' inputs and of what the liars among them
uploaded: a client's own input is its own choice. The seeds that are given up must be the ones that
their owners committed to, and no honest client may be blamed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from secagg import (
    SERVER,
    ClientSession,
    FieldSum,
    FieldVector,
    ProtocolError,
    RemoteProtocolError,
    ServerSession,
    SessionContext,
)
from secagg.keys import SecretSeed
from secagg.pairwise.messages import (
    COMMITMENT_BYTES,
    Advertisement,
    MaskedInput,
    SeedShares,
    ShareBundle,
    UnmaskShares,
    decode_from_client,
)
from secagg.pairwise.roster import RoundRoster, commitment
from secagg.pairwise.transitions import ServerPhase
from simulations.threats.faults.behaviours import (
    Lie,
    Sent,
    Tally,
    Verdict,
    Wire,
    must_end_well,
    on_half,
    wrong_sum,
)
from simulations.threats.faults.liars import Liar
from simulations.threats.game.contexts import (
    Integers,
    Wanted,
    new_session,
    random_context,
    random_inputs,
)

InputMaker = Callable[[ClientSession], FieldVector]


class HonestParty:
    """A client session and its input; it vanishes before it sends a message of `leaves_before`."""

    def __init__(self, session: ClientSession, index: int, make_input: InputMaker) -> None:
        self.session = session
        self.index = index
        self.seeds: tuple[bytes, ...] = ()
        self.leaves_before: type | None = None
        self._make_input = make_input

    def open(self) -> Sent:
        """Send the advertisement."""
        return [(self.index, self.session.begin_bytes())]

    def receive(self, data: bytes) -> Sent:
        """The answer; the masked input, if that is what is due."""
        answer = self.session.receive_bytes(data)
        if answer is None:
            self.seeds = tuple(seed.expose() for seed in self.session.removable_seeds)
            answer = self.session.submit_bytes(self._make_input(self.session))
        message = decode_from_client(answer, self.index, len(answer))
        if type(message) is self.leaves_before:
            self.session.abort()
            return []
        return [(self.index, answer)]


class Round:
    """An honest server, its clients, and the wire between them."""

    def __init__(
        self,
        context: SessionContext,
        honest: Mapping[int, HonestParty],
        inputs: MutableMapping[int, Integers],
        liars: Mapping[int, Liar],
        wire: Wire,
        tally: Tally,
    ) -> None:
        self.context = context
        self.total: FieldSum | None = None
        self.honest = honest
        self._liars = liars
        self._parties: dict[int, HonestParty | Liar] = {**honest, **liars}
        self._inputs = inputs
        self._wire = wire
        self._tally = tally
        self._server = ServerSession(context)
        self._accepted: dict[type, dict[int, Any]] = {}

    def run(self) -> FieldSum:
        """All stages; raises what ends the round."""
        upward = [sent for party in self._parties.values() for sent in party.open()]
        # Six stages at most, so the loop ends whatever the wire does.
        for _ in ServerPhase:
            for sender, data in self._wire.carry(upward):
                self._to_server(sender, data)
            if self._server.phase is ServerPhase.RECOVERING:
                break
            downward = self._wire.carry(self._server.close_round_bytes())
            upward = [sent for u, data in downward for sent in self._to_client(u, data)]
        return self._server.unmask()

    def verdict(self) -> Verdict:
        """Run, and check what came of it."""
        try:
            total = self.total = self.run()
        except ProtocolError as error:
            return Verdict(type(error).__name__, self._wrong_blame(error))
        problem = self._wrong_sum(total) or self._wrong_seeds(total) or self._framed(total)
        return Verdict("wrong result" if problem else "exact sum", problem)

    def _to_server(self, sender: int, data: bytes) -> None:
        try:
            self._server.receive_bytes(sender, data)
        except RemoteProtocolError as error:
            self._tally.refused(error)
            return
        message = decode_from_client(data, sender, len(data))
        self._accepted.setdefault(type(message), {})[sender] = message
        if isinstance(message, MaskedInput) and sender in self._liars:
            meant = self._liars[sender].uploaded(data)
            if meant is not None:
                self._inputs[sender] = meant

    def _to_client(self, u: int, data: bytes) -> Sent:
        try:
            return self._parties[u].receive(data)
        except ProtocolError as error:
            self._tally.refused(error)
            return []

    # -- checks -------------------------------------------------------------------------------

    def _wrong_sum(self, total: FieldSum) -> str | None:
        if wrong := wrong_sum(total, self._inputs, self.context.minimum_survivors):
            return wrong
        for u in set(total.survivors) & set(self._liars):
            if not self._liars[u].keeps_commitment:
                return f"client {u} is in the sum with another seed than it committed to"
        return None

    def _wrong_seeds(self, total: FieldSum) -> str | None:
        which = self.context.removed_seeds(len(total.survivors))
        expected = set(total.survivors) if which else set()
        if set(total.removed) != expected:
            return f"seeds of {sorted(total.removed)} instead of {sorted(expected)}"
        for u, seeds in total.removed.items():
            if u in self.honest and seeds != tuple(self.honest[u].seeds[i] for i in which):
                return f"the seeds of client {u} are not its own"
            if u in self._liars and not self._are_committed(u, which, seeds):
                return f"the seeds of client {u} are not the ones it committed to"
        return None

    def _are_committed(self, u: int, which: tuple[int, ...], seeds: tuple[bytes, ...]) -> bool:
        bundle = self._accepted[ShareBundle][u]
        made = [
            commitment(self._roster().hash, u, 1 + i, SecretSeed(seed))
            for i, seed in zip(which, seeds, strict=True)
        ]
        begin = [COMMITMENT_BYTES * (1 + i) for i in which]
        return made == [bundle.commitments[at : at + COMMITMENT_BYTES] for at in begin]

    def _framed(self, total: FieldSum) -> str | None:
        """An honest holder may be named only if a liar dealt it a wrong share to pass on."""
        cheated = frozenset().union(*(liar.cheated for liar in self._liars.values()))
        for culprit in total.culprits:
            if culprit in self.honest and culprit not in cheated:
                return f"honest client {culprit} is named as a culprit"
        return None

    def _wrong_blame(self, error: ProtocolError) -> str | None:
        """An honest owner may be blamed only if fewer than t honest holders answered for it."""
        if not isinstance(error, RemoteProtocolError) or error.party == SERVER:
            return None
        if error.party not in self.honest:
            return None
        holders = self._roster().graph.holders(error.party)
        answered = set(self._accepted.get(UnmaskShares, {}))
        if SeedShares in self._accepted:
            answered &= set(self._accepted[SeedShares])
        right = [h for h in holders if h in answered and h in self.honest]
        if len(right) >= self.context.threshold:
            return f"honest client {error.party} is blamed: {error.reason.name}"
        return None

    def _roster(self) -> RoundRoster:
        """The round's roster, made again from the advertisements that were accepted."""
        return RoundRoster.build(self.context, self._accepted[Advertisement])


def honest_parties(
    context: SessionContext, inputs: Integers, indices: list[int], salt: bytes
) -> dict[int, HonestParty]:
    """Honest clients with given inputs."""

    def maker(u: int) -> InputMaker:
        return lambda _: FieldVector(context.field, inputs[u].copy())

    return {u: HonestParty(new_session(context, u, salt), u, maker(u)) for u in indices}


# -- schedules -------------------------------------------------------------------------------------


def play_wire(
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
) -> Verdict:
    """Honest clients on a hostile wire."""
    context = random_context(rng, number)
    inputs = random_inputs(rng, context)
    honest = honest_parties(context, inputs, list(range(context.size)), rng.bytes(4))
    wire = Wire(rng, rate, tally)
    return Round(context, honest, dict(enumerate(inputs)), {}, wire, tally).verdict()


def play_liar(
    lie: Lie,
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
) -> Verdict:
    """One or two liars among honest clients; on half of the schedules the wire is hostile too."""
    context = random_context(rng, number, _needs(lie))
    rate = on_half(rng, rate)
    liars, leaver = _cast(lie, context, rng)
    played = with_liars(context, lie, liars, rng, rate, tally)
    if leaver is not None:
        played.honest[leaver].leaves_before = lie.company_leaves_before
    verdict = played.verdict()
    # The liar is one client less, and every round here can spare one.
    return must_end_well(verdict, lie.bearable and not rate, "one liar")


def with_liars(
    context: SessionContext,
    lie: Lie,
    liars: Sequence[int],
    rng: np.random.Generator,
    rate: float,
    tally: Tally,
) -> Round:
    """A round in which these clients lie, and all others are honest."""
    inputs, salt = random_inputs(rng, context), rng.bytes(4)
    indices = [u for u in range(context.size) if u not in liars]
    honest, known = honest_parties(context, inputs, indices, salt), {u: inputs[u] for u in indices}
    lying = {u: Liar(context, u, lie, inputs[u], salt, rng) for u in liars}
    return Round(context, honest, known, lying, Wire(rng, rate, tally), tally)


def _needs(lie: Lie) -> Wanted:
    """Room for the liar, and for the honest client that leaves, to be lost."""
    spare = 1 + (lie.company_leaves_before is not None)
    return replace(lie.wanted, spare=max(spare, lie.wanted.spare))


def _cast(
    lie: Lie, context: SessionContext, rng: np.random.Generator
) -> tuple[list[int], int | None]:
    """Who lies, and which honest client leaves, if one does."""
    order = [int(u) for u in rng.permutation(context.size)]
    count = 1 if lie.bearable else int(rng.integers(1, 3))
    return order[:count], None if lie.company_leaves_before is None else order[count]
