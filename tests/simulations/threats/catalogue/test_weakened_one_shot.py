"""With one defence taken from the one-shot protocol itself, the attack is seen to succeed."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from protocol import ClientHistory, PolicyError
from protocol.round import draw_policy
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.draw_policy import DrawPolicy
from secagg.oneshot import client, context, member, opening, packed_sharing, sortition
from secagg.oneshot.committee import Committee
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.messages import Proposal, Quorum
from secagg.oneshot.states import Checked, Confirmed, Finished, MemberParty, Step
from secagg.oneshot.transitions import MemberPhase
from secagg.sealing import unseal
from secagg.tags import Usage, digest, encode_index
from simulations.threats.catalogue import CATALOGUE, Effort
from simulations.threats.one_shot.lattice import core_svp
from simulations.threats.one_shot.opened import two_keys
from simulations.threats.one_shot.weak import weakened

ATTACKS = {attack.id: attack for attack in CATALOGUE if 33 <= int(attack.id[1:]) < 55}
ROUNDS = 3


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Effort, "choose", lambda self, quick, full: min(quick, ROUNDS))


def succeeds(attack: str) -> bool:
    return bool(ATTACKS[attack].run(Effort.QUICK, 1).real["succeeded"])


def handle(
    monkeypatch: pytest.MonkeyPatch,
    event: tuple[MemberPhase, type],
    changed: Callable[..., Any],
) -> None:
    """Put a changed handler in the place of the product's."""
    right = member.HANDLERS[event]
    monkeypatch.setitem(member.HANDLERS, event, lambda *arguments: changed(right, *arguments))


@pytest.mark.parametrize("attack", ATTACKS)
def test_with_all_defences_no_attack_succeeds(attack: str) -> None:
    assert not succeeds(attack)


def test_headers_and_seals_that_leave_the_context_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "digest", lambda *_: bytes(32))
    assert succeeds("A33")


@pytest.mark.parametrize("attack", ["A34", "A36"])
def test_signatures_that_are_verified_and_not_counted(
    monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    def changed(
        right: Callable[..., Step], party: MemberParty, state: Confirmed, message: Quorum
    ) -> Step:
        lax = weakened(party.context, committee=weakened(party.context.committee, quorum=1))
        return right(dataclasses.replace(party, context=lax), state, message)

    handle(monkeypatch, (MemberPhase.CONFIRMED, Quorum), changed)
    assert succeeds(attack)


def test_signatures_that_are_counted_and_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "signature_is_valid", lambda *_: True)
    assert succeeds("A34")


def test_members_without_agreement_and_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_set(
        right: Callable[..., Step], party: MemberParty, state: Checked, message: Proposal
    ) -> Step:
        lax = weakened(party.context, minimum_survivors=1)
        return right(dataclasses.replace(party, context=lax), state, message)

    handle(monkeypatch, (MemberPhase.CHECKED, Proposal), any_set)
    assert succeeds("A38")
    assert not succeeds("A35")
    test_signatures_that_are_verified_and_not_counted(monkeypatch, "A34")
    assert succeeds("A35")


def test_a_member_that_goes_back_after_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[int, Checked] = {}

    def signing(
        right: Callable[..., Step], party: MemberParty, state: Checked, message: Proposal
    ) -> Step:
        kept[party.index] = state
        return right(party, state, message)

    def answering(
        right: Callable[..., Step], party: MemberParty, state: Confirmed, message: Quorum
    ) -> Step:
        step = right(party, state, message)
        assert isinstance(step.state, Finished)
        return Step(kept[party.index], step.outbound)

    handle(monkeypatch, (MemberPhase.CHECKED, Proposal), signing)
    handle(monkeypatch, (MemberPhase.CONFIRMED, Quorum), answering)
    right = member.OneShotMember.MOVES[MemberPhase.CONFIRMED, Quorum]
    moves = {**member.OneShotMember.MOVES}
    moves[MemberPhase.CONFIRMED, Quorum] = right | {MemberPhase.CHECKED}
    monkeypatch.setattr(member.OneShotMember, "MOVES", moves)
    assert succeeds("A36")


def test_headers_that_nobody_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Header, "is_signed", lambda *_: True)
    assert succeeds("A37")


def test_a_cohort_that_nobody_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "Cohort", lambda keys: AnyCohort())
    assert succeeds("A37")


class AnyRoot(bytes):
    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


class AnyCohort:
    root = AnyRoot()


def test_sets_of_bare_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(on: OneShotContext, headers: Sequence[Header]) -> bytes:
        names = b"".join(encode_index(each.sender) for each in headers)
        return digest(Usage.SURVIVORS, on.hash, names)

    monkeypatch.setattr(member, "survivors_digest", bare)
    assert succeeds("A39")


def test_secrets_that_do_not_depend_on_the_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    made = client._UploadSecrets.__init__

    def init(self: Any, party: Any, state: Any, vector: Any) -> None:
        made(self, party, state, vector)
        self._bound = (party.context.hash, encode_index(party.index))

    monkeypatch.setattr(client._UploadSecrets, "__init__", init)
    assert succeeds("A40")


def test_seals_that_leave_the_sender_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(shared: bytes, hashed: bytes, sender: int, to: int, sealed: bytes) -> bytes:
        for other in (sender, 0):
            try:
                return unseal(shared, hashed, other, to, sealed)
            except ValueError:
                continue
        return unseal(shared, hashed, sender, to, sealed)

    monkeypatch.setattr(member, "unseal", opened)
    assert succeeds("A41")


def test_errors_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "largest_mean_square", lambda *_: float("inf"))
    assert succeeds("A42")


def test_no_post_mortem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "wrong_shares", lambda *_: ())
    assert succeeds("A43")


