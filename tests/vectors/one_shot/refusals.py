"""The refusal corpus of the one-shot protocol: see `corpus`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .. import wire
from ..corpus import (
    OVER,
    Edited,
    Row,
    cut,
    edited,
    exchange,
    flip,
    grow,
    high_bit,
    lied,
    put,
    tag,
    to,
)
from ..wire import bitmap, index, sign
from .encodings import header_of
from .played import CHECK, OneShotRound
from .rounds import HONEST, PLAIN, RETURNING

SPARE = OneShotRound(
    n=5,
    members=6,
    minimum=4,
    per_polynomial=2,
    quorum=4,
    corrupt=1,
    colluders=1,
    removal=(0b11, 0b10),
    away={5: CHECK},
    seed="spare",
)
"""Nobody is lost, and a member says nothing."""
ROUNDS = {
    **{name: round_ for name, (_, round_) in HONEST.items()},
    "spare": SPARE,
    "long": replace(PLAIN, bits=12, length=67, seed="long"),
}
"""Honest rounds: the files', and those with more room between a bound and the whole cohort."""
DEFAULT = "plain"


ELEMENT = wire.SHAMIR_PRIME.to_bytes(4, "little")
FOREIGN = bytes([1]) * 64
HEADER = len(PLAIN.header(0))
FLAG = 96
"""The place of the flag in a header."""
NEW_KEY = bytes([5]) * 32


def sealed_by(round_: OneShotRound, u: int, plain: bytes) -> Edited:
    """A delivery to member 0 in which client u, which lies, has sealed other shares for it."""
    size, at = round_.seal_bytes(), round_.uploaded.index(u)
    shared = wire.agree(NEW_KEY, wire.public_key(round_.sealing_keys[0]))
    new = wire.seal(shared, round_.hash, u, 0, plain)
    seals = new + round_.upload_fields(u)["seals"][size:]
    header = round_.header(u, ephemeral_key=wire.public_key(NEW_KEY), seals=seals)
    return edited(headers=put(HEADER * at, header), seals=put(size * at, new))


def headers_with(round_: OneShotRound, u: int, header: bytes) -> bytes:
    """All headers, one of them changed."""
    return put(HEADER * round_.uploaded.index(u), header)(
        b"".join(map(round_.header, round_.uploaded))
    )


def votes(
    round_: OneShotRound, signers: Sequence[int], survivors: Sequence[int] | None = None
) -> bytes:
    """Signatures that members rightly made over a set, or over another one."""
    signed = b"".join(round_.vote(j, survivors) for j in signers)
    return round_.quorum_of(signers, signed)


def signed_as(round_: OneShotRound, keys: Sequence[bytes], usage: str, count: int) -> bytes:
    """What members sign, signed with these keys, or for another use."""
    signed = round_.signed_set()
    return round_.quorum_of(
        range(count), b"".join(sign(key, usage, signed) for key in keys[:count])
    )


