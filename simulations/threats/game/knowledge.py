"""What a server can compute from everything that it was sent, and from what colluders know.

This is the whole of cryptanalysis against masks that cannot be told from random: rebuild every
secret of which there are enough shares, take every known mask off every upload, and add up uploads
whose remaining masks cancel. A mask between u and v is on two uploads at most, with opposite signs.
So a combination of uploads without masks has the same weight on both ends of every unknown mask:
what can be opened are sums over connected components of uploads, and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from secagg import SessionContext
from secagg.field import unpack
from secagg.framing import split_items
from secagg.keys import KEY_BYTES, AgreementKey, SecretSeed
from secagg.pairwise.graph import held_by
from secagg.pairwise.masks import pairwise_is_subtracted, pairwise_key, self_key
from secagg.pairwise.messages import MaskedInput, Roster, SeedShares, UnmaskShares, shared_secrets
from secagg.pairwise.prg import accumulate_masks
from secagg.pairwise.rebuild import Share
from secagg.pairwise.roster import RoundRoster
from secagg.shamir import combine, decode_share
from simulations.threats.game.contexts import Integers, Members

SELF_MASK, MASKING_KEY, FIRST_SEED = 0, 1, 2
"""Order of a client's shared secrets inside a share; removable seeds are counted from the last."""

Wanted = tuple[bytes, int, int]
"""Which secret: roster hash, owner, and its place inside a share."""


@dataclass(frozen=True, slots=True)
class View:
    """What one client was told: who is on the roster, who shared, who is in the sum."""

    roster: RoundRoster
    shown: Roster
    participants: Members
    survivors: Members


@dataclass(frozen=True, slots=True)
class Upload:
    """A masked vector and the sets that say which masks are on it."""

    sender: int
    roster: RoundRoster
    participants: Members
    vector: Integers  # `field.dtype`[length]


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """A sum that the server has computed.

    Attributes:
        members: the clients whose vectors are in it, ascending.
        vector: `field.dtype`[length].
    """

    members: Members
    vector: Integers


