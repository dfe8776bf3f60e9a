"""A5 and A32: the server puts its own keys in the place of others', or one key in two places."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Final

import msgspec
import numpy as np

from secagg import ClientSession, Identity, RemoteProtocolError, ServerSession, SessionContext
from secagg.keys import AgreementKey
from secagg.pairwise.messages import Advertisement, shared_secrets
from secagg.pairwise.roster import RoundRoster, advertisement_parts
from secagg.sealing import seal, unseal
from secagg.shamir import LIMBS, Rand, encode_share
from secagg.tags import Usage
from simulations.audits.base import Figures
from simulations.threats.attack import (
    Attack,
    exact_game,
    rate,
    refusal,
    refused_with,
    twins,
)
from simulations.threats.game.adversary import Adversary, AdvertisesBadKeys
from simulations.threats.game.games import Setting, deals
from simulations.threats.game.knowledge import MASKING_KEY
from simulations.threats.game.victims import SessionMaker, Victims
from simulations.threats.game.weak_clients import (
    ANY_ENCODING,
    TakesAnyEncoding,
    replaced,
    weakened,
)


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
        """Name everybody, whoever has answered."""
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


NINE: Final = (5 * (2**252 + 27742317777372353535851937790883648493) - 1).to_bytes(32, "little")
"""The private key to the base point, 9: -1 modulo the order of the group, in the range of keys."""
_UNREDUCED: Final = (2**255 - 19 + 9).to_bytes(32, "little")
"""The other number below 2^255 that X25519 takes for 9."""


class TwoEncodings(AdvertisesBadKeys):
    """A colluder signs a key that is in the roster already, written in another way."""

    def bad_keys(self, entry: Advertisement) -> tuple[bytes, bytes]:
        """The target's masking key with its highest bit set, or a key of its own twice."""
        if self.rng.random() < 0.5:
            return AgreementKey(NINE).public, _UNREDUCED
        copied = self.advertised[self.target].masking_key
        return entry.sealing_key, copied[:31] + bytes([copied[31] | 0x80])

    def taken_by_a_server(self) -> bool:
        """Whether an honest server takes the advertisement, after all others."""
        server = ServerSession(self.context)
        try:
            for u in sorted(self.advertised, key=lambda u: u == self.liar):
                server.receive(self.advertised[u])
        except RemoteProtocolError:
            return False
        return True

    def taken_by_clients(self) -> bool:
        """Whether an honest client takes the roster, and shares its secrets."""
        self.collect_bundles()
        return bool(self.bundles.keys() - self.colluders)


def _two_encodings(
    trials: int, seed: int, session: SessionMaker = ClientSession, careless: bool = False
) -> Figures:
    """Rounds in which a roster with one key in two places is taken, by whom, and by whom not."""
    servers, clients = 0, 0
    refusals: Counter[str] = Counter()
    for rng, context, inputs in deals(Setting(), trials, seed):
        colluder, salt = {int(rng.integers(context.size))}, rng.bytes(4)
        told = (session, lambda error: refusals.update([refusal(error)]))
        attack = TwoEncodings(Victims(context, inputs, colluder, salt, *told), rng)
        attack.advertise()
        with replaced(*ANY_ENCODING if careless else ()):
            servers += attack.taken_by_a_server()
        clients += attack.taken_by_clients()
    return {
        **rate(min(servers, clients) if careless else max(servers, clients), trials),
        **({} if careless else refused_with(refusals)),
        "taken_by_a_server": servers,
        "taken_by_clients": clients,
    }


ATTACKS = (
    Attack(
        id="A5",
        promise="P2",
        name="substituted keys",
        title="A server cannot put itself in the place of other clients",
        says="substitutes its own keys between clients",
        stopped_by="advertisements signed under registered identities, distinct keys",
        refused_with="RemoteProtocolError BAD_SIGNATURE",
        run=twins(exact_game(ManInTheMiddle, Setting()), 20, 500, session=no_registry),
    ),
    Attack(
        id="A32",
        promise="P2",
        name="key encodings",
        title="No two public keys in a roster are one key, however they are written",
        says="signs a key that is already in the roster, in another encoding",
        stopped_by="keys are refused unless they are reduced, with the highest bit clear",
        refused_with="RemoteProtocolError BAD_KEY",
        run=twins(_two_encodings, 20, 500, session=TakesAnyEncoding, careless=True),
    ),
)
