"""The lies that clients are made to tell, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from secagg import FieldVector, Mode
from secagg.field import pack
from secagg.framing import decode_set, encode_set
from secagg.keys import AgreementKey, SecretSeed
from secagg.pairwise.masks import self_key
from secagg.pairwise.messages import (
    COMMITMENT_BYTES,
    Advertisement,
    AnyMessage,
    Confirmation,
    MaskedInput,
    SeedShares,
    ShareBundle,
    UnmaskShares,
    sealed_share_bytes,
    shared_secrets,
)
from secagg.pairwise.prg import expand_mask
from secagg.pairwise.roster import commitment
from secagg.sealing import seal
from secagg.shamir import SHARE_BYTES, decode_share, encode_share, split
from secagg.tags import Usage
from simulations.threats.faults.behaviours import Edit, Lie, and_then, in_two_names, instead
from simulations.threats.faults.liars import Liar
from simulations.threats.faults.transcript import LOW_ORDER
from simulations.threats.game.contexts import Wanted, counter_rand
from simulations.threats.game.knowledge import FIRST_SEED, MASKING_KEY, SELF_MASK

Sending = Iterator[tuple[int, AnyMessage]]

# -- advertisements ---------------------------------------------------------------------------


def _low_order_key(liar: Liar, message: Advertisement) -> AnyMessage:
    which = str(liar.rng.choice(["sealing_key", "masking_key"]))
    key = LOW_ORDER[liar.rng.integers(len(LOW_ORDER))]
    return msgspec.structs.replace(message, **{which: key})


def _repeated_key(liar: Liar, message: Advertisement) -> AnyMessage:
    """Its own key twice, or a key that it has heard another client advertise."""
    heard = AgreementKey(counter_rand(b"%d|" % liar.victim + liar.salt)(32)).public
    copied = heard if liar.rng.random() < 0.5 else message.sealing_key
    return msgspec.structs.replace(message, masking_key=copied)


# -- dealing shares ---------------------------------------------------------------------------


def _deal(liar: Liar, secrets: list[bytes]) -> dict[int, bytes]:
    """Shares of the secrets that a liar deals, by holder."""
    roster = liar.roster
    holders = roster.graph.holders(liar.index)
    shares = split(secrets, holders, roster.threshold, liar.rand)
    return {h: encode_share(shares[i]) for i, h in enumerate(holders)}


def _own_secrets(liar: Liar) -> list[bytes]:
    state = liar.state()
    seeds = [seed.expose() for seed in state.removable]
    return [state.seed.expose(), state.masking.expose(), *seeds]


def _bundle(liar: Liar, message: ShareBundle, deal: dict[int, bytes]) -> ShareBundle:
    """The bundle with these shares; the liar's own one goes into its state."""
    state = liar.change(own_share=deal.pop(liar.index, b""))
    roster = liar.roster
    sealed = b"".join(
        seal(state.agreed[holder].expose(), roster.hash, liar.index, holder, plain)
        for holder, plain in deal.items()
    )
    return msgspec.structs.replace(message, sealed=sealed)


def _shares_of_another(*which: int) -> Edit:
    """Shares of other secrets than those that are committed to, the same for all holders."""

    def edit(liar: Liar, message: ShareBundle) -> AnyMessage:
        secrets = _own_secrets(liar)
        for number in range(len(secrets)):
            if number in which or number > which[-1] >= FIRST_SEED:
                secrets[number] = liar.rand(32)
        return _bundle(liar, message, _deal(liar, secrets))

    return instead(edit)


def _wrong_shares_to_some(liar: Liar, message: ShareBundle) -> AnyMessage:
    deal = _deal(liar, _own_secrets(liar))
    for holder in _some(liar, list(deal)):
        share = decode_share(deal[holder], shared_secrets(liar.context))
        deal[holder] = encode_share(liar.spoiled(share))
        liar.dealt_badly.add(holder)
    return _bundle(liar, message, deal)


def _shares_outside_the_field(liar: Liar, message: ShareBundle) -> AnyMessage:
    deal = _deal(liar, _own_secrets(liar))
    for holder in _some(liar, [h for h in deal if h != liar.index]):
        deal[holder] = b"\xff" * len(deal[holder])
    return _bundle(liar, message, deal)