class Knowledge:
    """Shares, secrets and uploads of one session, and what follows from them.

    Args:
        threshold: shares from which a secret is rebuilt; the context's if None. Fewer are worth a
            try on victims without a defence, and give nonsense on others.
    """

    def __init__(self, context: SessionContext, threshold: int | None = None) -> None:
        self._context = context
        self._threshold = context.threshold if threshold is None else threshold
        self._shares: defaultdict[Wanted, dict[int, Share]] = defaultdict(dict)
        self._secrets: dict[Wanted, bytes] = {}
        self._uploads: dict[tuple[bytes, int], Upload] = {}

    # -- learning -----------------------------------------------------------------------------

    def learn_upload(
        self, roster: RoundRoster, participants: Members, message: MaskedInput
    ) -> None:
        """A masked vector arrived."""
        context = self._context
        vector = unpack(message.vector, context.length, context.field).elements
        upload = Upload(message.sender, roster, participants, vector)
        self._uploads[roster.hash, message.sender] = upload

    def forget_upload(self, sender: int) -> None:
        """A masked vector was lost on its way after all."""
        for place in [each for each in self._uploads if each[1] == sender]:
            del self._uploads[place]

    def learn_share(
        self, roster: RoundRoster, owner: int, which: int, holder: int, share: Share
    ) -> None:
        """A holder's share of one secret: uint32[LIMBS]."""
        self._shares[roster.hash, owner, which][holder] = share

    def learn_held(self, roster: RoundRoster, holder: int, held: Mapping[int, bytes]) -> None:
        """All shares that a holder keeps, by owner, encoded."""
        for owner, encoded in held.items():
            shares = decode_share(encoded, shared_secrets(self._context))
            for which, share in enumerate(shares):
                self.learn_share(roster, owner, which, holder, share)

    def learn_secret(self, roster: RoundRoster, owner: int, which: int, secret: bytes) -> None:
        """A whole secret, 32 bytes."""
        self._secrets[roster.hash, owner, which] = secret

    def learn_answer(self, view: View, message: UnmaskShares) -> None:
        """The shares and seeds that a client gave up for what it was told."""
        self.learn_shares(view, message)
        given = self._context.removed_seeds(len(view.survivors))
        seeds = split_items(message.seeds, KEY_BYTES, len(given))
        for number, seed in zip(given, seeds, strict=True):
            self.learn_secret(view.roster, message.sender, FIRST_SEED + number, seed)

    def learn_shares(self, view: View, message: UnmaskShares) -> None:
        """The shares of an answer: one for each owner, of which secret the survivor set says."""
        owners = held_by(message.sender, set(view.participants), view.roster.graph)
        shares = decode_share(message.shares, len(owners))
        for owner, share in zip(owners, shares, strict=True):
            which = SELF_MASK if owner in view.survivors else MASKING_KEY
            self.learn_share(view.roster, owner, which, message.sender, share)

    def learn_seed_shares(self, view: View, missing: Members, message: SeedShares) -> None:
        """Shares of the surplus seeds of survivors that are said to have gone away."""
        owners = held_by(message.sender, set(missing), view.roster.graph)
        given = self._context.removed_seeds(len(view.survivors))
        places = list(product(owners, given))
        shares = decode_share(message.shares, len(places))
        for (owner, number), share in zip(places, shares, strict=True):
            self.learn_share(view.roster, owner, FIRST_SEED + number, message.sender, share)

    # -- what follows -------------------------------------------------------------------------

    @property
    def uploads(self) -> tuple[Upload, ...]:
        """Everything that was uploaded, in the order of arrival."""
        return tuple(self._uploads.values())

    def secret(self, roster: RoundRoster, owner: int, which: int) -> bytes | None:
        """A secret, if the server has it or can rebuild it; 32 bytes."""
        wanted = (roster.hash, owner, which)
        if wanted not in self._secrets:
            rebuilt = self._rebuilt(wanted)
            if rebuilt is None:
                return None
            self._secrets[wanted] = rebuilt
        return self._secrets[wanted]

    def holders(self, owner: int, which: int) -> set[int]:
        """Whose shares of a secret are known, under whatever roster they were dealt."""
        known = (each for (_, *of), each in self._shares.items() if of == [owner, which])
        return set().union(*known)

    def peeled(self, sender: int) -> Integers | None:
        """What a client uploaded, less all masks that are known: `field.dtype`[length].

        None if nothing came. Unknown masks, if there are any, are still on it.
        """
        for upload in self.uploads:
            if upload.sender == sender:
                return self._without(upload, self._masks(upload)[0])
        return None

    def sums(self) -> list[OpenedSum]:
        """Every sum of inputs that can be opened and is not a sum of others."""
        uploads = self.uploads
        group = list(range(len(uploads)))
        closed: set[int] = set()
        peeled = []
        for i, upload in enumerate(uploads):
            known, unknown = self._masks(upload)
            peeled.append(self._without(upload, known))
            for peer in unknown:
                j = self._other_end(uploads, upload, peer)
                if j is None:
                    closed.add(i)
                else:
                    group = [group[i] if g == group[j] else g for g in group]
        members: defaultdict[int, list[int]] = defaultdict(list)
        for i, g in enumerate(group):
            members[g].append(i)
        return [
            self._sum_of([uploads[i] for i in each], [peeled[i] for i in each])
            for each in members.values()
            if not closed & set(each)
        ]

    # -- inside -------------------------------------------------------------------------------

    def _rebuilt(self, wanted: Wanted) -> bytes | None:
        shares = self._shares.get(wanted, {})
        if len(shares) < self._threshold:
            return None
        # All of them: more points than a polynomial needs give the same polynomial.
        holders = sorted(shares)
        (secret,) = combine(np.array([[shares[h]] for h in holders]), holders)
        return secret

    def _masks(self, upload: Upload) -> tuple[dict[bytes, bool], list[int]]:
        """Keys of the known masks and whether they were subtracted; who shares unknown ones.

        The sender itself stands for its self mask.
        """
        u, roster = upload.sender, upload.roster
        known: dict[bytes, bool] = {}
        unknown = []
        seed = self.secret(roster, u, SELF_MASK)
        if seed is None:
            unknown.append(u)
        else:
            known[self_key(SecretSeed(seed), roster.hash, u)] = False
        for v in self._peers(upload):
            key = self._pair_key(roster, u, v)
            if key is None:
                unknown.append(v)
            else:
                known[key] = pairwise_is_subtracted(u, v)
        return known, unknown

    def _peers(self, upload: Upload) -> Iterator[int]:
        present = set(upload.participants)
        return (v for v in upload.roster.graph.neighbours(upload.sender) if v in present)

    def _pair_key(self, roster: RoundRoster, u: int, v: int) -> bytes | None:
        for owner, peer in ((u, v), (v, u)):
            secret = self.secret(roster, owner, MASKING_KEY)
            if secret is not None:
                public = roster.advertisements[peer].masking_key
                return pairwise_key(AgreementKey(secret), public, roster.hash, u, v)
        return None

    def _without(self, upload: Upload, known: Mapping[bytes, bool]) -> Integers:
        vector = upload.vector.copy()
        added_back = [not minus for minus in known.values()]
        accumulate_masks(vector, self._context.field, list(known), added_back)
        return vector

    def _other_end(self, uploads: tuple[Upload, ...], upload: Upload, peer: int) -> int | None:
        """The upload that carries the same mask with the other sign, if there is one."""
        for j, other in enumerate(uploads):
            same = other.sender == peer and other.roster.hash == upload.roster.hash
            if same and peer != upload.sender and upload.sender in other.participants:
                return j
        return None

    def _sum_of(self, uploads: list[Upload], peeled: list[Integers]) -> OpenedSum:
        field = self._context.field
        total = np.zeros(self._context.length, object)
        for vector in peeled:
            total += vector.astype(object)
        members = tuple(sorted(upload.sender for upload in uploads))
        return OpenedSum(members, (total % field.modulus).astype(field.dtype))
