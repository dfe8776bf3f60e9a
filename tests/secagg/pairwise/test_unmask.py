"""Taking masks off: wrong shares are never a wrong sum, and executors change nothing."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import numpy as np
import pairwise_rounds as kit
import pytest
from msgspec.structs import replace

from secagg import (
    Mode,
    ParameterError,
    PrimeField,
    SessionAbortedError,
    TooFewSurvivorsError,
    WrongSharesError,
)
from secagg.keys import SecretSeed
from secagg.pairwise import (
    unmask,
)
from secagg.pairwise.messages import decode_from_client
from secagg.pairwise.reference import Stage
from secagg.pairwise.roster import commitment
from secagg.pairwise.transitions import ServerPhase
from secagg.pairwise.unmask import MaskRemoval, executor_width, remove_masks, split_range
from secagg.shamir import SHARE_BYTES

N = 5


def change_element(shares: bytes, owner: int, limb: int) -> bytes:
    at = SHARE_BYTES * owner + 4 * limb
    element = (int.from_bytes(shares[at : at + 4], "little") + 1) % (2**31 - 1)
    return shares[:at] + element.to_bytes(4, "little") + shares[at + 4 :]


def lying_cohort(
    context: Any,
    liars: tuple[int, ...],
    owner: int,
    limb: int,
    **options: Any,
) -> Any:
    """These clients change their share of one owner, and sign what they say."""

    def lie(u: int, message: Any) -> Any:
        if u not in liars:
            return message
        shares = message.shares
        # Different lies, so that they do not cancel.
        for _ in range(1 + u * u):
            shares = change_element(shares, owner, limb)
        return cohort.resigned(replace(message, shares=shares))

    cohort = kit.Cohort(context, tampers=kit.on_up(Stage.UNMASK, lie), **options)
    return cohort


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("dropped", [(), (1,)])
@pytest.mark.parametrize("owner", range(N))
# Not the lowest limb: the lowest bits of an X25519 key do not count.
@pytest.mark.parametrize("limb", [1, 8])
def test_surplus_shares_name_the_liar_and_the_sum_is_right(
    mode: Mode, dropped: tuple[int, ...], owner: int, limb: int
) -> None:
    """Five answers with t = 3 show which one is wrong; with four the sum is right all the same."""
    context = kit.context(N, mode, threshold=3)
    drops = dict.fromkeys(dropped, Stage.MASK)
    cohort = lying_cohort(context, (0,), owner, limb, drops=drops)
    total = cohort.run()
    assert total.culprits == (() if dropped else (0,))
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)


@pytest.mark.parametrize(("liars", "named"), [((0, 1), ()), ((4,), ()), ((2,), (2,))])
def test_the_sum_is_right_and_only_the_certain_are_named(
    liars: tuple[int, ...], named: tuple[int, ...]
) -> None:
    """Two of five could frame a third when t = 3; a lie that is not needed is not noticed."""
    cohort = lying_cohort(kit.context(N, threshold=3), liars, 2, 1)
    total = cohort.run()
    assert total.culprits == named
    assert total.vector.elements.tolist() == cohort.expected(range(N))


def test_without_surplus_shares_a_lie_ends_the_round() -> None:
    cohort = lying_cohort(kit.context(N, threshold=5), (0,), 2, 1)
    with pytest.raises(WrongSharesError, match=r"client 2 committed to: either .* nobody"):
        cohort.run()
    assert cohort.server.phase is ServerPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        cohort.server.unmask()


@pytest.mark.parametrize("owner", [0, 3, 4])
def test_a_secret_that_does_not_rebuild_ends_the_round(owner: int) -> None:
    """The lowest limbs change the secret without making it invalid: found by the commitment."""
    cohort = kit.Cohort(kit.context(N, threshold=3))
    cohort.run(until=Stage.UNMASK)
    for u, data in cohort.answers(Stage.UNMASK, cohort.pending).items():
        message = decode_from_client(data, u, len(data))
        # Every holder lies by the same amount, as if the owner had shared another secret.
        shares = change_element(message.shares, owner, 0)
        cohort.server.receive(cohort.resigned(replace(message, shares=shares)))
    with pytest.raises(WrongSharesError) as raised:
        cohort.server.unmask()
    assert (raised.value.owner, raised.value.answered, raised.value.threshold) == (owner, N, 3)


def test_wrong_commitment_is_found() -> None:
    """A client that commits to another seed, with a right signature."""

    def lie(u: int, message: Any) -> Any:
        if u != 2:
            return message
        other = commitment(cohort.round_hash(), 2, 0, SecretSeed(bytes(32)))
        return cohort.resigned(replace(message, commitments=other))

    tampers = kit.on_up(Stage.SHARE, lie)
    cohort = kit.Cohort(kit.context(N, threshold=3), tampers=tampers)
    with pytest.raises(WrongSharesError) as raised:
        cohort.run()
    assert raised.value.owner == 2


def test_masking_key_that_was_not_advertised_is_found() -> None:
    """Two survivors of three, threshold two: whatever the shares say, the key must match."""
    cohort = kit.Cohort(kit.context(3), {2: Stage.MASK})
    cohort.run(until=Stage.UNMASK)
    key = cohort.rand(2)(64)[32:]
    assert cohort.server._is_committed(2, key)
    assert not cohort.server._is_committed(2, bytes(32))
    assert not cohort.server._is_committed(0, key)


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_too_few_unmask_shares(answers: int) -> None:
    cohort = kit.Cohort(kit.context(N, threshold=3))
    cohort.run(until=Stage.UNMASK)
    sent = cohort.answers(Stage.UNMASK, cohort.pending)
    for u in range(answers):
        cohort.server.receive_bytes(u, sent[u])
    with pytest.raises(TooFewSurvivorsError):
        cohort.server.unmask()
    assert cohort.server.phase is ServerPhase.ABORTED


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
def test_split_work_gives_the_same_sum(bits: int, mode: Mode) -> None:
    context = kit.context(4, mode, bits=bits, length=97)
    executor = InlineExecutor()
    total = kit.Cohort(context, {1: Stage.MASK}).run(executor=executor)
    assert executor.tasks == 8
    cohort = kit.Cohort(context, {1: Stage.MASK})
    assert total.vector.elements.tolist() == cohort.run().vector.elements.tolist()
    assert total.vector.elements.tolist() == cohort.expected((0, 2, 3))


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("workers", [1, 3])
def test_threads_give_the_same_sum(workers: int) -> None:
    cohort = kit.Cohort(kit.context(4, bits=24, length=97))
    with ThreadPoolExecutor(workers) as executor:
        total = cohort.run(executor=executor)
    assert total.vector.elements.tolist() == cohort.expected(range(4))


def test_processes_give_the_same_sum() -> None:
    """Masking keys of lost clients and keys of masks reach the workers, and no other secret.

    The vector is long enough for two ranges, and two clients are lost.
    """
    context = kit.context(5, bits=24, threshold=3, length=2 * unmask.MIN_RANGE + 5)
    cohort = kit.Cohort(context, {1: Stage.MASK, 4: Stage.MASK})
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        total = cohort.run(executor=executor)
    inputs = cohort.inputs[[0, 2, 3]].astype(np.uint64)
    expected = inputs.sum(axis=0) % cohort.context.field.modulus
    assert np.array_equal(total.vector.elements, expected)


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("fail_from", [0, 3])
def test_failing_executor_releases_nothing(fail_from: int) -> None:
    cohort = kit.Cohort(kit.context(4, length=97))
    with pytest.raises(OSError, match="worker lost"):
        cohort.run(executor=InlineExecutor(fail_from))
    assert cohort.server.phase is ServerPhase.ABORTED


LOST = {1: Stage.MASK, 4: Stage.MASK, 6: Stage.MASK}
RING = {"degree": 10, "threshold": 6, "minimum_survivors": 9}


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("graph", [RING, {"threshold": 7}], ids=["ring", "complete"])
def test_keys_of_lost_clients_are_agreed_on_in_tasks(graph: dict[str, int]) -> None:
    """One task for each lost client, as there are fewer than workers; then one for each range."""
    context = kit.context(12, length=97, **graph)
    executor = InlineExecutor()
    total = kit.Cohort(context, LOST).run(executor=executor)
    assert executor.tasks == len(LOST) + 8
    cohort = kit.Cohort(context, LOST)
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)
    assert total.vector.elements.tolist() == cohort.run().vector.elements.tolist()


@pytest.mark.parametrize("fail_from", [0, 1, 2])
def test_an_executor_that_fails_during_key_agreement_releases_nothing(fail_from: int) -> None:
    cohort = kit.Cohort(kit.context(12, **RING), LOST)
    with pytest.raises(OSError, match="worker lost"):
        cohort.run(executor=(executor := InlineExecutor(fail_from)))
    # It did not come to the masks.
    assert executor.tasks == len(LOST)
    assert cohort.server.phase is ServerPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        cohort.server.unmask()


def test_an_executor_that_takes_no_tasks_releases_nothing() -> None:
    cohort = kit.Cohort(kit.context(12, **RING), LOST)
    executor = ThreadPoolExecutor(2)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="shutdown"):
        cohort.run(executor=executor)
    assert cohort.server.phase is ServerPhase.ABORTED


def test_an_interrupt_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the masks may be off the accumulator: a second attempt would be a wrong sum."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    cohort = kit.Cohort(kit.context(3))
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


@pytest.mark.parametrize("claim", [None, 0, -3, "many", True, 2.5])
def test_width_of_executors_that_do_not_tell(claim: object) -> None:
    executor = InlineExecutor()
    executor._max_workers = claim  # type: ignore[attr-defined]
    assert executor_width(executor) == 8


def test_removal_does_not_print_keys() -> None:
    removal = MaskRemoval((b"secret mask key!",), (True,))
    assert repr(removal) == "MaskRemoval(1 masks)"
    field = PrimeField(16)
    assert len(remove_masks(field.zeros(3), field, removal)) == 3
