"""Servers that deviate, by name: each tells clients something that an honest one would not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from secagg import Mode
from secagg.keys import AgreementKey
from secagg.pairwise.messages import (
    ADVERTISEMENT_ENTRY_BYTES,
    Advertisement,
    Roster,
    UnmaskShares,
)
from secagg.pairwise.roster import RoundRoster
from secagg.sealing import unseal
from simulations.threats.faults.behaviours import Tally, Verdict, looked_at
from simulations.threats.faults.transcript import LOW_ORDER, Transcript
from simulations.threats.game.adversary import Adversary, AdvertisesBadKeys
from simulations.threats.game.contexts import (
    Members,
    Wanted,
    identity_of,
    random_context,
    random_inputs,
)
from simulations.threats.game.victims import Victims

_ACTIVE = Wanted(mode=Mode.ACTIVE, spare=1)


class _Hostile(Adversary):
    """A hostile server; `wanted` is what it needs of its session, `transcript` what it broke."""

    wanted = _ACTIVE

    def __init__(self, victims: Victims, rng: np.random.Generator) -> None:
        super().__init__(victims, rng)
        self.spare = self.context.size - self.context.minimum_survivors
        self.transcript = Transcript(self.context, self.colluders, self.advertised, self.knowledge)

    def took_answer(self, u: int, message: UnmaskShares) -> None:
        self.transcript.answered(u, self.answered(message))
        super().took_answer(u, message)

    def tell_one_lost(self) -> None:
        """Tell everybody, the lost one too, that one honest client is lost."""
        alive = self.without()
        lost = self.some_honest(alive, 1)
        for u in alive:
            self.tell(u, self.without(*lost))


class SplitsSurvivors(_Hostile):
    """Each half is told that some of the other half are lost; signatures are made to fit."""

    def announce(self) -> None:
        """Tell both stories."""
        one, other = self.halves()
        lost = int(self.rng.integers(1, self.spare + 1))
        alive = self.without()
        stories = [
            tuple(u for u in alive if u not in self.some_honest(tuple(sorted(half)), count))
            for half, count in ((other, lost), (one, int(self.rng.integers(lost + 1))))
        ]
        self.bluffs = self.rng.random() < 0.5
        for u in alive:
            self.tell(u, stories[0] if u in one else stories[1])

    def signatures_for(self, u: int) -> Mapping[int, bytes]:
        """Those on u's own story; then, for show, others, or those on the other story."""
        own = dict(super().signatures_for(u))
        quorum = self.rosters[u][-1].committee.quorum
        if self.bluffs:
            for signers in self.signatures.values():
                for signer in set(signers) & set(self.stories[u][-1]) - set(own):
                    if len(own) < quorum:
                        own[signer] = signers[signer]
        return own


class SplitsRosters(_Hostile):
    """Half of the clients are shown another roster: a member less, or another tree."""

    def collect_bundles(self) -> None:
        """Show both rosters."""
        self._half, other = self.halves()
        advertised = dict(self.advertised)
        changed = self.some_honest(tuple(sorted(other)), 1)[0]
        if self.rng.random() < 0.5:
            del advertised[changed]
        else:
            entry = self.rng.bytes(ADVERTISEMENT_ENTRY_BYTES)
            advertised[changed] = Advertisement.from_entry(self.tag, changed, entry)
        self._other = RoundRoster.build(self.context, advertised)
        super().collect_bundles()

    def roster_for(self, u: int) -> RoundRoster:
        """The common one, or the changed one if it has u in it."""
        other = self._other
        return other if u in self._half and u in other.members else self.common


class SplitsParticipants(_Hostile):
    """Half of the clients are told that somebody never shared, the others that it did."""

    def deliver(self) -> None:
        """Deliver under both stories."""
        self._half, other = self.halves()
        self._left_out = self.some_honest(tuple(sorted(other)), 1)
        self._lost_for_all = self.rng.random() < 0.5
        super().deliver()

    def participants_for(self, u: int) -> Members:
        """Without one client for one half."""
        left_out = self._left_out if u in self._half else ()
        return tuple(v for v in super().participants_for(u) if v not in left_out)

    def survivors_for(self, u: int) -> Members:
        """Without that client for all, or for the half that believes that it never shared."""
        left_out = self._left_out if self._lost_for_all or u in self._half else ()
        return tuple(v for v in super().survivors_for(u) if v not in left_out)