# fmt: off
def server_uploads() -> Iterator[Row]:
    """What is wrong with uploads."""
    at, fields = "upload 1", PLAIN.upload_fields(1)
    key, size = fields["ephemeral_key"], PLAIN.seal_bytes()
    parts = (bytes(32), *replace(PLAIN, seed="another round").header_parts(1, fields)[1:])
    yield from (
        Row("server-malformed", at, lambda r: r.upload(1)[:-1], "MALFORMED",
            says="A truncated upload."),
        Row("server-malformed-direction", at, lambda r: r.proposal(), "MALFORMED",
            says="A server's message comes from a client."),
        Row("server-oversized", at, lied(seals=grow(200)), "OVERSIZED",
            says="An upload longer than any honest one of the round."),
        Row("server-wrong-context-upload", at,
            edited(context=to(bytes(8)), signature=to(bytes(64))), "WRONG_CONTEXT",
            says="An upload with the tag of another context."),
        Row("server-unknown-sender-name", at, lambda r: r.upload(2), "UNKNOWN_SENDER",
            says="Client 1 sends client 2's upload."),
        Row("server-unknown-sender-cohort", at,
            lambda r: r.message(32, 3, *fields.values(), bytes(64)), "UNKNOWN_SENDER", sender=3,
            says="The transport names a sender outside the cohort."),
        Row("server-duplicate-upload", "upload 2", lambda r: r.upload(1), "DUPLICATE_MESSAGE",
            sender=1, says="An upload arrives twice; it is in the sum once."),
        Row("server-second-upload", "upload 2", lambda r: r.upload(1, seals=bytes(9)),
            "DUPLICATE_MESSAGE", sender=1),
        Row("server-unexpected", at, lambda r: r.complaints(1), "UNEXPECTED_MESSAGE",
            op="server_receive_from_member", says="Complaints before uploads are closed."),
        Row("server-bad-length-seals-short", at, lied(seals=cut(1)), "BAD_LENGTH",
            says="Seals that are not one for each member."),
        Row("server-bad-length-seals-one", at, lied(seals=cut(size)), "BAD_LENGTH",
            says="Seals that are not one for each member."),
        Row("server-bad-length-commitments", at, lied(commitments=to(bytes(32))), "BAD_LENGTH",
            says="A commitment in a round without removable seeds."),
        Row("server-bad-signature-upload", at, edited(ciphertext=flip()), "BAD_SIGNATURE",
            says="The ciphertext was changed on the way."),
        Row("server-bad-signature-signer", at, lambda r: r.upload(1, signer=0), "BAD_SIGNATURE",
            says="Client 0 signed client 1's upload."),
        Row("server-bad-signature-context", at,
            lambda r: r.upload(1, sign(r.identities[1], "sign upload", *parts)), "BAD_SIGNATURE",
            says="An upload signed for another context."),
    )
    for name, bad, says in (
        ("", wire.LOW_ORDER_KEY, True), ("-unreduced", wire.UNREDUCED_KEY, True),
        ("-high-bit", high_bit(key), True), ("-ones", b"\xff" * 32, False),
        ("-one", b"\1" + bytes(31), False),
    ):
        yield Row(f"server-bad-key{name}", at, lied(ephemeral_key=to(bad)), "BAD_KEY",
                  says="An ephemeral key that no honest client sends." if says else "")
    for name, change, base, says in (
        ("length", cut(1), "", "A ciphertext of one byte too few."),
        ("range", put(0, b"\xff" * 4), "", "The first residue is not below the prime."),
        # 67 coefficients; the 64 of a short vector end with a byte.
        ("padding", high_bit, "rounded", "Padding bits are set."),
        ("padding-long", high_bit, "long", ""), ("longer", grow(1), "long", ""),
        ("range-long", put(0, b"\xff" * 4), "long", ""), ("shorter", cut(1), "rounded", ""),
        ("longer-rounded", grow(1), "rounded", ""), ("range-rounded", put(0, b"\xff" * 4),
                                                     "rounded", ""),
    ):
        yield Row(f"server-not-in-field-{name}", at, lied(ciphertext=change), "NOT_IN_FIELD",
                  base=base, says=says)
    for field in ("ephemeral_key", "ciphertext", "commitments", "seals", "signature"):
        for place in (0, -1):
            yield Row(f"server-changed-{field}-{place}", at, edited(**{field: flip(place)}),
                      "BAD_SIGNATURE", base="spare")
    for field in ("commitments", "seals"):
        for name, change in (("empty", to(b"")), ("byte-less", cut(1)), ("less", cut(32)),
                             ("byte-more", grow(1)), ("more", grow(32))):
            yield Row(f"server-length-{field}-{name}", at, lied(**{field: change}), "BAD_LENGTH",
                      base="spare")


def server_flags() -> Iterator[Row]:
    """Uploads that take back what was not added."""
    back = "members-take-back"
    for name, base, sender, says in (
        ("client", back, 0, "A client takes something back."),
        ("absent", back, 4, "Member 1 takes something back; the last record is without it."),
        ("first", "members-upload", 4, "A member takes something back in the first round."),
    ):
        yield Row(f"server-unexpected-flag-{name}", f"upload {sender}", lied(returns=to(True)),
                  "UNEXPECTED_MESSAGE", base=base, says=says)
    for name, flag, sender in (("set", True, 5), ("cleared", False, 3)):
        yield Row(f"server-bad-signature-flag-{name}", f"upload {sender}",
                  edited(returns=to(flag)), "BAD_SIGNATURE", base=back,
                  says="The flag was changed on the way.")
    yield Row("server-due-flag", "upload 5", lied(returns=to(True)), base=back)


