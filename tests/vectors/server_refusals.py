"""What the server refuses: one file for each way to break a check.

Where an honest message exists for the same place, `instead_of` names it: the runner shows that it
is accepted there afterwards, so nothing but the change is what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from . import wire
from .bases import ABSENT, ACTIVE, BAD_ELEMENT, LOST, SEEDS, UNSHARED, flip
from .positive import HONEST
from .schema import Error, RefusalVector
from .script import SERVER, refusal, remote
from .wire import index, sign

STAGES = ("advertisement 1", "bundle 1", "input 1", "confirmation 1", "unmask 1", "seeds 1")

Made = tuple[str, RefusalVector]


def server_refuses(
    name: str,
    description: str,
    at: str,
    data: bytes,
    error: Error,
    *,
    base: str = "active",
    sender: int | None = None,
    has_honest: bool = True,
) -> Made:
    """The server gets `data` where the honest round has the message `at`."""
    round_ = HONEST[base][1]
    for place, event in enumerate(round_.events()):
        if event.op == "server_receive" and event.data == at:
            honest = {"instead_of": at} if has_honest else {}
            return f"server-{name}", refusal(
                description,
                base,
                round_,
                SERVER,
                place,
                op="server_receive",
                client=event.client if sender is None else sender,
                data=data,
                error=error,
                **honest,
            )
    raise AssertionError(f"the server never gets {at}")


def server_framing() -> Iterator[Made]:
    """Bytes, phases, senders and contexts."""
    at = "advertisement 1"
    honest = ACTIVE.advertisement(1)
    malformed, unexpected = remote(1, "MALFORMED"), remote(1, "UNEXPECTED_MESSAGE")
    unknown = "UNKNOWN_SENDER"
    yield server_refuses("malformed", "A truncated advertisement.", at, honest[:-1], malformed)
    yield server_refuses(
        "malformed-direction",
        "A server's message comes from a client.",
        at,
        ACTIVE.roster(1),
        malformed,
    )
    yield server_refuses(
        "oversized",
        "A bundle longer than any honest message of the round.",
        "bundle 1",
        ACTIVE.bundle(1, sealed=bytes(1200)),
        remote(1, "OVERSIZED"),
    )
    yield server_refuses(
        "unexpected", "A bundle before there is a roster.", at, ACTIVE.bundle(1), unexpected
    )
    yield server_refuses(
        "unexpected-late",
        "An upload after the survivor set was announced without its sender.",
        "confirmation 0",
        LOST.masked_input(1),
        unexpected,
        base="active-drop-before-upload",
        sender=1,
        has_honest=False,
    )
    yield server_refuses(
        "unknown-sender-cohort",
        "The transport names a sender outside the cohort.",
        at,
        ACTIVE.message(1, 3, *(bytes(size) for size in (32, 32, 16, 64))),
        remote(3, unknown),
        sender=3,
        has_honest=False,
    )
    yield server_refuses(
        "unknown-sender-garbage",
        "The same, and the bytes are no message: nobody looks at them.",
        at,
        b"\x00",
        remote(3, unknown),
        sender=3,
        has_honest=False,
    )
    yield server_refuses(
        "unknown-sender-other",
        "Client 1's own advertisement through client 2's channel.",
        "advertisement 2",
        honest,
        remote(2, unknown),
    )
    tag = wire.digest("context", b"another round")[:8]
    for at in STAGES:
        base = "recovery" if at == "seeds 1" else "active"
        round_ = HONEST[base][1]
        data = round_.named(at).replace(round_.context_hash[:8], tag, 1)
        yield server_refuses(
            f"wrong-context-{at.split()[0]}",
            f"The honest message '{at}' under the tag of another context.",
            at,
            data,
            remote(1, "WRONG_CONTEXT"),
            base=base,
        )


def server_senders() -> Iterator[Made]:
    """Who may still speak, and once only."""
    outsiders: list[tuple[str, str, str, str, int, bytes]] = [
        (
            "bundle",
            "roster",
            "active-drops-even",
            "bundle 1",
            4,
            ABSENT.bundle(4, bytes(32), bytes(3 * 88)),
        ),
        (
            "input",
            "set of participants",
            "active-drops-odd",
            "input 1",
            0,
            UNSHARED.masked_input(0, bytes(6)),
        ),
        (
            "confirmation",
            "survivor set",
            "active-drop-before-upload",
            "confirmation 2",
            1,
            LOST.confirmation(1),
        ),
        (
            "unmask",
            "survivor set",
            "active-drop-before-upload",
            "unmask 2",
            1,
            LOST.unmask_shares(1),
        ),
        (
            "seeds",
            "set of those who gave up shares",
            "recovery",
            "seeds 1",
            2,
            SEEDS.seed_shares(2, b""),
        ),
    ]
    for name, before, base, at, sender, data in outsiders:
        yield server_refuses(
            f"unknown-sender-{name}",
            f"A client that is not in the {before}.",
            at,
            data,
            remote(sender, "UNKNOWN_SENDER"),
            base=base,
            sender=sender,
            has_honest=False,
        )
    for at in STAGES:
        base = "recovery" if at == "seeds 1" else "active"
        round_ = HONEST[base][1]
        first = at.replace("1", "0")
        yield server_refuses(
            f"duplicate-{at.split()[0]}",
            f"The message '{first}' a second time.",
            at,
            round_.named(first),
            remote(0, "DUPLICATE_MESSAGE"),
            base=base,
            sender=0,
            has_honest=False,
        )


def server_signatures() -> Iterator[Made]:
    """What is signed by somebody else, or over something else."""
    entry = ACTIVE.entry(1)
    vector = wire.pack_vector(ACTIVE.uploads[1], 16)
    shares, _ = ACTIVE.unmask_parts(1)
    other_hash = replace(ACTIVE, forged={2: ACTIVE.entry(2, masking=bytes(31) + b"\7")}).hash
    signs = ACTIVE.identities[1]
    foreign_input = sign(
        signs, "sign masked input", other_hash, index(1), wire.digest("sign masked input", vector)
    )
    sealed = b"".join(ACTIVE.sealed(1, v) for v in (0, 2))
    foreign_bundle = sign(signs, "sign shares", other_hash, index(1), ACTIVE.commitments(1), sealed)
    cases: list[tuple[str, str, bytes, str]] = [
        (
            "advertisement 1",
            "The masking key was changed on the way.",
            ACTIVE.advertisement(1, entry[:32] + wire.public_key(bytes(32)) + entry[64:]),
            "active",
        ),
        (
            "bundle 1",
            "Signed for another roster.",
            ACTIVE.bundle(1, signature=foreign_bundle),
            "active",
        ),
        (
            "input 1",
            "Signed for another roster.",
            ACTIVE.masked_input(1, signature=foreign_input),
            "active",
        ),
        (
            "confirmation 1",
            "Signed another survivor set.",
            ACTIVE.confirmation(1, ACTIVE.confirms(1, [0, 1])),
            "active",
        ),
        (
            "unmask 1",
            "Signed with another survivor set.",
            ACTIVE.unmask_shares(1, shares, survivors=[0, 1]),
            "active",
        ),
        (
            "seeds 1",
            "Signed with another missing set.",
            SEEDS.seed_shares(1, SEEDS.share(2, 1)[72:], missing=[0]),
            "recovery",
        ),
    ]
    for at, description, data, base in cases:
        yield server_refuses(
            f"bad-signature-{at.split()[0]}",
            description,
            at,
            data,
            remote(1, "BAD_SIGNATURE"),
            base=base,
        )
    yield server_refuses(
        "bad-signature-vector",
        "One bit of the vector was flipped on the way.",
        "input 1",
        ACTIVE.message(5, 1, flip(vector), ACTIVE.masked_input(1)[-64:]),
        remote(1, "BAD_SIGNATURE"),
    )


def server_keys() -> Iterator[Made]:
    """Public keys that a server refuses."""
    at = "advertisement 1"
    first = ACTIVE.entry(0)
    for name, description, changes, reason in (
        *(
            (name, f"{description[0].upper()}{description[1:]}", changes, "BAD_KEY")
            for name, description, changes in wire.bad_keys(first)
        ),
        ("duplicate-key", "Client 0's sealing key.", {"sealing": first[:32]}, "DUPLICATE_KEY"),
        (
            "duplicate-key-kinds",
            "Client 0's sealing key as a masking key.",
            {"masking": first[:32]},
            "DUPLICATE_KEY",
        ),
        (
            "duplicate-key-own",
            "One key for both uses.",
            {"masking": ACTIVE.entry(1)[:32]},
            "DUPLICATE_KEY",
        ),
    ):
        data = ACTIVE.advertisement(1, ACTIVE.entry(1, **changes))
        yield server_refuses(name, description, at, data, remote(1, reason))


def server_contents() -> Iterator[Made]:
    """Lengths and ranges that a server refuses."""
    bad_length, bad_share = remote(1, "BAD_LENGTH"), remote(1, "BAD_SHARE")
    not_in_field = remote(1, "NOT_IN_FIELD")
    sealed = b"".join(ACTIVE.sealed(1, v) for v in (0, 2))
    committed = ACTIVE.commitments(1)
    yield server_refuses(
        "bad-length-sealed",
        "A sealed share is missing.",
        "bundle 1",
        ACTIVE.bundle(1, sealed=sealed[:88]),
        bad_length,
    )
    yield server_refuses(
        "bad-length-commitments",
        "A commitment too many.",
        "bundle 1",
        ACTIVE.bundle(1, committed + bytes(32)),
        bad_length,
    )
    vector = wire.pack_vector(ACTIVE.uploads[1], 16)
    yield server_refuses(
        "bad-length-vector",
        "A vector with an element too many.",
        "input 1",
        ACTIVE.masked_input(1, vector + bytes(2)),
        bad_length,
    )
    yield server_refuses(
        "not-in-field",
        "The vector's last element is p.",
        "input 1",
        ACTIVE.masked_input(1, wire.pack_vector([*ACTIVE.uploads[1][:-1], wire.prime(16)], 16)),
        not_in_field,
    )
    odd = HONEST["sparse-few-members"][1]
    packed = wire.pack_vector(odd.uploads[1], odd.bits)
    yield server_refuses(
        "not-in-field-padding",
        "A one in the last byte's padding.",
        "input 1",
        odd.masked_input(1, packed[:-1] + bytes([packed[-1] | 0x80])),
        not_in_field,
        base="sparse-few-members",
    )
    shares, _ = ACTIVE.unmask_parts(1)
    for name, description, changes in (
        ("element", "A share has the element 2^31 - 1.", {"shares": BAD_ELEMENT + shares[4:]}),
        ("length", "A share is missing.", {"shares": shares[:-36]}),
        ("seeds", "A removable seed where there are none.", {"seeds": bytes(32)}),
    ):
        data = ACTIVE.unmask_shares(1, **changes)
        yield server_refuses(f"bad-share-{name}", description, "unmask 1", data, bad_share)
    share = SEEDS.share(2, 1)[72:]
    for name, description, changed in (
        ("element", "A seed's share has the element 2^31 - 1.", BAD_ELEMENT + share[4:]),
        ("length", "One share for two seeds.", share[:36]),
    ):
        yield server_refuses(
            f"bad-share-recovery-{name}",
            description,
            "seeds 1",
            SEEDS.seed_shares(1, changed),
            bad_share,
            base="recovery",
        )
    yield server_refuses(
        "wrong-seed",
        "The second removable seed that client 1 gives up is not the one it committed to.",
        "unmask 1",
        SEEDS.unmask_shares(1, seeds=SEEDS.secrets(1)[2] + bytes(32)),
        remote(1, "WRONG_SEED"),
        base="recovery",
    )


def server_over() -> Iterator[Made]:
    """Nothing is taken after the end."""
    over: Error = {"type": "SessionAbortedError"}
    yield (
        "server-session-over",
        refusal(
            "An upload after the sum was released: the session is over.",
            "active",
            ACTIVE,
            SERVER,
            len(list(ACTIVE.events())),
            op="server_receive",
            client=0,
            data=ACTIVE.masked_input(0),
            error=over,
        ),
    )


GROUPS: Sequence[Callable[[], Iterator[Made]]] = (
    server_framing,
    server_senders,
    server_signatures,
    server_keys,
    server_contents,
    server_over,
)


def vectors() -> Iterator[Made]:
    """All files, by name."""
    for group in GROUPS:
        yield from group()
