"""One-shot rounds that end with a sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..positive import undisturbed
from ..script import Script, of_member, remote
from .encodings import words
from .played import CONFIRM, OPEN, OneShotRound
from .schema import OneShotRoundVector

PLAIN = OneShotRound(n=3, members=3, minimum=2, per_polynomial=2, quorum=2)
LOSSES = OneShotRound(
    n=5,
    members=6,
    minimum=4,
    per_polynomial=2,
    quorum=4,
    corrupt=1,
    colluders=1,
    removal=(0b11, 0b10),
    lost=frozenset({3}),
    away={5: CONFIRM, 2: OPEN},
    seed="losses",
)
EVERYONE = OneShotRound(
    n=4, members=4, minimum=3, per_polynomial=3, quorum=3, kind="everyone", seed="everyone"
)
DRAWN = OneShotRound(
    n=3,
    members=3,
    registered=20,
    odds=1 << 63,
    kind="drawn",
    minimum=2,
    per_polynomial=2,
    quorum=2,
    seed="drawn",
)
SPOILT = OneShotRound(
    n=4,
    members=4,
    minimum=3,
    per_polynomial=3,
    quorum=3,
    complaining={1: frozenset({2})},
    seed="spoilt",
)
COPIED = replace(SPOILT, complaining={j: frozenset({3}) for j in range(4)}, seed="copied")
ADDING = OneShotRound(
    n=6,
    members=3,
    minimum=2,
    per_polynomial=2,
    quorum=2,
    adding={
        "fewest": 2,
        "returning": False,
        "fewest_returning": 0,
        "block": bytes(range(32)).hex(),
        "records": [],
    },
    seed="members upload",
)
RETURNING = replace(
    ADDING,
    adding={
        "fewest": 2,
        "returning": True,
        "fewest_returning": 1,
        "block": bytes(range(32)).hex(),
        "records": [
            {"round_number": 0, "clients": 3, "entered": [0, 1, 2], "returned": []},
            {"round_number": 2, "clients": 2, "entered": [0, 2], "returned": [0]},
        ],
    },
    lost=frozenset({1}),
    returning=frozenset({3}),
    seed="members take back",
)
LIAR = OneShotRound(n=3, members=5, minimum=2, per_polynomial=2, quorum=4, corrupt=1, seed="liar")


def spoilt() -> OneShotRound:
    """Client 2's seal for member 1 is zeros; its upload is rightly signed."""
    size = SPOILT.seal_bytes()
    seals = SPOILT.everything.seals[2]
    changed = seals[:size] + bytes(size) + seals[2 * size :]
    return replace(SPOILT, forged={2: SPOILT.upload(2, seals=changed)})


def copied() -> OneShotRound:
    """Client 3 uploads what client 1 did, under its own name and signature."""
    return replace(COPIED, forged={3: COPIED.upload(3, **COPIED.upload_fields(1))})


def liar() -> OneShotRound:
    """Member 3's sums are all 7."""
    rows = len(LIAR.everything.answers[3][0])
    return replace(LIAR, lies={3: words([7] * rows)})


HONEST: dict[str, tuple[str, OneShotRound]] = {
    "plain": ("Three clients, three named members, nobody leaves.", PLAIN),
    "losses": (
        "Five clients with two removable seeds, six members, one of either may be corrupt. Client "
        "3's upload is lost, member 5 does not confirm, member 2 does not answer.",
        LOSSES,
    ),
    "everyone": ("The four clients are the committee.", EVERYONE),
    "drawn": (
        "Three members out of twenty who are registered, drawn by session and round.",
        DRAWN,
    ),
    "drawn-by-beacon": (
        "The same by a beacon, at lower odds.",
        replace(DRAWN, beacon=bytes(range(32)), odds=1 << 62, seed="drawn by a beacon"),
    ),
    "rounded": (
        "Two low bits are not sent, three key entries in a secret, in a round that expires.",
        replace(
            PLAIN,
            rounding_bits=2,
            bits=12,
            length=67,
            opened_at=1_750_000_000,
            lifetime_seconds=3600,
            seed="rounded",
        ),
    ),
    "one-entry": (
        "One key entry in a secret, four secrets in a polynomial.",
        OneShotRound(
            n=2,
            members=5,
            minimum=2,
            per_polynomial=4,
            quorum=3,
            entries=1,
            seed="one entry",
        ),
    ),
    "two-blocks": (
        "A vector of more coefficients than a ring element has.",
        OneShotRound(
            n=2, members=2, minimum=2, per_polynomial=1, quorum=2, length=1030, seed="two blocks"
        ),
    ),
    "spoilt-seal": (
        "Client 2's seal for member 1 does not open: it is complained about, and left out.",
        spoilt(),
    ),
    "copied-upload": (
        "Client 3 copies ephemeral key, ciphertext and seals of client 1 and signs them: they open "
        "for nobody, all members complain about it, and it is left out. Client 1 stays.",
        copied(),
    ),
    "members-upload": (
        "Three clients, and after them the three named members, who upload as well.",
        ADDING,
    ),
    "members-take-back": (
        "Two rounds were signed for before: members 0 and 2 were in the last of them. "
        "Member 0 takes something back, member 2 does not; client 1's upload is lost.",
        RETURNING,
    ),
    "liar": ("Member 3 answers wrong sums: the sum is right, and 3 is named.", liar()),
}


def honest(name: str) -> OneShotRoundVector:
    """A round as it is played."""
    description, round_ = HONEST[name]
    script = Script(round_, description)
    script.play(round_.events())
    return script.vector()


def vectors() -> Iterator[tuple[str, OneShotRoundVector]]:
    """All files, by name."""
    for name in HONEST:
        yield name, honest(name)
    foreign = bytes([1]) * 64
    bad = {
        "upload 1": (PLAIN.upload(1, foreign), remote(1, "BAD_SIGNATURE")),
        "complaints 0": (PLAIN.complaints(0, b"\x08"), of_member(0, "BAD_LENGTH")),
        "confirmation 2": (PLAIN.confirmation(2, foreign), of_member(2, "BAD_SIGNATURE")),
        "answer 1": (PLAIN.answer(1, sums=b""), of_member(1, "BAD_SHARE")),
    }
    yield "refusals-change-nothing", undisturbed(PLAIN, bad)