def server_stages() -> Iterator[Row]:
    """What is wrong with any message, in every stage."""
    for at in ("upload 1", "complaints 1", "confirmation 1", "answer 1"):
        kind = at.split()[0]
        yield from (
            Row(f"server-other-tag-{kind}", at, tag(), "WRONG_CONTEXT", base="spare"),
            Row(f"server-named-{kind}", at, lambda r, k=kind: r.named(f"{k} 2"), "UNKNOWN_SENDER",
                base="spare"),
            Row(f"server-signature-zero-{kind}", at, edited(signature=to(bytes(64))),
                "BAD_SIGNATURE", base="spare"),
        )
        for name, edit, reason in (
            ("empty", to(b""), "MALFORMED"), ("truncated", cut(1), "MALFORMED"),
            ("trailing", grow(1), "MALFORMED"), ("version", flip(), "MALFORMED"),
            ("oversized", grow(100_000), "OVERSIZED"),
        ):
            yield Row(f"server-bytes-{kind}-{name}", at, lambda r, a=at, e=edit: e(r.named(a)),
                      reason, base="spare")
        for sender in (6, 7, 1 << 40, -1, -2, *((5,) if kind == "upload" else ())):
            yield Row(f"server-stranger-{kind}-{sender}", at, edited(), "UNKNOWN_SENDER",
                      base="spare", sender=sender)
    for kind, at in (("complaints", "confirmation 0"), ("confirmation", "answer 0")):
        yield Row(f"server-late-{kind}", at, lambda r, k=kind: r.named(f"{k} 1"),
                  "UNEXPECTED_MESSAGE", base="spare", sender=1)
    yield Row("server-late-upload", "answer 0", lambda r: r.upload(3), "UNEXPECTED_MESSAGE",
              base="losses", sender=3, op="server_receive_upload")
    for op, name in (("server_receive_from_member", "answer 1"),
                     ("server_receive_upload", "upload 1")):
        yield Row(f"server-over-{name.split()[0]}", "", lambda r, n=name: r.named(n), OVER,
                  base="spare", op=op, sender=1)