def test_answers_that_nobody_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_sharing, "_find_wrong", lambda *_: ())
    assert succeeds("A44")


def test_contexts_without_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "check_ring", lambda *_, **__: None)
    assert succeeds("A45")


def test_the_next_base(monkeypatch: pytest.MonkeyPatch) -> None:
    from simulations.threats.catalogue.one_shot_terms import EvenPacking

    monkeypatch.setattr(context, "Packing", EvenPacking)
    assert succeeds("A46")


@pytest.mark.parametrize("signed", [True, False])
def test_sealing_keys_that_are_half_checked(monkeypatch: pytest.MonkeyPatch, signed: bool) -> None:
    """Either the signature is looked at, or the range."""
    monkeypatch.setattr(Effort, "choose", lambda self, quick, full: 5)

    def check(self: Committee, session_id: bytes, round_number: int) -> None:
        for each in self.members:
            inside = each.first_round <= round_number <= each.last_round
            if not (each.is_signed(session_id) if signed else inside):
                raise context.ParameterError("sealing_key", "a member's", "valid")

    monkeypatch.setattr(Committee, "check_keys", check)
    assert succeeds("A47")


def test_policies_that_do_not_look_at_the_committee(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitteePolicy, "check", lambda *_: None)
    assert succeeds("A48")


def test_histories_that_forget_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientHistory, "_enter", lambda *_: True)
    assert succeeds("A49")


@pytest.mark.parametrize("attack", ["A50", "A51", "A52"])
def test_policies_that_do_not_look_at_the_draw(
    monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    monkeypatch.setattr(DrawPolicy, "check", lambda *_: None)
    assert succeeds(attack)


def test_places_that_nobody_looks_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sortition, "joint_proof_is_valid", lambda *_: True)
    assert succeeds("A50")
    assert not succeeds("A51")


@pytest.mark.parametrize(
    ("left_out", "attack"), [({"registry_root", "registry_size"}, "A51"), ({"odds"}, "A52")]
)
def test_terms_of_a_draw_that_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, left_out: set[str], attack: str
) -> None:
    def check(self: DrawPolicy, on: OneShotContext, places: sortition.Places | None) -> None:
        theirs = on.committee.draw
        assert theirs is not None
        kept = {name: getattr(theirs, name) for name in left_out}
        ours = dataclasses.replace(self._draw(b""), **kept)
        members = [each.identity for each in on.committee.members]
        if theirs != ours or places is None or not places.hold(ours, members):
            raise PolicyError("draw", "another", "ours")

    monkeypatch.setattr(DrawPolicy, "check", check)
    others = {"A50", "A51", "A52"} - {attack}
    assert succeeds(attack)
    assert not any(map(succeeds, others))


def test_contexts_that_do_not_look_at_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Committee, "check_draw", lambda *_: None)
    assert succeeds("A53")


def test_a_bound_without_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    few = draw_policy.corrupt_bound
    monkeypatch.setattr(draw_policy, "corrupt_bound", lambda count, odds, _: few(count, odds, 1))
    assert succeeds("A54")


def test_sessions_in_a_draw_with_a_beacon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has the beacon, and chooses the session after it."""

    def seed(self: sortition.Draw, session_id: bytes, round_number: int) -> bytes:
        return digest(Usage.DRAW, self.encode(), session_id, encode_index(round_number))

    monkeypatch.setattr(sortition.Draw, "seed", seed)
    assert succeeds("A54")


def test_identities_in_a_draw_without_their_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a server makes them up one by one before it registers them: every one is drawn."""

    def seed(self: sortition.Draw, session_id: bytes, round_number: int) -> bytes:
        return digest(Usage.DRAW, session_id, encode_index(round_number))

    def registered(draw: sortition.Draw) -> tuple[list[bytes], sortition.Draw]:
        """Twelve made-up identities with low tickets, and the draw once they are registered."""
        known, names = draw.seed(bytes(16), 0), (b"%032d" % i for i in itertools.count())
        low = (name for name in names if sortition.ticket(known, name) < draw.odds)
        found = list(itertools.islice(low, 12))
        registry = sortition.Registry(found)
        return found, dataclasses.replace(draw, registry_root=registry.root)

    def drawn() -> int:
        draw = sortition.Draw(registry_root=bytes(32), registry_size=12, odds=1 << 60)
        found, draw = registered(draw)
        fresh = draw.seed(bytes(16), 0)
        return sum(sortition.ticket(fresh, name) < draw.odds for name in found)

    assert drawn() <= 6  # P[Bin(12, 1/16) > 6] < 1e-5; the names are fixed
    monkeypatch.setattr(sortition.Draw, "seed", seed)
    assert drawn() == 12


# -- helpers of the attacks -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degree", "bits", "expected"),
    [(1024, 27, 112), (2048, 54, 104), (4096, 81, 151), (8192, 189, 119), (4096, 108, 100)],
)
def test_core_svp_is_that_of_the_table(degree: int, bits: int, expected: int) -> None:
    assert round(core_svp(degree, bits)) == expected


def test_two_small_keys_are_found_from_one_combination_or_not_at_all() -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(-84, 85, (2, 50))
    factor = 154_387_739
    combined = (keys[0] + factor * keys[1]) % (2**31 - 1)
    found = two_keys(combined, 1, factor, 84)
    assert found is not None
    assert np.array_equal(np.stack(found), keys)
    assert two_keys((combined + 12_345) % (2**31 - 1), 1, factor, 84) is None
    # 27 k + 7 k': k and k' can be moved against each other.
    assert two_keys((27 * keys[0] + 7 * keys[1]) % (2**31 - 1), 27, 7, 84) is None
