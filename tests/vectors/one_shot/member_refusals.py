"""What a member of a one-shot round refuses."""

from __future__ import annotations

from collections.abc import Iterator

from .. import wire
from ..script import remote
from ..wire import sign
from .encodings import header_of
from .places import Made, flip, member_refuses, places
from .rounds import HONEST, PLAIN, RETURNING
from .script import SERVER, Script, refusal


def member_deliveries() -> Iterator[Made]:
    """What is wrong with what is checked first."""
    honest, keys = PLAIN.delivery(0), PLAIN.cohort
    yield member_refuses("malformed", "A truncated delivery.", "delivery", honest[:-1], "MALFORMED")
    yield member_refuses(
        "malformed-direction", "A client's message.", "delivery", PLAIN.upload(0), "MALFORMED"
    )
    yield member_refuses(
        "oversized", "More than any honest message.", "delivery", honest + bytes(2000), "OVERSIZED"
    )
    yield member_refuses(
        "wrong-context-delivery",
        "The tag of another context.",
        "delivery",
        honest.replace(PLAIN.hash[:8], bytes(8), 1),
        "WRONG_CONTEXT",
    )
    yield member_refuses(
        "unexpected",
        "A proposal before the uploads.",
        "delivery",
        PLAIN.proposal(),
        "UNEXPECTED_MESSAGE",
    )
    for name, cohort in (
        ("order", [keys[1], keys[0], keys[2]]),
        ("stranger", [keys[0], keys[1], wire.identity_public(bytes(32))]),
        ("repeated", [keys[0], keys[1], keys[1]]),
    ):
        yield member_refuses(
            f"not-in-tree-{name}",
            "A cohort that is not the announced one.",
            "delivery",
            PLAIN.delivery(0, cohort=b"".join(cohort)),
            "NOT_IN_TREE",
        )
    for name, changes in (
        ("cohort", {"cohort": b"".join(keys[:2])}),
        ("uploaded", {"uploaded": b""}),
        ("uploaded-padding", {"uploaded": b"\x0f"}),
        ("headers", {"headers": PLAIN.header(0)}),
        ("seals", {"seals": PLAIN.seals_for(0) + b"\0"}),
    ):
        yield member_refuses(
            f"bad-length-{name}",
            "A list or set of another length.",
            "delivery",
            PLAIN.delivery(0, **changes),
            "BAD_LENGTH",
        )


def member_sets() -> Iterator[Made]:
    """Sets that a member does not sign."""
    losses, spoilt = HONEST["losses"][1], HONEST["spoilt-seal"][1]
    yield member_refuses(
        "set-too-small", "One upload, two are needed.", "proposal", PLAIN.proposal([1]),
        "SET_TOO_SMALL",
    )  # fmt: skip
    yield member_refuses(
        "set-not-nested-lost", "An upload that nobody has seen.", "proposal",
        losses.proposal(range(5)), "SET_NOT_NESTED", base="losses",
    )  # fmt: skip
    yield member_refuses(
        "set-not-nested-complained", "An upload whose seal did not open for this member.",
        "proposal", spoilt.proposal(range(4)), "SET_NOT_NESTED", base="spoilt-seal", member=1,
    )  # fmt: skip
    yield member_refuses(
        "bad-length-survivors", "A set with padding bits.", "proposal",
        PLAIN.message(35, b"\x0f"), "BAD_LENGTH",
    )  # fmt: skip
    yield member_refuses(
        "wrong-context-proposal", "The tag of another context.", "proposal",
        wire.message(35, bytes(8), b"\7"), "WRONG_CONTEXT",
    )  # fmt: skip
    yield member_refuses(
        "unexpected-second-set", "Another set after one was signed.", "quorum",
        PLAIN.proposal([0, 1]), "UNEXPECTED_MESSAGE",
    )  # fmt: skip


def member_minima() -> Iterator[Made]:
    """Sets with too few of one kind."""
    for name, description, chosen in (
        ("clients", "One client's upload, two are needed.", [0, 3, 4, 5]),
        ("members", "One member's upload, two are needed.", [0, 2, 3]),
        ("returning", "Nobody takes anything back, and one must.", [0, 2, 4, 5]),
    ):
        yield member_refuses(
            f"set-too-small-{name}", description, "proposal", RETURNING.proposal(chosen),
            "SET_TOO_SMALL", base="members-take-back",
        )  # fmt: skip