class AsksTwice(_Hostile):
    """At one stage, and after the last one, every client is asked again, for another set."""

    def __init__(self, victims: Victims, rng: np.random.Generator) -> None:
        super().__init__(victims, rng)
        self._again = str(rng.choice(["roster", "shares", "survivors", "confirmations", "never"]))

    def show_roster(self, u: int) -> None:
        """Show the roster, and show it again if that is the stage to ask twice in."""
        super().show_roster(u)
        if self._again == "roster":
            super().show_roster(u)

    def deliver_to(self, u: int) -> None:
        """Deliver the shares, and deliver them again if that is the stage to ask twice in."""
        super().deliver_to(u)
        if self._again == "shares":
            super().deliver_to(u)

    def announce(self) -> None:
        """Announce the survivors, and another set if that is the stage to ask twice in."""
        super().announce()
        if self._again == "survivors":
            self.tell_one_lost()

    def convince(self) -> None:
        """Perhaps twice; then everything again, for another set."""
        super().convince()
        if self._again == "confirmations":
            super().convince()
        self.tell_one_lost()
        super().convince()


class ShrinksSets(_Hostile):
    """The roster, U2 or U3 is announced with fewer than the minimum of members."""

    def advertise(self) -> None:
        """Choose which sets to shrink, and who is left."""
        super().advertise()
        self._stage = int(self.rng.integers(3))
        least = self.context.minimum_survivors
        fewest = max(2, least - 2)
        size = int(self.rng.integers(fewest, least)) if fewest < least else least - 1
        chosen = self.rng.permutation(self.context.size)[:size]
        self._left = tuple(sorted(int(u) for u in chosen))
        if self._stage == 0:
            left = {u: self.advertised[u] for u in self._left}
            self._common = RoundRoster.build(self.context, left)
            self.everybody = self._left

    def participants_for(self, u: int) -> Members:
        """Shrink from the second stage on."""
        whole = super().participants_for(u)
        return whole if self._stage > 1 else tuple(v for v in whole if v in self._left)

    def survivors_for(self, u: int) -> Members:
        """Shrink in any case."""
        return tuple(v for v in super().survivors_for(u) if v in self._left)


class LosesTheListener(_Hostile):
    """One client is told, like everybody, that it is itself lost."""

    def announce(self) -> None:
        """Tell all one story."""
        self.tell_one_lost()


class InventsSurvivors(_Hostile):
    """U3 has a client that never shared anything."""

    def deliver(self) -> None:
        """Lose the bundle of one client before the shares are delivered."""
        self._invented = self.some_honest(tuple(sorted(self.bundles)), 1)
        for u in self._invented:
            self.bundles.pop(u)
        super().deliver()

    def survivors_for(self, u: int) -> Members:
        """With the client whose bundle was lost."""
        return tuple(sorted({*self.uploaded, *self._invented}))


class FixesTheTree(_Hostile):
    """The root is chosen before anybody advertised, and with it the ring; all else is honest."""

    def roster_for(self, u: int) -> RoundRoster:
        """The tree of other entries."""
        if self._common is None:
            fixed = {
                v: Advertisement.from_entry(self.tag, v, self.rng.bytes(ADVERTISEMENT_ENTRY_BYTES))
                for v in self.advertised
            }
            self._common = RoundRoster.build(self.context, fixed)
        return self._common

    def message_of(self, u: int, roster: RoundRoster) -> Roster:
        """The honest entries under that tree."""
        return _with_entries(super().message_of(u, roster), u, roster, self.advertised)


def _with_entries(
    message: Roster, u: int, roster: RoundRoster, shown: Mapping[int, Advertisement]
) -> Roster:
    """The message with other entries of the recipient's neighbours."""
    entries = b"".join(shown[v].entry() for v in roster.graph.neighbours(u))
    return msgspec.structs.replace(message, entries=entries)


class SubstitutesKeys(_Hostile):
    """Every client is shown sealing keys of the server instead of the others' own."""

    def message_of(self, u: int, roster: RoundRoster) -> Roster:
        """The honest tree, and forged entries of the neighbours."""
        self._keys = {
            v: AgreementKey(identity_of(v).private_bytes()) for v in range(self.context.size)
        }
        forged = {
            v: msgspec.structs.replace(a, sealing_key=self._keys[v].public)
            for v, a in self.advertised.items()
        }
        return _with_entries(super().message_of(u, roster), u, roster, forged)

    def deliver(self) -> None:
        """Read what was sealed, and stop: there is nothing more to gain."""
        for owner in self.bundles:
            graph = self.common.graph
            for holder in set(graph.holders(owner)) - {owner}:
                shared = self._keys[holder].agree(self.advertised[owner].sealing_key)
                sealed = self.sealed_for(owner, holder)
                plain = unseal(shared, self.common.hash, owner, holder, sealed)
                self.knowledge.learn_held(self.common, holder, {owner: plain})


