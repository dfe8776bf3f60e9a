"""Taking masks off: wrong shares are never a wrong sum, and executors change nothing."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from secagg import (
    Mode,
    ParameterError,
    PrimeField,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
    TooFewSurvivorsError,
    unmask,
)
from secagg.keys import AgreementKey, SecretSeed
from secagg.messages import decode_from_client, encode_message
from secagg.reference import Stage
from secagg.roster import commitment
from secagg.shamir import SHARE_BYTES
from secagg.tags import Usage, encode_index
from secagg.transitions import ServerPhase
from secagg.unmask import MaskRemoval, executor_width, remove_masks, split_range

N = 5


def change_element(shares: bytes, owner: int, limb: int) -> bytes:
    at = SHARE_BYTES * owner + 4 * limb
    element = (int.from_bytes(shares[at : at + 4], "little") + 1) % (2**31 - 1)
    return shares[:at] + element.to_bytes(4, "little") + shares[at + 4 :]


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("dropped", [(), (1,)])
@pytest.mark.parametrize("owner", range(N))
# Not the lowest limb: the lowest bits of an X25519 key do not count.
@pytest.mark.parametrize("limb", [1, 8])
def test_wrong_share_is_an_error_and_no_sum(
    secagg_kit: SimpleNamespace, mode: Mode, dropped: tuple[int, ...], owner: int, limb: int
) -> None:
    def lie(u: int, data: bytes) -> list[bytes]:
        if u != 0:
            return [data]
        message = decode_from_client(data, u, len(data))
        shares = change_element(message.shares, owner, limb)
        return [encode_message(cohort.resigned(msgspec.structs.replace(message, shares=shares)))]

    up = (Stage.UNMASK, secagg_kit.Direction.UP)
    context = secagg_kit.context(N, mode, threshold=3)
    cohort = secagg_kit.Cohort(context, dict.fromkeys(dropped, Stage.MASK), tampers={up: lie})
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.run()
    assert raised.value.reason is Reason.WRONG_REBUILT
    assert cohort.server.phase is ServerPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        cohort.server.unmask()


@pytest.mark.parametrize("owner", [0, 3, 4])
def test_the_owner_of_a_secret_that_does_not_rebuild_is_named(
    secagg_kit: SimpleNamespace, owner: int
) -> None:
    """The lowest limbs change the secret without making it invalid: found by the commitment."""
    cohort = secagg_kit.Cohort(secagg_kit.context(N, threshold=3))
    cohort.run(until=Stage.UNMASK)
    for u, data in cohort.answers(Stage.UNMASK, cohort.pending).items():
        message = decode_from_client(data, u, len(data))
        # Every holder lies by the same amount, as if the owner had shared another secret.
        shares = change_element(message.shares, owner, 0)
        cohort.server.receive(cohort.resigned(msgspec.structs.replace(message, shares=shares)))
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.server.unmask()
    assert (raised.value.reason, raised.value.party) == (Reason.WRONG_REBUILT, owner)


def test_wrong_commitment_is_found(secagg_kit: SimpleNamespace) -> None:
    """A client that commits to another seed, with a right signature."""

    def lie(u: int, data: bytes) -> list[bytes]:
        if u != 2:
            return [data]
        message = decode_from_client(data, u, len(data))
        round_hash = cohort.clients[2]._state.roster.hash
        other = commitment(round_hash, 2, SecretSeed(bytes(32)))
        parts = (round_hash, encode_index(2), other, message.sealed)
        signature = secagg_kit.identity(2).sign(Usage.SHARE, *parts)
        changed = msgspec.structs.replace(message, commitment=other, signature=signature)
        return [encode_message(changed)]

    up = (Stage.SHARE, secagg_kit.Direction.UP)
    cohort = secagg_kit.Cohort(secagg_kit.context(N, threshold=3), tampers={up: lie})
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.run()
    assert (raised.value.reason, raised.value.party) == (Reason.WRONG_REBUILT, 2)


def test_masking_key_that_was_not_advertised_is_found(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(3), {2: Stage.MASK})
    # Two survivors of three, threshold two: whatever the shares say, the key must match.
    cohort.run(until=Stage.UNMASK)
    roster = cohort.server._roster
    secrets = {u: bytes([u]) * 32 for u in (0, 1)}
    committed = {u: commitment(roster.hash, u, SecretSeed(secrets[u])) for u in (0, 1)}
    with pytest.raises(RemoteProtocolError) as raised:
        unmask.plan_removal(roster, committed, (0, 1), {**secrets, 2: bytes(32)})
    assert (raised.value.reason, raised.value.party) == (Reason.WRONG_REBUILT, 2)
    own = cohort.wire[Stage.ADVERTISE, secagg_kit.Direction.UP, 2]
    advertised = decode_from_client(own, 2, len(own)).masking_key
    key = cohort.rand(2)
    assert AgreementKey(key(64)[32:]).public == advertised


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_too_few_unmask_shares(secagg_kit: SimpleNamespace, answers: int) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(N, threshold=3))
    cohort.run(until=Stage.UNMASK)
    sent = cohort.answers(Stage.UNMASK, cohort.pending)
    for u in range(answers):
        cohort.server.receive_bytes(u, sent[u])
    with pytest.raises(TooFewSurvivorsError):
        cohort.server.unmask()
    assert cohort.server.phase is ServerPhase.ABORTED


def test_rebuild_needs_enough_holders(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(3))
    cohort.run(until=Stage.UNMASK)
    with pytest.raises(TooFewSurvivorsError):
        unmask.rebuild_secrets(cohort.server._roster, [0], {0: {0: np.zeros(9, np.uint32)}})


class InlineExecutor(Executor):
    """Runs tasks at once; counts them; fails from a given task on."""

    def __init__(self, fail_from: int | None = None) -> None:
        self.tasks = 0
        self.fail_from = fail_from

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.fail_from is not None and self.tasks >= self.fail_from:
            future.set_exception(OSError("worker lost"))
        else:
            future.set_result(fn(*args, **kwargs))
        self.tasks += 1
        return future


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmask, "MIN_RANGE", 10)


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("bits", [8, 16, 31, 32, 62])
@pytest.mark.parametrize("mode", list(Mode))
def test_split_work_gives_the_same_sum(secagg_kit: SimpleNamespace, bits: int, mode: Mode) -> None:
    context = secagg_kit.context(4, mode, bits=bits, length=97)
    executor = InlineExecutor()
    total = secagg_kit.Cohort(context, {1: Stage.MASK}).run(executor=executor)
    assert executor.tasks == 8
    cohort = secagg_kit.Cohort(context, {1: Stage.MASK})
    assert total.vector.elements.tolist() == cohort.run().vector.elements.tolist()
    assert total.vector.elements.tolist() == cohort.expected((0, 2, 3))


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("workers", [1, 3])
def test_threads_give_the_same_sum(secagg_kit: SimpleNamespace, workers: int) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(4, bits=24, length=97))
    with ThreadPoolExecutor(workers) as executor:
        total = cohort.run(executor=executor)
    assert total.vector.elements.tolist() == cohort.expected(range(4))


def test_processes_give_the_same_sum(secagg_kit: SimpleNamespace) -> None:
    """Long enough for two ranges; nothing secret but mask keys reaches the workers."""
    cohort = secagg_kit.Cohort(secagg_kit.context(3, bits=24, length=2 * unmask.MIN_RANGE + 5))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        total = cohort.run(executor=executor)
    expected = cohort.inputs.astype(np.uint64).sum(axis=0) % cohort.context.field.modulus
    assert np.array_equal(total.vector.elements, expected)


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("fail_from", [0, 3])
def test_failing_executor_releases_nothing(secagg_kit: SimpleNamespace, fail_from: int) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(4, length=97))
    with pytest.raises(OSError, match="worker lost"):
        cohort.run(executor=InlineExecutor(fail_from))
    assert cohort.server.phase is ServerPhase.ABORTED


def test_an_interrupt_ends_the_session(
    secagg_kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the masks may be off the accumulator: a second attempt would be a wrong sum."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    cohort = secagg_kit.Cohort(secagg_kit.context(3))
    monkeypatch.setattr(unmask, "accumulate_masks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cohort.run()
    assert cohort.server.phase is ServerPhase.ABORTED


@pytest.mark.parametrize("length", [1, 65_535, 65_536, 131_071, 131_072, 1_000_003])
@pytest.mark.parametrize("parts", [1, 2, 7, 100])
def test_ranges_cover_everything_once(length: int, parts: int) -> None:
    ranges = split_range(length, parts)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == length
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
    sizes = [high - low for low, high in ranges]
    assert len(ranges) <= parts
    assert len(ranges) == 1 or min(sizes) >= unmask.MIN_RANGE
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("length", "parts"), [(0, 1), (1, 0), (-1, 1)])
def test_ranges_of_nothing(length: int, parts: int) -> None:
    with pytest.raises(ParameterError):
        split_range(length, parts)


def test_width_of_executors() -> None:
    with ThreadPoolExecutor(3) as executor:
        assert executor_width(executor) == 3
    assert executor_width(InlineExecutor()) == 8


def test_removal_does_not_print_keys() -> None:
    removal = MaskRemoval((b"secret mask key!",), (True,))
    assert repr(removal) == "MaskRemoval(1 masks)"
    field = PrimeField(16)
    assert len(remove_masks(field.zeros(3), field, removal)) == 3


def test_a_rebuilt_secret_names_the_owner_it_fails_for(secagg_kit: SimpleNamespace) -> None:
    """Shares of one owner that rebuild no 32-byte secret must not blame another owner."""
    cohort = secagg_kit.Cohort(secagg_kit.context(3))
    cohort.run(until=Stage.UNMASK)
    for u, data in cohort.answers(Stage.UNMASK, cohort.pending).items():
        cohort.server.receive_bytes(u, data)
    shares = {h: dict(mine) for h, mine in cohort.server._shares.items()}
    shares[0][2] = (shares[0][2] + np.uint32(12345)) % np.uint32(2**31 - 1)
    with pytest.raises(RemoteProtocolError) as raised:
        unmask.rebuild_secrets(cohort.server._roster, [0, 1, 2], shares)
    assert (raised.value.reason, raised.value.party) == (Reason.WRONG_REBUILT, 2)


def test_an_earlier_owner_in_the_group_is_named_too(secagg_kit: SimpleNamespace) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(3))
    cohort.run()
    shares = {h: dict(mine) for h, mine in cohort.server._shares.items()}
    # Holder 1 has weight -1 here: every limb moves by half of the field.
    shares[1][1] = (shares[1][1] + np.uint32(2**30)) % np.uint32(2**31 - 1)
    with pytest.raises(RemoteProtocolError) as raised:
        unmask.rebuild_secrets(cohort.server._roster, [0, 1, 2], shares)
    assert (raised.value.reason, raised.value.party) == (Reason.WRONG_REBUILT, 1)


@pytest.mark.xfail(strict=True, reason="surplus shares are not used yet: the owner is blamed")
@pytest.mark.parametrize("owner", [0, 3])
def test_surplus_shares_name_the_holder_of_a_wrong_one(
    secagg_kit: SimpleNamespace, owner: int
) -> None:
    """Five of five answer with t = 3: four right shares show which one is wrong."""

    def lie(u: int, data: bytes) -> list[bytes]:
        message = decode_from_client(data, u, len(data))
        shares = change_element(message.shares, owner, 1) if u == 1 else message.shares
        return [encode_message(cohort.resigned(msgspec.structs.replace(message, shares=shares)))]

    up = (Stage.UNMASK, secagg_kit.Direction.UP)
    cohort = secagg_kit.Cohort(secagg_kit.context(N, threshold=3), tampers={up: lie})
    with pytest.raises(RemoteProtocolError) as raised:
        cohort.run()
    assert (raised.value.reason, raised.value.party) == (Reason.WRONG_REBUILT, 1)
