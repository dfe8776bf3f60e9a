"""One client of a validated round: it uploads once, and proves that its vector is short enough.

As in a one-shot round, everything is derived from 32 fresh bytes and from what is uploaded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ParameterError, TooLongError
from secagg.field import FieldVector, centre
from secagg.framing import CONTEXT_TAG_BYTES, encode_message
from secagg.keys import KEY_BYTES, AgreementKey, Identity, os_random
from secagg.keystream import KEY_BYTES as STREAM_KEY_BYTES
from secagg.merkle import HashTree
from secagg.oneshot.client import OneShotClient, UploadSecrets, check_vector, draw_seeds, resend
from secagg.oneshot.gaussian import sample
from secagg.oneshot.layout import reader_of
from secagg.oneshot.states import ClientParty, Seeded, Step, Uploaded
from secagg.oneshot.transitions import ClientPhase, Local
from secagg.sealing import seal
from secagg.shamir import Rand
from secagg.tags import Usage, digest
from secagg.validated.context import ValidatedContext, longest_of
from secagg.validated.messages import (
    FIRST,
    SECOND,
    Upload,
    ValidatedHeader,
    encoded,
    functional_hash,
    leaf_tree,
    pack,
    root1,
    root2,
    seal_label,
    values,
)
from secagg.validated.proof import Challenges, Functional, Rows, witness
from secagg.validated.ring import Residues
from secagg.validated.sharing import deal, packed


def upload(party: ClientParty, state: Seeded, vector: FieldVector) -> Step:
    """Mask the vector, share the key, prove the bound, seal the shares, sign the header."""
    context: ValidatedContext = party.context
    check_vector(context, vector)
    p, secrets = context.parameters, UploadSecrets(party, state, vector)
    ring, size, bound = p.ring, p.blocks * p.ring.degree, context.bound_of(party.index)
    # What is masked: numbers in units of the scale, and an error at every coefficient.
    added = sample(secrets.derived(b"errors", STREAM_KEY_BYTES), size).astype(np.int64)
    added[: context.length] += context.unit * centre(vector)
    norm = squared_norm(added.reshape(p.blocks, -1), longest_of(bound))
    if norm > bound:
        raise TooLongError
    key = sample(secrets.derived(b"key", STREAM_KEY_BYTES), ring.degree)
    secret = ring.forward(ring.reduce(key.reshape(1, -1)))[0]
    elements = context.elements()
    squares = context.squares(elements)
    masks = ring.multiply(elements, secret)
    masked = (masks + ring.reduce(added).reshape(masks.shape)) % ring.q
    ciphertext = pack(ring, masked)
    half = ring.degree // 2
    sides = secret[:half], ring.by(squares[:half], secret[: half - 1 : -1])
    slots = np.concatenate([packed(side, p.per_polynomial) for side in sides])
    rand = reader_of(secrets.derived(b"polynomials", STREAM_KEY_BYTES))
    ephemeral = AgreementKey(secrets.derived(b"ephemeral key", KEY_BYTES))
    agreed = [ephemeral.agree(member.sealing_key) for member in context.committee.members]
    first = _sealed(party, agreed, FIRST, deal(p, slots, p.share_degree, rand))
    fixed = ephemeral.public, digest(Usage.CIPHERTEXT, ciphertext), HashTree(first).root
    root = root1(context, party.index, *fixed)
    rows = Rows(p, root)
    products = rows.products(added)
    if int(products.min(initial=0)) < -p.tau or int(products.max(initial=0)) >= p.tau:
        raise TooLongError
    second = _sealed(party, agreed, SECOND, witness(p, bound - norm, products, rand))
    second_root = HashTree(second).root
    challenges = Challenges.of(p, root2(root, second_root))
    found = Functional.of(p, elements, squares, masked, rows, challenges, bound)
    functional = encoded(context, found)
    header = ValidatedHeader(
        party.index,
        *fixed,
        party.returns,
        b"",
        second_root,
        functional_hash(functional),
        leaf_tree(context, values(context, functional)).root,
    )
    message = Upload(
        context=context.hash[:CONTEXT_TAG_BYTES],
        sender=party.index,
        ephemeral_key=ephemeral.public,
        ciphertext=ciphertext,
        first=b"".join(first),
        second=b"".join(second),
        functional=functional,
        returns=party.returns,
        signature=party.identity.sign(Usage.UPLOAD, *header.signed_parts(context)),
    )
    return Step(Uploaded(encode_message(message), header.digest(context)), message)


def squared_norm(blocks: NDArray[np.int64], longest: int) -> int:
    """The squared norm of int64[B, N], exactly; of one that is too long, no less than its square.

    Args:
        longest: below 2^26, so that the squares of a block do not overflow.
    """
    largest = int(np.abs(blocks).max())
    if largest > longest:
        return largest**2
    return sum(map(int, np.einsum("bi,bi->b", blocks, blocks)))


def _sealed(party: ClientParty, agreed: list[bytes], part: bytes, shares: Residues) -> list[bytes]:
    """The shares of one part, sealed for each member with what was agreed with it."""
    context: ValidatedContext = party.context
    label, ring = seal_label(context, part), context.parameters.ring
    pairs = enumerate(zip(agreed, shares, strict=True))
    return [seal(shared, label, party.index, j, pack(ring, mine)) for j, (shared, mine) in pairs]


class ValidatedClient(OneShotClient):
    """One upload in one round, as `OneShotClient`; `submit` raises `TooLongError` beyond the bound.

    Then nothing was sent, and nothing is sent any more: what a second try would send depends on
    the noise of the first.

    Args:
        least: the smallest bound that we accept, `least_bound` of our own clip and noise, of a
            member its noise's. The server chooses the bound, and a smaller one makes our silence
            tell how long our vector is, which no noise hides.
    """

    def __init__(
        self,
        context: ValidatedContext,
        index: int,
        identity: Identity,
        proof: bytes,
        least: int,
        rand: Rand = os_random,
        returns: bool = False,
    ) -> None:
        super().__init__(context, index, identity, proof, rand, returns)
        bound = context.bound_of(index)
        if bound < least:
            name = "bound" if index < context.invited else "member_bound"
            valid = f"at least {least}, for what we add"
            raise ParameterError(name, bound, valid)

    HANDLERS = {  # noqa: RUF012 - as in the parent
        (ClientPhase.FRESH, Local.SEEDS): draw_seeds,
        (ClientPhase.SEEDED, Local.INPUT): upload,
        (ClientPhase.UPLOADED, Local.RESEND): resend,
    }