class ReplaysConfirmations(SplitsSurvivors):
    """Two stories; signatures on each come from rounds in which it was the truth for all."""

    def __init__(self, victims: Victims, rng: np.random.Generator) -> None:
        super().__init__(victims, rng)
        self._known: dict[Members, Mapping[int, bytes]] = {}

    def signatures_for(self, u: int) -> Mapping[int, bytes]:
        """Signatures of this round as far as there are any, then those of another round."""
        roster, story = self.rosters[u][-1], self.stories[u][-1]
        own = self.on_story(roster, story)
        for signer, signature in self._elsewhere(story).items():
            if signer not in own and len(own) < roster.committee.quorum:
                own[signer] = signature
        return own

    def _elsewhere(self, story: Members) -> Mapping[int, bytes]:
        """Everybody's signatures on a story, honestly got in another round of the session."""
        if story not in self._known:
            number = self.context.round_number + 1 + len(self._known)
            context = replace(self.context, round_number=number)
            drawn = np.random.default_rng(number)
            inputs = random_inputs(drawn, context)
            other = _InformedOnce(Victims(context, inputs, self.colluders, b"another"), drawn)
            other.story = story
            for stage in (other.advertise, other.collect_bundles, other.deliver, other.announce):
                stage()
            self._known[story] = other.on_story(other.rosters[story[0]][-1], story)
        return self._known[story]


class _InformedOnce(Adversary):
    """An honest server of another round, in which just these clients survive."""

    story: Members = ()

    def survivors_for(self, u: int) -> Members:
        return self.story

    def announce(self) -> None:
        self.uploaded &= set(self.story)
        super().announce()


class RepeatsKeys(AdvertisesBadKeys, _Hostile):
    """A colluder advertises, and signs, an honest client's masking key as its own; then leaves."""

    wanted = replace(_ACTIVE, colluders=1)

    def bad_keys(self, entry: Advertisement) -> tuple[bytes, bytes]:
        """An honest client's masking key."""
        honest = self.some_honest(self.everybody, 1)[0]
        return entry.sealing_key, self.advertised[honest].masking_key

    def deliver(self) -> None:
        """Without the colluder."""
        self.bundles.pop(self.liar, None)
        super().deliver()


class UsesSmallOrder(RepeatsKeys):
    """A colluder advertises, and signs, keys with which everybody agrees on a constant."""

    def bad_keys(self, entry: Advertisement) -> tuple[bytes, bytes]:
        """Both of small order."""
        return LOW_ORDER


class WantsMoreSeeds(_Hostile):
    """Clients are asked for seeds of clients that are not in the sum, of their own, and again."""

    wanted = replace(_ACTIVE, removable=True)

    def announce(self) -> None:
        """Somebody is lost, so that there is somebody to ask about in vain."""
        self._lost = self.some_honest(tuple(sorted(self.uploaded)), 1)
        self.uploaded -= set(self._lost)
        super().announce()

    def recover(self) -> None:
        """Ask for the seeds of missing clients twice."""
        super().recover()
        super().recover()

    def missing_for(self, u: int) -> Members:
        """The lost one, the asked one, or a random set."""
        kind = self.rng.integers(3)
        if kind == 0:
            return self._lost
        if kind == 1:
            return (u,)
        return tuple(v for v in self.everybody if self.rng.random() < 0.5)


SERVERS: Mapping[str, type[_Hostile]] = {
    "splits survivors": SplitsSurvivors,
    "splits rosters": SplitsRosters,
    "splits participants": SplitsParticipants,
    "asks twice": AsksTwice,
    "shrinks sets": ShrinksSets,
    "tells a client that it is lost": LosesTheListener,
    "invents survivors": InventsSurvivors,
    "fixes the tree": FixesTheTree,
    "substitutes keys": SubstitutesKeys,
    "replays confirmations": ReplaysConfirmations,
    "repeats keys": RepeatsKeys,
    "uses keys of small order": UsesSmallOrder,
    "wants more seeds": WantsMoreSeeds,
}
"""Every hostile server by its name in reports."""


def play_server(
    kind: type[_Hostile], rng: np.random.Generator, number: int, rate: float, tally: Tally
) -> Verdict:
    """One session with a hostile server; it delivers all of its messages, so `rate` is not used."""
    context = random_context(rng, number, kind.wanted)
    chosen = rng.permutation(context.size)[: context.tolerated_colluders]
    inputs = random_inputs(rng, context)
    colluders = [int(u) for u in chosen]
    victims = Victims(context, inputs, colluders, rng.bytes(4), refused=tally.refused)
    server = kind(victims, rng)
    server.run()
    return looked_at(server.transcript.broken(), server.transcript.released)
