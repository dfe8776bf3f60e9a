"""The fault campaign of one-shot rounds, and its controls: without a defence it reports a failure.

In a released one-shot sum nearly everything shows as a wrong key, so some controls take away the
test on the errors together with the defence in front of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import campaigns
import numpy as np
import pytest
from campaigns import any_cohort, lacks

from secagg import server as serving
from secagg.errors import TooFewSurvivorsError
from secagg.field import FieldVector
from secagg.framing import decode_set
from secagg.oneshot import collection, messages, opening, packed_sharing, packing, server
from secagg.oneshot import member as member_module
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import Complaints, Upload
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.transitions import ServerPhase
from secagg.sealing import SEAL_OVERHEAD_BYTES, unseal
from secagg.shamir import PRIME
from simulations.threats.faults import FAMILIES, PLAYS, run_campaign
from simulations.threats.faults.one_shot import servers
from simulations.threats.faults.one_shot.servers import SERVERS, play_server
from simulations.threats.game.contexts import KeptKeys
from simulations.threats.game.weak_clients import lacking
from simulations.threats.one_shot.weak import (
    BelievesHeaders,
    NamesClients,
    SignsAgain,
    TakesAnySender,
    no_agreement,
    no_minimum,
    opened_of_any,
)

Patch = pytest.MonkeyPatch
ONE_SHOT = FAMILIES["one-shot"]


@pytest.mark.parametrize("family", ["wire", "encoded"])
def test_without_faults_nothing_is_refused(family: str) -> None:
    staying = [name for name in ONE_SHOT[family] if "leave" not in name]
    found = run_campaign(12, 1, 0.0, names=staying)
    assert found.outcomes == {"exact sum": 12}
    assert not found.refusals
    assert not found.failures


@pytest.mark.parametrize("family", ONE_SHOT)
@pytest.mark.slow
def test_no_promise_is_broken(family: str) -> None:
    found = run_campaign(
        max(3 * len(ONE_SHOT[family]), 20), 3, 0.05, names=[family], protocols=["one-shot"]
    )
    assert found.failures == {}
    assert set(found.behaviours) == set(ONE_SHOT[family])
    # Both kinds of ends occur: a campaign in which nothing succeeds would test little.
    good, bad = ("one set answered", "nothing given up")
    if family != "server":
        good, bad = ("exact sum", "TooFewSurvivorsError")
    assert min(found.outcomes[good], found.outcomes[bad]) > 2


# -- controls -------------------------------------------------------------------------------------


passes_every_key = lacks(opening, "largest_mean_square", lambda *_: float("inf"))
believes_headers = lacks(Header, "is_signed", lambda *_: True)
believes_members = lacks(serving, "signature_is_valid", lambda *_: True)
blames_every_dealer = lacks(opening, "wrong_shares", lambda *_: None)
corrects_no_seeds = lacks(opening._Seeds, "_corrected", lambda *_: None)
corrects_no_sums = lacks(packed_sharing, "_find_wrong", lambda *_: ())
takes_any_sender = lacks(member_module, "unseal", opened_of_any)
keeps_keys = lacks(servers, "kept_keys", KeptKeys)
# Nothing refuses an input, so here the sum itself is broken.
gives_zeros = lacks(
    opening, "lift", lambda values, field: FieldVector(field, field.zeros(values.size))
)
# Bytes that are no upload are nobody's fault.
decodes_carelessly = lacks(
    server, "decode_upload", lambda data, *_: messages._upload.decode(data[1:])
)


def waits_for_everybody(patch: Patch) -> None:
    opened = OneShotServer._open

    def strict(self: OneShotServer) -> Any:
        everybody = self._context.committee.size
        if len(self._answers) < everybody:
            raise TooFewSurvivorsError("open", len(self._answers), everybody)
        return opened(self)

    patch.setattr(OneShotServer, "_open", strict)


def lets_errors_through(patch: Patch) -> None:
    for module in (server, collection):
        patch.setattr(module, "blaming", lambda *_: nullcontext())


def believes_seeds(patch: Patch) -> None:
    from secagg.shamir import LIMBS, from_limbs

    def believing(self: Any, owner: int, secrets: Any) -> Any:
        seeds = [from_limbs(limbs[:LIMBS]) for limbs in secrets.astype(np.uint64)]
        return None if None in seeds else tuple(seeds)

    patch.setattr(opening._Seeds, "_checked", believing)


def opens_everything(patch: Patch) -> None:
    def opened(*arguments: Any) -> bytes:
        try:
            return unseal(*arguments)
        except ValueError:
            return bytes(len(arguments[-1]) - SEAL_OVERHEAD_BYTES)

    patch.setattr(member_module, "unseal", opened)


def reduces_shares(patch: Patch) -> None:
    def lenient(data: bytes, rows: int, columns: int) -> Any:
        return (np.frombuffer(data, "<u4") % PRIME).astype(np.uint32).reshape(rows, columns)

    patch.setattr(member_module, "decode_rows", lenient)


def agrees_on_constants(patch: Patch) -> None:
    campaigns.agrees_on_constants(patch)
    patch.setattr(Header, "has_good_key", lambda _: True)
    opens_everything(patch)


def takes_second_uploads(patch: Patch) -> None:
    original = OneShotServer._on_upload

    def forgetful(self: OneShotServer, message: Upload) -> None:
        self._uploads._headers.pop(message.sender, None)
        original(self, message)

    patch.setitem(OneShotServer.RECEIVERS, (ServerPhase.COLLECTING, Upload), forgetful)


def takes_second_answers(patch: Patch) -> None:
    patch.setattr(serving.Parties, "first", lambda self, sender, *_: sender)
    corrects_no_sums(patch)


def leaves_out_clients(patch: Patch) -> None:
    """Every complaint is believed."""

    def believing(complaints: Any, *_: int, **__: bool) -> Any:
        return frozenset().union(*complaints.values()), frozenset()

    patch.setattr(server, "left_out", believing)


def takes_any_complaint(patch: Patch) -> None:
    def careless(self: OneShotServer, message: Complaints) -> None:
        self._complaints[message.sender] = frozenset(decode_set(message.bad, self._context.size))

    patch.setitem(OneShotServer.RECEIVERS, (ServerPhase.CHECKING, Complaints), careless)


GivesAllSeeds = lacking(
    OneShotMember, (OneShotContext, "removed_seeds", lambda self, _: range(self.seeds))
)
TakesAnyCohort = lacking(OneShotMember, (member_module, "Cohort", lambda _: any_cohort))


def members_are(name: str, weak: Any) -> Callable[[Patch], None]:
    """All honest members are weak ones."""
    play = partial(play_server, SERVERS[name], member=weak)
    return lambda patch: patch.setitem(PLAYS, f"one-shot server: {name}", play)


CONTROLS: dict[str, tuple[Callable[[Patch], None], str]] = {
    "one-shot wire: faults only": (decodes_carelessly, "DecodeError"),
    "one-shot wire: parties leave": (waits_for_everybody, "away ended the round"),
    "one-shot wire: updates encoded, masked, decoded": (
        campaigns.forgets_to_remove,
        "wrong integers",
    ),
}
CONTROLS |= {
    f"one-shot client: {name}": control
    for name, control in {
        "uploads another vector": (gives_zeros, "wrong sum"),
        "masks with another key than it shares": (passes_every_key, "wrong sum"),
        "uploads a random ciphertext": (passes_every_key, "wrong sum"),
        "adds another's ciphertext": (passes_every_key, "wrong sum"),
        "uploads a shorter ciphertext": (lets_errors_through, "ValueError"),
        "uploads numbers outside the ring": (lets_errors_through, "ValueError"),
        "deals wrong shares to some": (blames_every_dealer, "named as dealers"),
        "deals random shares": (blames_every_dealer, "named as dealers"),
        "commits to other seeds": (believes_seeds, "not the ones it committed to"),
        "seals garbage to some": (opens_everything, "ended the round"),
        "seals elements outside the field": (reduces_shares, "ended the round"),
        "seals with a key of small order": (agrees_on_constants, "ended the round"),
        "uploads twice": (takes_second_uploads, "ended the round"),
        "uploads in another's name": (believes_headers, "left out honest clients"),
        "copies another's upload": (takes_any_sender, "wrong sum"),
    }.items()
}
CONTROLS |= {
    f"one-shot member: {name}": control
    for name, control in {
        "complains about everybody": (leaves_out_clients, "left out honest clients"),
        "complains about some": (leaves_out_clients, "left out honest clients"),
        "complains about the absent": (takes_any_complaint, "which sent nothing"),
        "signs another set": (believes_members, "ended the round"),
        "falls silent after signing": (waits_for_everybody, "ended the round"),
        "answers with wrong sums": (corrects_no_sums, "ended the round"),
        "answers with wrong everything": (corrects_no_sums, "ended the round"),
        "answers on another polynomial": (corrects_no_sums, "ended the round"),
        "answers with small shifts": (corrects_no_sums, "ended the round"),
        "gives up wrong seeds": (corrects_no_seeds, "noise of honest clients"),
        "answers with too few elements": (lets_errors_through, "ValueError"),
        "answers with elements outside the field": (lets_errors_through, "ValueError"),
        "answers twice": (takes_second_answers, "ended the round"),
        "answers in another's name": (believes_members, "named as wrong"),
    }.items()
}
WEAK_MEMBERS = {
    "looks at honest answers": (GivesAllSeeds, "other seeds"),
    "splits survivors": (no_agreement, "sets"),
    "asks again": (SignsAgain, "signed 2 sets"),
    "shrinks sets": (no_minimum, "fewer than"),
    "shows another cohort": (TakesAnyCohort, "not its own"),
    "substitutes uploads": (BelievesHeaders, "not its own"),
    "repeats uploads": (TakesAnySender, "counted twice"),
    "shows two uploads of one client": (NamesClients, "sets"),
    "shows too few signatures": (no_agreement, "no quorum"),
}
CONTROLS |= {
    f"one-shot server: {name}": (members_are(name, weak), what)
    for name, (weak, what) in WEAK_MEMBERS.items()
}
CONTROLS["one-shot server: restores members"] = (keeps_keys, "signed 2 sets")


def test_every_behaviour_has_a_control() -> None:
    assert set(CONTROLS) == {name for plays in ONE_SHOT.values() for name in plays}


@pytest.mark.parametrize("name", CONTROLS)
def test_without_the_defence_the_campaign_reports_a_failure(monkeypatch: Patch, name: str) -> None:
    disable, what = CONTROLS[name]
    disable(monkeypatch)
    assert campaigns.reports(name, what)


def test_without_the_zeros_after_short_vectors_wrong_sums_are_released(monkeypatch: Patch) -> None:
    """All members add the same small numbers: only the errors tell."""
    monkeypatch.setattr(packing, "FEWEST_COEFFICIENTS", 1)
    assert campaigns.reports("one-shot member: answers with small shifts", "wrong sum", 220)
