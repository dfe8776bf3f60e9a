"""Whether the modelled client decides as the real one: every list at every stage.

A real `ClientSession` is taken to each stage and shown every set of clients there, validly signed.
Its states are frozen values, so one stage is entered again for each choice. All other parties are
real sessions, too, except where the server or a colluding client would forge: rosters, signatures
on survivor sets that their signer was told, and shares under another roster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

import numpy as np

from secagg import (
    ClientSession,
    FieldVector,
    Mode,
    ProtocolError,
    SessionAbortedError,
    SessionContext,
)
from secagg.field import unpack
from secagg.framing import encode_set, split_items
from secagg.merkle import HASH_BYTES, HashTree
from secagg.pairwise.client_states import (
    Advertised,
    Confirmed,
    Finished,
    Masked,
    Party,
    Ready,
    Shared,
    State,
)
from secagg.pairwise.masks import pairwise_key, self_key
from secagg.pairwise.messages import (
    Advertisement,
    AnyMessage,
    Confirmation,
    ConfirmationSet,
    DeliveredShares,
    MaskedInput,
    Roster,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    context_tag,
    sealed_share_bytes,
)
from secagg.pairwise.prg import accumulate_masks
from secagg.pairwise.transitions import ClientPhase
from secagg.shamir import decode_share, encode_share
from secagg.tags import Usage
from simulations.threats.game.contexts import identity_of, new_session
from simulations.threats.game.games import Setting
from simulations.threats.span.clients import ClientRules, Parameters, members, subsets

_BITS, _LENGTH = 16, 2
_SECRETS = 2
"""Self-mask seed and masking key: the modelled rounds have no removable seeds."""


@dataclass(slots=True)
class Conformance:
    """What was compared.

    Attributes:
        decisions: comparisons of the model with the real client.
        disagreements: in words; empty if they never differ.
    """

    decisions: int = 0
    disagreements: list[str] = field(default_factory=list)

    def compare(self, what: str, model: object, real: object) -> None:
        """Note one decision."""
        self.decisions += 1
        if model != real:
            self.disagreements.append(f"{what}: the model says {model}, the client {real}")

    def asked(self, session: Any, message: object, aborted: object, finished: object) -> Any:
        """The next state and answer; None if it refuses, which must end the session."""
        try:
            answer = session.receive(message)
        except ProtocolError:
            if session.phase is not aborted:
                self.disagreements.append(f"{message}: refused, and the session goes on")
            return None
        try:
            return session.hand_over()[1], answer
        except SessionAbortedError:  # it is over: nothing can be asked of it any more
            return finished, answer


def context_of(p: Parameters) -> SessionContext:
    """The product's context with these parameters; ParameterError if it refuses them."""
    setting = Setting(
        size=p.size,
        colluders=p.colluders,
        lost=p.size - p.minimum,
        mode=p.mode,
        threshold=p.threshold,
        bits=_BITS,
        length=_LENGTH,
    )
    return setting.context(0)


def conformance(p: Parameters, client: int, rules: ClientRules | None = None) -> Conformance:
    """Compare a modelled client with a real one on all lists of all stages."""
    walk = _Walk(p, client, ClientRules() if rules is None else rules)
    walk.rosters()
    return walk.result


