"""All schedules of small one-shot rounds: they hold for the product, and for no mutant."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from one_shot_conformance import conformance, context_of

from secagg import ParameterError
from simulations.threats.span.one_shot import (
    OneShotMutant,
    OneShotParameters,
    OneShotRules,
    all_parameters,
    one_shot_span,
)
from simulations.threats.span.one_shot.check import answered, solved
from simulations.threats.span.one_shot.schedules import NOTHING, spaces
from simulations.threats.span.shares import is_one_sum, support

# Choices of parameters; schedules; different systems; those that yield something. A smaller space
# would hold more easily: a change needs a reason, and goes into docs/span.md.
COUNTS = {
    (2, 2): (2, 33, 33, 22),
    (2, 3): (10, 312, 312, 208),
    (3, 2): (6, 259, 193, 154),
    (3, 3): (30, 6088, 2224, 1648),
    (4, 3): (50, 16120, 4624, 3344),
}


@pytest.mark.parametrize(("clients", "members"), COUNTS)
@pytest.mark.slow
def test_no_schedule_is_broken(clients: int, members: int) -> None:
    report = one_shot_span(clients, members)
    assert report.held, report.broken
    counted = (report.parameters, report.schedules, report.systems, report.opened)
    assert counted == COUNTS[clients, members]


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "members", "schedules"), [(3, 4, 90_878), (4, 4, 270_922)])
def test_no_schedule_of_four_members_is_broken(clients: int, members: int, schedules: int) -> None:
    report = one_shot_span(clients, members)
    assert report.held, report.broken
    assert report.schedules == schedules


@pytest.mark.parametrize("mutant", OneShotMutant, ids=lambda mutant: mutant.value)
@pytest.mark.parametrize(
    ("clients", "members"),
    [(2, 2), (2, 3), (3, 2), (3, 3), pytest.param(4, 3, marks=pytest.mark.slow)],
)
def test_every_mutant_is_caught(clients: int, members: int, mutant: OneShotMutant) -> None:
    fewest = mutant.smallest
    caught = clients >= fewest[0] and members >= fewest[1]
    assert one_shot_span(clients, members, mutant).held != caught


@pytest.mark.parametrize("clients", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mutant", [None, *OneShotMutant], ids=str)
def test_what_is_left_out_changes_no_verdict(mutant: OneShotMutant | None, clients: int) -> None:
    reduced = one_shot_span(clients, 2, mutant)
    assert one_shot_span(clients, 2, mutant, every=True).held == reduced.held


@pytest.mark.parametrize("clients", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_headers_protect_a_client_that_uploads_twice_in_one_context(clients: int) -> None:
    assert one_shot_span(clients, 3, rules=OneShotRules(again=True)).held
    assert not one_shot_span(clients, 3, rules=OneShotRules(again=True, headers=False)).held


def test_a_broken_schedule_is_told_in_words() -> None:
    assert one_shot_span(3, 3, OneShotMutant.TWO_SETS).broken == (
        "round: n = 3, n_C = 0, minimum_survivors = 2, s = 3, c = 0, quorum = 2, T = 1, l = 1",
        "corrupt members: []",
        "member 1 answers in context 0 on {x_0, x_1}",
        "member 1 answers in context 0 on {x_0, x_2}",
        "member 2 answers in context 0 on {x_0, x_1}",
        "member 2 answers in context 0 on {x_0, x_2}",
        "the server computes x_0 + x_2; x_1 - x_2",
    )
    broken = one_shot_span(3, 3, OneShotMutant.BARE_NAMES).broken
    assert broken[-1] == "the server computes x_0 + x_1 + x_2'; x_2 - x_2'"


# -- the engine against a plain one ---------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [OneShotRules(), OneShotRules(sets=2), OneShotRules(headers=False, again=True)],
    ids=repr,
)
def test_who_answers_agrees_with_a_plain_count(rules: OneShotRules) -> None:
    compared = 0
    for p in all_parameters(3, 3):
        for space in list(spaces(p, rules))[::7]:
            chosen = space.batch(0, min(space.size, 200))
            for row, result in zip(chosen.tolist(), answered(space, chosen).tolist(), strict=True):
                for place, option in enumerate(row):
                    if option == NOTHING:
                        assert result[place] == NOTHING
                        continue
                    what = space.options[option]
                    signers = {
                        space.places[k]
                        for k, other in enumerate(row)
                        if other != NOTHING and space.options[other].name == what.name
                    }
                    own = {j for j in space.corrupt if space.points[j][what.context]}
                    enough = len(signers | own) >= p.quorum
                    assert result[place] == (option if enough else NOTHING)
                    compared += 1
    assert compared > 1000


def test_what_is_learned_is_what_enough_members_answered_on() -> None:
    """For the product's members: T + l shares of one sum, its l sums; with l = 1 none before."""
    seen = set()
    for p in all_parameters(3, 3):
        for space in list(spaces(p, OneShotRules()))[::5]:
            answers = np.unique(answered(space, space.batch(0, space.size)), axis=0)
            basis, ranks = solved(space, answers)
            assert is_one_sum(basis, p.secrets).all()
            for row, rank, summed in zip(answers, ranks, support(basis, p.secrets), strict=True):
                options = {int(option) for option in row if option != NOTHING}
                assert len(options) <= 1
                shares = np.count_nonzero(row != NOTHING) + p.corrupt if options else 0
                known = min(max(shares - p.randomness, 0), p.secrets)
                assert rank == known
                if known:
                    uploads = space.options[options.pop()].uploads
                    assert np.flatnonzero(summed).tolist() == list(uploads)
                seen.add(known)
    assert seen == {0, 1, 2}