def _garbage_to_some(liar: Liar, message: ShareBundle) -> AnyMessage:
    size = sealed_share_bytes(liar.context)
    sealed = bytearray(message.sealed)
    for place in _some(liar, list(range(len(sealed) // size))):
        sealed[place * size : (place + 1) * size] = liar.rand(size)
    return msgspec.structs.replace(message, sealed=bytes(sealed))


def _commits_elsewhere(first: int, stop: int | None) -> Edit:
    """Commitments to other seeds than those that are shared, from number `first` on."""

    def edit(liar: Liar, message: ShareBundle) -> AnyMessage:
        begin, end = first * COMMITMENT_BYTES, len(message.commitments)
        end = end if stop is None else stop * COMMITMENT_BYTES
        other = liar.rand(end - begin)
        liar.keeps_commitment = first > SELF_MASK
        commitments = message.commitments[:begin] + other + message.commitments[end:]
        return msgspec.structs.replace(message, commitments=commitments)

    return instead(edit)


def _another_self_mask(liar: Liar, message: ShareBundle) -> AnyMessage:
    """Shares and commits to one seed, masks with another: the same as another input."""
    own = _own_secrets(liar)
    dealt = [liar.rand(32), *own[1:]]
    round_hash, field_, length = liar.roster.hash, liar.context.field, liar.context.length
    used, removed = (
        expand_mask(field_, self_key(SecretSeed(seed), round_hash, liar.index), length)
        for seed in (own[SELF_MASK], dealt[SELF_MASK])
    )
    liar.offset = used.astype(object) - removed.astype(object)
    made = commitment(round_hash, liar.index, 0, SecretSeed(dealt[SELF_MASK]))
    bundle = _bundle(liar, message, _deal(liar, dealt))
    rest = message.commitments[COMMITMENT_BYTES:]
    return msgspec.structs.replace(bundle, commitments=made + rest)


def _some(liar: Liar, among: list[int]) -> list[int]:
    count = int(liar.rng.integers(1, max(2, len(among))))
    return [int(each) for each in liar.rng.choice(among, count, replace=False)]


# -- uploads ----------------------------------------------------------------------------------


def _random_vector(liar: Liar) -> bytes:
    field_ = liar.context.field
    drawn = liar.rng.integers(0, field_.modulus, liar.context.length, np.uint64)
    return pack(FieldVector(field_, drawn.astype(field_.dtype)))


def _another_vector(liar: Liar, message: MaskedInput) -> AnyMessage:
    return msgspec.structs.replace(message, vector=_random_vector(liar))


def _elements_outside_the_field(liar: Liar, message: MaskedInput) -> AnyMessage:
    """One element of all ones, which is never below the prime."""
    bits, length = liar.context.bits, liar.context.length
    place = int(liar.rng.integers(length))
    whole = int.from_bytes(message.vector, "little") | ((1 << bits) - 1) << (place * bits)
    vector = whole.to_bytes(len(message.vector), "little")
    return msgspec.structs.replace(message, vector=vector)


def _shorter_vector(liar: Liar, message: MaskedInput) -> AnyMessage:
    cut = int(liar.rng.integers(len(message.vector)))
    return msgspec.structs.replace(message, vector=message.vector[:cut])


def _speaks_for_another(liar: Liar, message: MaskedInput) -> Sending:
    named = msgspec.structs.replace(message, sender=liar.victim)
    forged = liar.signed(_another_vector(liar, named))
    return in_two_names(liar, message, liar.victim, forged)


# -- confirmations and shares -----------------------------------------------------------------


def _signs_another_set(liar: Liar, message: Confirmation) -> Sending:
    size = liar.context.size
    told = set(decode_set(liar.survivors, size))
    other = encode_set(told ^ {liar.victim}, size)
    signature = liar.identity.sign(Usage.CONFIRM, liar.roster.hash, other)
    yield liar.index, msgspec.structs.replace(message, signature=signature)


def _wrong_shares(liar: Liar, message: UnmaskShares | SeedShares) -> AnyMessage:
    count = len(message.shares) // SHARE_BYTES
    shares = encode_share(liar.spoiled(decode_share(message.shares, count)))
    return msgspec.structs.replace(message, shares=shares)


def _too_few_shares(liar: Liar, message: UnmaskShares) -> AnyMessage:
    return msgspec.structs.replace(message, shares=message.shares[:-SHARE_BYTES])


def _doubled_shares(liar: Liar, message: UnmaskShares) -> AnyMessage:
    return msgspec.structs.replace(message, shares=message.shares + message.shares[-SHARE_BYTES:])


def _shares_of_the_other_kind(liar: Liar, message: UnmaskShares) -> AnyMessage:
    """For every owner the share that must not be given up.

    It is the share of its key if the owner is there, and that of its seed if not.
    """
    alive = set(decode_set(liar.survivors, liar.context.size))
    owners = sorted(liar.held)
    decoded = {u: decode_share(liar.held[u], shared_secrets(liar.context)) for u in owners}
    shares = b"".join(
        encode_share(decoded[u][MASKING_KEY if u in alive else SELF_MASK]) for u in owners
    )
    return msgspec.structs.replace(message, shares=shares)


def _shares_of_other_owners(liar: Liar, message: UnmaskShares) -> AnyMessage:
    """The right shares, in another order."""
    shares = message.shares[SHARE_BYTES:] + message.shares[:SHARE_BYTES]
    return msgspec.structs.replace(message, shares=shares)


def _wrong_seeds(liar: Liar, message: UnmaskShares) -> AnyMessage:
    return msgspec.structs.replace(message, seeds=liar.rand(len(message.seeds)))


_REMOVABLE = Wanted(removable=True)

LIES: Mapping[str, Lie] = {
    "advertises a key of small order": Lie(
        edits={Advertisement: instead(_low_order_key)}, bearable=True
    ),
    # Who copies another's key and is heard first is in the roster, and loses the round as well.
    "advertises a repeated key": Lie(
        edits={Advertisement: instead(_repeated_key)},
        wanted=Wanted(spare=2),
        bearable=True,
    ),
    "shares another self-mask seed": Lie(edits={ShareBundle: _shares_of_another(SELF_MASK)}),
    "shares another masking key": Lie(
        edits={ShareBundle: _shares_of_another(MASKING_KEY)}, leaves_before=MaskedInput
    ),
    "shares other removable seeds": Lie(
        edits={ShareBundle: _shares_of_another(FIRST_SEED)},
        wanted=_REMOVABLE,
        leaves_before=UnmaskShares,
    ),
    "deals wrong shares to some": Lie(edits={ShareBundle: instead(_wrong_shares_to_some)}),
    "deals shares outside the field": Lie(edits={ShareBundle: instead(_shares_outside_the_field)}),
    "seals garbage to some": Lie(edits={ShareBundle: instead(_garbage_to_some)}),
    "commits to another self-mask seed": Lie(edits={ShareBundle: _commits_elsewhere(0, 1)}),
    "commits to other removable seeds": Lie(
        edits={ShareBundle: _commits_elsewhere(1, None)}, wanted=_REMOVABLE
    ),
    "masks with another seed than it shares": Lie(edits={ShareBundle: instead(_another_self_mask)}),
    "uploads another vector": Lie(edits={MaskedInput: instead(_another_vector)}),
    "uploads elements outside the field": Lie(
        edits={MaskedInput: instead(_elements_outside_the_field)}, bearable=True
    ),
    "uploads a shorter vector": Lie(edits={MaskedInput: instead(_shorter_vector)}, bearable=True),
    "uploads two vectors": Lie(edits={MaskedInput: and_then(_another_vector)}, bearable=True),
    "uploads in another's name": Lie(edits={MaskedInput: _speaks_for_another}, bearable=True),
    "signs another survivor set": Lie(
        edits={Confirmation: _signs_another_set},
        wanted=Wanted(mode=Mode.ACTIVE),
        bearable=True,
    ),
    "answers with wrong shares": Lie(
        edits={UnmaskShares: instead(_wrong_shares)}, company_leaves_before=MaskedInput
    ),
    "answers with too few shares": Lie(
        edits={UnmaskShares: instead(_too_few_shares)}, bearable=True
    ),
    "answers with doubled shares": Lie(
        edits={UnmaskShares: instead(_doubled_shares)}, bearable=True
    ),
    "answers with shares of the other kind": Lie(
        edits={UnmaskShares: instead(_shares_of_the_other_kind)},
        company_leaves_before=MaskedInput,
    ),
    "answers with shares of other owners": Lie(
        edits={UnmaskShares: instead(_shares_of_other_owners)}
    ),
    "gives up wrong seeds": Lie(
        edits={UnmaskShares: instead(_wrong_seeds)}, wanted=_REMOVABLE, bearable=True
    ),
    "recovers wrong seeds": Lie(
        edits={SeedShares: instead(_wrong_shares)},
        wanted=_REMOVABLE,
        company_leaves_before=UnmaskShares,
    ),
}
"""Every lie by its name in reports."""
