"""A5: the server puts its own keys in the place of others'."""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np

from secagg import ClientSession, Identity, SessionContext
from secagg.keys import AgreementKey
from secagg.messages import Advertisement, shared_secrets
from secagg.roster import RoundRoster, advertisement_parts
from secagg.sealing import seal, unseal
from secagg.shamir import LIMBS, Rand, encode_share
from secagg.tags import Usage
from simulations.threats.adversary import Adversary
from simulations.threats.catalogue.base import Attack, Effort, Findings, play_exact
from simulations.threats.games import Setting
from simulations.threats.knowledge import MASKING_KEY
from simulations.threats.victims import Victims
from simulations.threats.weak_clients import weakened


def forged_identity(u: int) -> Identity:
    """The identity that the server gives itself in the place of client u."""
    return Identity.from_private_bytes(hashlib.sha256(b"in the middle %d" % u).digest())


class ManInTheMiddle(Adversary):
    """Plays everybody else to the target: keys, shares and signatures are its own."""

    def __init__(self, victims: Victims, rng: np.random.Generator) -> None:
        super().__init__(victims, rng)
        self._others = [u for u in self.everybody if u != self.target]
        self._sealing = {u: AgreementKey(rng.bytes(32)) for u in self._others}
        self._masking = {u: AgreementKey(rng.bytes(32)) for u in self._others}

    def roster_for(self, u: int) -> RoundRoster:
        """The target's own advertisement, and forged ones, in a tree of their own."""
        forged = {v: self._forged(v) for v in self._others}
        return RoundRoster.build(self.context, {**forged, u: self.advertised[u]})

    def collect_bundles(self) -> None:
        """From the target only; what it sealed for others is read."""
        self.show_roster(self.target)
        if self.target not in self.bundles:
            return
        roster = self.rosters[self.target][-1]
        for v in self._others:
            self.knowledge.learn_secret(roster, v, MASKING_KEY, self._masking[v].expose())
            sealed = super().sealed_for(self.target, v)
            shared = self._sealing[v].agree(self.advertised[self.target].sealing_key)
            plain = unseal(shared, roster.hash, self.target, v, sealed)
            self.knowledge.learn_held(roster, v, {self.target: plain})

    def participants_for(self, u: int) -> tuple[int, ...]:
        """Everybody, it says."""
        return self.everybody

    def sealed_for(self, owner: int, recipient: int) -> bytes:
        """A share of nothing, sealed by the owner's double."""
        roster = self.rosters[recipient][-1]
        shared = self._sealing[owner].agree(self.advertised[recipient].sealing_key)
        share = np.zeros((shared_secrets(self.context), LIMBS), np.uint32)
        return seal(shared, roster.hash, owner, recipient, encode_share(share))

    def _forged(self, u: int) -> Advertisement:
        keys = self._sealing[u].public, self._masking[u].public
        nonce = self.advertised[u].nonce
        parts = advertisement_parts(self.context, u, *keys, nonce)
        return msgspec.structs.replace(
            self.advertised[u],
            sealing_key=keys[0],
            masking_key=keys[1],
            signature=forged_identity(u).sign(Usage.ADVERTISE, *parts),
        )


def no_registry(context: SessionContext, u: int, identity: Identity, rand: Rand) -> ClientSession:
    """A client that takes the server's word for who the others are."""
    named = tuple(
        identity.public if v == u else forged_identity(v).public for v in range(context.size)
    )
    return ClientSession(weakened(context, cohort=named), u, identity, rand)


def _man_in_the_middle(effort: Effort, seed: int) -> Findings:
    return play_exact(ManInTheMiddle, Setting(), effort.choose(20, 500), seed, no_registry)


ATTACKS = (
    Attack(
        id="A5",
        title="A server cannot put itself in the place of other clients",
        stopped_by="advertisements signed under registered identities",
        run=_man_in_the_middle,
    ),
)
