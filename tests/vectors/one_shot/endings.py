"""One-shot rounds that end without a sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import wire
from ..endings import server_ends
from ..script import opening_failed, too_few
from .encodings import words
from .played import OneShotRound
from .rounds import LIAR, PLAIN, RETURNING
from .schema import OneShotRoundVector

Made = tuple[str, OneShotRoundVector]


def server_endings() -> Iterator[Made]:
    """Rounds without a sum."""
    few = frozenset({"upload 1", "upload 2"})
    for name, description, without, left, needed in (
        ("clients", "One client's upload is there, two are needed.", (0,), 1, 2),
        ("members", "One member's upload is there, two are needed.", (4, 5), 1, 2),
        ("returning", "Nobody takes anything back, and one must.", (3,), 0, 1),
    ):
        yield server_ends(
            f"too-few-upload-{name}", description, RETURNING, too_few("upload", left, needed),
            without=frozenset(f"upload {u}" for u in without), at=0,
        )  # fmt: skip
    yield server_ends(
        "too-few-upload", "One upload of three arrives, two are needed.", PLAIN,
        too_few("upload", 1, 2), without=few, at=0,
    )  # fmt: skip
    for kind, stage, at in (("complaints", "check", 1), ("confirmation", "confirm", 2)):
        yield server_ends(
            f"too-few-{stage}", "Two members of three are left; three answers open the sum.",
            PLAIN, too_few(stage, 2, 3), without=frozenset({f"{kind} 1"}), at=at,
        )  # fmt: skip
    yield server_ends(
        "too-few-uploads-left", "Three uploads of three are complained about.", PLAIN,
        too_few("check", 0, 2), at=1, swap={"complaints 0": PLAIN.complaints(0, b"\7")},
    )  # fmt: skip
    yield server_ends(
        "too-few-open", "Two members of three answer.", PLAIN, too_few("open", 2, 3),
        without=frozenset({"answer 2"}),
    )  # fmt: skip
    yield server_ends(
        "opening-failed-answers",
        "Of five answers two have wrong sums, and three are needed: one could be corrected.",
        LIAR,
        opening_failed(5, 3),
        swap={f"answer {j}": wrong_answer(j) for j in (0, 2)},
    )
    yield server_ends(
        "opening-failed-members",
        "The same; one of the two gives wrong masked combinations as well, and is named.",
        LIAR,
        opening_failed(5, 3, members=[2]),
        swap={"answer 0": wrong_answer(0), "answer 2": wrong_answer(2, [0, 1, 2])},
    )
    yield server_ends(
        "opening-failed-dealer",
        "No three answers have sums on one polynomial, and the masked combinations of client 1 "
        "neither: it is named.",
        LIAR,
        opening_failed(5, 3, dealers=[1]),
        swap={f"answer {j}": wrong_answer(j, [1]) for j in range(5)},
    )
    yield server_ends(
        "opening-failed-key",
        "Just enough answers, of which one is wrong: nobody has the key that comes out.",
        PLAIN,
        opening_failed(3, 3),
        swap={"answer 1": PLAIN.answer(1, sums=elements_of(1, PLAIN))},
    )


def elements_of(label: int, round_: OneShotRound, count: int = 0) -> bytes:
    """Random elements, as many as a member's sums unless said."""
    rows = count or len(round_.everything.answers[0][0])
    return words(wire.coefficients(rows, wire.counter_rand(b"elements %d" % label)))


def wrong_answer(j: int, dealers: Sequence[int] = ()) -> bytes:
    """Member j's sums are random, and so are its combinations of these dealers' shares."""
    combined = bytearray(words(LIAR.everything.answers[j][2]))
    for dealer in dealers:
        combined[16 * dealer : 16 * (dealer + 1)] = elements_of(10 + j, LIAR, 4)
    return LIAR.answer(j, sums=elements_of(j, LIAR), checks=bytes(combined))


def vectors() -> Iterator[Made]:
    """All files, by name."""
    return server_endings()
