"""A server that may tell every client something else, and the clients that it talks to.

Without changes it follows the protocol, message by message, and never touches a server session: a
hostile server is free to send anything. Behaviours override what a client is told; what honest
clients answer goes to `Loot`, which says what it breaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from secagg import ClientSession, FieldVector, ProtocolError, SessionContext
from secagg.client import held_by
from secagg.messages import (
    Advertisement,
    AnyMessage,
    Confirmation,
    ConfirmationSet,
    DeliveredShares,
    Roster,
    SeedRequest,
    SeedShares,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    context_tag,
    decode_from_client,
    encode_message,
    encode_set,
    sealed_share_bytes,
)
from secagg.roster import RoundRoster
from secagg.tags import Usage
from secagg.transitions import ClientPhase
from simulations.bench.faults.contexts import Tally, identity_of
from simulations.bench.faults.loot import Loot, View
from simulations.bench.faults.rounds import new_session, random_inputs

Members = tuple[int, ...]


class Crowd:
    """All clients of a session, and a server that talks to each of them alone.

    Args:
        context: of the session, active mode. As many clients collude as it tolerates.
        rng: fixes inputs, colluders and what the server does.
        salt: fixes the clients' secrets.
        tally: counts what clients refuse.
    """

    def __init__(
        self, context: SessionContext, rng: np.random.Generator, salt: bytes, tally: Tally
    ) -> None:
        self.context = context
        self.rng = rng
        self.everybody = tuple(range(context.size))
        chosen = rng.permutation(context.size)[: context.tolerated_colluders]
        self.colluders = frozenset(int(u) for u in chosen)
        self.advertised: dict[int, Advertisement] = {}
        self.loot = Loot(context, self.colluders, self.advertised)
        self.rosters: dict[int, list[RoundRoster]] = {u: [] for u in self.everybody}
        self.shown: dict[int, list[Roster]] = {u: [] for u in self.everybody}
        self.participants: dict[int, list[Members]] = {u: [] for u in self.everybody}
        self.stories: dict[int, list[Members]] = {u: [] for u in self.everybody}
        self.bundles: dict[int, ShareBundle] = {}
        self.uploaded: set[int] = set()
        self.signatures: dict[tuple[bytes, Members], dict[int, bytes]] = {}
        self._tag = context_tag(context)
        self._tally = tally
        self._inputs = random_inputs(rng, context)
        self._sessions = {u: new_session(context, u, salt) for u in self.everybody}

    def run(self) -> None:
        """All rounds; clients that refuse are left out of what follows."""
        self.advertise()
        self.collect_bundles()
        self.deliver()
        self.announce()
        self.convince()
        self.recover()

    # -- what a behaviour may change ----------------------------------------------------------

    def roster_for(self, u: int) -> RoundRoster:
        """The roster that client u is shown."""
        return RoundRoster.build(self.context, self.advertised)

    def message_of(self, u: int, roster: RoundRoster) -> Roster:
        """The message that shows client u this roster."""
        return roster.to_message(self.context, u)

    def participants_for(self, u: int) -> Members:
        """U2 as client u is told."""
        return tuple(sorted(self.bundles))

    def survivors_for(self, u: int) -> Members:
        """U3 as client u is told."""
        return tuple(sorted(self.uploaded))

    def signatures_for(self, u: int) -> Mapping[int, bytes]:
        """Signatures to convince client u with: as many as it wants, of its own set."""
        roster, story = self.rosters[u][-1], self.stories[u][-1]
        available = self.on_story(roster, story)
        return dict(sorted(available.items())[: roster.committee.quorum])

    def missing_for(self, u: int) -> Members:
        """Survivors whose seeds client u is asked for."""
        return tuple(v for v in self.stories[u][-1] if v != u)[:1]

    # -- rounds -------------------------------------------------------------------------------

    def advertise(self) -> None:
        """Round 0, up."""
        for u, session in self._sessions.items():
            data = session.begin_bytes()
            message = decode_from_client(data, u, len(data))
            assert isinstance(message, Advertisement)  # noqa: S101 - made by an honest session
            self.advertised[u] = message

    def collect_bundles(self) -> None:
        """Round 0 down, round 1 up."""
        for u in self.everybody:
            self.show_roster(u)

    def show_roster(self, u: int) -> None:
        """Show client u its roster and keep its bundle."""
        roster = self.roster_for(u)
        message = self.message_of(u, roster)
        self.rosters[u].append(roster)
        self.shown[u].append(message)
        _, answer = self.ask(u, message)
        if isinstance(answer, ShareBundle):
            self.bundles[u] = answer

    def deliver(self) -> None:
        """Round 1 down, round 2 up."""
        for u in sorted(self.bundles):
            self.deliver_to(u)

    def deliver_to(self, u: int) -> None:
        """Hand client u its shares and take its upload."""
        participants = self.participants_for(u)
        self.participants[u].append(participants)
        owners = held_by(u, set(participants), self.rosters[u][-1].graph, include_self=False)
        sealed = b"".join(self.sealed_for(owner, u) for owner in owners)
        bitmap = encode_set(participants, self.context.size)
        accepted, _ = self.ask(u, DeliveredShares(self._tag, bitmap, sealed))
        session = self._sessions[u]
        if not accepted or session.phase is not ClientPhase.READY:
            return
        if u in self.colluders:
            for owner in self.look_into(u).held:
                self.loot.know(u, owner)
        vector = FieldVector(self.context.field, self._inputs[u].copy())
        self._sessions[u].submit_bytes(vector)
        self.uploaded.add(u)

    def announce(self) -> None:
        """Round 2 down, round 3 up."""
        for u in sorted(self.uploaded):
            self.tell(u, self.survivors_for(u))

    def tell(self, u: int, story: Members) -> None:
        """Tell client u who survived, and keep its signature. Colluders sign every story."""
        self.stories[u].append(story)
        roster, bitmap = self.rosters[u][-1], encode_set(story, self.context.size)
        signers = self.signatures.setdefault((roster.hash, story), {})
        for colluder in self.colluders & set(story):
            identity = identity_of(colluder)
            signers[colluder] = identity.sign(Usage.CONFIRM, roster.hash, bitmap)
        _, answer = self.ask(u, SurvivorSet(self._tag, bitmap))
        if isinstance(answer, Confirmation):
            signers[u] = answer.signature

    def convince(self) -> None:
        """Round 3 down, round 4 up."""
        for u in sorted(self.uploaded):
            self.persuade(u)

    def persuade(self, u: int) -> None:
        """Show client u signatures, and take what it gives up."""
        signatures = dict(sorted(self.signatures_for(u).items()))
        joined = b"".join(signatures.values())
        bitmap = encode_set(signatures, self.context.size)
        _, answer = self.ask(u, ConfirmationSet(self._tag, bitmap, joined))
        if isinstance(answer, UnmaskShares) and u not in self.colluders:
            self.loot.take(answer, self.told(u))

    def recover(self) -> None:
        """Round 4 down, round 5 up."""
        for u in sorted(self.uploaded):
            self.ask_for_seeds(u)

    def ask_for_seeds(self, u: int) -> None:
        """Ask client u for shares of others' seeds."""
        if not self.context.seeds or self._sessions[u].phase is not ClientPhase.RELEASED:
            return
        missing = self.missing_for(u)
        message = SeedRequest(self._tag, encode_set(missing, self.context.size))
        _, answer = self.ask(u, message)
        if isinstance(answer, SeedShares) and u not in self.colluders:
            self.loot.take_seeds(answer, missing, self.told(u)[-1])

    # -- helpers ------------------------------------------------------------------------------

    def ask(self, u: int, message: AnyMessage) -> tuple[bool, AnyMessage | None]:
        """Send client u a message: whether it took it, and its answer."""
        try:
            data = self._sessions[u].receive_bytes(encode_message(message))
        except ProtocolError as error:
            self._tally.refused(error)
            return False, None
        return True, None if data is None else decode_from_client(data, u, len(data))

    def told(self, u: int) -> list[View]:
        """Every story that client u was told."""
        rosters = zip(self.rosters[u], self.shown[u], strict=True)
        told = product(rosters, self.participants[u], self.stories[u])
        return [View(roster, shown, *sets) for (roster, shown), *sets in told]

    def on_story(self, roster: RoundRoster, story: Members) -> dict[int, bytes]:
        """The signatures on one story that count."""
        signed = self.signatures.get((roster.hash, story), {})
        return {u: signature for u, signature in signed.items() if u in roster.committee.members}

    def sealed_for(self, owner: int, recipient: int) -> bytes:
        """What the owner sealed for the recipient; random bytes if it is nothing."""
        size = sealed_share_bytes(self.context)
        bundle = self.bundles.get(owner)
        if bundle is None:
            return self.rng.bytes(size)
        holders = [h for h in self.rosters[owner][-1].graph.holders(owner) if h != owner]
        if recipient not in holders:
            return self.rng.bytes(size)
        place = holders.index(recipient)
        return bundle.sealed[place * size : (place + 1) * size]

    def look_into(self, u: int) -> Any:
        """What a colluder's session knows; it goes on as if nobody had looked."""
        party, state = self._sessions[u].hand_over()
        self._sessions[u] = ClientSession.from_state(party, state)
        return state

    def some_honest(self, among: Members, count: int) -> Members:
        """Some honest clients of these."""
        honest = [u for u in among if u not in self.colluders]
        count = min(count, len(honest))
        return tuple(sorted(int(u) for u in self.rng.choice(honest, count, replace=False)))
