"""Removable seeds: exactly those of the table come out, whoever goes away and whoever lies."""

from __future__ import annotations

from typing import Any

import pairwise_rounds as kit
import pytest
from msgspec.structs import replace

from secagg import (
    SERVER,
    LocalProtocolError,
    Mode,
    Reason,
    SessionAbortedError,
    TooFewSurvivorsError,
    WrongSharesError,
)
from secagg.framing import encode_set
from secagg.keys import SecretSeed
from secagg.pairwise import (
    rebuild,
)
from secagg.pairwise.messages import (
    AnyMessage,
    UnmaskShares,
    decode_from_client,
    decode_from_server,
)
from secagg.pairwise.reference import Stage
from secagg.pairwise.roster import commitment
from secagg.pairwise.transitions import ClientPhase, ServerPhase
from secagg.shamir import SHARE_BYTES

N, SEEDS = 5, 3
TABLE = (0b110, 0b011, 0b100)
"""Five clients with three seeds each: which ones are given up when 0, 1, 2 are lost."""
REMOVED = {0: (1, 2), 1: (0, 1), 2: (2,)}


def context_of(mode: Mode = Mode.ACTIVE, **changes: Any) -> Any:
    return kit.context(N, mode, **{"threshold": 3, "removal": TABLE, **changes})


def self_seed_of(cohort: Any, u: int) -> bytes:
    rand = cohort.rand(u)
    for size in (32, 32, 16):
        rand(size)
    return rand(32)


def given_up(cohort: Any, u: int, lost: int) -> tuple[bytes, ...]:
    return tuple(cohort.removable_seeds(u)[which] for which in REMOVED[lost])


def held_shares(cohort: Any) -> dict[tuple[int, int], bytes]:
    """(holder, owner) -> shares of all of the owner's secrets, from an identical second run."""
    early = {u: stage for u, stage in cohort.drops.items() if stage < Stage.MASK}
    twin = type(cohort)(cohort.context, early, seed=cohort.seed)
    twin.run(until=Stage.MASK)
    held = {}
    for u, data in twin.pending.items():
        twin.clients[u].receive_bytes(data)
        held |= {(u, v): share for v, share in twin.clients[u]._state.held.items()}
    return held


def share_of(shares: bytes, which: int) -> bytes:
    return shares[SHARE_BYTES * which : SHARE_BYTES * (which + 1)]


def decoded(cohort: Any, stage: Stage) -> dict[int, AnyMessage]:
    """The honest messages that clients sent in a stage."""
    return {
        u: decode_from_client(data, u, len(data))
        for (at, direction, u), data in cohort.wire.items()
        if at is stage and direction is kit.Direction.UP
    }


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# -- what comes out ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("stage", list(Stage)[:3])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_number_of_the_lost_fixes_the_seeds(mode: Mode, stage: Stage, lost: int) -> None:
    drops = dict.fromkeys(range(lost), stage)
    cohort = kit.Cohort(context_of(mode), drops)
    total = cohort.run()
    assert total.survivors == tuple(range(lost, N))
    assert total.removed == {u: given_up(cohort, u, lost) for u in total.survivors}
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("drops", "lost"),
    [
        ({4: Stage.UNMASK}, 0),
        ({0: Stage.UNMASK, 3: Stage.UNMASK}, 0),
        ({0: Stage.MASK, 4: Stage.UNMASK}, 1),
        ({0: Stage.UNMASK, 4: Stage.RECOVER}, 0),
        ({1: Stage.CONFIRM, 2: Stage.RECOVER}, 0),
    ],
)
def test_seeds_of_a_survivor_that_goes_away_are_rebuilt(
    mode: Mode, drops: dict[int, Stage], lost: int
) -> None:
    cohort = kit.Cohort(context_of(mode), drops)
    total = cohort.run()
    assert total.removed == {u: given_up(cohort, u, lost) for u in total.survivors}
    assert total.removed == cohort.reference().seeds
    assert total.culprits == ()
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)
    requests = {
        u: decode_from_server(data, SERVER, len(data))
        for (stage, way, u), data in cohort.wire.items()
        if stage is Stage.UNMASK and way is kit.Direction.DOWN
    }
    missing = [u for u, stage in drops.items() if Stage.MASK < stage < Stage.RECOVER]
    assert set(requests) == set(total.survivors) - set(missing)
    assert {request.missing for request in requests.values()} == {encode_set(missing, N)}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("removal", [(), (0, 0, 0), (0b111, 0, 0b111)])
def test_without_seeds_to_give_up_there_is_no_last_round(
    mode: Mode, removal: tuple[int, ...]
) -> None:
    """One client is lost; a second one is a survivor, but does not answer."""
    cohort = kit.Cohort(context_of(mode, removal=removal), {0: Stage.MASK, 4: Stage.UNMASK})
    total = cohort.run()
    assert total.removed == {}
    last = {(stage, way) for stage, way, _ in cohort.wire if stage >= Stage.UNMASK}
    assert last == {(Stage.UNMASK, kit.Direction.UP)}
    assert all(not message.seeds for message in decoded(cohort, Stage.UNMASK).values())
    assert {cohort.clients[u].phase for u in (1, 2, 3)} == {ClientPhase.FINISHED}