def server_members() -> Iterator[Row]:
    """What is wrong with members' messages."""
    check, confirm, answer = "complaints 1", "confirmation 1", "answer 1"
    for at in (check, confirm, answer):
        kind = at.split()[0]
        yield from (
            Row(f"server-malformed-{kind}", at, lambda r, a=at: r.named(a) + b"\0", "MALFORMED",
                says="One byte too many."),
            Row(f"server-unknown-sender-{kind}", at, lambda r, k=kind: r.named(f"{k} 2"),
                "UNKNOWN_SENDER", says="Member 1 sends member 2's message."),
            Row(f"server-duplicate-{kind}", f"{kind} 2", lambda r, a=at: r.named(a),
                "DUPLICATE_MESSAGE", sender=1, says="A member's message arrives twice."),
        )
    yield from (
        Row("server-wrong-context-confirmation", confirm, tag(), "WRONG_CONTEXT",
            says="A vote with the tag of another context."),
        Row("server-unexpected-late", "complaints 0", lambda r: r.upload(3), "UNEXPECTED_MESSAGE",
            base="losses", sender=3, op="server_receive_upload",
            says="Client 3's lost upload arrives when complaints are collected."),
        Row("server-unexpected-complaints", confirm, lambda r: r.complaints(1),
            "UNEXPECTED_MESSAGE", says="Complaints where a vote is due."),
        Row("server-unexpected-vote", answer, lambda r: r.confirmation(1), "UNEXPECTED_MESSAGE"),
        Row("server-bad-length-complaints-short", check, lied(bad=to(b"")), "BAD_LENGTH",
            says="Complaints that are no set of clients."),
        Row("server-bad-length-complaints-padding", check, lied(bad=to(b"\x08")), "BAD_LENGTH",
            says="Complaints that are no set of clients."),
        # One bit more on the way would evict an honest client.
        Row("server-bad-signature-complaints", check, edited(bad=to(b"\1")), "BAD_SIGNATURE",
            says="A complaint that the member did not make."),
        Row("server-complaints-of-another", check,
            lambda r: r.message(34, 1, b"\0", r.complaints(2)[-64:]), "BAD_SIGNATURE"),
        Row("server-set-not-nested-complaints", check, lied(bad=to(bitmap([3], 5))),
            "SET_NOT_NESTED", base="losses",
            says="A complaint about an upload that did not arrive."),
        Row("server-complaint", check, lied(bad=to(bitmap([4], 5))), base="losses"),
        Row("server-bad-signature-confirmation", confirm,
            lambda r: r.confirmation(1, r.vote(1, [0, 1])), "BAD_SIGNATURE",
            says="A vote on another set."),
        Row("server-vote-of-another", confirm, lambda r: r.confirmation(1, r.vote(2)),
            "BAD_SIGNATURE"),
        Row("server-vote-silent", "confirmation 0", lambda r: r.confirmation(5), "UNKNOWN_SENDER",
            base="spare", sender=5),
        Row("server-unknown-sender-silent", "answer 0",
            lambda r: r.message(38, 5, b"", b"", b"", FOREIGN), "UNKNOWN_SENDER", base="losses",
            sender=5, says="Member 5 answers, and has not confirmed."),
        Row("server-bad-signature-answer", answer, edited(signature=to(FOREIGN)), "BAD_SIGNATURE",
            says="An answer that the member did not sign."),
        Row("server-answer-of-another-set", answer, answer_of_another_set, "BAD_SIGNATURE",
            base="spare"),
    )
    for name, edits in (
        ("length", {"sums": to(bytes(4))}), ("element", {"checks": to(ELEMENT * 12)}),
        ("seeds", {"seeds": to(bytes(4))}),
    ):
        yield Row(f"server-bad-share-{name}", answer, lied(**edits), "BAD_SHARE",
                  says="An answer that is no vector of shares.")
    for i, bad in enumerate((b"", b"\x1f\0", b"\x20", b"\x80")):
        yield Row(f"server-bitmap-complaints-{i}", check, lied(bad=to(bad)), "BAD_LENGTH",
                  base="spare")
    for field in ("sums", "seeds", "checks"):
        yield Row(f"server-changed-{field}", answer, edited(**{field: flip()}), "BAD_SIGNATURE",
                  base="spare")
        for name, change in (("empty", to(b"")), ("less", cut(4)), ("byte-less", cut(1)),
                             ("more", grow(4)), ("first", put(0, ELEMENT)),
                             ("last", put(-4, b"\xff" * 4))):
            yield Row(f"server-shares-{field}-{name}", answer, lied(**{field: change}),
                      "BAD_SHARE", base="spare")


def answer_of_another_set(round_: OneShotRound) -> bytes:
    """The same member's answer, signed for a set with one upload less."""
    number, fields = wire.fields_of(round_.answer(1))
    given = (fields["sums"], fields["seeds"], fields["checks"])
    signed = (round_.hash, index(1), round_.signed_set([0, 1, 2, 3]), *given)
    signature = sign(round_.member_identities[1], "sign answer", *signed)
    return round_.message(number, 1, *given, signature)


# -- members --------------------------------------------------------------------------------------


