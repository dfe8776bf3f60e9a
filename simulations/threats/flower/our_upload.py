"""Our clients where Flower's were, and an upload with one mask left on it, under the same search.

Four clients. One is lost after it shared its secrets, one works for the server, and two are honest
survivors: the victim and its only honest neighbour. The last mask's key has 128 bits, so the server
is told some: as many as in the search of the twin, which has 28. With all but a few of them told
the search does find the key; a test shows that.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from secagg import PrimeField, ProtocolError
from secagg.framing import encode_set
from secagg.pairwise.masks import pairwise_is_subtracted, pairwise_key
from secagg.pairwise.messages import SurvivorSet
from secagg.pairwise.prg import MASK_KEY_BYTES, expand_mask
from simulations.audits.base import Integers
from simulations.threats.flower.masks import (
    LARGEST,
    PAIR_SEED_BITS,
    RING,
    first_elements,
    fold,
    gather,
    mask_of,
    weak_mask,
    weak_pair_key,
)
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.games import Setting
from simulations.threats.game.victims import Victims
from simulations.threats.seed_search.search import LOOKED_AT, Numbers, Peeled, PeeledUpload

VICTIM, HONEST, COLLUDER, LOST = range(4)
CLIENTS = 4
BITS = 32


class OurRound(Adversary):
    """An honest server of four real clients.

    Attributes:
        inputs: int64[4, length] in 0 .. 2^22, the range of Flower's quantiser.
    """

    def __init__(self, length: int, rng: np.random.Generator) -> None:
        setting = Setting(size=CLIENTS, lost=1, bits=BITS, length=length)
        context = setting.context(1)
        self.inputs: Integers = rng.integers(0, LARGEST + 1, (CLIENTS, length))
        self.refusals: list[ProtocolError] = []
        dealt = self.inputs.astype(context.field.dtype)
        told = self.refusals.append
        super().__init__(Victims(context, dealt, [COLLUDER], rng.bytes(8), refused=told), rng)

    def until_shared(self) -> None:
        """Everybody has shared its secrets."""
        self.advertise()
        self.collect_bundles()

    def deliver(self) -> None:
        """All but the lost client upload."""
        for u in (VICTIM, HONEST, COLLUDER):
            self.deliver_to(u)

    def until_confirmed(self) -> None:
        """Survivors have signed who is in the sum."""
        self.until_shared()
        self.deliver()
        self.announce()

    def told_out_of_turn(self, u: int, survivors: tuple[int, ...]) -> ProtocolError | None:
        """Tell a client who survived: the error that it refused with, if it did."""
        message = SurvivorSet(self.tag, encode_set(survivors, self.context.size))
        return None if self.victims.ask(u, message).accepted else self.refusals.pop()


def ask_for_both_secrets(length: int, rng: np.random.Generator) -> list[ProtocolError | None]:
    """The server asks clients for shares of both secrets of the victim, which is in the sum.

    There is no message that names a client on two lists: clients are told one set of survivors and
    derive from it what to give up. So the server can only ask again: for another set before the
    first is answered, and after it.
    """
    refusals = []
    for answered in (False, True):
        round_ = OurRound(length, rng)
        round_.until_confirmed()
        if answered:
            round_.convince()
        refusals += [round_.told_out_of_turn(u, (HONEST, COLLUDER)) for u in (HONEST, COLLUDER)]
    return refusals


# -- an upload with one mask left on it ------------------------------------------------------------


def our_key(told: int, told_bits: int, number: int) -> bytes:
    """The key of a numbered candidate: the low bits that were told, and a guess of the rest."""
    return (number << told_bits | told).to_bytes(MASK_KEY_BYTES, "little")


def our_first(key_of: Callable[[int], bytes], numbers: Numbers) -> NDArray[np.uint32]:
    """The first elements of candidates' masks: one block of keystream for each.

    A word that is no element is refused and drawn again elsewhere. That is left out here: it
    makes a search miss the right key with probability 4 * 5 / 2^32.
    """
    # One block under one key, as in `secagg.pairwise.prg`: counter block zero of stream 0.
    ciphers = (Cipher(AES(key_of(number)), ECB()) for number in numbers.tolist())  # noqa: S305
    blocks = b"".join(cipher.encryptor().update(bytes(16)) for cipher in ciphers)
    words = np.frombuffer(blocks, "<u4").reshape(-1, LOOKED_AT)
    return np.ascontiguousarray(words.T, np.uint32)


def our_upload(
    length: int, rng: np.random.Generator, told_bits: int, tried_bits: int
) -> PeeledUpload:
    """An honest round, and all masks taken off the victim's upload that can be."""
    round_ = OurRound(length, rng)
    round_.until_shared()
    own = round_.victims.state_of(VICTIM).masking
    round_.deliver()
    round_.announce()
    round_.convince()
    words, roster = round_.knowledge.peeled(VICTIM), round_.rosters[VICTIM][-1]
    if words is None:
        raise LookupError("the victim has not uploaded")
    public = roster.advertisements[HONEST].masking_key
    last = int.from_bytes(pairwise_key(own, public, roster.hash, VICTIM, HONEST), "little")
    subtracted, modulus = pairwise_is_subtracted(VICTIM, HONEST), round_.context.field.modulus
    peeled = Peeled(words.astype(np.int64), subtracted, modulus, LARGEST)
    key_of = partial(our_key, last & ((1 << told_bits) - 1), told_bits)
    return PeeledUpload(
        peeled,
        round_.inputs[VICTIM],
        range(1 << tried_bits),
        partial(our_first, key_of),
        lambda number: expand_mask(PrimeField(BITS), key_of(number), length).astype(np.int64),
    )


# -- the same under Flower's masks -----------------------------------------------------------------


def weakly_masked(peeled: Peeled, plain: Integers, key: bytes, tried_bits: int) -> PeeledUpload:
    """An upload whose last mask has this key; the server is told its folded key's high bits."""
    told = gather(fold(key)) >> tried_bits
    candidates = range(told << tried_bits, (told + 1) << tried_bits)
    return PeeledUpload(peeled, plain, candidates, first_elements, lambda n: mask_of(n, plain.size))


def weak_upload(
    length: int, rng: np.random.Generator, tried_bits: int = PAIR_SEED_BITS
) -> PeeledUpload:
    """The round of `our_upload` under weak masks; of the last one's seed some bits are told.

    The victim's self mask comes off because its seed is rebuilt, the mask with the lost client
    because its key is, and the mask with the colluder because it tells its own. The mask with the
    honest survivor stays.
    """
    plain = rng.integers(0, LARGEST + 1, length)
    seed = secrets.token_bytes(32)
    lost, colluder, honest = (weak_pair_key() for _ in range(3))
    known = [weak_mask(key, RING, length) for key in (seed, lost, colluder)]
    # The victim has the lowest number of all, so it subtracts pairwise masks.
    upload = (plain + known[0] - known[1] - known[2] - weak_mask(honest, RING, length)) % RING
    left = (upload - known[0] + known[1] + known[2]) % RING
    return weakly_masked(Peeled(left, True, RING, LARGEST), plain, honest, tried_bits)
