"""What a server makes of answers: wrong ones are corrected and named, or there is no sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import log, log2, sqrt
from typing import Any

import numpy as np
import one_shot_rounds as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.stats import chi2

from secagg import ParameterError, SessionAbortedError
from secagg.errors import OpeningFailedError
from secagg.oneshot import opening, packing
from secagg.oneshot.gaussian import sample
from secagg.oneshot.header import seed_commitment
from secagg.oneshot.layout import decode_rows, encode_rows, reader_of
from secagg.oneshot.messages import Upload, decode_from_member, decode_upload
from secagg.oneshot.opening import OpenedSum, largest_mean_square
from secagg.oneshot.transitions import ServerPhase
from secagg.shamir import PRIME, points_of

SEEDS = (0b11, 0b01)
Change = Callable[[Any], dict[str, bytes]]
"""What becomes of the fields of an honest answer."""


def committee_of(
    answers: int, corrupt: int = 1, per_polynomial: int = 2, randomness: int = 1
) -> Any:
    """A committee of which so many members answer."""
    return kit.committee(
        answers, corrupt=corrupt, randomness=randomness, per_polynomial=per_polynomial
    )


def opened(
    round_: kit.Round,
    lies: Mapping[int, Change],
    uploads: Callable[[int, Upload], Upload] | None = None,
    silent: Collection[int] = (),
) -> OpenedSum:
    """Play a round in which some members lie in their answers, and some do not answer."""
    for client in round_.clients:
        data = round_.upload(client)
        message = decode_upload(data, client, len(data))
        round_.server.receive(uploads(client, message) if uploads else message)
    round_.pass_on()
    round_.pass_on()

    def lied(member: int, data: bytes) -> bytes | None:
        if member in silent:
            return None
        answer: Any = decode_from_member(data, member, len(data))
        changes = lies[member](answer) if member in lies else {}
        return round_.answer(member, answer, **changes)

    round_.pass_on(lied)
    return round_.server.open()


def plus(name: str, element: int, at: int = 0) -> Change:
    """One element of a field of the answer is another one."""

    def change(answer: Any) -> dict[str, bytes]:
        words = np.frombuffer(getattr(answer, name), "<u4").astype(np.uint64)
        words[at] = (words[at] + np.uint64(element)) % np.uint64(PRIME)
        return {name: words.astype("<u4").tobytes()}

    return change


def random_words(name: str, seed: int) -> Change:
    """A field of the answer is nothing but random elements."""

    def change(answer: Any) -> dict[str, bytes]:
        count = len(getattr(answer, name)) // 4
        drawn = np.random.default_rng(seed).integers(0, PRIME, count)
        return {name: drawn.astype("<u4").tobytes()}

    return change


def both(*changes: Change) -> Change:
    return lambda answer: {name: new for each in changes for name, new in each(answer).items()}


def is_right(round_: kit.Round, found: OpenedSum) -> None:
    assert found.vector.elements.tolist() == round_.expected(found.survivors)
    assert found.culprits == ()


SHORTEST = kit.context(committee=committee_of(3), length=1)
"""Just enough members, and the shortest vector: only the errors tell a wrong key."""


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("liars", [(), (0,), (8,), (0, 4), (6, 7, 8), (0, 1, 2)])
@pytest.mark.parametrize("lie", ["one element", "all elements"])
def test_wrong_answers_up_to_the_radius_are_corrected_and_named(
    liars: tuple[int, ...], lie: str
) -> None:
    """Nine answers, three of which open: three wrong ones are found, wherever they lie."""
    committee = committee_of(9)
    assert committee.threshold == 3
    round_ = kit.Round(kit.context(committee=committee))
    lies = {j: plus("sums", 1 + j, j) if lie == "one element" else random_words("sums", j)
            for j in liars}  # fmt: skip
    found = opened(round_, lies)
    is_right(round_, found)
    assert found.wrong_members == liars


def test_liars_that_agree_with_one_another_are_corrected() -> None:
    """They shift their shares along one other polynomial, the best that they can do."""
    round_ = kit.Round(kit.context(committee=committee_of(9)))
    lies = {j: plus("sums", 7 * (j + 1) ** 2 + 5, 3) for j in (2, 3, 5)}
    found = opened(round_, lies)
    is_right(round_, found)
    assert found.wrong_members == (2, 3, 5)


@pytest.mark.parametrize("liars", [(0, 1, 2, 3), (4, 5, 6, 7, 8)])
def test_more_wrong_answers_release_nothing(liars: tuple[int, ...]) -> None:
    round_ = kit.Round(kit.context(committee=committee_of(9)))
    with pytest.raises(OpeningFailedError) as raised:
        opened(round_, {j: random_words("sums", j) for j in liars})
    error = raised.value
    assert (error.answered, error.needed) == (9, 3)
    # Their masked combinations were right: nobody can be named.
    assert (error.dealers, error.members) == ((), ())
    assert "nobody can tell" in str(error)
    assert round_.server.phase is ServerPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        round_.server.open()


def test_liars_that_lie_in_the_post_mortem_too_are_named() -> None:
    """With two corrupt members: seven answers leave room for both of them, three needed."""
    round_ = kit.Round(kit.context(committee=committee_of(7, corrupt=2, randomness=2)))
    lies = {j: both(random_words("sums", j), random_words("checks", j)) for j in (1, 4)}
    with pytest.raises(OpeningFailedError) as raised:
        opened(round_, lies, silent=(6,))
    # Six answers, four needed: too few to name anybody.
    assert (raised.value.members, raised.value.dealers) == ((), ())
    round_ = kit.Round(kit.context(committee=committee_of(9, corrupt=2, randomness=2)))
    lies[5] = random_words("sums", 5)
    with pytest.raises(OpeningFailedError) as raised:
        opened(round_, lies)
    assert (raised.value.members, raised.value.dealers) == ((1, 4), ())
    assert "look at members 1, 4" in str(raised.value)


def lagrange(points: NDArray[np.uint64], at: int, x: int) -> int:
    """The value at x of the polynomial that is 1 at point number `at`, and 0 at the others."""
    above, below = 1, 1
    for i, other in enumerate(points.tolist()):
        if i != at:
            above = above * (x - other) % PRIME
            below = below * (int(points[at]) - other) % PRIME
    return above * pow(below, -1, PRIME) % PRIME


# The key that comes out is wrong by about as much as the lie.
LIES = pytest.mark.parametrize(
    ("lie", "why"), [(1, "does not match the sum"), (10**6, "no honest clients have the key")]
)


@LIES
def test_a_wrong_polynomial_that_most_answers_lie_on_gives_no_sum(lie: int, why: str) -> None:
    """Beyond the radius: three of five liars, with two honest members on their polynomial.

    The decoder finds nothing wrong; the keys that come out are no sum of those in the ciphertexts.
    """
    round_ = kit.Round(kit.context(committee=committee_of(5), length=150))
    honest = points_of([0, 1, 2])
    lies = {j: plus("sums", lie * lagrange(honest, 2, j + 1) % PRIME) for j in (2, 3, 4)}
    with pytest.raises(OpeningFailedError) as raised:
        opened(round_, lies)
    assert why in raised.value.why


@LIES
def test_one_wrong_answer_among_just_enough_is_noticed(lie: int, why: str) -> None:
    """Three answers open: a wrong one cannot be told apart, and gives a key that nobody has."""
    round_ = kit.Round(SHORTEST)
    with pytest.raises(OpeningFailedError) as raised:
        opened(round_, {1: plus("sums", lie)})
    assert why in raised.value.why
    assert (raised.value.answered, raised.value.needed) == (3, 3)


def with_key(shift: int) -> Callable[[int, Upload], Upload]:
    """Client 2 shares another small key than its ciphertext's."""

    def changed(client: int, message: Upload) -> Upload:
        if client != 2:
            return message
        context = SHORTEST
        key = sample(shift.to_bytes(16, "little"), context.degree)
        rows = context.layout.deal(key, [], reader_of(bytes(16)))
        return kit.sealed_rows(context, message, rows)

    return changed


