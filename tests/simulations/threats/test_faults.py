"""The fault campaign, short, and its controls: without a defence it must report a failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import campaigns
import numpy as np
import pytest
from campaigns import lacks, no_check
from typer.testing import CliRunner, Result

from secagg import (
    ClientSession,
    Identity,
    ProtocolError,
    Reason,
    RemoteProtocolError,
    ServerSession,
    shamir,
)
from secagg import server as serving
from secagg.field import FieldVector
from secagg.keys import signature_is_valid
from secagg.pairwise import (
    client,
    context,
    roster,
    server,
    surplus,
)
from secagg.pairwise.messages import SeedRequest
from secagg.sealing import SEAL_OVERHEAD_BYTES
from secagg.server import Parties
from secagg.shamir import LIMBS
from secagg.tags import Usage
from simulations.commands.cli import app
from simulations.common.provenance import provenance
from simulations.threats.faults import (
    FAMILIES,
    FAULTS,
    PLAYS,
    Campaign,
    behaviours_named,
    run_campaign,
    run_schedule,
)
from simulations.threats.faults.behaviours import no_hang
from simulations.threats.faults.campaign import RESULT, OtherCampaignError, Question, run_kept

Patch = pytest.MonkeyPatch

WIRE = "wire: faults only"
ENCODED = "wire: updates encoded, masked, decoded"


@pytest.mark.parametrize("name", [WIRE, ENCODED])
def test_without_faults_every_sum_is_exact(name: str) -> None:
    found = run_campaign(40, 1, 0.0, names=[name])
    assert found.outcomes == {"exact sum": 40}
    assert not found.refusals
    assert not found.failures


@pytest.mark.parametrize(
    ("rate", "schedules"), [(0.1, 60), pytest.param(0.02, 120, marks=pytest.mark.slow)]
)
def test_with_faults_sums_are_exact_or_rounds_end_in_typed_errors(
    rate: float, schedules: int
) -> None:
    found = run_campaign(schedules, 7, rate, names=["wire", "encoded"], protocols=["pairwise"])
    assert found.failures == {}
    assert set(found.outcomes) <= {"exact sum", "TooFewSurvivorsError", "RemoteProtocolError"}
    assert found.outcomes["exact sum"] > schedules // 6
    # Every kind of fault was tried, and many kinds of refusal seen.
    assert set(found.faults) == set(FAULTS)
    assert len(found.refusals) >= 8


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_schedule_repeats(step: int) -> None:
    for number, name in list(enumerate(PLAYS))[::step]:
        first, second = Campaign(), Campaign()
        ends = [run_schedule(number, 7, 0.1, each, name) for each in (first, second)]
        assert ends[0] == ends[1]
        assert first == second


@pytest.mark.parametrize("family", ["client", "server"])
@pytest.mark.slow
def test_hostile_parties_break_no_promise(family: str) -> None:
    plays = FAMILIES["pairwise"][family]
    found = run_campaign(5 * len(plays), 3, 0.05, names=list(plays))
    assert found.failures == {}
    assert set(found.behaviours) == set(plays)
    # Both good ends occur: a campaign in which nothing ever succeeds would test little.
    good = {"client": ("exact sum", "WrongSharesError"), "server": ("one set answered",)}
    assert all(found.outcomes[end] > 3 for end in good[family])


# -- controls ---------------------------------------------------------------------------------
# One defence is taken away, and the campaign must report what it was for.


any_tree = lacks(roster, "proof_is_valid")
keys_may_repeat = lacks(roster, "check_distinct_keys")
# Nobody notices keys of small order until an agreement fails.
takes_any_key = lacks(roster, "check_public_key")
takes_second_messages = lacks(Parties, "first", lambda self, sender, seen, allowed=(): sender)
# Nothing refuses an input, so here the sum itself is broken.
loses_uploads = lacks(server, "add_into", lambda total, vector: None)
# Clients take whatever is in a sealed share, and do not look at it.
opens_everything = lacks(
    client, "_open_share", lambda party, state, sender, sealed: sealed[SEAL_OVERHEAD_BYTES:]
)
counts_no_shares = lacks(
    server, "decode_share", lambda data, _: np.frombuffer(data, "<u4").reshape(-1, LIMBS)
)
# What follows is bound to the context, but to no roster.
roster_without_hash = lacks(roster, "_round_hash", lambda context, members, root: context.hash)


def believes_rebuilt(patch: Patch) -> None:
    """The server compares no rebuilt seed or key with what its owner committed to."""
    patch.setattr(ServerSession, "_is_committed", no_check)
    takes_any_limbs(patch)


def believes_seeds(patch: Patch) -> None:
    patch.setattr(surplus.SurplusSeeds, "_is_committed", no_check)
    takes_any_limbs(patch)


def takes_any_limbs(patch: Patch) -> None:
    """Limbs that belong to no secret of 32 bytes are cut to size."""

    def cut(limbs: Any) -> bytes:
        whole = sum(int(limb) << (30 * i) for i, limb in enumerate(limbs))
        return (whole % (1 << 256)).to_bytes(32, "little")

    patch.setattr(shamir, "from_limbs", cut)


def takes_repeated_keys(patch: Patch) -> None:
    original = ServerSession._on_advertisement

    def forgetful(self: ServerSession, message: Any) -> None:
        self._public_keys.clear()
        twice = message.sealing_key == message.masking_key
        if not twice:
            original(self, message)
            return
        roster.check_advertisement(self._context, message)
        self._advertisements[message.sender] = message

    patch.setattr(ServerSession, "_on_advertisement", forgetful)
    patch.setitem(server.ServerSession.RECEIVERS, _key_of("_on_advertisement"), forgetful)


def _key_of(name: str) -> Any:
    return next(
        key for key, each in server.ServerSession.RECEIVERS.items() if each.__name__ == name
    )


def unpacks_anything(patch: Patch) -> None:
    """Elements are reduced instead of refused; short vectors are filled up."""

    def lenient(packed: bytes, length: int, field: Any) -> FieldVector:
        whole = int.from_bytes(packed, "little")
        mask = (1 << field.bits) - 1
        elements = [(whole >> (i * field.bits) & mask) % field.modulus for i in range(length)]
        return FieldVector(field, np.array(elements, field.dtype))

    patch.setattr(server, "unpack", lenient)


def takes_short_vectors(patch: Patch) -> None:
    """Nobody compares the length of a vector with the round's."""
    from secagg.field import PrimeField

    unpacks_anything(patch)

    class AnyLength(int):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    original = PrimeField.packed_bytes
    patch.setattr(PrimeField, "packed_bytes", lambda self, n: AnyLength(original(self, n)))


