"""The lies that clients of one-shot rounds are made to tell, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from secagg.oneshot.header import seed_commitment
from secagg.oneshot.masking import Accumulator
from secagg.oneshot.messages import Upload
from secagg.oneshot.ring import Residues
from secagg.oneshot.wire import Ciphertext
from secagg.shamir import PRIME
from simulations.threats.faults.behaviours import Edit, Lie, in_two_names
from simulations.threats.faults.one_shot.liars import Draft, LyingClient
from simulations.threats.faults.one_shot.parties import random_vectors
from simulations.threats.faults.transcript import LOW_ORDER
from simulations.threats.game.contexts import Wanted

Sending = Iterator[tuple[int, Upload]]


def _drafted(change: Callable[[LyingClient, Draft], None]) -> Edit:
    """One upload, of parts of which some are changed."""

    def sending(liar: LyingClient, draft: Draft) -> Sending:
        change(liar, draft)
        yield liar.index, liar.upload(draft)

    return sending


def _edited(change: Callable[[LyingClient, Upload], Upload]) -> Edit:
    """One upload, changed when it was made, and signed again."""

    def sending(liar: LyingClient, draft: Draft) -> Sending:
        yield liar.index, liar.signed(change(liar, liar.upload(draft)))

    return sending


# -- the vector and its mask ----------------------------------------------------------------------


def _another_vector(liar: LyingClient, draft: Draft) -> None:
    draft.vector = random_vectors(liar.rng, liar.context)[0]


def _another_key(liar: LyingClient, draft: Draft) -> None:
    draft.key = liar.drawn_key()


def _random_ciphertext(liar: LyingClient, message: Upload) -> Upload:
    packing = liar.context.packing
    count = packing.coefficients(liar.context.length)
    drawn = [liar.rng.integers(0, p, count) for p in packing.ring.primes]
    return _with_residues(liar, message, np.array(drawn, np.uint32))


def _adds_anothers(liar: LyingClient, message: Upload) -> Upload:
    """The sum of two ciphertexts; the key that is shared is that of one."""
    total = Accumulator(liar.context.packing, liar.context.length)
    for each in (message, liar.anothers()):
        total.add(each.ciphertext)
    return _with_residues(liar, message, total.residues())


def _with_residues(liar: LyingClient, message: Upload, residues: Residues) -> Upload:
    """Another ciphertext, rounded as in the round: of uint32[L, coefficients]."""
    packing, length = liar.context.packing, liar.context.length
    ciphertext = Ciphertext(packing, length, residues).encode()
    return msgspec.structs.replace(message, ciphertext=ciphertext)


def _shorter_ciphertext(liar: LyingClient, message: Upload) -> Upload:
    cut = int(liar.rng.integers(len(message.ciphertext)))
    return msgspec.structs.replace(message, ciphertext=message.ciphertext[:cut])


def _numbers_outside_the_ring(liar: LyingClient, message: Upload) -> Upload:
    """All ones in the place of the first numbers."""
    ones = b"\xff" * 32
    return msgspec.structs.replace(message, ciphertext=ones + message.ciphertext[32:])


# -- shares ---------------------------------------------------------------------------------------


def _wrong_shares_to_some(liar: LyingClient, draft: Draft) -> None:
    for j in liar.some_members():
        column = int(liar.rng.integers(liar.context.layout.key_polynomials))
        draft.rows[j, column] = (int(draft.rows[j, column]) + liar.rng.integers(1, PRIME)) % PRIME
        liar.dealt_badly.add(j)


def _random_shares(liar: LyingClient, draft: Draft) -> None:
    draft.rows = liar.rng.integers(0, PRIME, draft.rows.shape).astype(np.uint32)
    liar.dealt_badly.update(range(len(draft.rows)))


def _other_seeds(liar: LyingClient, draft: Draft) -> None:
    """Commits to others than those that it shares."""
    draft.commitments = [
        seed_commitment(liar.context, liar.index, which, liar.rand(32))
        for which in range(liar.context.seeds)
    ]


def _garbage_to_some(liar: LyingClient, draft: Draft) -> None:
    draft.sealed = {j: liar.garbage() for j in liar.some_members()}


def _shares_outside_the_field(liar: LyingClient, draft: Draft) -> None:
    """Sealed as it should be, under the key of the upload."""
    ones = b"\xff" * draft.rows[0].nbytes
    draft.plain = dict.fromkeys(liar.some_members(), ones)


# -- names ----------------------------------------------------------------------------------------


def _low_order_key(liar: LyingClient, message: Upload) -> Upload:
    key = LOW_ORDER[int(liar.rng.integers(len(LOW_ORDER)))]
    return msgspec.structs.replace(message, ephemeral_key=key)


def _two_uploads(liar: LyingClient, draft: Draft) -> Sending:
    yield liar.index, liar.upload(draft)
    _another_vector(liar, draft)
    yield liar.index, liar.upload(draft)


def _speaks_for_another(liar: LyingClient, draft: Draft) -> Sending:
    own = liar.upload(draft)
    forged = liar.signed(msgspec.structs.replace(liar.upload(draft), sender=liar.victim))
    return in_two_names(liar, own, liar.victim, forged)


def _copies_another(liar: LyingClient, message: Upload) -> Upload:
    """All that another client sent, under its own name."""
    return msgspec.structs.replace(liar.anothers(), sender=liar.index)


def _lie(edit: Edit, *, bearable: bool = False, removable: bool | None = None) -> Lie:
    wanted = Wanted(removable=removable, colluders=1, spare=1)
    return Lie(edits={Upload: edit}, wanted=wanted, bearable=bearable)


CLIENT_LIES: Mapping[str, Lie] = {
    "uploads another vector": _lie(_drafted(_another_vector), bearable=True),
    "masks with another key than it shares": _lie(_drafted(_another_key)),
    "uploads a random ciphertext": _lie(_edited(_random_ciphertext)),
    "adds another's ciphertext": _lie(_edited(_adds_anothers)),
    "uploads a shorter ciphertext": _lie(_edited(_shorter_ciphertext), bearable=True),
    "uploads numbers outside the ring": _lie(_edited(_numbers_outside_the_ring), bearable=True),
    "deals wrong shares to some": _lie(_drafted(_wrong_shares_to_some)),
    "deals random shares": _lie(_drafted(_random_shares)),
    "commits to other seeds": _lie(_drafted(_other_seeds), bearable=True, removable=True),
    "seals garbage to some": _lie(_drafted(_garbage_to_some), bearable=True),
    "seals elements outside the field": _lie(_drafted(_shares_outside_the_field), bearable=True),
    "seals with a key of small order": _lie(_edited(_low_order_key), bearable=True),
    "uploads twice": _lie(_two_uploads, bearable=True),
    "uploads in another's name": _lie(_speaks_for_another, bearable=True),
    "copies another's upload": _lie(_edited(_copies_another), bearable=True),
}
"""Every lie of a client by its name in reports."""