def test_a_small_wrong_key_with_just_enough_answers_is_caught_by_the_errors() -> None:
    """Every entry is one that honest clients may have; the errors are 27 times as large."""
    found = opened(kit.Round(SHORTEST), {})
    assert found.survivors == (0, 1, 2, 3, 4)
    round_ = kit.Round(SHORTEST)
    with pytest.raises(OpeningFailedError) as raised:
        opened(round_, {}, with_key(5))
    assert "does not match the sum" in raised.value.why
    assert round_.server.phase is ServerPhase.ABORTED


def test_a_sum_far_out_of_range_gives_no_sum_and_names_the_range_and_nobody() -> None:
    """Two digits fill a coefficient of this ring: one that is too large wraps around modulo q."""
    context = kit.context(committee=committee_of(5), length=150, bits=9)
    largest = context.packing.largest
    round_ = kit.Round(context, inputs=[[largest] * 150] * context.size)
    with pytest.raises(OpeningFailedError, match=f"range, -{largest} .. {largest};") as raised:
        opened(round_, {})
    assert raised.value.dealers == raised.value.members == ()


def test_without_the_test_on_the_errors_a_wrong_sum_would_come_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The twin of the test above: nothing else tells that the key is wrong."""
    monkeypatch.setattr(opening, "largest_mean_square", lambda *_: float("inf"))
    round_ = kit.Round(SHORTEST)
    found = opened(round_, {}, with_key(5))
    assert found.vector.elements.tolist() != round_.expected(found.survivors)


def test_without_the_zeros_after_a_short_vector_a_wrong_sum_would_come_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one coefficient the bound on the error is beyond Delta / 2: every key passes."""
    monkeypatch.setattr(packing, "FEWEST_COEFFICIENTS", 1)
    round_ = kit.Round(SHORTEST)
    found = opened(round_, {}, with_key(5))
    assert found.vector.elements.tolist() != round_.expected(found.survivors)