def shows_quorum_of_one(patch: Patch) -> None:
    """A client is convinced by its own signature."""
    original = client.on_confirmations

    def convinced(party: Any, state: Any, message: Any) -> Any:
        return client._release(party, state.masked, state.survivors)

    assert original in client.HANDLERS.values()
    for key, handler in list(client.HANDLERS.items()):
        if handler is original:
            patch.setitem(client.HANDLERS, key, convinced)


def low_threshold(patch: Patch) -> None:
    """2 t > n + n_C is not asked for: t = max(n_C, 1) + 1, as against a curious server."""

    def lowest(size: int, colluders: int, mode: Any, degree: int = 0, **_: int) -> int:
        return max(colluders + 1, 2)

    for module in ("secagg.pairwise.context", "simulations.threats.game.contexts"):
        patch.setattr(f"{module}.lowest_threshold", lowest)
    patch.setattr(context.SessionContext, "_check_committee", lambda self: None, raising=False)


def keeps_states(patch: Patch) -> None:
    """A client answers from any state that it was ever in."""
    original, kept = ClientSession.receive_bytes, {}

    def receive_bytes(self: ClientSession, data: bytes) -> bytes | None:
        states = kept.setdefault(id(self), (self, []))[1]
        states.append(self._state)
        for state in reversed(states):
            self._state = state
            try:
                return original(self, data)
            except ProtocolError as error:
                refusal = error
        raise refusal

    patch.setattr(ClientSession, "receive_bytes", receive_bytes)


def announced(within: bool = True, own: bool = True, size: bool = True) -> Callable[[Patch], None]:
    """Clients check announced sets, but for one thing."""

    def check(party: Any, bitmap: bytes, inside: tuple[int, ...]) -> tuple[int, ...]:
        members = client.decode_set(bitmap, party.context.size)
        if within and not set(members) <= set(inside):
            raise RemoteProtocolError(-1, Reason.SET_NOT_NESTED)
        if own and party.index not in members:
            raise RemoteProtocolError(-1, Reason.OWN_ENTRY_MISSING)
        if size and len(members) < party.context.minimum_survivors:
            raise RemoteProtocolError(-1, Reason.SET_TOO_SMALL)
        return members

    return lambda patch: patch.setattr(client, "_announced", check)


