"""What a member answers on an upload, and what the server concludes from the answers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from secagg.decoding import wrong_shares
from secagg.validated.parameters import Parameters
from secagg.validated.proof import Challenges
from secagg.validated.ring import Residues
from secagg.validated.sharing import at_member, slots_at


def answer(
    p: Parameters,
    member: int,
    first: Residues,
    second: Residues,
    functional: Residues,
    constants: Residues,
    challenges: Challenges,
) -> Residues:
    """A member's V1, V2 and L of all repetitions: uint64[3, t].

    Args:
        first: its shares of f and f', uint64[2 polynomials].
        second: of the bits and of the masks, uint64[bit polynomials + 3 t].
        functional: values of the functional at its point, uint64[t, 2 polynomials].
        constants: kappa, uint64[t].
    """
    ring, q = p.ring, p.ring.modulus
    bits, masks = second[: p.bit_polynomials], second[p.bit_polynomials :].reshape(3, -1)
    f, other = first.reshape(2, -1)
    weights = at_member(p, challenges.bit_weights(p), member)
    halves, squares = ring.dot(f, other), ring.by(bits, (bits + ring.q - np.uint64(1)) % ring.q)
    low = np.concatenate([first, bits])
    scale, share = 2 * pow(ring.degree, -1, q), pow(p.per_polynomial, -1, q)
    found = []
    for t in range(p.repetitions):
        v1 = ring.dot(functional[t], first) + ring.dot(weights[t], bits)
        v1 += int(challenges.eta[t]) * scale * halves + int(constants[t]) * share
        v2, last = ring.dot(challenges.zeta[t], squares), ring.dot(challenges.lam[t], low)
        values = (v1, v2, last)
        found.append([(int(m) + v) % q for m, v in zip(masks[:, t], values, strict=True)])
    return np.array(found, np.uint64).T.copy()


def decide(p: Parameters, answers: Mapping[int, Residues | None]) -> frozenset[int] | None:
    """The members who agree on an upload; None if it is rejected.

    Args:
        answers: of all members but those that are away: uint64[3, t], or None for a complaint.
    """
    least = max(p.fewest_agreeing, len(answers) - p.corrupt)
    given = {member: each for member, each in answers.items() if each is not None}
    if len(given) < least:
        return None
    members = list(given)
    stacked = np.stack([given[member] for member in members])
    high = stacked[:, :2].reshape(len(members), -1)
    wrong: set[int] = set()
    for words, degree in ((high, p.product_degree), (stacked[:, 2], p.share_degree)):
        found = wrong_shares(words, members, degree + 1, p.ring.modulus)
        if found is None:
            return None
        wrong |= set(found)
    agreed = [member for member in members if member not in wrong]
    if len(agreed) < least:
        return None
    some = agreed[: p.product_degree + 1]
    slots = slots_at(p, high[[members.index(member) for member in some]], some, p.product_degree)
    sums = slots[: p.repetitions].astype(object).sum(axis=1) % p.ring.modulus
    if sums.any() or slots[p.repetitions :].any():
        return None
    return frozenset(agreed)