# -- the model against the product ----------------------------------------------------------------


def test_the_parameters_are_those_that_the_product_accepts() -> None:
    accepted = set()
    ranges = (range(3), range(5), range(-1, 3), range(5), range(4), (1, 2))
    for colluders, minimum, corrupt, quorum, randomness, secrets in product(*ranges):
        p = OneShotParameters(3, colluders, minimum, 3, corrupt, quorum, randomness, secrets)
        try:
            context_of(p)
        except ParameterError:
            continue
        accepted.add(p)
    assert set(all_parameters(3, 3)) == accepted


@pytest.mark.parametrize(("clients", "members"), [(2, 2), (3, 3), (4, 2)])
def test_the_model_decides_as_a_real_member(clients: int, members: int) -> None:
    for p in all_parameters(clients, members):
        compared = conformance(p)
        assert compared.disagreements == []
        assert compared.decisions >= 4**clients


class TakesBad(OneShotRules):
    def checked(self, uploaded: int, bad: int) -> int:
        return uploaded


class Strangers(OneShotRules):
    def accepts_proposal(self, p: OneShotParameters, checked: int, proposal: int) -> bool:
        return proposal.bit_count() >= p.minimum


class SmallQuorum(OneShotRules):
    def accepts_quorum(self, p: OneShotParameters, signers: int) -> bool:
        return signers.bit_count() >= p.quorum - 1


class DropsOne(OneShotRules):
    def summed(self, proposal: int) -> int:
        return proposal & (proposal - 1)


DRIFTED = [
    TakesBad(),
    Strangers(),
    SmallQuorum(),
    DropsOne(),
    OneShotRules(minimum=False),
    OneShotRules(headers=False),
    OneShotRules(sets=2),
]


@pytest.mark.parametrize("rules", DRIFTED, ids=repr)
def test_a_model_that_drifts_is_noticed(rules: OneShotRules) -> None:
    """The product disagrees with each of them somewhere."""
    p = OneShotParameters(3, 0, 2, 3, 0, 2, 1, 1)
    assert p in all_parameters(3, 3)
    assert conformance(p, rules).disagreements != []


def test_spaces_cover_every_overlap_of_two_committees() -> None:
    p = OneShotParameters(2, 0, 2, 3, 1, 3, 1, 1)
    found = {space.points for space in spaces(p, OneShotRules())}
    shared = {sum(first > 0 < second for first, second in points) for points in found}
    assert shared == {0, 1, 2, 3}
    for points, context in product(found, (0, 1)):
        assert sorted(point[context] for point in points if point[context]) == [1, 2, 3]
    corrupt = {space.corrupt for space in spaces(p, OneShotRules()) if len(space.points) == 3}
    assert corrupt == {frozenset(each) for each in combinations(range(3), 1)}
