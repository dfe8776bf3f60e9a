"""The lies that members of a committee are made to tell, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from secagg.framing import encode_set
from secagg.oneshot.messages import Answer, Complaints, Confirmation, Upload
from secagg.shamir import PRIME
from secagg.tags import Usage
from simulations.threats.faults.behaviours import Edit, Lie, and_then, in_two_names, instead
from simulations.threats.faults.one_shot.liars import FromMember, LyingMember
from simulations.threats.faults.one_shot.parties import signer_of
from simulations.threats.game.contexts import Wanted

Sending = Iterator[tuple[int, FromMember]]

# -- complaints and signatures --------------------------------------------------------------------


def _about_everybody(liar: LyingMember, message: Complaints) -> FromMember:
    return msgspec.structs.replace(message, bad=encode_set(liar.uploaded, liar.context.size))


def _about_some(liar: LyingMember, message: Complaints) -> FromMember:
    some = [u for u in liar.uploaded if liar.rng.random() < 0.4]
    return msgspec.structs.replace(message, bad=encode_set(some, liar.context.size))


def _about_the_absent(liar: LyingMember, message: Complaints) -> FromMember:
    absent = set(range(liar.context.size)) - set(liar.uploaded)
    return msgspec.structs.replace(message, bad=encode_set(absent, liar.context.size))


def _signs_another_set(liar: LyingMember, message: Confirmation) -> Sending:
    """A digest of something else, signed as a set of survivors."""
    signature = signer_of(liar.context, liar.index).sign(
        Usage.SURVIVORS, bytes(reversed(liar.signed_digest))
    )
    yield liar.number, msgspec.structs.replace(message, signature=signature)


# -- answers --------------------------------------------------------------------------------------


def _words(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<u4").astype(np.int64)


def _plus(data: bytes, shift: np.ndarray) -> bytes:
    return bytes(((_words(data) + shift) % PRIME).astype("<u4").data)


def _noise(liar: LyingMember, data: bytes) -> bytes:
    """Something else in one element, or in all."""
    words = _words(data)
    if not words.size:
        return data
    shift = liar.rng.integers(1, PRIME, words.size)
    if liar.rng.random() < 0.5:
        shift[np.arange(words.size) != liar.rng.integers(words.size)] = 0
    return _plus(data, shift)


def _wrong_sums(liar: LyingMember, message: Answer) -> FromMember:
    return msgspec.structs.replace(message, sums=_noise(liar, message.sums))


def _wrong_everything(liar: LyingMember, message: Answer) -> FromMember:
    parts = {name: _noise(liar, getattr(message, name)) for name in ("sums", "seeds", "checks")}
    return msgspec.structs.replace(message, **parts)


def _another_polynomial(liar: LyingMember, message: Answer) -> FromMember:
    """All liars add values of the same polynomials, of the right degree."""
    width = liar.context.layout.key_polynomials
    factors = liar.agreed().integers(1, PRIME, (liar.context.committee.threshold, width))
    x = liar.index + 1
    shift = sum(row * pow(x, power, PRIME) % PRIME for power, row in enumerate(factors))
    return msgspec.structs.replace(message, sums=_plus(message.sums, np.asarray(shift)))


def _small_shift(liar: LyingMember, message: Answer) -> FromMember:
    """All liars add the same small number: with T = l = 1 some honest clients might have the key.

    A constant is a polynomial of every degree.
    """
    width = liar.context.layout.key_polynomials
    shift = liar.agreed().integers(0, 3, width)
    return msgspec.structs.replace(message, sums=_plus(message.sums, shift))


def _wrong_seeds(liar: LyingMember, message: Answer) -> FromMember:
    return msgspec.structs.replace(message, seeds=_noise(liar, message.seeds))


def _too_few_elements(liar: LyingMember, message: Answer) -> FromMember:
    name = str(liar.rng.choice(["sums", "checks"]))
    return msgspec.structs.replace(message, **{name: getattr(message, name)[:-4]})


def _outside_the_field(liar: LyingMember, message: Answer) -> FromMember:
    name = str(liar.rng.choice(["sums", "checks"]))
    return msgspec.structs.replace(message, **{name: b"\xff" * 4 + getattr(message, name)[4:]})


def _answers_for_another(liar: LyingMember, message: Answer) -> Sending:
    size = liar.context.committee.size
    victim = (liar.index + int(liar.rng.integers(1, size))) % size
    wrong = msgspec.structs.replace(message, sums=_noise(liar, message.sums), sender=victim)
    return in_two_names(liar, message, liar.context.size + victim, liar.signed(wrong))


def _lie(
    kind: type, edit: Edit, *, bearable: bool = True, removable: bool | None = None, spare: int = 0
) -> Lie:
    wanted = Wanted(removable=removable, corrupt=1, spare=spare)
    return Lie(edits={kind: edit}, wanted=wanted, bearable=bearable)


MEMBER_LIES: Mapping[str, Lie] = {
    "complains about everybody": _lie(Complaints, instead(_about_everybody), spare=1),
    "complains about some": _lie(Complaints, instead(_about_some), spare=1),
    "complains about the absent": Lie(
        edits={Complaints: instead(_about_the_absent)},
        wanted=Wanted(corrupt=1, spare=1),
        company_leaves_before=Upload,
        bearable=True,
    ),
    "signs another set": _lie(Confirmation, _signs_another_set),
    "falls silent after signing": Lie(
        wanted=Wanted(corrupt=1), leaves_before=Answer, bearable=True
    ),
    "answers with wrong sums": _lie(Answer, instead(_wrong_sums)),
    "answers with wrong everything": _lie(Answer, instead(_wrong_everything)),
    "answers on another polynomial": _lie(Answer, instead(_another_polynomial)),
    "answers with small shifts": _lie(Answer, instead(_small_shift)),
    "gives up wrong seeds": _lie(Answer, instead(_wrong_seeds), removable=True),
    "answers with too few elements": _lie(Answer, instead(_too_few_elements)),
    "answers with elements outside the field": _lie(Answer, instead(_outside_the_field)),
    "answers twice": _lie(Answer, and_then(_wrong_sums)),
    "answers in another's name": _lie(Answer, _answers_for_another),
}
"""Every lie of a member by its name in reports."""
