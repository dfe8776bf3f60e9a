"""The exhaustive Span check: it holds for the product's clients, and for no mutant."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, islice, product
from typing import Any

import numpy as np
import pytest
from span_conformance import conformance, context_of

from secagg import Mode, ParameterError
from simulations.threats.span import (
    ClientRules,
    Mutant,
    Parameters,
    Reduction,
    all_parameters,
    span_check,
)
from simulations.threats.span.algebra import PRIME, reduce_rows
from simulations.threats.span.equations import NOT_A_SUM, Layout, views
from simulations.threats.span.schedules import Batch, Space, spaces

BOTH = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)

# Choices of parameters; schedules; those in which a sum is opened. A smaller space than this would
# hold more easily: a change needs a reason, and goes into docs/span.md.
COUNTS = {
    (2, Mode.SEMI_HONEST, Reduction.NONE): (2, 12, 4),
    (2, Mode.ACTIVE, Reduction.NONE): (2, 42, 4),
    (3, Mode.SEMI_HONEST, Reduction.NONE): (7, 290, 115),
    (3, Mode.SEMI_HONEST, Reduction.SYMMETRIC): (7, 198, 67),
    (3, Mode.ACTIVE, Reduction.NONE): (5, 1805, 110),
    (3, Mode.ACTIVE, Reduction.DOMINATED): (5, 164, 53),
    (3, Mode.ACTIVE, Reduction.SYMMETRIC): (5, 104, 32),
    (4, Mode.SEMI_HONEST, Reduction.NONE): (16, 4696, 2068),
    (4, Mode.SEMI_HONEST, Reduction.SYMMETRIC): (16, 2586, 949),
    (4, Mode.ACTIVE, Reduction.NONE): (8, 65888, 1020),
    (4, Mode.ACTIVE, Reduction.DOMINATED): (8, 5544, 344),
    (4, Mode.ACTIVE, Reduction.SYMMETRIC): (8, 2280, 108),
    (5, Mode.SEMI_HONEST, Reduction.SYMMETRIC): (30, 27966, 10892),
}


@pytest.mark.parametrize(("n", "mode", "reduction"), COUNTS, ids=str)
@pytest.mark.slow
def test_no_schedule_is_broken(n: int, mode: Mode, reduction: Reduction) -> None:
    report = span_check(n, mode, reduction=reduction)
    assert report.held, str(report.broken)
    counted = (report.parameters, report.schedules, report.opened)
    assert counted == COUNTS[n, mode, reduction]


@pytest.mark.slow
def test_no_schedule_of_five_clients_is_broken() -> None:
    report = span_check(5, Mode.ACTIVE)
    assert report.held, str(report.broken)
    assert (report.parameters, report.schedules, report.opened) == (14, 7_209_261, 10_949)


MUTANTS = pytest.mark.parametrize(
    ("mode", "mutant"),
    [(mode, mutant) for mode in Mode for mutant in Mutant if mutant.applies(mode)],
    ids=lambda each: each.value,
)


@pytest.mark.parametrize("n", [3, 4, 5])
@MUTANTS
def test_every_mutant_is_caught(n: int, mode: Mode, mutant: Mutant) -> None:
    assert span_check(n, mode, mutant).held == (n < mutant.smallest_size)


@pytest.mark.parametrize("n", [3, pytest.param(4, marks=pytest.mark.slow)])
@MUTANTS
def test_a_mutant_is_caught_or_not_with_and_without_reductions(
    n: int, mode: Mode, mutant: Mutant
) -> None:
    plain = span_check(n, mode, mutant, reduction=Reduction.NONE)
    reduced = span_check(n, mode, mutant, reduction=Reduction.DOMINATED)
    assert plain.held == reduced.held == (n < mutant.smallest_size)


@pytest.mark.parametrize("mutant", [Mutant.NO_CONSISTENCY, Mutant.ONLY_CONSISTENCY])
def test_a_curious_server_has_no_consistency_round_to_lose(mutant: Mutant) -> None:
    with pytest.raises(ValueError, match=r"mutant: .* says nothing about mode 'semi_honest'"):
        span_check(3, Mode.SEMI_HONEST, mutant)


def test_a_split_view_is_told_in_words() -> None:
    report = span_check(4, Mode.ACTIVE, Mutant.LOW_THRESHOLD)
    assert str(report.broken).splitlines() == [
        "round: n = 4, active, n_C = 0, t = 2, minimum_survivors = 3",
        "colluding clients: nobody",
        "client 0 is shown roster A of {0, 1, 2, 3}",
        "client 0: told U2 = {0, 1, 2}, uploads, told U3 = {0, 1, 2}, "
        "gives shares of the self masks of {0, 1, 2} and of the masking keys of nobody",
        "client 1 is shown roster A of {0, 1, 2, 3}",
        "client 1: told U2 = {0, 1, 2}, uploads, told U3 = {0, 1, 2}, "
        "gives shares of the self masks of {0, 1, 2} and of the masking keys of nobody",
        "client 2 is shown roster A of {0, 1, 2, 3}",
        "client 2: told U2 = {0, 1, 2, 3}, uploads, told U3 = {0, 2, 3}, "
        "gives shares of the self masks of {0, 2, 3} and of the masking keys of {1}",
        "client 3 is shown roster A of {0, 1, 2, 3}",
        "client 3: told U2 = {0, 1, 2, 3}, uploads, told U3 = {0, 2, 3}, "
        "gives shares of the self masks of {0, 2, 3} and of the masking keys of {1}",
        "the server has t shares of the self mask of {0, 1, 2, 3}",
        "the server has t shares of the masking key of {1}",
        "the server computes x_1",
    ]


def test_a_late_upload_without_self_mask_is_read() -> None:
    broken = span_check(4, Mode.SEMI_HONEST, Mutant.NO_SELF_MASK).broken
    assert broken is not None
    assert broken.colluders == ()
    assert broken.learned == ("x_0 + x_1 + x_2", "x_3")
    assert "client 3: told U2 = {0, 1, 2, 3}, uploads" in broken.steps


def test_a_reused_session_gives_differences_of_inputs() -> None:
    broken = span_check(3, Mode.ACTIVE, Mutant.REUSABLE_SESSION).broken
    assert broken is not None
    assert "x_1 - x_1'" in broken.learned


def test_progress_is_told_after_each_choice_of_parameters() -> None:
    told: list[tuple[Parameters, int]] = []
    report = span_check(3, Mode.ACTIVE, progress=lambda p, count: told.append((p, count)))
    assert [p for p, _ in told] == list(all_parameters(3, Mode.ACTIVE))
    assert told[-1][1] == report.schedules


@pytest.mark.parametrize("n", [1, 6])
def test_sizes_out_of_range_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match=rf"n: {n} is not in 2 \.\. 5"):
        span_check(n, Mode.ACTIVE)


# -- the engine against a plain one ----------------------------------------------------------------


def chosen(space: Space, wanted: int) -> Batch:
    """All combinations of a small space, a run from a fixed place of a large one."""
    start = 0 if space.size <= wanted else space.size // 3
    return space.batch(start, min(space.size, start + wanted))


def outcome_by_graph(space: Space, batch: Batch, k: int) -> int | None:
    """What schedule k yields, one client and one share at a time; None if a client refuses it.

    A combination of uploads without masks has weight 0 wherever the self mask or a mask with
    somebody who does not use it is unknown, and the same weight on both sides of an unknown mask:
    it is constant on the connected components of the unknown masks.
    """
    p, h = space.parameters, range(len(space.honest))
    u2 = [int(batch.participants[i, 0, k]) for i in h]
    u3 = [int(batch.survivors[i, 0, k]) for i in h]
    mates = {(i, j) for i in h for j in h if space.cells[i] == space.cells[j] >= 0}
    releases = []
    for i in h:
        wants = bool(batch.wanted[i, 0, k])
        signers = {space.honest[j] for j in h if (i, j) in mates and u3[j] == u3[i] and u3[i]}
        corrupt = space.colluders & u3[i] & space.rosters[i]
        signers |= {c for c in range(p.size) if corrupt >> c & 1}
        enough = p.mode is Mode.SEMI_HONEST or len(signers) >= p.threshold
        if wants and not enough and not space.eager:
            return None
        releases.append(wants and enough)
    seeds, keys = [], []
    for i in h:
        corrupt = (space.colluders & space.rosters[i]).bit_count()
        answers = [j for j in h if (i, j) in mates and releases[j]]
        bit = 1 << space.honest[i]
        seeds.append(corrupt + sum(bool(u2[j] & u3[j] & bit) for j in answers) >= p.threshold)
        keys.append(corrupt + sum(bool(u2[j] & ~u3[j] & bit) for j in answers) >= p.threshold)
    parts = {i: {i} for i in h if u2[i] and seeds[i]}
    dead = set()
    for i, j in combinations(h, 2):
        uses = [x for x, y in ((i, j), (j, i)) if x in parts and u2[x] >> space.honest[y] & 1]
        if keys[i] or keys[j]:
            continue
        if len(uses) == 2:
            joined = parts[i] | parts[j]
            for x in joined:
                parts[x] = joined
        dead |= {uses[0]} if len(uses) == 1 else set()
    alive = {frozenset(part) for part in parts.values() if not part & dead}
    if len(alive) > 1:
        return NOT_A_SUM
    return sum(1 << i for part in alive for i in part)


@pytest.mark.parametrize(
    ("n", "reduction", "wanted", "step"),
    [
        (3, Reduction.NONE, 1000, 1),
        pytest.param(4, Reduction.NONE, 100, 37, marks=pytest.mark.slow),
        (4, Reduction.DOMINATED, 100, 3),
        (5, Reduction.SYMMETRIC, 20, 7),
    ],
    ids=lambda each: each.value if isinstance(each, Reduction) else str(each),
)
@BOTH
def test_the_engine_agrees_with_a_plain_one(
    n: int, mode: Mode, reduction: Reduction, wanted: int, step: int
) -> None:
    compared, different, sums = 0, 0, 0
    for below in (0, 1):  # with t one too low there are outcomes that are no sums
        for p in all_parameters(n, mode, below):
            for space in islice(spaces(p, ClientRules(), reduction), 0, None, step):
                batch = chosen(space, wanted)
                held = views(space, batch)
                layout = Layout(len(space.honest), 1, True)
                numbers = layout.numbers(space, batch, held)
                outcomes = layout.outcomes(numbers)
                assert np.array_equal(outcomes, layout.outcomes(layout.simplified(numbers)))
                for k, outcome in enumerate(outcomes.tolist()):
                    expected = outcome_by_graph(space, batch, k)
                    assert (expected is not None) == held.valid[k]
                    assert expected in (None, outcome)
                    compared += 1
                    different += outcome == NOT_A_SUM
                    sums += outcome > 0
    assert compared > 100
    assert different > 0
    assert sums > 0


def reduced_over_rationals(rows: list[list[int]]) -> list[list[Fraction]]:
    a = [[Fraction(x) for x in row] for row in rows]
    rank = 0
    for column in range(len(a[0])):
        pivot = next((r for r in range(rank, len(a)) if a[r][column]), None)
        if pivot is None:
            continue
        a[rank], a[pivot] = a[pivot], a[rank]
        a[rank] = [x / a[rank][column] for x in a[rank]]
        for r in range(len(a)):
            if r != rank:
                a[r] = [x - a[r][column] * y for x, y in zip(a[r], a[rank], strict=True)]
        rank += 1
    return a


def test_elimination_agrees_with_the_rationals() -> None:
    # Minors of these matrices are below 6^3 * 6 (Hadamard), far below p: no rank is lost modulo p.
    matrices = np.random.default_rng(7).integers(-1, 2, (200, 6, 9))
    matrices[:50, 3] = matrices[:50, 0] + matrices[:50, 1]
    reduced, first = reduce_rows(matrices, 5)
    for k in range(len(matrices)):
        expected = reduced_over_rationals(matrices[k].tolist())
        modulo = [
            [x.numerator * pow(x.denominator, -1, PRIME) % PRIME for x in r] for r in expected
        ]
        assert reduced[k].tolist() == modulo
        assert first[k] == sum(any(row[:5]) for row in expected)


# -- the model against the product -----------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@BOTH
def test_the_parameters_are_those_that_the_product_accepts(n: int, mode: Mode) -> None:
    accepted = set()
    for colluders, threshold, minimum in product(range(-1, n + 1), range(n + 2), range(n + 2)):
        p = Parameters(n, mode, colluders, threshold, minimum)
        try:
            context_of(p)
        except ParameterError:
            continue
        accepted.add(p)
    assert set(all_parameters(n, mode)) == accepted


@pytest.mark.parametrize(("n", "clients"), [(3, (0, 1, 2)), (4, (0, 2))])
@BOTH
def test_the_model_decides_as_a_real_client(n: int, mode: Mode, clients: tuple[int, ...]) -> None:
    for p, client in product(all_parameters(n, mode), clients):
        compared = conformance(p, client)
        assert compared.disagreements == []
        assert compared.decisions >= 2**n


class SmallRosters(ClientRules):
    def accepts_roster(self, p: Parameters, client: int, roster: int) -> bool:
        return bool(roster >> client & 1)


class ForeignShares(ClientRules):
    def accepts_participants(
        self, p: Parameters, client: int, roster: int, sealed: int, participants: int
    ) -> bool:
        return super().accepts_participants(p, client, roster, roster, participants)


class DeclaredLost(ClientRules):
    def accepts_survivors(
        self, p: Parameters, client: int, participants: int, survivors: int
    ) -> bool:
        return survivors & ~participants == 0 and survivors.bit_count() >= p.minimum


class SmallQuorum(ClientRules):
    def is_quorum(self, p: Parameters, confirmers: Any) -> Any:
        return confirmers >= p.threshold - 1


class OutsideSigners(ClientRules):
    def accepts_confirmations(
        self, p: Parameters, roster: int, survivors: int, confirmers: int
    ) -> bool:
        return self.is_quorum(p, confirmers.bit_count())


class OtherKind(ClientRules):
    def kept_keys(self, client: Any, participants: Any, survivors: Any) -> Any:
        return participants & survivors

    def kept_seeds(self, client: Any, participants: Any, survivors: Any) -> Any:
        return participants & ~survivors


TWINS = [
    SmallRosters(),
    ForeignShares(),
    DeclaredLost(),
    SmallQuorum(),
    OutsideSigners(),
    OtherKind(),
    ClientRules(self_mask=False),
    ClientRules(consistency=False),
    ClientRules(one_kind=False),
    ClientRules(passes=2),
]


@pytest.mark.parametrize("rules", TWINS, ids=repr)
def test_a_model_that_drifts_is_noticed(rules: ClientRules) -> None:
    """The product disagrees with each of them somewhere."""
    p = Parameters(3, Mode.ACTIVE, 0, 2, 2)
    assert p in all_parameters(3, Mode.ACTIVE)
    assert conformance(p, 0, rules).disagreements != []
