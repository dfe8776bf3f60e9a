"""What a client refuses: one file for each way to break a check.

Where an honest message exists for the same place, `instead_of` names it: the runner shows that it
is accepted there, so nothing but the change is what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from secagg.pairwise.reference import Stage

from . import wire
from .bases import ABSENT, ACTIVE, BAD_ELEMENT, GONE, LOST, SEEDS, SPARSE, UNSHARED, flip
from .handmade import Round
from .positive import HONEST
from .schema import Error, RefusalVector
from .script import SERVER, refusal, remote
from .wire import bitmap, sign

Made = tuple[str, RefusalVector]


def position(round_: Round, at: str, client: int = 0) -> int:
    """The place among the round's operations at which a client gets a message."""
    for place, event in enumerate(round_.events()):
        if event.op == "client_receive" and event.client == client and event.data == at:
            return place
    raise AssertionError(f"client {client} never gets {at}")


def client_refuses(
    name: str,
    description: str,
    at: str,
    data: bytes,
    error: Error,
    *,
    base: str = "active",
    client: int = 0,
) -> Made:
    """A client gets `data` where the honest round has the message `at`."""
    round_ = HONEST[base][1]
    return f"client-{name}", refusal(
        description,
        base,
        round_,
        client,
        position(round_, at, client),
        op="client_receive",
        client=client,
        data=data,
        error=error,
        instead_of=at,
    )


def client_framing() -> Iterator[Made]:
    """Malformed bytes, wrong phases and other contexts that a client refuses."""
    honest = ACTIVE.roster(0)
    malformed = remote(SERVER, "MALFORMED")
    unexpected = remote(SERVER, "UNEXPECTED_MESSAGE")
    yield client_refuses(
        "malformed", "A roster with a trailing byte.", "roster 0", honest + b"\0", malformed
    )
    yield client_refuses(
        "malformed-direction",
        "A client's message comes from the server.",
        "roster 0",
        ACTIVE.advertisement(1),
        malformed,
    )
    yield client_refuses(
        "oversized",
        "A roster longer than any honest message of the round.",
        "roster 0",
        ACTIVE.roster(0, entries=bytes(1200)),
        remote(SERVER, "OVERSIZED"),
    )
    yield client_refuses(
        "unexpected",
        "A survivor set before there is a roster.",
        "roster 0",
        ACTIVE.survivor_set(),
        unexpected,
    )
    yield client_refuses(
        "unexpected-again", "The roster a second time.", "delivered 0", honest, unexpected
    )
    yield client_refuses(
        "unexpected-second-survivors",
        "A second survivor set after one was signed: the answer to it would release the other "
        "secret of client 2.",
        "confirmations 0",
        ACTIVE.survivor_set([0, 1]),
        unexpected,
    )
    tag = wire.digest("context", b"another round")[:8]
    for at in ("roster 0", "delivered 0", "survivor set", "confirmations 0"):
        kind = at.replace(" 0", "").replace(" ", "-")
        data = ACTIVE.named(at).replace(ACTIVE.context_hash[:8], tag, 1)
        yield client_refuses(
            f"wrong-context-{kind}",
            f"The honest message '{at}' under the tag of another context.",
            at,
            data,
            remote(SERVER, "WRONG_CONTEXT"),
        )


