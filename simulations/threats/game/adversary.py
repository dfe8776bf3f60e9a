"""A server that may tell every client something else.

Left as it is, it follows the protocol message by message, and reads along. It never touches a
server session: a hostile server is free to send anything. An attack is a subclass that overrides
what clients are told, stage by stage; what they answer goes into `Knowledge`, and what can be
opened with that is what the attack claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import msgspec
import numpy as np

from secagg import Identity, Mode, SessionContext
from secagg.framing import encode_set
from secagg.keys import signature_is_valid
from secagg.pairwise.graph import held_by
from secagg.pairwise.messages import (
    Advertisement,
    Confirmation,
    ConfirmationSet,
    DeliveredShares,
    MaskedInput,
    Roster,
    SeedRequest,
    SeedShares,
    ShareBundle,
    SurvivorSet,
    UnmaskShares,
    context_tag,
    sealed_share_bytes,
)
from secagg.pairwise.roster import RoundRoster, advertisement_parts
from secagg.pairwise.transitions import ClientPhase
from secagg.tags import Usage, encode_index
from simulations.threats.game.contexts import Integers, Members
from simulations.threats.game.knowledge import MASKING_KEY, SELF_MASK, Knowledge, View
from simulations.threats.game.victims import Victims


class Adversary:
    """All stages of one session, under the control of whoever inherits from this.

    Attributes:
        target: an honest client, for attacks on one.
        rosters, shown, participants, stories: what each client was told, in order: its roster, the
            message that showed it, U2 and U3.
        bundles: sealed shares by client.
        uploaded: clients whose masked vectors arrived.
        signatures: on each survivor set under each roster, by signer.
    """

    def __init__(self, victims: Victims, rng: np.random.Generator) -> None:
        self.victims = victims
        self.context: SessionContext = victims.context
        self.rng = rng
        self.everybody: Members = tuple(range(self.context.size))
        self.colluders = victims.colluders
        self.target = self.some_honest(self.everybody, 1)[0]
        self.advertised: dict[int, Advertisement] = {}
        self.rosters: dict[int, list[RoundRoster]] = {u: [] for u in self.everybody}
        self.shown: dict[int, list[Roster]] = {u: [] for u in self.everybody}
        self.participants: dict[int, list[Members]] = {u: [] for u in self.everybody}
        self.stories: dict[int, list[Members]] = {u: [] for u in self.everybody}
        self.bundles: dict[int, ShareBundle] = {}
        self.uploads: dict[int, MaskedInput] = {}
        self.uploaded: set[int] = set()
        self.signatures: dict[tuple[bytes, Members], dict[int, bytes]] = {}
        self.knowledge = Knowledge(self.context)
        self.tag = context_tag(self.context)
        self._common: RoundRoster | None = None

    def run(self) -> None:
        """All rounds; clients that refuse are left out of what follows."""
        self.advertise()
        self.collect_bundles()
        self.deliver()
        self.announce()
        self.convince()
        self.recover()

    def claims(self) -> dict[int, Integers]:
        """Inputs of single honest clients that the server says it has: `field.dtype`[length]."""
        return {
            opened.members[0]: opened.vector
            for opened in self.knowledge.sums()
            if len(opened.members) == 1 and opened.members[0] not in self.colluders
        }

    # -- what an attack may change ------------------------------------------------------------

    def roster_for(self, u: int) -> RoundRoster:
        """The roster that client u is shown."""
        return self.common

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

    def took_answer(self, u: int, message: UnmaskShares) -> None:
        """An honest client gave up shares: note what they are."""
        self.knowledge.learn_answer(self.answered(message), message)

    def took_seeds(self, u: int, message: SeedShares, missing: Members) -> None:
        """An honest client gave up shares of others' seeds: note what they are."""
        self.knowledge.learn_seed_shares(self.told(u)[-1], missing, message)

    def ask_colluder(self, u: int, roster: RoundRoster) -> None:
        """A colluder tells its own secrets and the shares that it holds."""
        state = self.victims.look_into(u)
        self.knowledge.learn_secret(roster, u, SELF_MASK, state.seed.expose())
        self.knowledge.learn_secret(roster, u, MASKING_KEY, state.masking.expose())
        self.knowledge.learn_held(roster, u, state.held)

    # -- rounds -------------------------------------------------------------------------------

    def advertise(self) -> None:
        """Collect the advertisements of round 0."""
        for u in self.everybody:
            self.advertised[u] = self.victims.advertise(u)

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
        answer = self.victims.ask(u, message).message
        if isinstance(answer, ShareBundle):
            self.bundles[u] = answer

    def deliver(self) -> None:
        """Round 1 down, round 2 up."""
        for u in sorted(self.bundles):
            self.deliver_to(u)

    def deliver_to(self, u: int) -> None:
        """Hand client u its shares and take its upload."""
        participants, roster = self.participants_for(u), self.rosters[u][-1]
        self.participants[u].append(participants)
        owners = held_by(u, set(participants), roster.graph, include_self=False)
        sealed = b"".join(self.sealed_for(owner, u) for owner in owners)
        bitmap = encode_set(participants, self.context.size)
        accepted = self.victims.ask(u, DeliveredShares(self.tag, bitmap, sealed)).accepted
        if not accepted or self.victims.phase(u) is not ClientPhase.READY:
            return
        if u in self.colluders:
            self.ask_colluder(u, roster)
        upload = self.victims.upload(u)
        if upload is not None:
            self.uploads[u] = upload
            self.uploaded.add(u)
            self.knowledge.learn_upload(roster, participants, upload)

    def announce(self) -> None:
        """Round 2 down, round 3 up: everybody who is in the set that it would be told."""
        for u in sorted(self.uploaded):
            story = self.survivors_for(u)
            if u in story:
                self.tell(u, story)

    def tell(self, u: int, story: Members) -> None:
        """Tell client u who survived, and keep its answer. Colluders sign every story."""
        self.stories[u].append(story)
        roster, bitmap = self.rosters[u][-1], encode_set(story, self.context.size)
        signers = self.signatures.setdefault((roster.hash, story), {})
        for colluder in self.colluders & set(story):
            identity = self.victims.identity(colluder)
            signers[colluder] = identity.sign(Usage.CONFIRM, roster.hash, bitmap)
        answer = self.victims.ask(u, SurvivorSet(self.tag, bitmap)).message
        if isinstance(answer, Confirmation):
            signers[u] = answer.signature
        elif isinstance(answer, UnmaskShares) and u not in self.colluders:
            self.took_answer(u, answer)

    def convince(self) -> None:
        """Round 3 down, round 4 up; without the consistency round there is nothing to do."""
        if self.context.mode is Mode.ACTIVE:
            for u in sorted(self.uploaded):
                if self.stories[u]:
                    self.persuade(u)

    def persuade(self, u: int) -> None:
        """Show client u signatures, and take what it gives up."""
        signatures = dict(sorted(self.signatures_for(u).items()))
        joined = b"".join(signatures.values())
        bitmap = encode_set(signatures, self.context.size)
        answer = self.victims.ask(u, ConfirmationSet(self.tag, bitmap, joined)).message
        if isinstance(answer, UnmaskShares) and u not in self.colluders:
            self.took_answer(u, answer)

    def recover(self) -> None:
        """Round 4 down, round 5 up."""
        for u in sorted(self.uploaded):
            self.ask_for_seeds(u)

    def ask_for_seeds(self, u: int) -> None:
        """Ask client u for shares of others' seeds."""
        if not self.context.seeds or self.victims.phase(u) is not ClientPhase.RELEASED:
            return
        missing = self.missing_for(u)
        message = SeedRequest(self.tag, encode_set(missing, self.context.size))
        answer = self.victims.ask(u, message).message
        if isinstance(answer, SeedShares) and u not in self.colluders:
            self.took_seeds(u, answer, missing)

    # -- helpers ------------------------------------------------------------------------------

    @property
    def common(self) -> RoundRoster:
        """The roster that an honest server would show."""
        if self._common is None:
            self._common = RoundRoster.build(self.context, self.advertised)
        return self._common

    def without(self, *lost: int) -> Members:
        """Everybody who uploaded, but for these."""
        return tuple(u for u in sorted(self.uploaded) if u not in lost)

    def halves(self) -> tuple[set[int], set[int]]:
        """Two groups of clients: parts of the ring on a sparse graph, random ones otherwise."""
        order = [int(u) for u in self.rng.permutation(self.context.size)]
        if self.context.degree:
            order = order[:1]
            for u in order:
                order += [v for v in self.common.graph.neighbours(u) if v not in order]
        middle = len(order) // 2
        return set(order[:middle]), set(order[middle:])

    def told(self, u: int) -> list[View]:
        """Everything that client u was told, in all combinations."""
        rosters = zip(self.rosters[u], self.shown[u], strict=True)
        told = product(rosters, self.participants[u], self.stories[u])
        return [View(roster, shown, *sets) for (roster, shown), *sets in told]

    def answered(self, message: UnmaskShares) -> View:
        """What the signature on an answer says that its sender was told."""
        public = self.context.cohort[message.sender]
        for view in reversed(self.told(message.sender)):
            survivors = encode_set(view.survivors, self.context.size)
            bound = (view.roster.hash, encode_index(message.sender), survivors)
            signed = (*bound, message.shares, message.seeds)
            if signature_is_valid(public, message.signature, Usage.UNMASK, *signed):
                return view
        raise ValueError(f"client {message.sender} signed a set that it was never told")

    def advertise_as(self, u: int, identity: Identity, sealing: bytes, masking: bytes) -> None:
        """Exchange the keys that client u advertised for others, which an identity signs."""
        entry = self.advertised[u]
        parts = advertisement_parts(self.context, u, sealing, masking, entry.nonce)
        signature = identity.sign(Usage.ADVERTISE, *parts)
        self.advertised[u] = msgspec.structs.replace(
            entry, sealing_key=sealing, masking_key=masking, signature=signature
        )

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

    def some_honest(self, among: Members, count: int) -> Members:
        """Some honest clients of these."""
        honest = [u for u in among if u not in self.colluders]
        count = min(count, len(honest))
        return tuple(sorted(int(u) for u in self.rng.choice(honest, count, replace=False)))


class AdvertisesBadKeys(Adversary):
    """A colluder advertises, and signs, keys that are not as they should be."""

    def __init__(self, victims: Victims, rng: np.random.Generator) -> None:
        super().__init__(victims, rng)
        self.liar = min(self.colluders)

    def advertise(self) -> None:
        """Change one entry."""
        super().advertise()
        keys = self.bad_keys(self.advertised[self.liar])
        self.advertise_as(self.liar, self.victims.identity(self.liar), *keys)

    def bad_keys(self, entry: Advertisement) -> tuple[bytes, bytes]:
        """Sealing and masking key to advertise."""
        raise NotImplementedError