# -- what stays in ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("degree", [0, 8])
@pytest.mark.parametrize(
    "drops", [{}, {0: Stage.MASK}, {9: Stage.UNMASK}, {0: Stage.SHARE, 9: Stage.UNMASK}]
)
def test_kept_seeds_and_their_shares_never_leave_a_client(
    mode: Mode, degree: int, drops: dict[int, Stage]
) -> None:
    """Every byte that goes over the wire is searched, in both directions."""
    context = kit.context(10, mode, degree=degree, threshold=6, minimum_survivors=8, removal=TABLE)
    cohort = kit.Cohort(context, drops)
    total = cohort.run()
    wire = list(cohort.wire.values())

    def seen(secret: bytes) -> bool:
        return any(secret in data for data in wire)

    removed = REMOVED[10 - len(total.survivors)]
    missing = [u for u, stage in drops.items() if stage is Stage.UNMASK]
    for u in range(10):
        for which, seed in enumerate(cohort.removable_seeds(u)):
            revealed = u in total.survivors and u not in missing and which in removed
            assert seen(seed) == revealed
        assert not seen(self_seed_of(cohort, u))
    answered = decoded(cohort, Stage.RECOVER)
    assert bool(answered) == bool(missing)
    for (holder, owner), shares in held_shares(cohort).items():
        asked = holder in answered and owner in missing
        for which in range(SEEDS):
            revealed = asked and which in removed
            assert seen(share_of(shares, 2 + which)) == revealed
        # The same search finds the shares that are given up, and never both of one client.
        speaks, stays = (
            holder in total.survivors and holder not in missing,
            owner in total.survivors,
        )
        assert seen(share_of(shares, 0)) == (speaks and stays)
        assert seen(share_of(shares, 1)) == (speaks and not stays)


def test_seeds_are_told_to_the_caller_while_the_input_is_made() -> None:
    cohort = kit.Cohort(context_of())
    client = cohort.clients[2]
    cohort.run(until=Stage.SHARE)
    with pytest.raises(LocalProtocolError, match="no removable seeds when 'keys advertised'"):
        _ = client.removable_seeds
    cohort = kit.Cohort(context_of())
    cohort.run(until=Stage.MASK)
    client = cohort.clients[2]
    client.receive_bytes(cohort.pending[2])
    assert [seed.expose() for seed in client.removable_seeds] == cohort.removable_seeds(2)
    assert client.phase is ClientPhase.READY
    assert cohort.removable_seeds(2)[0].hex() not in repr(client._state)
    client.submit(cohort.vector(2))
    with pytest.raises(LocalProtocolError, match="no removable seeds"):
        _ = client.removable_seeds


def test_commitments_bind_round_client_and_number() -> None:
    cohort = kit.Cohort(context_of())
    cohort.run(until=Stage.MASK)
    round_hash = cohort.round_hash()
    for u in range(N):
        secrets = [self_seed_of(cohort, u), *cohort.removable_seeds(u)]
        assert cohort.server._commitments[u] == [
            commitment(round_hash, u, which, SecretSeed(secret))
            for which, secret in enumerate(secrets)
        ]
    seed = SecretSeed(bytes(32))
    values = {
        commitment(h, u, which, seed)
        for h in (round_hash, bytes(32))
        for u in (0, 1)
        for which in (0, 1, 2)
    }
    assert len(values) == 12


# -- seeds that are not those committed to ----------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("which", [0, 1])
def test_a_changed_seed_is_refused_and_the_right_one_rebuilt(mode: Mode, which: int) -> None:
    def lie(u: int, message: Any) -> AnyMessage:
        if u != 2:
            return message
        return cohort.resigned(replace(message, seeds=flipped(message.seeds, 32 * which)))

    cohort = kit.Cohort(context_of(mode), tampers=kit.on_up(Stage.UNMASK, lie))
    total = cohort.run()
    assert [(e.party, e.reason) for e in cohort.refused] == [(2, Reason.WRONG_SEED)]
    # Who did not give up its seeds is not asked for those of others.
    assert set(decoded(cohort, Stage.RECOVER)) == {0, 1, 3, 4}
    assert total.removed == {u: given_up(cohort, u, 0) for u in range(N)}
    assert total.vector.elements.tolist() == cohort.expected(range(N))


def test_a_client_that_commits_to_other_seeds_and_leaves_ends_the_round() -> None:
    """What its holders rebuild is not what it committed to; no sum is released."""

    def lie(u: int, message: Any) -> AnyMessage:
        if u != 4:
            return message
        other = commitment(cohort.round_hash(), 4, 2, SecretSeed(bytes(32)))
        changed = message.commitments[:64] + other + message.commitments[96:]
        return cohort.resigned(replace(message, commitments=changed))

    cohort = kit.Cohort(context_of(), {4: Stage.UNMASK}, kit.on_up(Stage.SHARE, lie))
    with pytest.raises(WrongSharesError) as raised:
        cohort.run()
    assert raised.value.owner == 4
    assert cohort.server.phase is ServerPhase.ABORTED