def confirms_for_every_round(patch: Patch) -> None:
    """Signatures on survivor sets do not say of which round they are."""
    sign = Identity.sign

    def unbound(usage: Usage, parts: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return parts[1:] if usage is Usage.CONFIRM else parts

    patch.setattr(
        Identity, "sign", lambda self, usage, *parts: sign(self, usage, *unbound(usage, parts))
    )
    patch.setattr(
        client,
        "signature_is_valid",
        lambda key, signature, usage, *parts: signature_is_valid(
            key, signature, usage, *unbound(usage, parts)
        ),
    )


def agrees_on_constants(patch: Patch) -> None:
    campaigns.agrees_on_constants(patch)
    takes_any_key(patch)
    patch.setattr(roster, "check_distinct_keys", lambda _: None)


def answers_any_request(patch: Patch) -> None:
    """Which seeds a client is asked for is not compared with the survivors."""
    original = client.on_seed_request

    def careless(party: Any, state: Any, message: SeedRequest) -> Any:
        masked = state.masked
        missing = set(client.decode_set(message.missing, party.context.size))
        owners = client.held_by(party.index, missing, masked.roster.graph)
        assert all(masked.held[owner] for owner in owners)
        return original(party, state, message)

    for key, handler in list(client.HANDLERS.items()):
        if handler is original:
            patch.setitem(client.HANDLERS, key, careless)


CONTROLS: dict[str, tuple[Callable[[Patch], None], str]] = {
    WIRE: (lacks(serving, "signature_is_valid"), "wrong sum"),
    ENCODED: (campaigns.forgets_to_remove, "wrong integers"),
    "client: advertises a key of small order": (takes_any_key, "one liar ended"),
    "client: advertises a repeated key": (takes_repeated_keys, "one liar ended"),
    "client: shares another self-mask seed": (believes_rebuilt, "wrong sum"),
    "client: shares another masking key": (believes_rebuilt, "wrong sum"),
    "client: shares other removable seeds": (believes_seeds, "not the ones it committed to"),
    "client: deals wrong shares to some": (believes_rebuilt, "wrong sum"),
    "client: deals shares outside the field": (opens_everything, "ValueError"),
    "client: seals garbage to some": (opens_everything, "ValueError"),
    "client: commits to another self-mask seed": (believes_rebuilt, "another seed"),
    "client: commits to other removable seeds": (believes_seeds, "not the ones it committed to"),
    "client: masks with another seed than it shares": (loses_uploads, "wrong sum"),
    "client: uploads another vector": (loses_uploads, "wrong sum"),
    "client: uploads elements outside the field": (unpacks_anything, "wrong sum"),
    "client: uploads a shorter vector": (takes_short_vectors, "wrong sum"),
    "client: uploads two vectors": (takes_second_messages, "wrong sum"),
    "client: uploads in another's name": (lacks(serving, "signature_is_valid"), "wrong sum"),
    "client: signs another survivor set": (lacks(serving, "signature_is_valid"), "one liar ended"),
    "client: answers with wrong shares": (believes_rebuilt, "wrong sum"),
    "client: answers with too few shares": (counts_no_shares, "ValueError"),
    "client: answers with doubled shares": (counts_no_shares, "ValueError"),
    "client: answers with shares of the other kind": (believes_rebuilt, "wrong sum"),
    "client: answers with shares of other owners": (believes_rebuilt, "wrong sum"),
    "client: gives up wrong seeds": (believes_seeds, "not the ones it committed to"),
    "client: recovers wrong seeds": (believes_seeds, "not its own"),
    "server: splits survivors": (low_threshold, "both secrets"),
    "server: splits rosters": (roster_without_hash, "stories"),
    "server: splits participants": (shows_quorum_of_one, "stories"),
    "server: asks twice": (keeps_states, "both secrets"),
    "server: shrinks sets": (announced(size=False), "were left"),
    "server: tells a client that it is lost": (announced(own=False), "told to be lost"),
    "server: invents survivors": (announced(within=False), "not inside"),
    "server: fixes the tree": (any_tree, "not in the tree"),
    "server: substitutes keys": (lacks(roster, "signature_is_valid"), "both secrets"),
    "server: replays confirmations": (confirms_for_every_round, "stories"),
    "server: repeats keys": (keys_may_repeat, "repeated"),
    "server: uses keys of small order": (agrees_on_constants, "small order"),
    "server: wants more seeds": (answers_any_request, "KeyError"),
}


def test_every_behaviour_has_a_control() -> None:
    assert set(CONTROLS) == {name for plays in FAMILIES["pairwise"].values() for name in plays}


@pytest.mark.parametrize("name", CONTROLS)
def test_without_the_defence_the_campaign_reports_a_failure(monkeypatch: Patch, name: str) -> None:
    disable, what = CONTROLS[name]
    disable(monkeypatch)
    assert campaigns.reports(name, what)


# -- the command ------------------------------------------------------------------------------


def test_the_command_prints_counts_for_each_behaviour() -> None:
    arguments = ["bench", "faults", "--schedules", "6", "--play", "server", "--first", "7"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert (figures["schedules"], figures["first"], figures["failures"]) == (6, 7, {})
    assert len(figures["behaviours"]) == 6
    assert sum(figures["outcomes"].values()) == 6
    table = CliRunner().invoke(app, arguments).stdout
    assert "server:" in table


def test_failures_are_an_exit_status_and_are_kept(tmp_path: Path, monkeypatch: Patch) -> None:
    believes_rebuilt(monkeypatch)
    name = "client: answers with wrong shares"
    arguments = ["--schedules", "20", "--rate", "0", "--play", name, "--out", str(tmp_path)]
    result = CliRunner().invoke(app, ["bench", "faults", *arguments, "--json"])
    assert result.exit_code == 1
    told: list[int] = []
    kept = run_kept(Question(("pairwise",), (name,), 1, 0.0, 0), 20, tmp_path, told.append)
    failures = json.loads(result.stdout)["failures"]
    assert failures == {str(number): what for number, what in kept.failures.items()} != {}
    assert told == [20]


def test_the_behaviours_of_both_protocols_take_turns() -> None:
    arguments = ["--scheme", "both", "--schedules", "4", "--play", "wire", "--json"]
    result = CliRunner().invoke(app, ["bench", "faults", *arguments])
    wires = [*FAMILIES["pairwise"]["wire"], *FAMILIES["one-shot"]["wire"]]
    assert list(json.loads(result.stdout)["behaviours"]) == wires
    assert behaviours_named(["wire"], ["one-shot"]) == tuple(FAMILIES["one-shot"]["wire"])


def test_a_campaign_in_a_folder_goes_on(tmp_path: Path) -> None:
    """Twice three schedules are as good as six, and another campaign is refused."""

    def called(schedules: int, out: Path, *more: str) -> Result:
        arguments = ["--schedules", str(schedules), "--play", WIRE, "--out", str(out), *more]
        return CliRunner().invoke(app, ["bench", "faults", *arguments, "--json"])

    first, second = tmp_path / "first", tmp_path / "second"
    called(3, first)
    kept = json.loads((first / RESULT).read_text())
    assert kept["schedules"] == sum(kept["outcomes"].values()) == 3
    assert kept["made by"]["machine"]["cores"]
    assert called(6, first).stdout == called(6, second).stdout
    assert (first / RESULT).read_text() == (second / RESULT).read_text()
    # Nothing is run again.
    assert called(6, first).stdout == called(6, second).stdout
    refused = called(6, first, "--seed", "2")
    assert refused.exit_code == 2
    assert "another campaign" in refused.stderr


def test_a_campaign_of_other_sources_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / RESULT
    question = Question(("pairwise",), (WIRE,), 1, 0.0, 0)
    run_kept(question, 1, tmp_path, lambda _: None)
    path.write_text(path.read_text().replace(provenance().source, "0" * 16))
    with pytest.raises(OtherCampaignError, match="other sources"):
        run_kept(question, 2, tmp_path, lambda _: None)


def test_an_unknown_behaviour_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "faults", "--play", "nobody"])
    assert result.exit_code == 2
    result = CliRunner().invoke(app, ["bench", "faults", "--play", "member"])
    assert result.exit_code == 2
    with pytest.raises(ValueError, match="nobody"):
        behaviours_named(["nobody"])


# -- what the campaign itself catches ---------------------------------------------------------


def test_an_untyped_error_is_a_failure(monkeypatch: Patch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("by mistake")

    monkeypatch.setattr(ServerSession, "close_round", broken)
    found = run_campaign(2, 1, 0.0, names=[WIRE])
    assert found.outcomes == {"untyped error": 2}
    assert "IndexError" in found.failures[1]


def test_a_hang_is_a_failure(monkeypatch: Patch) -> None:
    def endless(*_: object) -> None:
        while True:
            pass

    def soon(seconds: int = 1) -> Any:
        return no_hang(1)

    monkeypatch.setattr(ServerSession, "close_round", endless)
    monkeypatch.setattr("simulations.threats.faults.campaign.no_hang", soon)
    found = run_campaign(1, 1, 0.0, names=[WIRE])
    assert "HangError" in found.failures[0]


def test_progress_is_reported() -> None:
    calls: list[int] = []
    run_campaign(3, 1, 0.0, lambda: calls.append(1))
    assert len(calls) == 3
