"""A20: the search finds weak masks and not ours; each part of it is held against something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from secagg import ParameterError, PrimeField
from secagg.pairwise.prg import expand_mask
from simulations.audits.base import ALPHA, Check
from simulations.threats.attack import Effort
from simulations.threats.catalogue import mask_generators
from simulations.threats.catalogue.mask_generators import (
    ATTACKS,
    SECOND_KEYS,
    SMALL_FIELD,
    bias,
    our_elements,
    same_masks,
    weak_elements,
)
from simulations.threats.flower.masks import (
    PAIR_SEED_BITS,
    RING,
    first_elements,
    fold,
    gather,
    mask_of,
    pair_seed_entropy,
    second_key,
    spread,
    weak_mask,
    weak_pair_key,
)
from simulations.threats.flower.our_upload import our_first, our_key, our_upload, weak_upload
from simulations.threats.seed_search.search import (
    Peeled,
    PeeledUpload,
    SearchResult,
    mersenne_outputs,
    recovers,
    search_seeds,
)

RNG_SEED = 20


# -- the generator and its search --------------------------------------------------------------


@pytest.mark.parametrize(("size", "count"), [(1, 1), (63, 4), (64, 4), (130, 32), (5, 227)])
def test_first_outputs_are_numpys(size: int, count: int) -> None:
    seeds = np.random.default_rng(size).integers(0, 1 << 32, size, np.uint32)
    seeds[0] = 0 if size % 2 else (1 << 32) - 1
    expected = [
        np.random.RandomState(int(seed)).randint(0, 1 << 32, count, dtype=np.uint32)
        for seed in seeds
    ]
    assert np.array_equal(mersenne_outputs(seeds, count), np.array(expected).T)


@pytest.mark.parametrize(
    ("seeds", "count"),
    [
        (np.zeros(3, np.int64), 1),
        (np.zeros((2, 2), np.uint32), 1),
        (np.zeros(3, np.uint32), 0),
        (np.zeros(3, np.uint32), 228),
    ],
)
def test_first_outputs_refuse_what_they_cannot_do(seeds: np.ndarray, count: int) -> None:
    with pytest.raises(ParameterError):
        mersenne_outputs(seeds, count)


def test_a_search_tries_each_candidate_once_and_returns_what_is_accepted() -> None:
    tried = []

    def expand(numbers: np.ndarray) -> np.ndarray:
        tried.append(numbers.tolist())
        return numbers.astype(np.uint32)[None]

    span = range(7, 70_007)
    search = search_seeds(span, expand, lambda words: words[0] % np.uint32(10_000) == 9)
    # The first call is there to compile things.
    assert [number for block in tried[1:] for number in block] == list(span)
    assert search.found == (9, 10_009, 20_009, 30_009, 40_009, 50_009, 60_009)
    assert search.tried == 70_000


def test_the_cost_of_all_seeds_is_in_proportion() -> None:
    cost = SearchResult((), 100, 2.0).cost(1000)
    assert cost["candidates_per_core_second"] == 50.0
    assert cost["core_seconds_for_all_seeds"] == 20.0


# -- Flower's generator, written again ---------------------------------------------------------


def test_a_seed_is_folded_to_32_bits() -> None:
    assert fold(bytes([1, 0, 0, 128]) + bytes([1, 2, 0, 0]) + bytes(4)) == 0x80000200


def test_the_fold_of_a_pairwise_key_has_28_bits_and_all_of_them_vary() -> None:
    # A bit that varies evenly is missed with probability 2^-199.
    keys = [fold(weak_pair_key()) for _ in range(200)]
    assert np.bitwise_or.reduce(keys) == 0x7F7F7F7F
    assert np.bitwise_and.reduce(keys) == 0


def test_numbers_of_folded_keys() -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << PAIR_SEED_BITS, 1000, np.uint64)
    numbers[:2] = 0, (1 << PAIR_SEED_BITS) - 1
    folded = spread(numbers)
    assert not np.any(folded & 0x80808080)
    assert [gather(int(each)) for each in folded] == numbers.tolist()


def test_the_entropy_of_a_folded_key_by_plain_convolution() -> None:
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    total = 0.0
    for byte in range(4):
        law = {0: 1.0}
        for place in range(byte, 44, 4):
            characters = {42: alphabet[::4], 43: b"="}.get(place, alphabet)
            after: dict[int, float] = {}
            for value, mass in law.items():
                for character in characters:
                    key = value ^ character
                    after[key] = after.get(key, 0.0) + mass / len(characters)
            law = after
        masses = np.array(list(law.values()))
        total -= float(np.sum(masses * np.log2(masses)))
    assert pair_seed_entropy() == pytest.approx(total, abs=1e-9)
    assert 27.99 < total < PAIR_SEED_BITS


def test_the_first_elements_of_a_numbered_mask() -> None:
    key = weak_pair_key()
    number = gather(fold(key))
    whole = weak_mask(key, RING, 50)
    assert np.array_equal(mask_of(number, 50), whole)
    assert np.array_equal(first_elements(np.array([number], np.uint64))[:, 0], whole[:4])


def test_words_in_another_order_give_the_same_weak_mask_and_another_one_of_ours() -> None:
    key = weak_pair_key()
    assert second_key(key) != key
    assert np.array_equal(weak_mask(second_key(key), RING, 9), weak_mask(key, RING, 9))
    assert same_masks(weak_elements, 44, RNG_SEED) == SECOND_KEYS
    assert same_masks(our_elements, 16, RNG_SEED) == 0


# -- unmasking ---------------------------------------------------------------------------------


@pytest.mark.parametrize("subtracted", [False, True])
def test_a_mask_is_accepted_if_it_leaves_values_in_range(subtracted: bool) -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(0, 16, 4)
    outputs = rng.integers(0, 16, (4, 5000), np.uint32)
    peeled = Peeled(words, subtracted, 16, 5)
    sign = 1 if subtracted else -1
    expected = [
        all((int(w) + sign * int(m)) % 16 <= 5 for w, m in zip(words, column, strict=True))
        for column in outputs.T
    ]
    assert 0 < sum(expected) < 5000
    assert peeled.accept(outputs).tolist() == expected


def test_the_search_recovers_what_is_below_a_weak_mask() -> None:
    upload = weak_upload(60, np.random.default_rng(3), 16)
    success, search = recovers(upload)
    assert success
    assert search.tried == 1 << 16
    assert not np.array_equal(upload.peeled.words, upload.plain)


def test_it_does_not_if_the_seed_is_not_among_the_candidates() -> None:
    upload = weak_upload(60, np.random.default_rng(3), 10)
    last = upload.candidates.stop
    elsewhere = replace(upload, candidates=range(last, last + len(upload.candidates)))
    assert not recovers(elsewhere)[0]


def test_the_same_search_finds_our_key_if_it_is_told_nearly_all_of_it() -> None:
    upload = our_upload(60, np.random.default_rng(4), told_bits=120, tried_bits=8)
    success, search = recovers(upload)
    assert success
    assert len(search.found) == 1


def test_it_does_not_find_our_key_if_it_is_told_as_much_as_of_flowers() -> None:
    success, search = recovers(our_upload(60, np.random.default_rng(5), 14, 12))
    assert not success
    assert search.found == ()


def test_the_first_elements_that_the_search_looks_at_are_those_of_our_masks() -> None:
    upload = our_upload(20, np.random.default_rng(6), told_bits=14, tried_bits=5)
    key_of = partial(our_key, 77, 14)
    found = our_first(key_of, np.arange(32, dtype=np.uint64))
    keys = [key_of(number) for number in range(32)]
    expected = [expand_mask(PrimeField(32), key, 4) for key in keys]
    assert len(set(keys)) == 32
    assert np.array_equal(found, np.array(expected).T)
    first = upload.first_elements(np.arange(32, dtype=np.uint64))
    assert np.array_equal(upload.mask(3)[:4], first[:, 3])


@pytest.mark.parametrize(
    ("largest", "plain", "success"), [(0, 0, True), (1, 0, False), (0, 1, False)]
)
def test_a_claim_must_be_the_only_one_and_right(largest: int, plain: int, success: bool) -> None:
    # Of one coordinate: many masks leave a value in range.
    upload = PeeledUpload(
        Peeled(np.array([7]), False, 16, largest),
        np.array([plain]),
        range(16),
        lambda numbers: numbers.astype(np.uint32)[None],
        lambda number: np.array([number]),
    )
    assert recovers(upload)[0] is success


# -- bias --------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_our_elements_are_uniform_and_two_broken_ones_are_not() -> None:
    key, size = bytes(range(16)), 1 << 18
    ours = bias(our_elements(key, size), SMALL_FIELD.modulus)
    assert ours["residues_never_drawn"] == 0
    assert ours["chi_square_p_value"] > ALPHA
    assert ours["biased"] is False
    weak = bias(weak_elements(bytes(44), size), SMALL_FIELD.modulus)
    assert weak["residues_never_drawn"] == 1
    assert weak["biased"] is True
    # Bytes modulo 251 instead of rejection: five residues come twice as often.
    wrapped = expand_mask(PrimeField(16), key, size).astype(np.int64) % 256 % SMALL_FIELD.modulus
    assert bias(wrapped, SMALL_FIELD.modulus)["biased"] is True


@pytest.mark.statistical
def test_the_top_residue_alone_is_what_weak_elements_lack() -> None:
    elements = weak_elements(bytes(range(44)), 1 << 18)
    assert set(range(SMALL_FIELD.modulus)) - set(elements.tolist()) == {SMALL_FIELD.modulus - 1}
    assert bias(elements, SMALL_FIELD.modulus - 1)["biased"] is False


# -- the attack --------------------------------------------------------------------------------


def test_what_the_attack_reports(quick_check: Callable[[str], Check]) -> None:
    check = quick_check("A20")
    real, twin = check.with_defence, check.without_defence
    assert real["successes"] == 0
    assert twin["successes"] == twin["trials"] == real["trials"]
    assert twin["candidates_each"] == real["candidates_each"]
    assert twin["bits_told"] == real["bits_told"]
    assert twin["all_seeds"] == 1 << PAIR_SEED_BITS
    assert twin["timed_search_found_it"] is True


@pytest.mark.parametrize("broken", ["our_elements", "our_upload"])
def test_a_product_with_weak_masks_would_be_found(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    if broken == "our_elements":
        monkeypatch.setattr(mask_generators, "our_elements", lambda key, n: weak_elements(key, n))
    else:
        monkeypatch.setattr(
            mask_generators, "our_upload", lambda n, rng, told, tried: weak_upload(n, rng, tried)
        )
    check = ATTACKS[0].check(Effort.QUICK, RNG_SEED)
    assert check.with_defence["succeeded"] is True
    assert not check.held