def flagged() -> Iterator[Made]:
    """A server that takes uploads with a flag that they must not have: complaints, and no vote."""
    base, round_ = "members-take-back", RETURNING
    _, place, _ = places(base, lambda e: e.op == "member_receive" and e.client == 0)
    for name, description, sender, flag in (
        ("client", "A client takes something back.", 0, 1),
        ("absent", "Member 1 takes something back; the last record is without it.", 4, 1),
        ("byte", "Member 0's header has a flag that is neither 0 nor 1.", 3, 2),
    ):
        header = bytearray(round_.header(sender, returns=True))
        header[96] = flag
        headers = [bytes(header) if u == sender else round_.header(u) for u in round_.uploaded]
        script = Script(round_, description)
        script.messages["complaint"] = round_.complaints(0, wire.bitmap([sender], 6))
        delivery = round_.delivery(0, headers=b"".join(headers))
        script.step("member_receive", 0, data=delivery, expect="complaint")
        refused = remote(SERVER, "SET_NOT_NESTED")
        script.step("member_receive", 0, data=round_.proposal(), error=refused)
        yield (
            f"member-set-not-nested-flag-{name}",
            {
                "description": script.description,
                "base": base,
                "role": "member",
                "party": 0,
                "steps": place,
                "messages": {name: data.hex() for name, data in script.messages.items()},
                "operations": script.operations,
                "success": False,
            },
        )


def own_upload() -> Made:
    """A server that has another upload signed by the member's own key: a complaint, and no vote."""
    base = "everyone"
    round_ = HONEST[base][1]
    forged = round_.upload(2, ciphertext=flip(round_.upload_fields(2)["ciphertext"]))
    headers = [header_of(forged) if u == 2 else round_.header(u) for u in range(4)]
    _, place, _ = places(base, lambda e: e.op == "member_receive" and e.client == 2)
    script = Script(round_, "Another upload in the name of the client that the member is.")
    script.messages["own complaint"] = round_.complaints(2, b"\4")
    script.step(
        "member_receive",
        2,
        data=round_.delivery(2, headers=b"".join(headers)),
        expect="own complaint",
    )
    script.step("member_receive", 2, data=round_.proposal(), error=remote(SERVER, "SET_NOT_NESTED"))
    return "member-set-not-nested-own", {
        "description": script.description,
        "base": base,
        "role": "member",
        "party": 2,
        "steps": place,
        "messages": {name: data.hex() for name, data in script.messages.items()},
        "operations": script.operations,
        "success": False,
    }


def member_quorums() -> Iterator[Made]:
    """Votes that do not convince a member."""
    losses = HONEST["losses"][1]
    votes = [PLAIN.vote(j) for j in range(3)]
    signed = PLAIN.signed_set()
    strangers = [sign(key, "sign one-shot survivors", signed) for key in PLAIN.identities]
    yield member_refuses(
        "missing-signatures", "One vote, two are a quorum.", "quorum",
        PLAIN.quorum_of([1]), "MISSING_SIGNATURES",
    )  # fmt: skip
    yield member_refuses(
        "missing-signatures-quorum", "Three votes, four are a quorum.", "quorum",
        losses.quorum_of([0, 1, 2]), "MISSING_SIGNATURES", base="losses",
    )  # fmt: skip
    for name, description, signatures in (
        ("set", "Votes on another set.", [PLAIN.vote(j, [0, 1]) for j in range(2)]),
        ("committee", "Votes of clients.", strangers[:2]),
        ("repeated", "One vote twice, the second under another's name.", [votes[0], votes[0]]),
        ("swapped", "Votes in another order.", [votes[1], votes[0]]),
        (
            "usage",
            "Members' signatures on the same, for another use.",
            [sign(key, "sign answer", signed) for key in PLAIN.member_identities[:2]],
        ),
    ):
        yield member_refuses(
            f"bad-signature-{name}",
            description,
            "quorum",
            PLAIN.quorum_of([0, 1], b"".join(signatures)),
            "BAD_SIGNATURE",
        )
    for name, data in (
        ("signers", PLAIN.message(37, b"\x09", b"".join(votes[:2]))),
        ("signatures", PLAIN.message(37, b"\3", b"".join(votes[:2]) + b"\0")),
    ):
        yield member_refuses(
            f"bad-length-{name}", "A list or set of another length.", "quorum", data, "BAD_LENGTH"
        )
    yield member_refuses(
        "wrong-context-quorum", "The tag of another context.", "quorum",
        wire.message(37, bytes(8), b"\3", b"".join(votes[:2])), "WRONG_CONTEXT",
    )  # fmt: skip


def session_over() -> Made:
    """A second answer is not given."""
    round_, place, event = places(
        "plain", lambda e: e.op == "server_receive_from_member" and e.data == "answer 0"
    )
    del event
    return "member-session-over", refusal(
        "A quorum after the one answer was given.",
        "plain",
        round_,
        ("member", 0),
        place,
        op="member_receive",
        party=0,
        data=PLAIN.quorum_of([1, 2]),
        error={"type": "SessionAbortedError"},
    )


def vectors() -> Iterator[Made]:
    """All files, by name."""
    yield from member_deliveries()
    yield from member_sets()
    yield from member_minima()
    yield from flagged()
    yield from member_quorums()
    yield own_upload()
    yield session_over()