def client_roster() -> Iterator[Made]:
    """Signatures, keys and the tree."""
    at = "roster 0"

    def forged(entries: dict[int, bytes]) -> bytes:
        changed: Round = replace(ACTIVE, forged=entries)
        return changed.roster(0)

    own_key = wire.public_key(bytes([7]) * 32)
    bad_signature = remote(1, "BAD_SIGNATURE")
    entry = ACTIVE.entry(1)
    yield client_refuses(
        "bad-signature-substituted",
        "The server puts its own sealing key in the place of client 1's, tree and proof included.",
        at,
        forged({1: own_key + entry[32:]}),
        bad_signature,
    )
    yield client_refuses(
        "bad-signature-replayed",
        "Client 1's advertisement of another context.",
        at,
        forged({1: ACTIVE.entry(1, context_hash=bytes(32))}),
        bad_signature,
    )
    yield client_refuses(
        "bad-signature-swapped",
        "The advertisements of clients 1 and 2 in one another's place.",
        at,
        forged({1: ACTIVE.entry(2), 2: ACTIVE.entry(1)}),
        bad_signature,
    )
    for name, description, changes in wire.bad_keys(ACTIVE.entry(1)):
        yield client_refuses(
            name,
            f"Client 1 signed {description}",
            at,
            forged({1: ACTIVE.entry(1, **changes)}),
            remote(1, "BAD_KEY"),
        )
    duplicate = remote(SERVER, "DUPLICATE_KEY")
    yield client_refuses(
        "duplicate-key",
        "Client 1 signed the sealing key of client 2.",
        at,
        forged({1: ACTIVE.entry(1, sealing=ACTIVE.entry(2)[:32])}),
        duplicate,
    )
    yield client_refuses(
        "duplicate-key-own",
        "Client 1 signed our sealing key as its masking key.",
        at,
        forged({1: ACTIVE.entry(1, masking=ACTIVE.entry(0)[:32])}),
        duplicate,
    )
    entries = list(ACTIVE.entries.values())
    proof = wire.tree_proof(entries, 0)
    not_in_tree = remote(SERVER, "NOT_IN_TREE")
    for name, description, changes in (
        ("changed", "The proof's last byte is changed.", {"proof": proof[:-1] + b"\0"}),
        ("short", "The proof lacks its last hash.", {"proof": proof[:-32]}),
        ("long", "The proof has a hash too many.", {"proof": proof + bytes(32)}),
        ("half", "The proof is not a whole number of hashes.", {"proof": proof[:-1]}),
        ("place", "The proof is that of client 1's entry.", {"proof": wire.tree_proof(entries, 1)}),
        ("root", "The root is that of another tree.", {"root": wire.tree_root(entries[:2])}),
    ):
        yield client_refuses(
            f"not-in-tree-{name}", description, at, ACTIVE.roster(0, **changes), not_in_tree
        )
    yield client_refuses(
        "not-in-tree-replayed",
        "The tree has an advertisement of ours from an earlier session of the same context.",
        at,
        forged({0: ACTIVE.entry(0, masking=own_key)}),
        not_in_tree,
    )


