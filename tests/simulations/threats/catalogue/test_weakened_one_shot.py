"""With one defence taken from the one-shot protocol itself, the attack is seen to succeed.

The twins of the catalogue lack other defences, or lack them in another place.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from campaigns import any_cohort

from protocol import ClientHistory, PolicyError
from protocol.round import draw_policy
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.draw_policy import DrawPolicy
from secagg.oneshot import client, context, member, sortition
from secagg.oneshot.committee import Committee
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.messages import Quorum
from secagg.oneshot.states import Confirmed, MemberParty, Step
from secagg.oneshot.transitions import MemberPhase
from secagg.tags import Usage, digest, encode_index
from simulations.threats.catalogue import CATALOGUE, Effort
from simulations.threats.catalogue.one_shot_terms import core_svp
from simulations.threats.game.weak_clients import weakened
from simulations.threats.one_shot.opened import two_keys

pytestmark = pytest.mark.slow

ATTACKS = {attack.id: attack for attack in CATALOGUE if 33 <= int(attack.id[1:]) < 55}
ROUNDS = 3


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Effort, "choose", lambda self, quick, full: min(quick, ROUNDS))


def succeeds(attack: str) -> bool:
    return bool(ATTACKS[attack].run(Effort.QUICK, 1).real["succeeded"])


LACKING = [
    ("A34", member, "signature_is_valid", lambda *_: True),
    ("A37", member, "Cohort", lambda keys: any_cohort),
    ("A48", CommitteePolicy, "check", lambda *_: None),
    ("A49", ClientHistory, "_enter", lambda *_: True),
    ("A50", DrawPolicy, "check", lambda *_: None),
    ("A51", DrawPolicy, "check", lambda *_: None),
    ("A52", DrawPolicy, "check", lambda *_: None),
]


@pytest.mark.parametrize(("attack", "owner", "name", "instead"), LACKING)
def test_without_a_check_of_the_product_the_attack_succeeds(
    monkeypatch: pytest.MonkeyPatch, attack: str, owner: Any, name: str, instead: Any
) -> None:
    monkeypatch.setattr(owner, name, instead)
    assert succeeds(attack)


@pytest.mark.parametrize("attack", ["A34", "A36"])
def test_signatures_that_are_verified_and_not_counted(
    monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    def changed(
        right: Callable[..., Step], party: MemberParty, state: Confirmed, message: Quorum
    ) -> Step:
        lax = weakened(party.context, committee=weakened(party.context.committee, quorum=1))
        return right(dataclasses.replace(party, context=lax), state, message)

    event = (MemberPhase.CONFIRMED, Quorum)
    monkeypatch.setitem(member.HANDLERS, event, partial(changed, member.HANDLERS[event]))
    assert succeeds(attack)


def test_secrets_that_do_not_depend_on_the_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    made = client.UploadSecrets.__init__

    def init(self: Any, party: Any, state: Any, vector: Any) -> None:
        made(self, party, state, vector)
        self._bound = (party.context.hash, encode_index(party.index))

    monkeypatch.setattr(client.UploadSecrets, "__init__", init)
    assert succeeds("A40")


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