# -- seed shares, at the server ---------------------------------------------------------------


def answers(cohort: Any) -> dict[int, Any]:
    sent = cohort.answers(Stage.RECOVER, cohort.pending)
    return {u: decode_from_client(data, u, len(data)) for u, data in sent.items()}


@pytest.mark.parametrize("liar", range(4))
@pytest.mark.parametrize("seed", [0, 1])
def test_garbage_seed_shares_are_blamed(liar: int, seed: int) -> None:
    """With t = 2, three of four answers on one polynomial leave no doubt, if the lie is noticed."""

    def lie(u: int, message: Any) -> AnyMessage:
        if u != liar:
            return message
        changed = flipped(message.shares, SHARE_BYTES * seed + 5)
        return cohort.resigned(replace(message, shares=changed))

    context = context_of(Mode.SEMI_HONEST, threshold=2, minimum_survivors=3)
    cohort = kit.Cohort(context, {4: Stage.UNMASK}, kit.on_up(Stage.RECOVER, lie))
    total = cohort.run()
    assert not cohort.refused
    assert total.removed == {u: given_up(cohort, u, 0) for u in range(N)}
    # Surplus shares are not looked at as long as the first two agree with the commitment.
    assert total.culprits == ((liar,) if liar < 2 else ())
    assert total.vector.elements.tolist() == cohort.expected(range(N))


def test_a_liar_is_remembered_from_one_secret_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 0 lies about both seeds of client 4, and about every mask: it is found once."""

    def lie(u: int, message: Any) -> AnyMessage:
        shares = message.shares
        for at in range(5, len(shares) if u == 0 else 0, SHARE_BYTES):
            shares = flipped(shares, at)
        return cohort.resigned(replace(message, shares=shares))

    decoded: list[int] = []
    original = rebuild.wrong_shares

    def counting(shares: Any, *rest: Any) -> Any:
        decoded.append(len(shares))
        return original(shares, *rest)

    monkeypatch.setattr(rebuild, "wrong_shares", counting)
    context = context_of(Mode.SEMI_HONEST, threshold=2, minimum_survivors=3)
    tampers = {
        **kit.on_up(Stage.UNMASK, lie),
        **kit.on_up(Stage.RECOVER, lie),
    }
    cohort = kit.Cohort(context, {4: Stage.UNMASK}, tampers)
    total = cohort.run()
    assert total.culprits == (0,)
    assert total.vector.elements.tolist() == cohort.expected(range(N))
    assert decoded == [4]


def test_too_many_lies_about_seeds_end_the_round() -> None:
    def lie(u: int, message: Any) -> AnyMessage:
        changed = flipped(message.shares, 4 + 4 * u) if u < 2 else message.shares
        return cohort.resigned(replace(message, shares=changed))

    cohort = kit.Cohort(context_of(), {4: Stage.UNMASK}, kit.on_up(Stage.RECOVER, lie))
    with pytest.raises(WrongSharesError) as raised:
        cohort.run()
    assert raised.value.owner == 4
    assert cohort.server.phase is ServerPhase.ABORTED


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("silent", [1, 2])
def test_too_few_seed_shares_end_the_round(mode: Mode, silent: int) -> None:
    """Four holders are left of five, t = 3: one more may go, a second one may not."""
    drops = {4: Stage.UNMASK} | dict.fromkeys(range(silent), Stage.RECOVER)
    cohort = kit.Cohort(context_of(mode), drops)
    if silent == 1:
        assert cohort.run().removed[4] == given_up(cohort, 4, 0)
        return
    with pytest.raises(TooFewSurvivorsError) as raised:
        cohort.run()
    assert (raised.value.survivors, raised.value.needed) == (2, 3)
    assert cohort.server.phase is ServerPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        cohort.server.unmask()


def test_unmask_before_missing_seeds_were_asked_for() -> None:
    """A sum with surplus noise that nobody can take off would be no result."""
    cohort = kit.Cohort(context_of(), {4: Stage.UNMASK})
    cohort.run(until=Stage.UNMASK)
    for u, data in cohort.answers(Stage.UNMASK, cohort.pending).items():
        assert isinstance(decode_from_client(data, u, len(data)), UnmaskShares)
        cohort.server.receive_bytes(u, data)
    with pytest.raises(LocalProtocolError, match="cannot unmask while collecting unmask shares"):
        cohort.server.unmask()
    assert cohort.server.phase is ServerPhase.UNMASKING
    cohort.pending = dict(cohort.server.close_round_bytes())
    for message in answers(cohort).values():
        cohort.server.receive(message)
    assert cohort.server.unmask().removed == {u: given_up(cohort, u, 0) for u in range(N)}


def test_the_result_does_not_print_seeds() -> None:
    cohort = kit.Cohort(context_of())
    total = cohort.run()
    assert "removed" not in repr(total)