def client_sets() -> Iterator[Made]:
    """Sets of announced clients that a client refuses."""
    own_missing = remote(SERVER, "OWN_ENTRY_MISSING")
    too_small = remote(SERVER, "SET_TOO_SMALL")
    not_nested = remote(SERVER, "SET_NOT_NESTED")
    others = replace(ACTIVE, drops={0: Stage.ADVERTISE})
    entries = list(others.entries.values())
    yield client_refuses(
        "own-entry-missing-roster",
        "A roster of the two others.",
        "roster 0",
        ACTIVE.roster(
            0, members=bitmap([1, 2], 3), root=others.root, proof=wire.tree_proof(entries, 0)
        ),
        own_missing,
    )
    shares = b"".join(ACTIVE.sealed(v, 0) for v in (1, 2))
    yield client_refuses(
        "own-entry-missing-participants",
        "We shared, and are not among the participants.",
        "delivered 0",
        ACTIVE.delivered(0, [1, 2], shares),
        own_missing,
    )
    yield client_refuses(
        "own-entry-missing-survivors",
        "We uploaded, and are declared lost: the answer would release our masking key.",
        "survivor set",
        ACTIVE.survivor_set([1, 2]),
        own_missing,
    )
    alone = ACTIVE.entries[0]
    yield client_refuses(
        "set-too-small-roster",
        "A roster of ourselves alone.",
        "roster 0",
        ACTIVE.roster(
            0, members=bitmap([0], 3), root=wire.tree_root([alone]), proof=b"", entries=b""
        ),
        too_small,
    )
    three = [GONE.entries[u] for u in range(3)]
    yield client_refuses(
        "set-too-small-roster-minimum",
        "A roster of three clients, enough for t, where the context wants four.",
        "roster 0",
        GONE.roster(
            0,
            members=bitmap([0, 1, 2], 5),
            root=wire.tree_root(three),
            proof=wire.tree_proof(three, 0),
            entries=b"".join(three[1:]),
        ),
        too_small,
        base="recovery-semi-honest",
    )
    yield client_refuses(
        "set-too-small-participants",
        "Nobody else shared.",
        "delivered 0",
        ACTIVE.message(4, bitmap([0], 3), b""),
        too_small,
    )
    yield client_refuses(
        "set-too-small-survivors",
        "Nobody else uploaded: the sum would be our input.",
        "survivor set",
        ACTIVE.survivor_set([0]),
        too_small,
    )
    yield client_refuses(
        "set-not-nested-participants",
        "A participant who is not in the roster.",
        "delivered 0",
        ABSENT.delivered(0, range(5)),
        not_nested,
        base="active-drops-even",
    )
    yield client_refuses(
        "set-not-nested-survivors",
        "A survivor who is not a participant.",
        "survivor set",
        UNSHARED.survivor_set(range(5)),
        not_nested,
        base="active-drops-odd",
        client=1,
    )
    yield client_refuses(
        "set-not-nested-confirmers",
        "A client that is not a survivor signed the survivor set.",
        "confirmations 0",
        LOST.confirmation_set([0, 1]),
        not_nested,
        base="active-drop-before-upload",
    )
    yield client_refuses(
        "missing-signatures-quorum",
        "On the ring one signature less than a quorum: neighbours alone do not convince.",
        "confirmations 0",
        SPARSE.confirmation_set(SPARSE.confirmers(0)[:-1]),
        remote(SERVER, "MISSING_SIGNATURES"),
        base="sparse",
    )
    yield client_refuses(
        "set-not-nested-missing",
        "Seeds are asked for of a client that is not a survivor: those it gave to nobody.",
        "seed request",
        GONE.seed_request([2, 3]),
        not_nested,
        base="recovery-semi-honest",
        client=1,
    )
    yield client_refuses(
        "set-not-nested-missing-own",
        "Our own seeds are asked for.",
        "seed request",
        SEEDS.seed_request([0]),
        not_nested,
        base="recovery",
    )


def client_shares() -> Iterator[Made]:
    """What is delivered, and how long lists are."""
    at = "delivered 0"
    first, second = ACTIVE.sealed(1, 0), ACTIVE.sealed(2, 0)
    elsewhere = replace(ACTIVE, forged={2: ACTIVE.entry(2, masking=bytes(31) + b"\7")})
    everybody = [0, 1, 2]
    for name, description, items in (
        ("changed", "One bit of client 1's sealed share is flipped.", [flip(first), second]),
        ("swapped", "The sealed shares of clients 1 and 2 are swapped.", [second, first]),
        (
            "recipient",
            "Client 1's sealed share for client 2.",
            [ACTIVE.sealed(1, 2), second],
        ),
        (
            "roster",
            "Client 1 sealed for a roster with another key of client 2.",
            [elsewhere.sealed(1, 0), second],
        ),
    ):
        yield client_refuses(
            f"bad-seal-{name}",
            description,
            at,
            ACTIVE.delivered(0, everybody, b"".join(items)),
            remote(1, "BAD_SEAL"),
        )
    lie = BAD_ELEMENT + ACTIVE.share(2, 0)[4:]
    yield client_refuses(
        "bad-share",
        "Client 2 deals the element 2^31 - 1.",
        at,
        ACTIVE.delivered(0, everybody, first + ACTIVE.sealed(2, 0, lie)),
        remote(2, "BAD_SHARE"),
    )
    yield from client_lengths()