class _Walk:
    """One client's decisions, stage after stage."""

    def __init__(self, p: Parameters, client: int, rules: ClientRules) -> None:
        self.p, self.client, self.rules = p, client, rules
        self.context = context_of(p)
        self.tag = context_tag(self.context)
        self.result = Conformance()
        self.started = [_begin(self.context, u) for u in range(p.size)]
        self.party = self.started[client][0]

    def rosters(self) -> None:
        state = self.started[self.client][1]
        for roster in subsets(self.p.everybody):
            after = self._accepted(state, self._roster(self.client, roster))
            model = self.rules.accepts_roster(self.p, self.client, roster)
            self.result.compare(f"roster {members(roster)}", model, after is not None)
            if after is not None:
                self._participants(roster, _as(after[0], Shared))

    def _participants(self, roster: int, state: Shared) -> None:
        peers = roster & ~(1 << self.client)
        for foreign in (None, *members(peers)):
            items = {v: self._share(v, roster, v == foreign) for v in members(peers)}
            sealed = peers if foreign is None else peers & ~(1 << foreign)
            for participants in subsets(self.p.everybody):
                message = DeliveredShares(
                    context=self.tag,
                    participants=self._bitmap(participants),
                    sealed=b"".join(items[v] for v in members(participants & peers)),
                )
                after = self._accepted(state, message)
                model = self.rules.accepts_participants(
                    self.p, self.client, roster, sealed, participants
                )
                what = f"roster {members(roster)}, U2 {members(participants)}, not by {foreign}"
                self.result.compare(what, model, after is not None)
                if after is not None and foreign is None:
                    self._upload(roster, participants, _as(after[0], Ready))

    def _upload(self, roster: int, participants: int, state: Ready) -> None:
        """The masks of an upload are the client's own and those with the rest of U2."""
        session = ClientSession.from_state(self.party, state)
        zero = FieldVector(self.context.field, np.zeros(_LENGTH, self.context.field.dtype))
        upload = _as(session.submit(zero), MaskedInput)
        masked = _as(session.hand_over()[1], Masked)
        expected = np.zeros(_LENGTH, self.context.field.dtype)
        keys, subtract = [], []
        if self.rules.self_mask:
            keys.append(self_key(state.seed, state.roster.hash, self.client))
            subtract.append(False)
        for v in members(participants & ~(1 << self.client)):
            public = state.roster.advertisements[v].masking_key
            keys.append(pairwise_key(state.masking, public, state.roster.hash, self.client, v))
            subtract.append(v < self.client)
        accumulate_masks(expected, self.context.field, keys, subtract)
        sent = unpack(upload.vector, _LENGTH, self.context.field).elements
        self.result.compare(
            f"masks of U2 {members(participants)}", expected.tolist(), sent.tolist()
        )
        self._survivors(roster, participants, state, masked)

    def _survivors(self, roster: int, participants: int, ready: Ready, state: Masked) -> None:
        for survivors in subsets(self.p.everybody):
            after = self._accepted(state, self._survivor_set(survivors))
            model = self.rules.accepts_survivors(self.p, self.client, participants, survivors)
            what = f"U2 {members(participants)}, U3 {members(survivors)}"
            self.result.compare(what, model, after is not None)
            if after is None:
                continue
            asks_quorum = self.rules.consistency and self.p.mode is Mode.ACTIVE
            self.result.compare(f"{what}: signs", asks_quorum, isinstance(after[1], Confirmation))
            if isinstance(after[1], UnmaskShares):
                self._released(what, ready, participants, survivors, after)
            elif isinstance(after[0], Confirmed):
                self._another_set(what, after[0])
                self._confirmations(what, roster, participants, survivors, ready, after[0])

    def _another_set(self, what: str, state: Confirmed) -> None:
        """Having signed one set, a client signs no other, and is of no use afterwards."""
        for survivors in subsets(self.p.everybody):
            after = self._accepted(state, self._survivor_set(survivors))
            self.result.compare(f"{what}, then U3 {members(survivors)}", False, after is not None)

    def _confirmations(
        self,
        what: str,
        roster: int,
        participants: int,
        survivors: int,
        ready: Ready,
        state: Confirmed,
    ) -> None:
        right = (ready.roster.hash, self._bitmap(survivors))
        another_set = (ready.roster.hash, self._bitmap(survivors & ~(1 << self.client)))
        another_roster = (bytes(len(ready.roster.hash)), self._bitmap(survivors))
        for confirmers in subsets(self.p.everybody):
            lies = product(members(confirmers), (another_set, another_roster))
            for liar, lie in ((None, right), *lies):
                message = ConfirmationSet(
                    context=self.tag,
                    confirmers=self._bitmap(confirmers),
                    signatures=b"".join(
                        identity_of(v).sign(Usage.CONFIRM, *(lie if v == liar else right))
                        for v in members(confirmers)
                    ),
                )
                after = self._accepted(state, message)
                # The server may leave a signature out, but not show one on something else.
                model = liar is None and self.rules.accepts_confirmations(
                    self.p, roster, survivors, confirmers
                )
                text = f"{what}, confirmed by {members(confirmers)}, {liar} of something else"
                self.result.compare(text, model, after is not None)
                if after is not None and liar is None:
                    self._released(text, ready, participants, survivors, after)

    def _released(
        self,
        what: str,
        ready: Ready,
        participants: int,
        survivors: int,
        after: tuple[State, AnyMessage | None],
    ) -> None:
        """A reply holds one share for each party of U2, of the kind that the model says.

        It is the last reply of its client.
        """
        seeds = self.rules.kept_seeds(self.client, participants, survivors)
        keys = self.rules.kept_keys(self.client, participants, survivors)
        expected = b""
        for v in members(participants):
            share = decode_share(ready.held[v], _SECRETS)
            for kind, kept in enumerate((seeds, keys)):
                expected += encode_share(share[kind]) if kept >> v & 1 else b""
        self.result.compare(f"{what}: shares", expected, _as(after[1], UnmaskShares).shares)
        again = not isinstance(after[0], Finished)
        self.result.compare(f"{what}: answers again", self.rules.passes > 1, again)

    def _accepted(
        self, state: State, message: AnyMessage
    ) -> tuple[State, AnyMessage | None] | None:
        """The client's next state and answer; None if it refuses."""
        session = ClientSession.from_state(self.party, state)
        return self.result.asked(session, message, ClientPhase.ABORTED, Finished())

    # -- what the server sends ------------------------------------------------------------------

    def _roster(self, client: int, roster: int, forged: int | None = None) -> Roster:
        """The roster as shown to `client`.

        `forged` is a member whose leaf in the tree is not its advertisement, which gives a roster
        of the same members with another hash.
        """
        entries = {v: self.started[v][2].entry() for v in members(roster)}
        leaves = [b"forged" if v == forged else entry for v, entry in entries.items()]
        tree = HashTree(leaves) if leaves else None
        position = (roster & (1 << client) - 1).bit_count() if roster >> client & 1 else 0
        return Roster(
            context=self.tag,
            members=self._bitmap(roster),
            root=tree.root if tree else bytes(HASH_BYTES),
            proof=tree.proof(position) if tree else b"",
            entries=b"".join(entry for v, entry in entries.items() if v != client),
        )

    def _share(self, dealer: int, roster: int, foreign: bool) -> bytes:
        """The sealed share of `dealer` for the client, under this roster or another one."""
        message = self._roster(dealer, roster)
        if foreign and roster != self.p.everybody:
            roster = self.p.everybody
            message = self._roster(dealer, roster)
        elif foreign:
            third = next(v for v in members(roster) if v not in (dealer, self.client))
            message = self._roster(dealer, roster, third)
        party, state, _ = self.started[dealer]
        bundle = _as(ClientSession.from_state(party, state).receive(message), ShareBundle)
        recipients = [v for v in members(roster) if v != dealer]
        items = split_items(bundle.sealed, sealed_share_bytes(self.context), len(recipients))
        return items[recipients.index(self.client)]

    def _survivor_set(self, survivors: int) -> SurvivorSet:
        return SurvivorSet(context=self.tag, survivors=self._bitmap(survivors))

    def _bitmap(self, mask: int) -> bytes:
        return encode_set(members(mask), self.p.size)


T = TypeVar("T")


def _as(value: object, kind: type[T]) -> T:
    """What a session must be in or answer, whatever the model says."""
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where a session gives {kind.__name__}")
    return value


def _begin(context: SessionContext, client: int) -> tuple[Party, Advertised, Advertisement]:
    session = new_session(context, client, b"conformance")
    advertisement = _as(session.begin(), Advertisement)
    party, state = session.hand_over()
    return party, _as(state, Advertised), advertisement