def member_deliveries() -> Iterator[Row]:
    """What is wrong with what is checked first."""
    at, keys = "delivery 0", PLAIN.cohort
    yield from (
        Row("member-malformed", at, lambda r: r.delivery(0)[:-1], "MALFORMED",
            says="A truncated delivery."),
        Row("member-malformed-direction", at, lambda r: r.upload(0), "MALFORMED",
            says="A client's message."),
        Row("member-oversized", at, lambda r: r.delivery(0) + bytes(2000), "OVERSIZED",
            says="More than any honest message."),
        Row("member-wrong-context-delivery", at, tag(), "WRONG_CONTEXT",
            says="The tag of another context."),
        Row("member-unexpected", at, lambda r: r.proposal(), "UNEXPECTED_MESSAGE",
            says="A proposal before the uploads."),
    )
    for name, cohort, says in (
        ("order", [keys[1], keys[0], keys[2]], True),
        ("stranger", [keys[0], keys[1], wire.identity_public(bytes(32))], True),
        ("repeated", [keys[0], keys[1], keys[1]], True),
        ("bit", [keys[0], keys[1], flip()(keys[2])], False),
    ):
        yield Row(f"member-not-in-tree-{name}", at, edited(cohort=to(b"".join(cohort))),
                  "NOT_IN_TREE", says="A cohort that is not the announced one." if says else "")
    for name, edits in (
        ("cohort", {"cohort": cut(32)}), ("uploaded", {"uploaded": to(b"")}),
        ("uploaded-padding", {"uploaded": to(b"\x0f")}), ("headers", {"headers": cut(2 * HEADER)}),
        ("seals", {"seals": grow(1)}),
    ):
        yield Row(f"member-bad-length-{name}", at, edited(**edits), "BAD_LENGTH",
                  says="A list or set of another length.")
    for kind, own in (("delivery", at), ("proposal", "proposal"), ("quorum", "quorum")):
        for name, edit, reason in (
            ("empty", to(b""), "MALFORMED"), ("truncated", cut(1), "MALFORMED"),
            ("trailing", grow(1), "MALFORMED"), ("oversized", grow(100_000), "OVERSIZED"),
        ):
            yield Row(f"member-bytes-{kind}-{name}", own, lambda r, o=own, e=edit: e(r.named(o)),
                      reason, base="spare")
        yield Row(f"member-answer-{kind}", own, lambda r: r.complaints(1), "MALFORMED",
                  base="spare")
        yield Row(f"member-other-tag-{kind}", own, tag(), "WRONG_CONTEXT", base="spare")
        for other in ("delivery 0", "proposal", "quorum"):
            if other != own:
                yield Row(f"member-{other.split()[0]}-in-place-of-{kind}", own,
                          lambda r, o=other: r.named(o), "UNEXPECTED_MESSAGE", base="spare")
    sets = (b"", b"\x1f\0", b"\x20", b"\x80")
    for own, field, bitmaps in (
        (at, "uploaded", sets), ("proposal", "survivors", sets),
        ("quorum", "signers", (b"", b"\x3f\0", b"\x40", b"\x80")),
    ):
        for i, bad in enumerate(bitmaps):
            yield Row(f"member-bitmap-{field}-{i}", own, edited(**{field: to(bad)}), "BAD_LENGTH",
                      base="spare")
    for own, field in ((at, "cohort"), (at, "headers"), (at, "seals"), ("quorum", "signatures")):
        for name, change in (("empty", to(b"")), ("less", cut(1)), ("more", grow(1))):
            yield Row(f"member-length-{field}-{name}", own, edited(**{field: change}),
                      "BAD_LENGTH", base="spare")


