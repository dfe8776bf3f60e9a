"""Whose signatures on a survivor set convince a client of a sparse round."""

from __future__ import annotations

import time
from fractions import Fraction
from math import comb
from typing import Any

import pairwise_rounds as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg import (
    Mode,
    ParameterError,
    Reason,
    TooFewSurvivorsError,
)
from secagg.framing import decode_set
from secagg.keys import SIGNATURE_BYTES
from secagg.pairwise import (
    committee,
)
from secagg.pairwise.committee import (
    LARGEST_COMMITTEE,
    SMALLEST_COMMITTEE,
    CommitteeParameters,
    choose_committee,
    full_quorum,
)
from secagg.pairwise.reference import Stage

N = 80
CONTEXT = "secagg.pairwise.context"


def chance(population: int, marked: int, size: int, counts: range) -> Fraction:
    """Probability that a random subset has so many marked members, any of the counts."""
    ways = (comb(marked, j) * comb(population - marked, size - j) for j in counts if j <= size)
    return Fraction(sum(ways), comb(population, size))


@given(members=st.integers(2, 400), data=st.data())
def test_a_committee_is_safe_and_does_not_get_stuck(members: int, data: st.DataObject) -> None:
    corrupt = data.draw(st.integers(0, members // 3))
    alive = data.draw(st.integers(members // 2, members))
    chosen = choose_committee(members, corrupt, alive)
    if chosen.size == members:
        assert chosen.quorum == full_quorum(members, corrupt)
        assert 2 * chosen.quorum > members + corrupt
        return
    assert SMALLEST_COMMITTEE <= chosen.size < members
    # Two quorums fit around this many corrupt members, and around no more.
    most = 2 * chosen.quorum - chosen.size - 1
    split = chance(members, corrupt, chosen.size, range(most + 1, corrupt + 1))
    assert split <= Fraction(1, 2**80)
    assert chance(members, alive, chosen.size, range(chosen.quorum)) <= Fraction(1, 2**20)


def smallest(members: int, corrupt: int, alive: int, bits: int) -> tuple[int, int]:
    """By counting, for one size after the other."""
    for size in range(SMALLEST_COMMITTEE, members, 8):
        ways = [comb(corrupt, j) * comb(members - corrupt, size - j) for j in range(size + 1)]
        drawn = 0
        while sum(ways[drawn + 1 :]) << bits > comb(members, size):
            drawn += 1
        quorum = (size + drawn) // 2 + 1
        stuck = sum(comb(alive, j) * comb(members - alive, size - j) for j in range(quorum))
        if stuck << 20 <= comb(members, size):
            return size, quorum
    return members, full_quorum(members, corrupt)


@settings(max_examples=60)
@given(members=st.integers(65, 260), data=st.data())
def test_no_smaller_committee_would_do(members: int, data: st.DataObject) -> None:
    """That doubles pass over sizes in advance changes nothing."""
    corrupt = data.draw(st.integers(0, members // 2))
    alive = data.draw(st.integers(0, members))
    bits = data.draw(st.sampled_from([1, 40, 80, 128, 160]))
    chosen = choose_committee(members, corrupt, alive, bits)
    assert (chosen.size, chosen.quorum) == smallest(members, corrupt, alive, bits)


@pytest.mark.parametrize("members", [100, 1000, 30_000])
@pytest.mark.parametrize("corrupt", [0, 1, 0.05, 0.3, 0.6, 1.0])
def test_what_doubles_pass_over_is_stuck(members: int, corrupt: float, monkeypatch: Any) -> None:
    """The first size that integers look at is the last one or close to it."""
    corrupt = corrupt if type(corrupt) is int else int(corrupt * members)
    looked: list[int] = []
    exact = committee._most_drawn
    monkeypatch.setattr(
        committee, "_most_drawn", lambda *args: (looked.append(args[2]), exact(*args))[1]
    )
    alive = min(members, full_quorum(members, corrupt) + members // 8)
    chosen = choose_committee.__wrapped__(members, corrupt, alive)
    assert len(looked) <= 2
    if chosen.size < members:
        assert looked[-1] == chosen.size
        if chosen.size > SMALLEST_COMMITTEE:
            before = chosen.size - 8
            quorum = (before + exact(members, corrupt, before, 80)) // 2 + 1
            assert chance(members, alive, before, range(quorum)) > Fraction(1, 2**20)


@pytest.mark.parametrize("corrupt", [0, 2**17, 2**18, 2**19, 2**20 - 2])
@pytest.mark.parametrize("surplus", [0, 36_000])
def test_a_hostile_context_costs_little(corrupt: int, surplus: int) -> None:
    """No committee is searched for beyond 4096: the rest is a quorum of all."""
    members = 2**20
    alive = min(members, full_quorum(members, corrupt) + surplus)
    began = time.process_time()
    chosen = choose_committee.__wrapped__(members, corrupt, alive)
    assert time.process_time() - began < 10  # about half a second; a full search takes days
    assert chosen.size <= LARGEST_COMMITTEE or chosen.size == members
    if chosen.size == members:
        assert chosen.quorum == full_quorum(members, corrupt)


def test_a_context_computes_no_committee(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients make a context of what anybody announces."""
    monkeypatch.setattr(f"{CONTEXT}.choose_committee", None)
    kit.context(N, degree=6, threshold=4, minimum_survivors=N - 2)


def test_a_curious_server_needs_no_committee(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CONTEXT}.choose_committee", None)
    mode = Mode.SEMI_HONEST
    context = kit.context(N, mode, degree=6, threshold=4, minimum_survivors=N - 2)
    cohort = kit.Cohort(context)
    assert cohort.run().survivors == tuple(range(N))


@pytest.mark.parametrize("members", [64, 65, 100, 101, 300, 1000])
@pytest.mark.parametrize("corrupt", [0, 1, 0.05, 0.2, 0.5])
def test_no_small_committee_works_without_more_than_half(members: int, corrupt: float) -> None:
    """So the bound on the survivors costs no context that a committee would allow."""
    corrupt = corrupt if type(corrupt) is int else int(corrupt * members)
    quorum = full_quorum(members, corrupt)
    assert choose_committee(members, corrupt, quorum - 1).size == members


def test_more_than_half_must_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two rosters with committees of their own could yield two sums of one round."""
    monkeypatch.setattr(f"{CONTEXT}.choose_committee", lambda *_: CommitteeParameters(64, 33))
    monkeypatch.setattr(f"{CONTEXT}.stays_connected", lambda *_: True)
    size, colluders = 200, 3
    fixed = {"degree": 60, "threshold": 40, "tolerated_colluders": colluders}
    fewest = (size + colluders) // 2 + 1
    with pytest.raises(ParameterError, match=f"at least {fewest}"):
        kit.context(size, minimum_survivors=fewest - 1, **fixed)
    context = kit.context(size, minimum_survivors=fewest, **fixed)
    # Two sets of survivors have more in common than the colluders.
    assert 2 * context.minimum_survivors - size > colluders


@pytest.mark.parametrize(("size", "corrupt"), [(12, ()), (12, (0,)), (11, (0, 1)), (12, (0, 6))])
def test_all_honest_survivors_are_opened_or_none(size: int, corrupt: tuple[int, ...]) -> None:
    """Whoever the server says is lost, after it has seen the ring.

    Vectors can be opened of a part of the honest survivors only if each of them has t holders that
    give up shares, and no neighbour among the other survivors. That takes two stretches of half a
    neighbourhood, with t - k/2 corrupt clients in each: docs/security.md. With c as the parameters
    bound it, there are none.
    """
    degree = 4
    ring = [[(u + s) % size for s in (-2, -1, 1, 2)] for u in range(size)]
    most = max(sum(v in corrupt for v in near) for near in ring)
    # The bound is on any k places, not only on neighbourhoods.
    most = max(most, len(corrupt))
    threshold = (degree + most) // 2 + 1
    honest = [u for u in range(size) if u not in corrupt]
    for chosen in range(1, 1 << len(honest)):
        alive = {u for i, u in enumerate(honest) if chosen >> i & 1}
        left = set(alive)
        while left:
            part, front = set(), [next(iter(left))]
            while front:
                u = front.pop()
                if u not in part:
                    part.add(u)
                    front += [v for v in ring[u] if v in alive]
            left -= part
            opened = all(sum(v in part or v in corrupt for v in ring[u]) >= threshold for u in part)
            assert not opened or part == alive


@pytest.mark.parametrize("dropout", [0.1, 0.3])
def test_committees_stop_growing(dropout: float) -> None:
    """Otherwise n clients verify of the order of n signatures each."""
    sizes = [choose_committee(n, n // 20, n - int(dropout * n)).size for n in (1000, 8000, 64_000)]
    assert sizes[-1] <= 1.6 * sizes[0] <= 480


def test_a_quorum_is_never_above_that_of_the_whole_roster() -> None:
    """The bound on the length of a message rests on it."""
    for members in range(2, 300, 7):
        for corrupt in (0, members // 20, members // 3):
            chosen = choose_committee(members, corrupt, members - members // 10)
            assert chosen.quorum <= full_quorum(members, corrupt)


def on_a_ring(stage: Stage) -> tuple[Any, Any]:
    """Eighty clients on a ring before a stage, and their committee."""
    cohort = kit.Cohort(kit.context(N, degree=6, threshold=4, minimum_survivors=N - 2))
    cohort.run(until=stage)
    return cohort, cohort.server._checked_roster().committee


def test_any_quorum_of_the_committee_convinces_and_nothing_less() -> None:
    """Nor do signatures count of all survivors outside the committee."""
    for reason, count, outside in (
        (None, 0, ()),
        (Reason.MISSING_SIGNATURES, -1, ()),
        (Reason.SET_NOT_NESTED, -1, range(N)),
    ):
        cohort, drawn = on_a_ring(Stage.UNMASK)
        assert (len(drawn.members), drawn.quorum) == (64, 33)
        inside = sorted(drawn.members)[-drawn.quorum - count :]
        signers = sorted({*(set(outside) - drawn.members), *inside})
        if reason is None:
            assert cohort.clients[0].receive(cohort.confirmed_by(signers)) is not None
        else:
            cohort.client_refuses(cohort.confirmed_by(signers), reason)


def test_the_server_shows_a_quorum_of_the_committee_only() -> None:
    cohort, drawn = on_a_ring(Stage.UNMASK)
    message = cohort.incoming()
    assert set(decode_set(message.confirmers, N)) <= drawn.members
    assert len(message.signatures) == drawn.quorum * SIGNATURE_BYTES


def test_a_committee_that_went_away_ends_the_round() -> None:
    cohort, drawn = on_a_ring(Stage.CONFIRM)
    gone = sorted(drawn.members)[drawn.quorum - 1 :]
    for u in set(range(N)) - set(gone):
        cohort.server.receive_bytes(u, cohort.clients[u].receive_bytes(cohort.pending[u]))
    with pytest.raises(TooFewSurvivorsError) as raised:
        cohort.server.close_round()
    assert (raised.value.survivors, raised.value.needed) == (drawn.quorum - 1, drawn.quorum)