@pytest.mark.parametrize("count", [1, 2, 7, 20, 100, 1000, 10**6])
@pytest.mark.parametrize(("uploads", "rounding_bits"), [(1, 0), (5, 0), (5, 6)])
def test_honest_errors_are_refused_once_in_2_to_the_42(
    count: int, uploads: int, rounding_bits: int
) -> None:
    context = kit.context(rounding_bits=rounding_bits, length=count, bits=12)
    bound = largest_mean_square(context, uploads)
    variance = uploads * context.packing.error_variance
    coefficients = context.packing.coefficients(count)
    assert chi2.sf(bound / variance * coefficients, coefficients) <= 2.0**-42


@pytest.mark.parametrize(("clients", "rounding_bits"), [(3, 0), (5, 0), (5, 6), (10**3, 0)])
@pytest.mark.parametrize("length", [1, 7, 64, 100, 1000])
def test_errors_of_a_wrong_key_pass_for_honest_ones_less_than_once_in_2_to_the_80(
    clients: int, rounding_bits: int, length: int
) -> None:
    """Chernoff's bound for a sum of squares of integers that are uniform within Delta / 2."""
    context = kit.context(clients, length=length, bits=10, rounding_bits=rounding_bits)
    packed = context.packing
    squares = np.arange(-(packed.delta // 2), packed.delta // 2 + 1, dtype=np.float64) ** 2
    bound = largest_mean_square(context, clients)
    count = packed.coefficients(length)
    exponents = [
        count * (rate + log(np.exp(-rate / bound * squares).mean()))
        for rate in np.geomspace(0.1, 10, 100)
    ]
    # A sum modulo q is not quite uniform modulo Delta: once in B^count at the most more often.
    assert min(exponents) + count / packed.base < -80 * log(2)


@pytest.mark.parametrize(("count", "bits"), [(7, (4, 5)), (64, (85, 86))])
def test_the_same_probability_without_a_bound(count: int, bits: tuple[int, int]) -> None:
    """The distribution itself, convolved: with five clients, at 7 coefficients and at 64."""
    context = kit.context(bits=12)
    packed = context.packing
    x = 42 * log(2) / count
    most = int(count * context.size * packed.error_variance * (1 + 2 * sqrt(x) + 2 * x))
    if count == packed.coefficients(1):
        assert most == int(count * largest_mean_square(context, context.size))
    found = np.zeros(most + 1)
    found[0] = 1
    for _ in range(count):
        before, found = found / packed.delta, np.zeros(most + 1)
        for error in range(packed.delta // 2 + 1):
            if error**2 <= most:
                found[error**2 :] += (1 + (error > 0)) * before[: most + 1 - error**2]
    assert bits[0] < -log2(found.sum()) < bits[1]


# -- dealers --------------------------------------------------------------------------------------


def dealing(
    context: Any, rows_of: Callable[[NDArray[np.uint32]], NDArray[np.uint32]], who: int = 2
) -> Callable[[int, Upload], Upload]:
    """A client changes the shares that it deals, of a key of its own."""

    def changed(client: int, message: Upload) -> Upload:
        if client != who:
            return message
        seeds = [bytes([i]) * 32 for i in range(context.seeds)]
        key = sample(bytes(16), context.degree)
        rows = context.layout.deal(key, seeds, reader_of(bytes(16)))
        return kit.sealed_rows(context, message, rows_of(rows.copy()))

    return changed


def test_a_dealer_that_is_off_every_polynomial_is_named() -> None:
    """Random shares: the answers are on no polynomial; the post-mortem says whose fault it is."""
    context = kit.context(committee=committee_of(6))
    noise = np.random.default_rng(3)

    def rows(dealt: NDArray[np.uint32]) -> NDArray[np.uint32]:
        return noise.integers(0, PRIME, dealt.shape).astype(np.uint32)

    with pytest.raises(OpeningFailedError) as raised:
        opened(kit.Round(context), {}, dealing(context, rows))
    assert (raised.value.dealers, raised.value.members) == ((2,), ())
    assert "look at clients 2" in str(raised.value)


def test_a_dealer_off_one_polynomial_of_many_is_named() -> None:
    context = kit.context(committee=committee_of(6))

    def rows(dealt: NDArray[np.uint32]) -> NDArray[np.uint32]:
        dealt[:, 100] = [1, 2, 4, 8, 16, 32]
        return dealt

    with pytest.raises(OpeningFailedError) as raised:
        opened(kit.Round(context), {}, dealing(context, rows))
    assert raised.value.dealers == (2,)


def test_two_dealers_and_nobody_else() -> None:
    context = kit.context(6, committee=committee_of(6))

    def rows(dealt: NDArray[np.uint32]) -> NDArray[np.uint32]:
        dealt[:, 5] = np.arange(6) ** 3 + 1
        return dealt

    first, second = dealing(context, rows, 2), dealing(context, rows, 4)
    with pytest.raises(OpeningFailedError) as raised:
        opened(kit.Round(context), {}, lambda i, message: second(i, first(i, message)))
    assert raised.value.dealers == (2, 4)


def test_a_dealer_that_lies_to_one_member_makes_it_look_like_a_liar() -> None:
    """Names are leads. The sum opens all the same, if the dealer's key is its ciphertext's."""
    context = kit.context(committee=committee_of(6))
    round_ = kit.Round(context)

    def uploads(client: int, message: Upload) -> Upload:
        if client != 2:
            return message
        rows = context.layout.deal(keys[0], [], reader_of(bytes(16)))
        rows[4, 9] = (int(rows[4, 9]) + 1) % PRIME
        return kit.sealed_rows(context, message, rows)

    keys = keys_used(round_, 2)
    found = opened(kit.Round(context), {}, uploads)
    is_right(round_, found)
    assert found.wrong_members == (4,)


def keys_used(round_: kit.Round, client: int) -> list[Any]:
    """The key that a client's upload has, rebuilt from what all members hold of it."""
    for each in round_.clients:
        round_.server.receive_upload(each, round_.upload(each))
    round_.pass_on()
    layout, committee = round_.context.layout, round_.context.committee
    rows = np.stack([round_.members[j]._state.shares[client] for j in range(committee.threshold)])
    secrets = opening.packed_sharing.interpolate(
        rows[:, : layout.key_polynomials], range(committee.threshold), committee.per_polynomial
    )
    return [layout.key_of(secrets.reshape(-1)[: layout.key_secrets]).astype(np.int8)]


# -- seeds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("liars", [(), (1,), (0, 1, 2), (2, 7, 8), (5, 7, 8)])
def test_wrong_shares_of_seeds_are_corrected_and_named(liars: tuple[int, ...]) -> None:
    round_ = kit.Round(kit.context(committee=committee_of(9), removal=SEEDS))
    wanted = {i: client_seeds(round_, i) for i in range(5)}
    found = opened(round_, {j: random_words("seeds", j) for j in liars})
    is_right(round_, found)
    # If the first three answers give what everybody committed to, nobody looks at the others.
    assert found.wrong_members == (liars if set(liars) & {0, 1, 2} else ())
    assert found.removed == wanted
    assert found.noisy == ()


def client_seeds(round_: kit.Round, client: int) -> tuple[bytes, ...]:
    """The seeds that a client gives up when nobody is lost."""
    other = kit.Round(round_.context).clients[client]
    return tuple(seed.expose() for seed in other.seeds(b"rounded %d" % client)[1:])


def test_a_lie_about_one_client_is_corrected_for_this_one() -> None:
    round_ = kit.Round(kit.context(committee=committee_of(6), removal=SEEDS))
    width = 2 * round_.context.layout.seed_polynomials
    found = opened(round_, {0: plus("seeds", 5, 3 * width)})
    is_right(round_, found)
    assert found.wrong_members == (0,)
    assert found.removed == {i: client_seeds(round_, i) for i in range(5)}


def test_lies_in_sums_and_seeds_by_different_members() -> None:
    """Who lied about the sums is not asked for seeds."""
    round_ = kit.Round(kit.context(committee=committee_of(9), removal=SEEDS))
    lies = {
        0: random_words("sums", 0),
        1: random_words("seeds", 1),
        2: both(random_words("sums", 2), random_words("seeds", 2)),
    }
    found = opened(round_, lies)
    is_right(round_, found)
    assert found.wrong_members == (0, 1, 2)
    assert len(found.removed) == 5


def test_too_many_lies_about_seeds_leave_the_noise_in() -> None:
    """The sum is right; the noise of everybody stays, and the caller knows it."""
    round_ = kit.Round(kit.context(committee=committee_of(9), removal=SEEDS))
    found = opened(round_, {j: random_words("seeds", j) for j in range(4)})
    is_right(round_, found)
    assert (found.removed, found.noisy) == ({}, (0, 1, 2, 3, 4))


@pytest.mark.parametrize("bad", ["commitment", "another seed", "no seed", "no polynomial"])
def test_a_dealer_whose_seeds_are_not_what_it_committed_to_is_noisy(bad: str) -> None:
    context = kit.context(committee=committee_of(6), removal=SEEDS)
    key = keys_used(kit.Round(context), 3)[0]
    layout = context.layout

    def uploads(client: int, message: Upload) -> Upload:
        if client != 3:
            return message
        seeds = [b"\1" * 32, b"\2" * 32]
        commitments = [seed_commitment(context, 3, i, seed) for i, seed in enumerate(seeds)]
        if bad == "commitment":
            commitments[1] = commitments[1][:-1] + b"\0"
        elif bad == "another seed":
            seeds[1] = b"\3" * 32
        rows = layout.deal(key, seeds, reader_of(bytes(16)))
        if bad in ("no seed", "no polynomial"):
            start = layout.key_polynomials
            limbs = np.full(rows.shape[0], 1 << 30, np.uint32)
            if bad == "no polynomial":
                limbs = np.random.default_rng(1).integers(0, PRIME, rows.shape[0])
            # A constant is a polynomial: every limb of it is 2^30, one more than a limb may be.
            rows[:, start] = limbs
        return kit.sealed_rows(context, replace(message, commitments=b"".join(commitments)), rows)

    round_ = kit.Round(context)
    found = opened(round_, {}, uploads)
    is_right(round_, found)
    assert found.noisy == (3,)
    assert found.removed.keys() == {0, 1, 2, 4}
    assert found.wrong_members == ()


def test_the_right_seeds_of_the_same_dealer_are_taken() -> None:
    """The control of the one above."""
    context = kit.context(committee=committee_of(6), removal=SEEDS)
    key = keys_used(kit.Round(context), 3)[0]
    seeds = [b"\1" * 32, b"\2" * 32]

    def uploads(client: int, message: Upload) -> Upload:
        if client != 3:
            return message
        commitments = [seed_commitment(context, 3, i, seed) for i, seed in enumerate(seeds)]
        rows = context.layout.deal(key, seeds, reader_of(bytes(16)))
        return kit.sealed_rows(context, replace(message, commitments=b"".join(commitments)), rows)

    found = opened(kit.Round(context), {}, uploads)
    assert found.removed[3] == tuple(seeds)
    assert found.noisy == ()


# -- any lies -------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(data=st.data())
def test_a_sum_that_comes_out_is_right(data: st.DataObject) -> None:
    """Whatever members answer, within and beyond what can be corrected."""
    size = data.draw(st.integers(3, 9))
    corrupt = data.draw(st.integers(0, (size - 1) // 3))
    randomness = data.draw(st.integers(max(corrupt, 1), max(corrupt, size // 2, 1)))
    per_polynomial = data.draw(st.integers(1, size - randomness))
    committee = committee_of(size, corrupt, per_polynomial, randomness)
    liars = data.draw(st.sets(st.integers(0, size - 1)))
    lies: dict[int, Change] = {}
    for liar in sorted(liars):
        names = data.draw(st.sets(st.sampled_from(["sums", "seeds", "checks"]), min_size=1))
        kind = data.draw(st.sampled_from(["random", "one"]))
        changes = [
            random_words(name, liar) if kind == "random" else plus(name, 1 + liar)
            for name in sorted(names)
        ]
        lies[liar] = both(*changes)
    round_ = kit.Round(kit.context(committee=committee, removal=SEEDS, length=40))
    within = 2 * len(liars) <= size - committee.threshold
    try:
        found = opened(round_, lies)
    except OpeningFailedError as error:
        assert not within
        assert set(error.members) <= set(liars) or len(liars) > corrupt
        return
    is_right(round_, found)
    for client, seeds in found.removed.items():
        assert seeds == client_seeds(round_, client)
    assert found.removed.keys() | set(found.noisy) == set(range(5))
    assert set(found.wrong_members) <= liars
    if within:
        assert found.noisy == ()


def test_rows_are_elements_of_the_field() -> None:
    rows = np.array([[0, 1, PRIME - 1]], np.uint32)
    assert np.array_equal(decode_rows(encode_rows(rows), 1, 3), rows)
    for bad in (b"", encode_rows(rows)[:-1], encode_rows(rows) + b"\0" * 4, b"\xff" * 12):
        with pytest.raises(ValueError, match=r"elements expected|not below"):
            decode_rows(bad, 1, 3)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_seeds_than_the_round_has_is_not_dealt(count: int) -> None:
    layout = kit.context(removal=SEEDS).layout
    key = sample(bytes(16), layout.key_length)
    with pytest.raises(ParameterError, match="seeds"):
        layout.deal(key, [bytes(32)] * count, reader_of(bytes(16)))