def member_complaints() -> Iterator[Row]:
    """Uploads that a member complains about, and whose set it does not sign."""
    at, size = "delivery 0", SPARE.seal_bytes()
    for name, sender, flag, says in (
        ("client", 0, 1, "A client takes something back."),
        ("absent", 4, 1, "Member 1 takes something back; the last record is without it."),
        ("byte", 3, 2, "Member 0's header has a flag that is neither 0 nor 1."),
        ("high-byte", 3, 255, ""),
    ):
        header = put(FLAG, bytes([flag]))(RETURNING.header(sender, returns=True))
        yield Row(f"member-set-not-nested-flag-{name}", at,
                  edited(headers=to(headers_with(RETURNING, sender, header))),
                  complains=(sender,), base="members-take-back", says=says)
    for sender, flag in ((5, True), (3, False)):
        header = put(FLAG, bytes([flag]))(RETURNING.header(sender))
        yield Row(f"member-flag-turned-{sender}", at,
                  edited(headers=to(headers_with(RETURNING, sender, header))),
                  complains=(sender,), base="members-take-back")
    header = RETURNING.header(5, returns=True)
    yield Row("member-flag-due", at, edited(headers=to(headers_with(RETURNING, 5, header))),
              complains=(), base="members-take-back")
    everyone = HONEST["everyone"][1]
    other = everyone.upload(2, ciphertext=flip()(everyone.upload_fields(2)["ciphertext"]))
    forged = edited(headers=to(headers_with(everyone, 2, header_of(other))))
    yield Row("member-set-not-nested-own", "delivery 2", forged, complains=(2,), base="everyone",
              to=2, reply="own complaint",
              says="Another upload in the name of the client that the member is.")
    # Nobody but the client itself can know.
    yield Row("member-another-own", "delivery 1", forged, complains=(), base="everyone", to=1)
    for place in (0, 31, 32, 63, 64, 95, 96, 97, HEADER - 1):
        yield Row(f"member-header-{place}", at, edited(headers=flip(3 * HEADER + place)),
                  complains=(3,), base="spare")
    # Each is signed, but not by the client in whose place it stands.
    yield Row("member-headers-exchanged", at, edited(headers=exchange(HEADER, 1, 2)),
              complains=(1, 2), base="spare")
    elsewhere = replace(SPARE, minimum=5)
    yield Row("member-upload-of-another-context", at,
              edited(headers=put(2 * HEADER, elsewhere.header(2)),
                     seals=put(2 * size, elsewhere.seals_for(0)[2 * size : 3 * size])),
              complains=(2,), base="spare")
    for name, change in (
        ("first", flip(2 * size)), ("last", flip(3 * size - 1)),
        ("another-client", lambda d: put(2 * size, d[size : 2 * size])(d)),
        ("another-member", put(2 * size, SPARE.seals_for(1)[2 * size : 3 * size])),
        ("cut", put(3 * size - 16, bytes(16))), ("zeros", put(2 * size, bytes(size))),
    ):
        yield Row(f"member-seal-{name}", at, edited(seals=change), complains=(2,), base="spare")
    shares = len(SPARE.opened_share(3, 0))
    for name, plain, bad in (
        ("first", ELEMENT + bytes(4 * shares - 4), (3,)),
        ("last", bytes(4 * shares - 4) + ELEMENT, (3,)),
        ("beyond", b"\xff" * 4 + bytes(4 * shares - 4), (3,)),
        # What a corrupt client deals is its own matter, as long as these are field elements.
        ("zeros", bytes(4 * shares), ()),
        ("largest", (wire.SHAMIR_PRIME - 1).to_bytes(4, "little") * shares, ()),
    ):
        yield Row(f"member-share-{name}", at, sealed_by(SPARE, 3, plain), complains=bad,
                  base="spare")
    # The server lets it through; with it anybody could open the seal.
    low = SPARE.header(3, ephemeral_key=bytes(32))
    yield Row("member-low-order-key", at, edited(headers=put(3 * HEADER, low)), complains=(3,),
              base="spare")
    # The copier's own shares are what is subtracted: the sum does not open, and says nothing.
    copied = SPARE.header(3, ciphertext=SPARE.upload_fields(1)["ciphertext"])
    yield Row("member-copied-ciphertext", at, edited(headers=put(3 * HEADER, copied)),
              complains=(), base="spare")


def member_sets() -> Iterator[Row]:
    """Sets that a member does not sign, and those that it does."""
    small, nested, at = "SET_TOO_SMALL", "SET_NOT_NESTED", "proposal"
    yield from (
        Row("member-set-too-small", at, lambda r: r.proposal([1]), small,
            says="One upload, two are needed."),
        Row("member-set-not-nested-lost", at, lambda r: r.proposal(range(5)), nested,
            base="losses", says="An upload that nobody has seen."),
        Row("member-set-not-nested-complained", at, lambda r: r.proposal(range(4)), nested,
            base="spoilt-seal", to=1, says="An upload whose seal did not open for this member."),
        Row("member-bad-length-survivors", at, edited(survivors=to(b"\x0f")), "BAD_LENGTH",
            says="A set with padding bits."),
        Row("member-wrong-context-proposal", at, tag(), "WRONG_CONTEXT",
            says="The tag of another context."),
        # Two sets that are both opened give their difference.
        Row("member-unexpected-second-set", "quorum", lambda r: r.proposal([0, 1]),
            "UNEXPECTED_MESSAGE", says="Another set after one was signed."),
    )
    for survivors, reason in (((), small), ((0,), small), ((0, 1, 2), small), ((2, 3, 4), small),
                              ((0, 1, 2, 3), ""), ((1, 2, 3, 4), ""), ((0, 1, 2, 3, 4), "")):
        yield Row(f"member-proposal-{''.join(map(str, survivors)) or 'nobody'}", at,
                  lambda r, s=survivors: r.proposal(s), reason, base="spare")
    # Uploads are lost; the server cannot be made to use ours.
    yield Row("member-proposal-without-us", at, lambda r: r.proposal([0, 1, 3]), base="everyone",
              to=2)
    for name, chosen, says in (
        ("clients", [0, 3, 4, 5], "One client's upload, two are needed."),
        ("members", [0, 2, 3], "One member's upload, two are needed."),
        ("returning", [0, 2, 4, 5], "Nobody takes anything back, and one must."),
    ):
        yield Row(f"member-set-too-small-{name}", at, lambda r, c=chosen: r.proposal(c), small,
                  base="members-take-back", says=says)
    for chosen in ([0, 2, 3, 4], [0, 2, 3, 5], [0, 2, 3, 4, 5]):
        yield Row(f"member-enough-{''.join(map(str, chosen))}", at,
                  lambda r, c=chosen: r.proposal(c), base="members-take-back")


