"""Validated sums in plain integers: honest uploads enter, cheats do not; what each check is for.

Every cheat has a twin: the same cheat without the check that stops it, which is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import validated_uploads as kit
from validated_uploads import (
    ALL,
    BLOCKS,
    CONTEXT,
    LENGTH,
    PRIME,
    USUAL,
    N,
    answers_of,
    helped,
    key_of,
    too_long,
    vector_of,
)

from secagg.errors import ParameterError
from secagg.validated.parameters import holds_bound, ring_for
from secagg.validated.reference import Answer, Challenges, Upload, answer, decide, opened, upload
from secagg.validated.ring import PrimeRing


class TestHonest:
    @pytest.mark.parametrize("seed", range(20))
    def test_liars_and_the_absent_change_nothing(self, seed: int) -> None:
        random = Random(seed)
        made = upload(CONTEXT, 3, vector_of(random, LENGTH), key_of(random), random.randbytes)
        assert made is not None
        members = random.sample(ALL, 15)
        corrupt, away = members[:2], members[2:4]
        right = answers_of(made)
        for j in away[: random.randint(0, 2)]:
            del right[j]
        answers: dict[int, Answer | None] = {**right}
        for j in corrupt:
            # A lie, a complaint, or nothing.
            answers[j] = random.choice([[(5, 6, 7)] * USUAL.repetitions, None])
            if random.random() < 0.3:
                del answers[j]
        assert decide(USUAL, answers) == frozenset(right) - set(corrupt)

    @pytest.mark.parametrize("uniform", [False, True])
    def test_the_sum_is_opened_whatever_the_keys(self, uniform: bool) -> None:
        random = Random(1)
        vectors = [vector_of(random, LENGTH) for _ in range(5)]
        keys = [
            [random.randrange(PRIME) for _ in range(N)] if uniform else key_of(random)
            for _ in vectors
        ]
        made = [
            upload(CONTEXT, i, vector, key, random.randbytes)
            for i, (vector, key) in enumerate(zip(vectors, keys, strict=True))
        ]
        uploads = [each for each in made if each is not None]
        assert len(uploads) == 5
        total = opened(uploads, [1, 4, 5, 9, 10])
        assert total == [sum(column) for column in zip(*vectors, strict=True)]

    def test_a_sum_that_is_longer_than_its_vectors_may_be_is_not_released(self) -> None:
        random = Random(2)
        made = upload(CONTEXT, 0, vector_of(random, LENGTH), key_of(random), random.randbytes)
        assert made is not None
        made.first[4][1] += 1
        assert opened([made], [1, 4, 5, 9, 10]) is None

    def test_whoever_is_beyond_the_bound_is_silent(self) -> None:
        vector = [LENGTH, 1, *[0] * (N * BLOCKS - 2)]
        assert upload(CONTEXT, 0, vector, [0] * N, Random(1).randbytes) is None

    def test_the_leaf_of_another_member_is_refused(self) -> None:
        random = Random(3)
        made = upload(CONTEXT, 0, vector_of(random, LENGTH), key_of(random), random.randbytes)
        assert made is not None
        for j, leaf, path in ((2, 3, 3), (2, 3, 2), (2, 2, 3)):
            with pytest.raises(ValueError, match="member 2"):
                answer(made, j, made.leaves[leaf], made.path(path))


@pytest.mark.parametrize(("cheat", "kind"), kit.CHEATS)
class TestCheats:
    def test_it_is_rejected(self, cheat: kit.Cheat, kind: str) -> None:
        for seed in range(3):
            assert decide(USUAL, answers_of(cheat(Random(seed)))) is None

    def test_without_the_check_it_is_accepted(
        self, cheat: kit.Cheat, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usual = Upload.challenges

        def without(made: Upload) -> list[Challenges]:
            found = usual(made)
            for each in found:
                getattr(each, kind)[:] = [0] * len(getattr(each, kind))
            return found

        monkeypatch.setattr(Upload, "challenges", without)
        assert decide(USUAL, answers_of(cheat(Random(1)))) == frozenset(ALL)


def test_one_per_cent_decides() -> None:
    assert decide(USUAL, answers_of(too_long(Random(1)))) is None
    assert decide(USUAL, answers_of(too_long(Random(1), 0.99))) == frozenset(ALL)


@pytest.mark.parametrize("away", [(), (3, 11)])
def test_as_many_liars_as_may_be_do_not_help(away: Sequence[int]) -> None:
    made = too_long(Random(1))
    assert decide(USUAL, helped(made, [5, 6], away)) is None
    # One more than may be, where the absent leave just enough.
    assert (decide(USUAL, helped(made, [5, 6, 7], away)) is not None) is (len(away) == 2)


def test_a_dealer_that_spoils_a_seal_gets_no_further_by_it() -> None:
    made = too_long(Random(1))
    answers = helped(made, [5, 6], (3, 11))
    for j in set(answers) - {5, 6}:
        spoilt = {member: given for member, given in answers.items() if member != j}
        assert decide(USUAL, {**spoilt, j: None}) is None


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"members": 14}, "members"),
        # Too few for products; and for a quorum.
        ({"members": 16, "per_polynomial": 4}, "members"),
        ({"members": 10, "away": 0, "per_polynomial": 1}, "members"),
        ({"randomness": 1}, "randomness"),
        ({"away": 7, "members": 30, "corrupt": 2}, "per_polynomial"),
        ({"bound": 10**12}, "bound"),
        ({"away": 3, "members": 17}, "per_polynomial"),
        ({"bound": 0}, "bound"),
        ({"rows": 129}, "rows"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changed: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        replace(USUAL, **changed)
    assert caught.value.argument == name


def test_the_smallest_ring_that_holds_a_bound() -> None:
    for bound in (100**2, 10**9, 2**34, 10**11):
        ring = ring_for(2048, bound)
        assert holds_bound(ring, bound)
        assert ring.bits == 42 or not holds_bound(PrimeRing(2048, ring.bits - 1), bound)
    with pytest.raises(ParameterError, match="at most") as caught:
        ring_for(2048, 10**13)
    largest = int(caught.value.valid.split()[2].rstrip(":"))
    # Bounds of rows are powers of two: the next one fits neither 49 bits nor 50.
    assert ring_for(2048, largest).bits == 49
    with pytest.raises(ParameterError):
        ring_for(2048, largest + 1)
