"""What the server of a one-shot round refuses, and how rounds end without a sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .. import wire
from ..schema import Error
from ..script import remote, too_few
from ..wire import bitmap, index, sign
from .encodings import words
from .places import Made, flip, server_refuses
from .played import OneShotRound
from .rounds import HONEST, LIAR, LOSSES, PLAIN, RETURNING
from .script import Script, of_member, opening_failed


def server_uploads() -> Iterator[Made]:
    """What is wrong with uploads."""
    at, honest = "upload 1", PLAIN.upload(1)
    fields = PLAIN.upload_fields(1)
    other = replace(PLAIN, seed="another round")
    yield server_refuses(
        "malformed", "A truncated upload.", at, honest[:-1], remote(1, "MALFORMED")
    )
    yield server_refuses(
        "malformed-direction",
        "A server's message comes from a client.",
        at,
        PLAIN.proposal(),
        remote(1, "MALFORMED"),
    )
    yield server_refuses(
        "oversized",
        "An upload longer than any honest one of the round.",
        at,
        PLAIN.upload(1, seals=fields["seals"] + bytes(200)),
        remote(1, "OVERSIZED"),
    )
    yield server_refuses(
        "wrong-context-upload",
        "An upload with the tag of another context.",
        at,
        wire.message(32, bytes(8), 1, *fields.values(), bytes(64)),
        remote(1, "WRONG_CONTEXT"),
    )
    yield server_refuses(
        "unknown-sender-name",
        "Client 1 sends client 2's upload.",
        at,
        PLAIN.upload(2),
        remote(1, "UNKNOWN_SENDER"),
    )
    yield server_refuses(
        "unknown-sender-cohort",
        "The transport names a sender outside the cohort.",
        at,
        PLAIN.message(32, 3, *fields.values(), bytes(64)),
        remote(3, "UNKNOWN_SENDER"),
        sender=3,
        has_honest=False,
    )
    yield server_refuses(
        "duplicate-upload",
        "An upload arrives twice; it is in the sum once.",
        "upload 2",
        honest,
        remote(1, "DUPLICATE_MESSAGE"),
        sender=1,
        has_honest=False,
    )
    yield server_refuses(
        "unexpected",
        "Complaints before uploads are closed.",
        at,
        PLAIN.complaints(1),
        of_member(1, "UNEXPECTED_MESSAGE"),
        op="server_receive_from_member",
        has_honest=False,
    )
    for name, change in (("short", lambda d: d[:-1]), ("one", lambda d: d[: -PLAIN.seal_bytes()])):
        yield server_refuses(
            f"bad-length-seals-{name}",
            "Seals that are not one for each member.",
            at,
            PLAIN.upload(1, seals=change(fields["seals"])),
            remote(1, "BAD_LENGTH"),
        )
    yield server_refuses(
        "bad-length-commitments",
        "A commitment in a round without removable seeds.",
        at,
        PLAIN.upload(1, commitments=bytes(32)),
        remote(1, "BAD_LENGTH"),
    )
    yield server_refuses(
        "bad-signature-upload",
        "The ciphertext was changed on the way.",
        at,
        PLAIN.message(
            32,
            1,
            *{**fields, "ciphertext": flip(fields["ciphertext"])}.values(),
            sign(PLAIN.identities[1], "sign upload", *PLAIN.header_parts(1, fields)),
        ),
        remote(1, "BAD_SIGNATURE"),
    )
    yield server_refuses(
        "bad-signature-signer",
        "Client 0 signed client 1's upload.",
        at,
        PLAIN.upload(1, signer=0),
        remote(1, "BAD_SIGNATURE"),
    )
    parts = (bytes(32), *other.header_parts(1, fields)[1:])
    yield server_refuses(
        "bad-signature-context",
        "An upload signed for another context.",
        at,
        PLAIN.upload(1, sign(PLAIN.identities[1], "sign upload", *parts)),
        remote(1, "BAD_SIGNATURE"),
    )
    for name, key in (
        ("", wire.LOW_ORDER_KEY),
        ("-unreduced", wire.UNREDUCED_KEY),
        (
            "-high-bit",
            fields["ephemeral_key"][:31] + bytes([fields["ephemeral_key"][31] | 0x80]),
        ),
    ):
        yield server_refuses(
            f"bad-key{name}",
            "An ephemeral key that no honest client sends.",
            at,
            PLAIN.upload(1, ephemeral_key=key),
            remote(1, "BAD_KEY"),
        )
    data = fields["ciphertext"]
    for name, description, changed in (
        ("length", "A ciphertext of one byte too few.", data[:-1]),
        ("range", "The first residue is not below the prime.", b"\xff" * 4 + data[4:]),
    ):
        yield server_refuses(
            f"not-in-field-{name}",
            description,
            at,
            PLAIN.upload(1, ciphertext=changed),
            remote(1, "NOT_IN_FIELD"),
        )
    # 67 coefficients; the 64 of a short vector end with a byte.
    rounded = HONEST["rounded"][1]
    data = rounded.upload_fields(1)["ciphertext"]
    yield server_refuses(
        "not-in-field-padding",
        "Padding bits are set.",
        at,
        rounded.upload(1, ciphertext=data[:-1] + bytes([data[-1] | 0x80])),
        remote(1, "NOT_IN_FIELD"),
        base="rounded",
    )


def server_flags() -> Iterator[Made]:
    """Uploads that take back what was not added."""
    back = "members-take-back"
    for name, description, base, sender in (
        ("client", "A client takes something back.", back, 0),
        ("absent", "Member 1 takes something back; the last record is without it.", back, 4),
        ("first", "A member takes something back in the first round.", "members-upload", 4),
    ):
        yield server_refuses(
            f"unexpected-flag-{name}",
            description,
            f"upload {sender}",
            HONEST[base][1].upload(sender, returns=True),
            remote(sender, "UNEXPECTED_MESSAGE"),
            base=base,
        )
    for name, change in (("set", True), ("cleared", False)):
        sender = 5 if change else 3
        honest, round_ = RETURNING.upload(sender), RETURNING
        yield server_refuses(
            f"bad-signature-flag-{name}",
            "The flag was changed on the way.",
            f"upload {sender}",
            round_.upload(sender, honest[-64:], returns=change),
            remote(sender, "BAD_SIGNATURE"),
            base=back,
        )


def server_members() -> Iterator[Made]:
    """What is wrong with members' messages."""
    check, confirm, answer = "complaints 1", "confirmation 1", "answer 1"
    foreign = bytes([1]) * 64
    honest = {name: PLAIN.named(name) for name in (check, confirm, answer)}
    for at, data in honest.items():
        kind = at.split()[0]
        yield server_refuses(
            f"malformed-{kind}",
            "One byte too many.",
            at,
            data + b"\0",
            of_member(1, "MALFORMED"),
        )
        yield server_refuses(
            f"unknown-sender-{kind}",
            "Member 1 sends member 2's message.",
            at,
            PLAIN.named(f"{kind} 2"),
            of_member(1, "UNKNOWN_SENDER"),
        )
        yield server_refuses(
            f"duplicate-{kind}",
            "A member's message arrives twice.",
            f"{kind} 2",
            data,
            of_member(1, "DUPLICATE_MESSAGE"),
            sender=1,
            has_honest=False,
        )
    yield server_refuses(
        "wrong-context-confirmation",
        "A vote with the tag of another context.",
        confirm,
        wire.message(36, bytes(8), 1, PLAIN.vote(1)),
        of_member(1, "WRONG_CONTEXT"),
    )
    yield server_refuses(
        "unexpected-late",
        "Client 3's lost upload arrives when complaints are collected.",
        "complaints 0",
        LOSSES.upload(3),
        remote(3, "UNEXPECTED_MESSAGE"),
        base="losses",
        sender=3,
        op="server_receive_upload",
        has_honest=False,
    )
    yield server_refuses(
        "unexpected-complaints",
        "Complaints where a vote is due.",
        confirm,
        PLAIN.complaints(1),
        of_member(1, "UNEXPECTED_MESSAGE"),
    )
    for name, bad in (("short", b""), ("padding", b"\x08")):
        yield server_refuses(
            f"bad-length-complaints-{name}",
            "Complaints that are no set of clients.",
            check,
            PLAIN.complaints(1, bad),
            of_member(1, "BAD_LENGTH"),
        )
    signed_nothing = sign(
        PLAIN.member_identities[1], "sign complaints", PLAIN.hash, index(1), b"\0"
    )
    yield server_refuses(
        "bad-signature-complaints",
        "A complaint that the member did not make.",
        check,
        PLAIN.complaints(1, b"\1", signed_nothing),
        of_member(1, "BAD_SIGNATURE"),
    )
    yield server_refuses(
        "set-not-nested-complaints",
        "A complaint about an upload that did not arrive.",
        "complaints 1",
        LOSSES.complaints(1, bitmap([3], 5)),
        of_member(1, "SET_NOT_NESTED"),
        base="losses",
    )
    yield server_refuses(
        "bad-signature-confirmation",
        "A vote on another set.",
        confirm,
        PLAIN.confirmation(1, PLAIN.vote(1, [0, 1])),
        of_member(1, "BAD_SIGNATURE"),
    )
    yield server_refuses(
        "unknown-sender-silent",
        "Member 5 answers, and has not confirmed.",
        "answer 0",
        LOSSES.message(38, 5, b"", b"", b"", foreign),
        of_member(5, "UNKNOWN_SENDER"),
        base="losses",
        sender=5,
        has_honest=False,
    )
    yield server_refuses(
        "bad-signature-answer",
        "An answer that the member did not sign.",
        answer,
        PLAIN.answer(1, foreign),
        of_member(1, "BAD_SIGNATURE"),
    )
    element = wire.SHAMIR_PRIME.to_bytes(4, "little")
    for name, changes in (
        ("length", {"sums": bytes(4)}),
        ("element", {"checks": element * 12}),
        ("seeds", {"seeds": bytes(4)}),
    ):
        yield server_refuses(
            f"bad-share-{name}",
            "An answer that is no vector of shares.",
            answer,
            PLAIN.answer(1, **changes),
            of_member(1, "BAD_SHARE"),
        )


def server_ends(
    name: str,
    description: str,
    round_: OneShotRound,
    error: Error,
    *,
    without: frozenset[str] = frozenset(),
    at: int = -1,
    swap: dict[str, bytes] | None = None,
) -> Made:
    """A deadline fails; only the server's steps are listed.

    Args:
        without: messages that do not arrive.
        at: which deadline, the first is 0; -1 is the opening.
        swap: messages that arrive instead.
    """
    script, deadline = Script(round_, description), -1
    for event in round_.events():
        if not event.op.startswith("server") or event.data in without:
            continue
        deadline += event.op == "server_close"
        if event.op == "server_open" or (event.op == "server_close" and deadline == at):
            script.step(event.op, error=error)
            return f"server-{name}", script.vector()
        if event.op == "server_close":
            script.step(event.op)
        elif swap and event.data in swap:
            script.step(event.op, event.client, data=swap[event.data])
        else:
            script.play([event])
    raise AssertionError(f"{name} does not end")


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
    yield from server_uploads()
    yield from server_flags()
    yield from server_members()
    yield from server_endings()