def member_quorums() -> Iterator[Row]:
    """Votes that do not convince a member, and those that do."""
    at, bad, few = "quorum", "BAD_SIGNATURE", "MISSING_SIGNATURES"
    two = [PLAIN.vote(j) for j in range(2)]
    usage = "sign one-shot survivors"
    yield from (
        Row("member-missing-signatures", at, lambda r: r.quorum_of([1]), few,
            says="One vote, two are a quorum."),
        Row("member-missing-signatures-quorum", at, lambda r: r.quorum_of([0, 1, 2]), few,
            base="losses", says="Three votes, four are a quorum."),
        Row("member-bad-signature-set", at, lambda r: votes(r, [0, 1], [0, 1]), bad,
            says="Votes on another set."),
        Row("member-bad-signature-committee", at,
            lambda r: signed_as(r, r.identities, usage, 2), bad, says="Votes of clients."),
        Row("member-bad-signature-repeated", at, lambda r: r.quorum_of([0, 1], two[0] * 2), bad,
            says="One vote twice, the second under another's name."),
        Row("member-bad-signature-swapped", at, lambda r: r.quorum_of([0, 1], two[1] + two[0]),
            bad, says="Votes in another order."),
        Row("member-bad-signature-usage", at,
            lambda r: signed_as(r, r.member_identities, "sign answer", 2), bad,
            says="Members' signatures on the same, for another use."),
        Row("member-bad-length-signers", at, edited(signers=to(b"\x09")), "BAD_LENGTH",
            says="A list or set of another length."),
        Row("member-bad-length-signatures", at, edited(signatures=grow(1)), "BAD_LENGTH",
            says="A list or set of another length."),
        Row("member-wrong-context-quorum", at, tag(), "WRONG_CONTEXT",
            says="The tag of another context."),
        Row("member-session-over", "answer 0", lambda r: r.quorum_of([1, 2]), OVER,
            op="member_receive", says="A quorum after the one answer was given."),
        Row("member-last-vote", at, lambda r: flip(-1)(r.quorum_of(range(6))), bad, base="spare"),
    )
    for signers, reason in (((), few), ((0,), few), ((0, 1, 2), few), ((3, 4, 5), few),
                            ((0, 1, 2, 3), ""), ((2, 3, 4, 5), ""), ((0, 1, 2, 3, 4, 5), "")):
        yield Row(f"member-signers-{''.join(map(str, signers)) or 'nobody'}", at,
                  lambda r, s=signers: r.quorum_of(s), reason, base="spare")
    for survivors in ((0, 1, 2, 3), (1, 2, 3, 4)):
        yield Row(f"member-votes-on-{''.join(map(str, survivors))}", at,
                  lambda r, s=survivors: votes(r, range(4), s), bad, base="spare")
    for use in ("sign complaints", "sign upload", "sign survivors"):
        yield Row(f"member-votes-as-{use.split()[1]}", at,
                  lambda r, u=use: signed_as(r, r.member_identities, u, 4), bad, base="spare")
# fmt: on


TABLE = (
    server_uploads,
    server_flags,
    server_stages,
    server_members,
    member_deliveries,
    member_complaints,
    member_sets,
    member_quorums,
)
"""The rows, group by group."""