def client_lengths() -> Iterator[Made]:
    """Bitmaps and lists of a wrong length."""
    bad_length = remote(SERVER, "BAD_LENGTH")
    members = bitmap([0, 1, 2], 3)
    entries = ACTIVE.entries[1] + ACTIVE.entries[2]
    shares = ACTIVE.sealed(1, 0) + ACTIVE.sealed(2, 0)
    signatures = ACTIVE.confirms(0) + ACTIVE.confirms(1)
    long, padded = members + b"\0", bytes([members[0] | 8])
    for name, description, at, data in (
        ("roster-set", "longer than", "roster 0", ACTIVE.roster(0, members=long)),
        ("roster-padding", "padded with a one in", "roster 0", ACTIVE.roster(0, members=padded)),
        ("participants", "longer than", "delivered 0", ACTIVE.message(4, long, shares)),
        ("survivors", "longer than", "survivor set", ACTIVE.message(6, long)),
        ("survivors-padding", "padded with a one in", "survivor set", ACTIVE.message(6, padded)),
        (
            "confirmers-padding",
            "padded with a one in",
            "confirmations 0",
            ACTIVE.message(8, bytes([0b1011]), signatures),
        ),
    ):
        yield client_refuses(
            f"bad-length-{name}",
            f"The bitmap is {description} that of three.",
            at,
            data,
            bad_length,
        )
    for name, description, changed in (
        ("entries", "One byte of the entries is missing.", entries[:-1]),
        ("entries-more", "An entry too many.", entries + bytes(144)),
    ):
        yield client_refuses(
            f"bad-length-{name}",
            description,
            "roster 0",
            ACTIVE.roster(0, entries=changed),
            bad_length,
        )
    yield client_refuses(
        "bad-length-sealed",
        "Only one of two sealed shares.",
        "delivered 0",
        ACTIVE.message(4, members, shares[:88]),
        bad_length,
    )
    yield client_refuses(
        "bad-length-signatures",
        "Two signers, one signature.",
        "confirmations 0",
        ACTIVE.message(8, bitmap([0, 1], 3), signatures[:64]),
        bad_length,
    )
    yield client_refuses(
        "bad-length-missing",
        "A one in the padding of the missing set.",
        "seed request",
        SEEDS.message(10, bytes([0b1100])),
        bad_length,
        base="recovery",
    )


def client_confirmations() -> Iterator[Made]:
    """The consistency round, and the end."""
    at = "confirmations 0"
    yield client_refuses(
        "bad-signature-split-view",
        "Client 1 signed the set {0, 1}, we signed {0, 1, 2}.",
        at,
        ACTIVE.confirmation_set([0, 1], [ACTIVE.confirms(0), ACTIVE.confirms(1, [0, 1])]),
        remote(1, "BAD_SIGNATURE"),
    )
    yield client_refuses(
        "bad-signature-other-roster",
        "Client 1 signed the set for another roster.",
        at,
        ACTIVE.confirmation_set(
            [0, 1],
            [
                ACTIVE.confirms(0),
                sign(ACTIVE.identities[1], "sign survivors", bytes(32), bitmap([0, 1, 2], 3)),
            ],
        ),
        remote(1, "BAD_SIGNATURE"),
    )
    yield client_refuses(
        "missing-signatures",
        "One signature where t = 2 are needed.",
        at,
        ACTIVE.confirmation_set([1]),
        remote(SERVER, "MISSING_SIGNATURES"),
    )
    over: Error = {"type": "SessionAbortedError"}
    yield (
        "client-session-over",
        refusal(
            "The survivor set again after the round: the session is over.",
            "active",
            ACTIVE,
            0,
            len(list(ACTIVE.events())),
            op="client_receive",
            client=0,
            data=ACTIVE.survivor_set([0, 1]),
            error=over,
        ),
    )


GROUPS: Sequence[Callable[[], Iterator[Made]]] = (
    client_framing,
    client_roster,
    client_sets,
    client_shares,
    client_confirmations,
)


def vectors() -> Iterator[Made]:
    """All files, by name."""
    for group in GROUPS:
        yield from group()
